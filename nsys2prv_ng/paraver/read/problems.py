"""Collects the problems that readers and checks find in a file: one per kind, with its count and first lines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

SHOWN_LINES = 5
"""Most lines that a problem names."""


@dataclass(frozen=True)
class Problem:
    """One kind of problem in one file. `line` is the first line with it, 0 if it concerns the whole file."""

    file: str
    line: int
    message: str
    count: int = 1

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.message}" if self.line else f"{self.file}: {self.message}"


def aggregate_problems(file: Path, message: str, count: int, lines: Sequence[int]) -> Problem:
    """Make one Problem of `count` occurrences. `message` describes the first; `lines` are the first lines, not
    empty."""
    if count > 1:
        rest = ", ..." if len(lines) == SHOWN_LINES < count else ""
        where = f": lines {', '.join(map(str, lines))}{rest}" if len(lines) > 1 else ""
        message = f"{message} ({count} times{where})"
    return Problem(str(file), lines[0], message, count)


def sort_by_line(problems: Iterable[Problem]) -> list[Problem]:
    """Return problems sorted by their first line."""
    return sorted(problems, key=lambda problem: problem.line)


class Findings:
    """The problems of one file. Memory depends on the number of kinds, not on the number of occurrences."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._message: dict[str, str] = {}
        self._count: dict[str, int] = {}
        self._lines: dict[str, list[int]] = {}

    def add(self, kind: str, line: int, message: str) -> None:
        """Add an occurrence; only the first one of a kind keeps its message."""
        self._message.setdefault(kind, message)
        self._count[kind] = self._count.get(kind, 0) + 1
        lines = self._lines.setdefault(kind, [])
        if len(lines) < SHOWN_LINES and line not in lines:
            lines.append(line)

    def list_problems(self) -> list[Problem]:
        """Return one problem per kind, in the order of first occurrence."""
        return [
            aggregate_problems(self.file, message, self._count[kind], self._lines[kind])
            for kind, message in self._message.items()
        ]
