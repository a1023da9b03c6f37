"""Ends the program: with one line for an error, and by an exception for a signal.

The program handles signals before it imports anything that takes long, so this module imports nothing that does.
"""

from __future__ import annotations

import signal
import sys
from contextlib import suppress
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def fail(message: str, code: int) -> int:
    """Print an error; return the exit code."""
    with suppress(OSError):  # stderr is closed
        print(f"nsys2prv-ng: error: {message}", file=sys.stderr)
    return code


class Terminated(BaseException):
    """Raised by a signal that ends the program."""

    def __init__(self, number: int) -> None:
        self.signal = number

    def fail(self) -> int:
        """Print how the program ends; return the exit code."""
        how = "interrupted" if self.signal == signal.SIGINT else "terminated"
        return fail(f"{how}; no unfinished file is left", 128 + self.signal)


received: list[Terminated] = []
"""The exception of the signal that ended the program. Compiled code and imports turn it into other errors."""


def handle_signals() -> None:
    """Raise Terminated on each signal that ends the program."""
    sys.unraisablehook = _raise_soon
    for signum in _SIGNALS:
        if signum != signal.SIGHUP or signal.getsignal(signum) != signal.SIG_IGN:  # nohup ignores it
            signal.signal(signum, _terminate)


def ignore_signals() -> None:
    """Ignore signals from now on."""
    for signum in _SIGNALS:
        signal.signal(signum, signal.SIG_IGN)
    signal.setitimer(signal.ITIMER_REAL, 0)


def _terminate(signum: int, frame: FrameType | None) -> None:
    """Raise an exception, so that temporary files are removed; no second signal disturbs that."""
    ignore_signals()
    received.append(Terminated(signum))
    raise received[-1]


def _raise_soon(unraisable: sys.UnraisableHookArgs) -> None:
    """Raise a signal's exception again soon: it cannot pass through a library that calls Python back, as LLVM does."""
    if isinstance(unraisable.exc_value, Terminated):
        signal.signal(signal.SIGALRM, _raise_again)
        signal.setitimer(signal.ITIMER_REAL, 0.01)
    else:
        sys.__unraisablehook__(unraisable)


def _raise_again(signum: int, frame: FrameType | None) -> None:
    raise received[-1]
