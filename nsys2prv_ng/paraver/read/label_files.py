"""Reads the files of labels strictly: the .pcf (states, event types, values) and the .row (objects, level by level).

Paraver recognises a section by its whole line. It reads numbers as int32, silently skips what it does not understand,
and an unknown section does not end the section before it. So everything that is not understood is a problem here.

A .row has for each level a line `LEVEL <WORKLOAD|APPL|TASK|THREAD|SYSTEM|NODE|CPU> SIZE n`, and n lines, each a
name. Paraver never complains: if there are too few names it reads the next LEVEL line as a name, and it replaces empty
names by numbers.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import field
from pathlib import Path

from nsys2prv_ng.paraver.read.problems import Findings, read_lines
from nsys2prv_ng.paraver.value_tables import NOTHING_RECORDED
from nsys2prv_ng.value_class import ValueClass

MAX_LABEL = 2000
"""Labels with this many characters or more are a problem: Paraver's legend hangs on them."""
MAX_COLOUR = 65535
"""Highest index of a colour: Paraver's palette grows until it contains the index."""
COUNTER_TYPES = range(42_000_000, 50_000_000)
"""Types that Paraver's cutter treats as hardware counters and sets to 0."""

_OPTIONS = ("LEVEL", "UNITS", "LOOK_BACK", "SPEED", "FLAG_ICONS", "NUM_OF_STATE_COLORS", "YMAX_SCALE")
_SEMANTIC = ("THREAD_FUNC",)
_IGNORED = ("GRADIENT_COLOR", "GRADIENT_NAMES")

_LABELLED = re.compile(r"(?P<number>-?\d+) +(?P<label>.+)", re.ASCII)
_COLOUR = re.compile(r"(?P<number>\d+) +\{ *(\d+) *, *(\d+) *, *(\d+) *\}", re.ASCII)
_TYPE = re.compile(r"(?P<gradient>\d+) +(?P<number>-?\d+)(?: +(?P<label>.+))?", re.ASCII)
_PRECISION = re.compile(r"PRECISION +(\d{1,2})", re.ASCII)


class PcfEventType(ValueClass):
    """An event type as a .pcf declares it. (This package writes `paraver.event_type.EventType`.)

    line: the line that declares it. values: labels of values, None without VALUES; types of one block share a dict.
    """

    number: int
    label: str
    line: int
    precision: int = 0
    values: dict[int, str] | None = None

    @property
    def is_interval(self) -> bool:
        """Whether the value 0 has a label, and so ends an interval."""
        return self.values is not None and self.values.get(0) not in (None, NOTHING_RECORDED)


class ParaverConfig(ValueClass):
    """The declarations of a .pcf. The keys are the numbers in the trace."""

    states: dict[int, str] = field(default_factory=dict)
    colours: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    types: dict[int, PcfEventType] = field(default_factory=dict)


class _UnreadableLineError(Exception):
    """A line that Paraver skips, which is already a problem."""


