"""Starts and ends the program: signals, streams and the exit code."""

from __future__ import annotations

import gc
import io
import os
import sys
from contextlib import suppress

from nsys2prv_ng.cli import ending

TYPE_CHECKING = False  # what is imported before signals are handled delays that, as `typing` does
if TYPE_CHECKING:
    from typing import NoReturn


def main() -> NoReturn:
    """Run the command line. Exit codes: 0 done, 1 the input or output is at fault, 2 usage; `compare` has 3."""
    try:
        ending.handle_signals()
        _open_closed_streams()
        # Imports make 200,000 objects that stay: looking through them again and again takes a tenth of a second.
        gc.set_threshold(500_000)
        from nsys2prv_ng.cli.run import run  # imports all commands: a tenth of a second

        code = run(sys.argv[1:])
        ending.ignore_signals()  # the work is done: a signal from now on does not change the exit code
    except BaseException:
        if not ending.received:
            raise
        code = ending.received[0].fail()
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
