"""Strict reader of a .pcf: states, event types and the labels of their values.

Sections are known by their whole line. Paraver reads numbers as int32 and skips silently what it does not understand,
and an unknown section does not end the one before it; so everything that is not understood is a problem here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from nsys2prv_ng.paraver.read.problems import Findings

MAX_LABEL = 2000
"""Characters from which on labels are refused: Paraver's legend hangs on longer ones."""
MAX_COLOUR = 65535
"""Highest index of a colour: Paraver's palette grows until it holds the index."""
COUNTER_TYPES = range(42_000_000, 50_000_000)
"""Types which Paraver's cutter takes for hardware counters and sets to 0."""

_OPTIONS = ("LEVEL", "UNITS", "LOOK_BACK", "SPEED", "FLAG_ICONS", "NUM_OF_STATE_COLORS", "YMAX_SCALE")
_SEMANTIC = ("THREAD_FUNC",)
_IGNORED = ("GRADIENT_COLOR", "GRADIENT_NAMES")

_STATE = re.compile(r"(?P<number>-?\d+) +(?P<label>.+)", re.ASCII)
_COLOUR = re.compile(r"(?P<number>\d+) +\{ *(\d+) *, *(\d+) *, *(\d+) *\}", re.ASCII)
_TYPE = re.compile(r"(?P<gradient>\d+) +(?P<number>-?\d+)(?: +(?P<label>.+))?", re.ASCII)
_VALUE = re.compile(r"(?P<number>-?\d+) +(?P<label>.+)", re.ASCII)
_NOT_UTF8 = re.compile("[\udc80-\udcff]")
_PRECISION = re.compile(r"PRECISION +(\d{1,2})", re.ASCII)


@dataclass
class PcfEventType:
    """A declared type. `values` is None without VALUES; the types of one block share the same dictionary."""

    number: int
    label: str
    line: int
    precision: int = 0
    values: dict[int, str] | None = None


@dataclass
class ParaverConfig:
    """What a .pcf declares; the keys are the numbers in the trace."""

    states: dict[int, str] = field(default_factory=dict)
    colours: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    types: dict[int, PcfEventType] = field(default_factory=dict)


