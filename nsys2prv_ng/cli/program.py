"""Starts and ends the program: signals, streams, the line for an error and the exit code.

The program handles signals before it imports anything that takes long, so this module imports nothing that does.
"""

from __future__ import annotations

import gc
import io
import os
import signal
import sys
from contextlib import suppress

TYPE_CHECKING = False  # `typing` takes long
if TYPE_CHECKING:
    from types import FrameType
    from typing import NoReturn

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Terminated(BaseException):
    """Raised by a signal that ends the program."""

    def __init__(self, number: int) -> None:
        self.signal = number


_received: list[Terminated] = []
"""The exception of the signal that ended the program. Compiled code and imports turn it into other errors."""


def main() -> NoReturn:
    """Run the command line. Exit codes: 0 done, 1 the input or output is at fault, 2 usage; `compare` has 3."""
    code, message = 1, ""
    try:
        _handle_signals()
        _open_closed_streams()
        # Imports make 200,000 objects that stay: looking through them again and again takes a tenth of a second.
        gc.set_threshold(500_000)
        # Numpy's OpenBLAS would start a thread for each core. Nothing here needs them, and sums of real numbers, as in
        # the fit of the clocks, would depend on the number of cores.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        if sys.argv[1:2] in (["run-rank"], ["record"]):  # every rank of a job waits for it
            from nsys2prv_ng.cli.recording import run
        else:
            from nsys2prv_ng.cli.app import run  # imports all commands: half a second

        code, message = run(sys.argv[1:])
        _ignore_signals()  # the work is done: a signal from now on does not change the exit code
    except BaseException:
        if not _received:
            raise
    if _received and code != 0:
        number = _received[0].signal
        how = "interrupted" if number == signal.SIGINT else "terminated"
        code, message = 128 + number, f"{how}; no unfinished file is left"
    with suppress(OSError):  # stderr is closed
        if message:
            print(f"nsys2prv-ng: error: {message}", file=sys.stderr)
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    os._exit(code)  # everything is closed; to tear down pyarrow, numba and LLVM would take a third of a second


def _open_closed_streams() -> None:
    """Replace standard streams that the caller closed: Python has None for them, and files would get their numbers."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w"))  # noqa: SIM115, PTH123
    # Names in reports may have characters that the user's locale lacks.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _handle_signals() -> None:
    """Raise Terminated on each signal that ends the program."""
    sys.unraisablehook = _raise_soon
    for signum in _SIGNALS:
        if signum != signal.SIGHUP or signal.getsignal(signum) != signal.SIG_IGN:  # nohup ignores it
            signal.signal(signum, _terminate)


def _ignore_signals() -> None:
    """Ignore signals from now on."""
    for signum in _SIGNALS:
        signal.signal(signum, signal.SIG_IGN)
    signal.setitimer(signal.ITIMER_REAL, 0)


def _terminate(signum: int, frame: FrameType | None) -> None:
    """Raise an exception, so that temporary files are removed; no second signal disturbs that."""
    _ignore_signals()
    _received.append(Terminated(signum))
    raise _received[-1]


def _raise_soon(unraisable: sys.UnraisableHookArgs) -> None:
    """Raise a signal's exception again soon: it cannot pass through a library that calls Python back, as LLVM does."""
    if isinstance(unraisable.exc_value, Terminated):
        signal.signal(signal.SIGALRM, _raise_again)
        signal.setitimer(signal.ITIMER_REAL, 0.01)
    else:
        sys.__unraisablehook__(unraisable)


def _raise_again(signum: int, frame: FrameType | None) -> None:
    raise _received[-1]
