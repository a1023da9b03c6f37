"""Reads the lines of a file, and collects its problems: one per kind, with its count and first lines."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from io import TextIOWrapper
from pathlib import Path

from nsys2prv_ng.runtime.files import open_input
from nsys2prv_ng.value_class import ValueClass

SHOWN_LINES = 5
"""Most lines that a problem names."""
_NOT_UTF8 = re.compile("[\udc80-\udcff]")


class Problem(ValueClass):
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


class _Kind(ValueClass):
    """A kind of problem: the message of its first occurrence, the number of occurrences, and the first lines."""

    message: str
    count: int = 0
    lines: list[int] = field(default_factory=list)


class Findings:
    """The problems and warnings of one file. Memory depends on the number of their kinds, not of occurrences.

    Only the first occurrence of a kind keeps its message. Without a kind, each message is a kind.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._problems: dict[str, _Kind] = {}
        self._warnings: dict[str, _Kind] = {}

    def add(self, line: int, message: str, kind: str = "") -> None:
        """Add an occurrence of a problem."""
        _count(self._problems, line, message, kind)

    def warn(self, line: int, message: str, kind: str = "") -> None:
        """Add an occurrence of a warning."""
        _count(self._warnings, line, message, kind)

    def list_problems(self) -> list[Problem]:
        """Return one problem per kind, in the order of first occurrence."""
        return _aggregate(self._file, self._problems)

    def list_warnings(self) -> list[Problem]:
        """Return one warning per kind, in the order of first occurrence."""
        return _aggregate(self._file, self._warnings)


def _count(kinds: dict[str, _Kind], line: int, message: str, kind: str) -> None:
    found = kinds.setdefault(kind or message, _Kind(message))
    found.count += 1
    if len(found.lines) < SHOWN_LINES and line not in found.lines:
        found.lines.append(line)


def _aggregate(file: Path, kinds: dict[str, _Kind]) -> list[Problem]:
    return [aggregate_problems(file, kind.message, kind.count, kind.lines) for kind in kinds.values()]


def read_lines(path: Path, findings: Findings, consequence: str) -> Iterator[tuple[int, str]]:
    """Yield the number and the text of each line of a file, without its end. Raises OSError if it cannot be read.

    Carriage returns are problems with a `consequence`. Bytes that are not UTF-8 are problems, and become U+FFFD.
    """
    with TextIOWrapper(open_input(path), encoding="utf-8", errors="surrogateescape", newline="\n") as lines:
        for number, raw in enumerate(lines, 1):
            line = raw.removesuffix("\n")
            if "\r" in line:
                findings.add(number, f"carriage return: {consequence}", "carriage return")
            if _NOT_UTF8.search(line):
                findings.add(number, "the line is not UTF-8", "encoding")
            yield number, _NOT_UTF8.sub("\ufffd", line).removesuffix("\r")