class PcfReader:
    """Reads one .pcf line by line; `config` is what it declares."""

    def __init__(self, problems: Findings, warnings: Findings) -> None:
        self.config = ParaverConfig()
        self._problems = problems
        self._warnings = warnings
        self._number = 0
        self._section = ""
        self._block: list[PcfEventType] = []
        self._values: dict[int, str] | None = None
        self._precision_seen = False
        self._state_lines: dict[int, int] = {}
        self._types_by_label: dict[str, int] = {}
        self._readers: dict[str, Callable[[str], None]] = {
            "": self._before_sections,
            "DEFAULT_OPTIONS": lambda line: self._option(line, _OPTIONS),
            "DEFAULT_SEMANTIC": lambda line: self._option(line, _SEMANTIC),
            "STATES": self._state,
            "STATES_COLOR": self._colour,
            "EVENT_TYPE": self._event_line,
            **dict.fromkeys(_IGNORED, lambda line: None),
        }

    def read(self, path: Path) -> ParaverConfig:
        """Raises OSError if the file cannot be read."""
        with path.open(encoding="utf-8", errors="surrogateescape", newline="\n") as lines:
            for self._number, raw in enumerate(lines, 1):
                self._line(raw.removesuffix("\n"))
        self._end_block()
        for state, line in self._state_lines.items():
            if state not in self.config.colours:
                self._problems.add("no colour", line, f"state {state} has no colour in STATES_COLOR")
        return self.config

    def _problem(self, kind: str, message: str) -> None:
        self._problems.add(kind, self._number, message)

    def _line(self, raw: str) -> None:
        if "\r" in raw:
            self._problem("carriage return", "carriage return: Paraver understands nothing of such a .pcf")
            raw = raw.removesuffix("\r")
        if _NOT_UTF8.search(raw):
            self._problem("encoding", "the line is not UTF-8")
            raw = _NOT_UTF8.sub("\ufffd", raw)
        line = raw.replace("\t", " ").strip(" ")
        if not line:
            if raw:
                self._problem("blanks", "the line holds nothing but blanks")
        elif line in self._readers:
            self._end_block()
            self._section = line
        elif not line.startswith("#"):
            self._readers[self._section](line)

    def _integer(self, digits: str, what: str) -> int | None:
        if len(digits) > 12 or not -(2**31) <= int(digits) < 2**31:
            self._problem("int32", f"{what} {digits[:40]} does not fit 32 bits: Paraver skips the line")
            return None
        return int(digits)

    def _not_understood(self, line: str, expected: str) -> None:
        if re.fullmatch(r"[A-Za-z][A-Za-z_]*", line):
            self._problem("section", f"'{line}' is not a section of a .pcf")
        else:
            self._problem(f"line of {self._section}", f"'{line[:40]}' is not {expected}")

    def _before_sections(self, line: str) -> None:
        self._not_understood(line, "in any section")

    def _option(self, line: str, known: tuple[str, ...]) -> None:
        key, _, value = line.partition(" ")
        if key not in known or not value:
            self._not_understood(line, f"an option of {self._section}")

    def _label(self, label: str, what: str) -> None:
        if len(label) >= MAX_LABEL:
            self._problem("long label", f"the label of {what} has {len(label)} characters, {MAX_LABEL} are too many")

    def _state(self, line: str) -> None:
        match = _STATE.fullmatch(line)
        if match is None:
            self._not_understood(line, "'state label'")
            return
        state = self._integer(match["number"], "state")
        if state is None:
            return
        if state < 0:
            self._problem("negative state", f"state {state} is negative")
        if state in self.config.states:
            self._problem("repeated state", f"state {state} is declared twice")
        self._label(match["label"], f"state {state}")
        self.config.states[state] = match["label"]
        self._state_lines.setdefault(state, self._number)

    def _colour(self, line: str) -> None:
        match = _COLOUR.fullmatch(line)
        if match is None:
            self._not_understood(line, "'state {red,green,blue}'")
            return
        index = self._integer(match["number"], "state")
        colour = tuple(int(part) if len(part) < 4 else 999 for part in match.groups()[1:])
        if index is None:
            return
        if index > MAX_COLOUR:
            self._problem(
                "large colour", f"colour of {index}: Paraver's palette would grow to hold it ({MAX_COLOUR} at most)"
            )
        if max(colour) > 255:
            self._problem("colour range", f"the colour of {index} has a part above 255")
        if index in self.config.colours:
            self._problem("repeated colour", f"{index} has two colours")
        self.config.colours[index] = (colour[0], colour[1], colour[2])

    def _event_line(self, line: str) -> None:
        if line == "VALUES":
            self._start_values()
        elif line.startswith("PRECISION"):
            self._precision(line)
        elif self._values is None:
            self._type(line)
        else:
            self._value(line)

    def _type(self, line: str) -> None:
        match = _TYPE.fullmatch(line)
        if match is None:
            self._not_understood(line, "'gradient type label', VALUES or PRECISION")
            return
        self._integer(match["gradient"], "gradient")
        number = self._integer(match["number"], "event type")
        if number is None:
            return
        if number < 1:
            self._problem("type range", f"event type {number} is not positive")
        if match["label"] is None:
            self._problem("no type label", f"event type {number} has no label: Paraver skips the line")
            return
        self._check_type_label(number, match["label"])
        if number in self.config.types:
            first = self.config.types[number].line
            self._problem("repeated type", f"event type {number} is declared on line {first} already")
        if self._precision_seen:
            self._problem("precision first", f"PRECISION must follow all types of its block; {number} comes after it")
        declared = PcfEventType(number, match["label"], self._number)
        self.config.types[number] = declared
        self._block.append(declared)

    def _check_type_label(self, number: int, label: str) -> None:
        self._label(label, f"event type {number}")
        other = self._types_by_label.setdefault(label, number)
        if other != number:
            self._problem("same label", f"event types {other} and {number} have the same label '{label[:80]}'")
        if "*" in label or '"' in label:
            message = f'the label of event type {number} holds * or ": presets cannot name it safely'
            self._warnings.add("label characters", self._number, message)

    def _start_values(self) -> None:
        if self._values is not None:
            self._problem("second VALUES", "a second VALUES in one block: each group of types needs its own EVENT_TYPE")
        elif not self._block:
            self._problem("VALUES without type", "VALUES without an event type before it")
        self._values = {} if self._values is None else self._values

    def _value(self, line: str) -> None:
        match = _VALUE.fullmatch(line)
        if match is None:
            self._not_understood(line, "'value label'")
            return
        value = self._integer(match["number"], "value")
        if value is None or self._values is None:
            return
        name = f"value {value} of event type {self._block[0].number if self._block else '?'}"
        if value in self._values:
            self._problem("repeated value", f"{name} is labelled twice")
        self._label(match["label"], name)
        self._values[value] = match["label"]

    def _precision(self, line: str) -> None:
        match = _PRECISION.fullmatch(line)
        if match is None:
            self._problem("precision", f"'{line[:40]}' is not 'PRECISION digits'")
            return
        if not self._block:
            self._problem("precision first", "PRECISION must follow all types of its block; there is none before it")
        self._precision_seen = True
        for declared in self._block:
            declared.precision = int(match[1])

    def _end_block(self) -> None:
        """Gives the types of the block their values, and starts afresh."""
        if self._section == "EVENT_TYPE" and not self._block:
            self._problem("empty block", "EVENT_TYPE block without an event type before this line")
        for declared in self._block:
            declared.values = self._values
            if self._values is not None and declared.number in COUNTER_TYPES:
                message = f"event type {declared.number} has VALUES, but Paraver's cutter takes it for a counter"
                self._warnings.add("counter type", declared.line, message)
        self._block, self._values, self._precision_seen = [], None, False


def read_pcf(path: Path, problems: Findings, warnings: Findings) -> ParaverConfig:
    """What the .pcf declares; whatever is wrong goes to `problems`. Raises OSError if it cannot be read."""
    return PcfReader(problems, warnings).read(path)
