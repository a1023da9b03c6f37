"""What a user sees while a translation runs: bars on a terminal, plain lines in a log, nothing if quiet."""

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
    """Nothing is shown: the base of those that show something."""

    @contextmanager
    def step(self, title: str, total: int, unit: str) -> Iterator[Step]:
        """A piece of work of `total` units; `update` tells how many more are done."""
        yield _NoStep()

    def note(self, message: str) -> None:
        """Why it takes longer than usual; may come in the middle of a step."""

    def warn(self, message: str) -> None:
        """Something that the user should know and that does not end the translation."""


class LogProgress(Progress):
    """A line for each piece of work, on stderr."""

    @contextmanager
    def step(self, title: str, total: int, unit: str) -> Iterator[Step]:
        print(title, file=sys.stderr, flush=True)
        yield _NoStep()

    def note(self, message: str) -> None:
        print(message, file=sys.stderr, flush=True)

    def warn(self, message: str) -> None:
        print(f"warning: {escape_unprintable(message)}", file=sys.stderr, flush=True)


class BarProgress(LogProgress):
    """A tqdm bar for each piece of work."""

    @contextmanager
    def step(self, title: str, total: int, unit: str) -> Iterator[Step]:
        from tqdm import tqdm

        with tqdm(total=total, desc=title, unit=unit, unit_scale=total > 9999, leave=False, file=sys.stderr) as bar:
            yield bar

    def note(self, message: str) -> None:
        from tqdm import tqdm

        tqdm.write(message, file=sys.stderr)  # above the bar


class QuietProgress(Progress):
    """Warnings only."""

    def warn(self, message: str) -> None:
        print(f"warning: {escape_unprintable(message)}", file=sys.stderr, flush=True)


def choose_progress(*, quiet: bool) -> Progress:
    """What fits the terminal or log that stderr is."""
    if quiet:
        return QuietProgress()
    return BarProgress() if sys.stderr.isatty() else LogProgress()
