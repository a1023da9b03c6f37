"""What a check of a trace found: one entry for each kind of problem, with its count and its first lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

SHOWN_LINES = 5
"""How many line numbers a problem names."""


@dataclass(frozen=True)
class Problem:
    """One kind of problem of one file. `line` is the first line it was seen on, 0 if it is the whole file."""

    file: str
    line: int
    message: str
    count: int = 1

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.message}" if self.line else f"{self.file}: {self.message}"


def aggregate_problems(file: Path, message: str, count: int, lines: Sequence[int]) -> Problem:
    """One Problem out of `count` occurrences: `message` tells the first, `lines` holds the first lines (not empty)."""
    if count > 1:
        rest = ", ..." if len(lines) == SHOWN_LINES < count else ""
        where = f": lines {', '.join(map(str, lines))}{rest}" if len(lines) > 1 else ""
        message = f"{message} ({count} times{where})"
    return Problem(str(file), lines[0], message, count)


class Findings:
    """Collects problems of one file. Memory is bounded by the number of kinds, not by that of the occurrences."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._message: dict[str, str] = {}
        self._count: dict[str, int] = {}
        self._lines: dict[str, list[int]] = {}

    def add(self, kind: str, line: int, message: str) -> None:
        """Notes one occurrence; only the first of a kind keeps its message."""
        self._message.setdefault(kind, message)
        self._count[kind] = self._count.get(kind, 0) + 1
        lines = self._lines.setdefault(kind, [])
        if len(lines) < SHOWN_LINES and line not in lines:
            lines.append(line)

    def list_problems(self) -> list[Problem]:
        """One entry for each kind, in the order in which the kinds were met."""
        return [
            aggregate_problems(self.file, message, self._count[kind], self._lines[kind])
            for kind, message in self._message.items()
        ]
