"""Starts and ends the program: streams, signals, errors and exit codes."""

from __future__ import annotations

import gc
import io
import os
import signal
import sys
import traceback
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import typer.main

from nsys2prv_ng.cli.app import app
from nsys2prv_ng.cli.options import spell
from nsys2prv_ng.cli.words import put_command_first
from nsys2prv_ng.errors import TranslationError, UsageError
from nsys2prv_ng.runtime.limits import keep_freed_memory

_COMMANDS: Mapping[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]


def main() -> NoReturn:
    """Run the command line. Exit codes: 0 done, 1 the input or output is at fault, 2 usage; `compare` has 3."""
    _open_closed_streams()
    # Numpy's OpenBLAS would start a thread for each core. Nothing here is worth that, and sums of real numbers, as in
    # the fit of the clocks, would depend on the number of cores.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Imports make 200,000 objects that stay: looking through them again and again takes a tenth of a second.
    gc.set_threshold(500_000)
    keep_freed_memory()
    try:
        arguments = put_command_first(sys.argv[1:], _COMMANDS)
    except UsageError as error:
        sys.exit(_fail(str(error), error.exit_code))
    for signum in _SIGNALS:
        if signum != signal.SIGHUP or signal.getsignal(signum) != signal.SIG_IGN:  # nohup ignores it
            signal.signal(signum, _terminate)
    sys.unraisablehook = _unraisable
    try:
        code = _run(arguments)
        _ignore_signals()  # the work is done: a signal from now on does not change the exit code
    except _Terminated as error:
        code = error.fail()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    os._exit(code)  # everything is closed; taking pandas, numba and LLVM apart would take a third of a second


def _open_closed_streams() -> None:
    """Replace standard streams that the caller closed: Python has None for them, our files would get their numbers."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w"))  # noqa: SIM115, PTH123
    # Names in reports may have characters that the user's locale lacks.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _run(arguments: list[str]) -> int:
    try:
        result = app(arguments, prog_name="nsys2prv-ng", standalone_mode=False)
        sys.stdout.flush()
    except TranslationError as error:
        return _fail(spell(error, arguments), error.exit_code)
    except _Terminated as error:
        return error.fail()
    except BrokenPipeError:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123 (the reader of the output is gone)
        return 1
    except OSError as error:  # only the output of the program itself: all other files have errors of their own
        return _fail(f"{error.filename or 'standard output'}: {error.strerror or error}", 1)
    except MemoryError:
        return _fail("out of memory; translate fewer reports at once, or select fewer sources (see --sources)", 1)
    except Exception as error:
        if _received:  # compiled code and imports turn the exception of a signal into errors of their own
            return _received[0].fail()
        if type(error).__name__ == "NoArgsIsHelpError":
            print(error.format_message(), file=sys.stderr)  # type: ignore[attr-defined]
            return 2
        if hasattr(error, "format_message"):  # typer's and click's errors of usage
            command = arguments[0] + " " if arguments and arguments[0] in _COMMANDS else ""
            return _fail(f"{error.format_message()} (see nsys2prv-ng {command}--help)", 2)
        if os.environ.get("NSYS2PRV_NG_TRACEBACK"):
            traceback.print_exc()
        where = traceback.extract_tb(error.__traceback__)[-1]
        what = f"{type(error).__name__}: {error}".splitlines()[0]
        return _fail(
            f"internal error, please report it: {what} (at {Path(where.filename).name}:{where.lineno};"
            " NSYS2PRV_NG_TRACEBACK=1 shows more)",
            1,
        )
    return result if isinstance(result, int) else 0


def _fail(message: str, code: int) -> int:
    with suppress(OSError):  # stderr is gone
        print(f"nsys2prv-ng: error: {message}", file=sys.stderr)
    return code


_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class _Terminated(BaseException):
    """Raised by a signal that ends the program."""

    def __init__(self, number: int) -> None:
        self.signal = number

    def fail(self) -> int:
        how = "interrupted" if self.signal == signal.SIGINT else "terminated"
        return _fail(f"{how}; no unfinished trace is left", 128 + self.signal)


_received: list[_Terminated] = []


def _ignore_signals() -> None:
    for signum in _SIGNALS:
        signal.signal(signum, signal.SIG_IGN)
    signal.setitimer(signal.ITIMER_REAL, 0)


def _terminate(signum: int, frame: FrameType | None) -> None:
    """Raise an exception, so that temporary files are removed; no second signal disturbs that."""
    _ignore_signals()
    _received.append(_Terminated(signum))
    raise _received[-1]


def _unraisable(unraisable: sys.UnraisableHookArgs) -> None:
    """Raise a signal's exception again soon: nothing can be raised through a library that calls back, as LLVM does."""
    if isinstance(unraisable.exc_value, _Terminated):
        signal.signal(signal.SIGALRM, _raise_again)
        signal.setitimer(signal.ITIMER_REAL, 0.01)
    else:
        sys.__unraisablehook__(unraisable)


def _raise_again(signum: int, frame: FrameType | None) -> None:
    raise _received[-1]