class PcfReader:
    """Reader of one .pcf, line by line, into `config`."""

    def __init__(self, findings: Findings) -> None:
        self.config = ParaverConfig()
        self._findings = findings
        self._number = 0
        self._section = ""
        self._block: list[PcfEventType] = []
        self._values: dict[int, str] | None = None
        self._precision_seen = False
        self._state_lines: dict[int, int] = {}
        self._types_by_label: dict[str, int] = {}
        self._readers: dict[str, Callable[[str], None]] = {
            "": lambda line: self._add_unknown_line(line, "in any section"),
            "DEFAULT_OPTIONS": lambda line: self._read_option(line, _OPTIONS),
            "DEFAULT_SEMANTIC": lambda line: self._read_option(line, _SEMANTIC),
            "STATES": self._read_state,
            "STATES_COLOR": self._read_colour,
            "EVENT_TYPE": self._read_event_line,
            **dict.fromkeys(_IGNORED, lambda line: None),
        }

    def read(self, path: Path) -> ParaverConfig:
        """Read the file. Raises OSError if it cannot be read."""
        findings = self._findings
        for self._number, line in read_lines(path, findings, "Paraver understands nothing of such a .pcf"):
            self._read_line(line)
        self._end_block()
        for state, number in self._state_lines.items():
            if state not in self.config.colours:
                findings.add(number, f"state {state} has no colour in STATES_COLOR", "no colour")
        return self.config

    def _add_problem(self, kind: str, message: str) -> None:
        self._findings.add(self._number, message, kind)

    def _read_line(self, raw: str) -> None:
        line = raw.replace("\t", " ").strip(" ")
        if not line:
            if raw:
                self._add_problem("blanks", "the line holds nothing but blanks")
        elif line in self._readers:
            self._end_block()
            self._section = line
        elif not line.startswith("#"):
            with suppress(_UnreadableLineError):
                self._readers[self._section](line)

    def _match(self, pattern: re.Pattern[str], line: str, expected: str) -> re.Match[str]:
        match = pattern.fullmatch(line)
        if match is None:
            self._add_unknown_line(line, expected)
            raise _UnreadableLineError
        return match

    def _parse_integer(self, digits: str, what: str) -> int:
        if len(digits) > 12 or not -(2**31) <= int(digits) < 2**31:
            self._add_problem("int32", f"{what} {digits[:40]} does not fit 32 bits: Paraver skips the line")
            raise _UnreadableLineError
        return int(digits)

    def _add_unknown_line(self, line: str, expected: str) -> None:
        if re.fullmatch(r"[A-Za-z][A-Za-z_]*", line):
            self._add_problem("section", f"'{line}' is not a section of a .pcf")
        else:
            self._add_problem(f"line of {self._section}", f"'{line[:40]}' is not {expected}")

    def _read_option(self, line: str, known: tuple[str, ...]) -> None:
        key, _, value = line.partition(" ")
        if key not in known or not value:
            self._add_unknown_line(line, f"an option of {self._section}")

    def _check_label(self, label: str, what: str) -> None:
        if len(label) >= MAX_LABEL:
            message = f"the label of {what} has {len(label)} characters, {MAX_LABEL} are too many"
            self._add_problem("long label", message)

    def _read_state(self, line: str) -> None:
        match = self._match(_LABELLED, line, "'state label'")
        state = self._parse_integer(match["number"], "state")
        if state < 0:
            self._add_problem("negative state", f"state {state} is negative")
        if state in self.config.states:
            self._add_problem("repeated state", f"state {state} is declared twice")
        self._check_label(match["label"], f"state {state}")
        self.config.states[state] = match["label"]
        self._state_lines.setdefault(state, self._number)

    def _read_colour(self, line: str) -> None:
        match = self._match(_COLOUR, line, "'state {red,green,blue}'")
        index = self._parse_integer(match["number"], "state")
        colour = tuple(int(part) if len(part) < 4 else 999 for part in match.groups()[1:])
        if index > MAX_COLOUR:
            message = f"colour of {index}: Paraver's palette would grow to hold it ({MAX_COLOUR} at most)"
            self._add_problem("large colour", message)
        if max(colour) > 255:
            self._add_problem("colour range", f"the colour of {index} has a part above 255")
        if index in self.config.colours:
            self._add_problem("repeated colour", f"{index} has two colours")
        self.config.colours[index] = (colour[0], colour[1], colour[2])

    def _read_event_line(self, line: str) -> None:
        if line == "VALUES":
            self._start_values()
        elif line.startswith("PRECISION"):
            self._read_precision(line)
        elif self._values is None:
            self._read_type(line)
        else:
            self._read_value(line, self._values)

    def _read_type(self, line: str) -> None:
        match = self._match(_TYPE, line, "'gradient type label', VALUES or PRECISION")
        with suppress(_UnreadableLineError):
            self._parse_integer(match["gradient"], "gradient")
        number = self._parse_integer(match["number"], "event type")
        if number < 1:
            self._add_problem("type range", f"event type {number} is not positive")
        if match["label"] is None:
            self._add_problem("no type label", f"event type {number} has no label: Paraver skips the line")
            return
        self._check_type_label(number, match["label"])
        if number in self.config.types:
            first = self.config.types[number].line
            self._add_problem("repeated type", f"event type {number} is declared on line {first} already")
        if self._precision_seen:
            message = f"PRECISION must follow all types of its block; {number} comes after it"
            self._add_problem("precision first", message)
        declared = PcfEventType(number, match["label"], self._number)
        self.config.types[number] = declared
        self._block.append(declared)

    def _check_type_label(self, number: int, label: str) -> None:
        self._check_label(label, f"event type {number}")
        other = self._types_by_label.setdefault(label, number)
        if other != number:
            self._add_problem("same label", f"event types {other} and {number} have the same label '{label[:80]}'")
        if "*" in label or '"' in label:
            message = f'the label of event type {number} holds * or ": presets cannot name it safely'
            self._findings.warn(self._number, message, "label characters")

    def _start_values(self) -> None:
        if self._values is not None:
            message = "a second VALUES in one block: each group of types needs its own EVENT_TYPE"
            self._add_problem("second VALUES", message)
        elif not self._block:
            self._add_problem("VALUES without type", "VALUES without an event type before it")
        self._values = {} if self._values is None else self._values

    def _read_value(self, line: str, values: dict[int, str]) -> None:
        match = self._match(_LABELLED, line, "'value label'")
        value = self._parse_integer(match["number"], "value")
        name = f"value {value} of event type {self._block[0].number if self._block else '?'}"
        if value in values:
            self._add_problem("repeated value", f"{name} is labelled twice")
        self._check_label(match["label"], name)
        values[value] = match["label"]

    def _read_precision(self, line: str) -> None:
        match = _PRECISION.fullmatch(line)
        if match is None:
            self._add_problem("precision", f"'{line[:40]}' is not 'PRECISION digits'")
            return
        if not self._block:
            message = "PRECISION must follow all types of its block; there is none before it"
            self._add_problem("precision first", message)
        self._precision_seen = True
        for declared in self._block:
            declared.precision = int(match[1])

    def _end_block(self) -> None:
        """Give the types of the block their values, and start the next block."""
        if self._section == "EVENT_TYPE" and not self._block:
            self._add_problem("empty block", "EVENT_TYPE block without an event type before this line")
        for declared in self._block:
            declared.values = self._values
            if self._values is not None and declared.number in COUNTER_TYPES:
                message = f"event type {declared.number} has VALUES, but Paraver's cutter takes it for a counter"
                self._findings.warn(declared.line, message, "counter type")
        self._block, self._values, self._precision_seen = [], None, False


def read_pcf(path: Path, findings: Findings) -> ParaverConfig:
    """Read a .pcf. Errors go to `findings`. Raises OSError if the file cannot be read."""
    return PcfReader(findings).read(path)


LEVELS = ("WORKLOAD", "APPL", "TASK", "THREAD", "SYSTEM", "NODE", "CPU")

_LEVEL = re.compile(r"LEVEL (\S+) SIZE (\d{1,9})", re.ASCII)


class Level(ValueClass):
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
