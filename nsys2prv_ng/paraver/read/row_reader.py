"""Reads a .row strictly: the names of the objects, level by level.

    LEVEL <WORKLOAD|APPL|TASK|THREAD|SYSTEM|NODE|CPU> SIZE n
    n lines, each a name

Paraver never complains: if there are too few names it reads the next LEVEL line as a name, and it replaces empty names
by numbers.
"""

from __future__ import annotations

import re
from dataclasses import field
from pathlib import Path

from nsys2prv_ng.light_dataclass import dataclass
from nsys2prv_ng.paraver.read.problems import Findings, read_lines

LEVELS = ("WORKLOAD", "APPL", "TASK", "THREAD", "SYSTEM", "NODE", "CPU")

_LEVEL = re.compile(r"LEVEL (\S+) SIZE (\d{1,9})", re.ASCII)


@dataclass
class Level:
    """A section of a .row: its SIZE, the line that declares it, and its names."""

    size: int
    line: int
    names: list[str] = field(default_factory=list)


def read_row(path: Path, findings: Findings) -> dict[str, Level]:
    """Read the levels of a .row, with names in the order of the objects. Errors go to `findings`.

    Raises OSError if the file cannot be read.
    """
    levels: dict[str, Level] = {}
    name, level = "", Level(0, 0)
    for number, line in read_lines(path, findings, "lines must end with a line feed alone"):
        match = _LEVEL.fullmatch(line)
        if match is not None:
            _check_size(name, level, findings)
            name, level = match[1], Level(int(match[2]), number)
            if name not in LEVELS:
                findings.add(number, f"'{name[:40]}' is not a level ({', '.join(LEVELS)})", "level")
            elif name in levels:
                findings.add(number, f"level {name} appears twice: its names are appended", "repeated")
            levels.setdefault(name, level)
        elif len(level.names) < level.size:
            if not line.strip():
                findings.add(number, f"name {len(level.names) + 1} of level {name} is empty", "empty name")
            level.names.append(line)
        elif line.strip():
            findings.add(number, f"'{line[:40]}' is neither a 'LEVEL name SIZE n' line nor one of its names", "stray")
    _check_size(name, level, findings)
    return levels


def _check_size(name: str, level: Level, findings: Findings) -> None:
    if len(level.names) < level.size:
        message = f"level {name} has SIZE {level.size} and only {len(level.names)} names"
        findings.add(level.line, message, "size")
