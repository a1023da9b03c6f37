"""Shows progress on stderr: bars on a terminal, plain lines in a log, only warnings if quiet."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from nsys2prv_ng.errors import escape_unprintable


class Step(Protocol):
    """A running piece of work."""

    def update(self, done: int) -> object: ...


class _NoStep:
    def update(self, done: int) -> None:
        pass


class Progress:
    """Progress that shows nothing; the base of the classes that show it."""

    @contextmanager
    def step(self, title: str, total: int, unit: str, *, logged: bool = True) -> Iterator[Step]:
        """Start a piece of work with `total` units; `update` takes the number of units done since its last call.

        `logged`: whether a log has a line for it.
        """
        yield _NoStep()

    def note(self, message: str) -> None:
        """Show why something takes longer than usual, even in the middle of a step."""

    def warn(self, message: str) -> None:
        """Show what the user should know but what does not stop the work."""


class QuietProgress(Progress):
    """Progress that prints only warnings."""

    def warn(self, message: str) -> None:
        print(f"warning: {escape_unprintable(message)}", file=sys.stderr, flush=True)


class LogProgress(QuietProgress):
    """Progress that prints a line for each piece of work."""

    @contextmanager
    def step(self, title: str, total: int, unit: str, *, logged: bool = True) -> Iterator[Step]:
        if logged:
            print(escape_unprintable(title), file=sys.stderr, flush=True)
        yield _NoStep()

    def note(self, message: str) -> None:
        print(escape_unprintable(message), file=sys.stderr, flush=True)


class BarProgress(LogProgress):
    """Progress that draws a tqdm bar for each piece of work."""

    @contextmanager
    def step(self, title: str, total: int, unit: str, *, logged: bool = True) -> Iterator[Step]:
        from tqdm import tqdm

        # Without the rate: reports and sources take very different times.
        form = "{desc}: {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}]"
        with tqdm(
            total=total,
            desc=escape_unprintable(title),
            bar_format=form,
            unit_scale=total > 9999,
            leave=False,
            file=sys.stderr,
        ) as bar:
            yield bar

    def note(self, message: str) -> None:
        from tqdm import tqdm

        tqdm.write(escape_unprintable(message), file=sys.stderr)  # above the bar


def choose_progress(*, quiet: bool) -> Progress:
    """Return the kind of progress that fits stderr, which is a terminal or a log."""
    if quiet:
        return QuietProgress()
    return BarProgress() if sys.stderr.isatty() else LogProgress()
