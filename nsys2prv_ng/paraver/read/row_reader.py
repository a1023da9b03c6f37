"""Reads a .row strictly: the names of the objects, level by level.

    LEVEL <WORKLOAD|APPL|TASK|THREAD|SYSTEM|NODE|CPU> SIZE n
    n lines, each a name

Paraver never complains: if there are too few names it reads the next LEVEL line as a name, and it replaces empty names
by numbers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from nsys2prv_ng.paraver.read.problems import Findings

LEVELS = ("WORKLOAD", "APPL", "TASK", "THREAD", "SYSTEM", "NODE", "CPU")

_LEVEL = re.compile(r"LEVEL (\S+) SIZE (\d{1,9})", re.ASCII)
_NOT_UTF8 = re.compile("[\udc80-\udcff]")


@dataclass
class Level:
    """A section of a .row: its SIZE, the line that declares it, and its names."""

    size: int
    line: int
    names: list[str] = field(default_factory=list)


def read_row(path: Path, problems: Findings) -> dict[str, Level]:
    """Read the levels of a .row, with names in the order of the objects. Errors go to `problems`.

    Raises OSError if the file cannot be read.
    """
    levels: dict[str, Level] = {}
    name, level = "", Level(0, 0)
    with path.open(encoding="utf-8", errors="surrogateescape", newline="\n") as lines:
        for number, raw in enumerate(lines, 1):
            line = _clean(raw, number, problems)
            match = _LEVEL.fullmatch(line)
            if match is not None:
                _check_size(name, level, problems)
                name, level = match[1], Level(int(match[2]), number)
                if name not in LEVELS:
                    problems.add("level", number, f"'{name[:40]}' is not a level ({', '.join(LEVELS)})")
                elif name in levels:
                    problems.add("repeated", number, f"level {name} appears twice: its names are appended")
                levels.setdefault(name, level)
            elif len(level.names) < level.size:
                if not line.strip():
                    problems.add("empty name", number, f"name {len(level.names) + 1} of level {name} is empty")
                level.names.append(line)
            elif line.strip():
                problems.add(
                    "stray", number, f"'{line[:40]}' is neither a 'LEVEL name SIZE n' line nor one of its names"
                )
    _check_size(name, level, problems)
    return levels


def _clean(raw: str, number: int, problems: Findings) -> str:
    line = raw.removesuffix("\n")
    if "\r" in line:
        problems.add("carriage return", number, "carriage return: lines must end with a line feed alone")
    if _NOT_UTF8.search(line):
        problems.add("encoding", number, "the line is not UTF-8")
        line = _NOT_UTF8.sub("\ufffd", line)
    return line.removesuffix("\r")


def _check_size(name: str, level: Level, problems: Findings) -> None:
    if len(level.names) < level.size:
        message = f"level {name} has SIZE {level.size} and only {len(level.names)} names"
        problems.add("size", level.line, message)
