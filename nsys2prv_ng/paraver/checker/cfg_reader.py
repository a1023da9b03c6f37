"""Reads the windows and histograms of a Paraver .cfg line by line, strictly, and collects the problems of its lines.

    #ParaverCFG
    ConfigFile.Version: 3.4
    ConfigFile.NumWindows: 1
    ConfigFile.BeginDescription
    ...
    ConfigFile.EndDescription
    window_name NAME
    window_type single|composed
    key value, one a line, for the last window or histogram that has started
    < NEW ANALYZER2D >
    Analyzer2D.KEY: value

Paraver does not skip the description: a line in it that starts with a key counts. It ignores unknown keys. The number
of a window is its position in the file.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import field
from pathlib import Path

from nsys2prv_ng.paraver.checker import cfg_lists
from nsys2prv_ng.paraver.checker import cfg_names as words
from nsys2prv_ng.paraver.read.problems import Findings, read_lines
from nsys2prv_ng.value_class import ValueClass

REFUSES = "Paraver refuses the cfg"
DROPS = "Paraver drops the histogram and shows its window"

_MAGIC = "#ParaverCFG"
_VERSION = ("ConfigFile.Version:", "version")
_NUM_WINDOWS = ("ConfigFile.NumWindows:", "number_of_windows")
_BEGIN = ("ConfigFile.BeginDescription", "begin_description")
_END = ("ConfigFile.EndDescription", "end_description")
_TO_THE_END = frozenset((
    "window_name", "window_type", "window_factors", "window_shifts", "window_identifiers", "window_operation",
    "window_gradient_function", "Analyzer2D.Name:", "Analyzer2D.Statistic:", "Analyzer2D.UseFixedDelta:",
    "Analyzer2D.AnalysisLimits:", "Analyzer2D.SortCriteria:", "Analyzer2D.Objects:", "Analyzer2D.DrawModeObjects:",
    "Analyzer2D.DrawModeColumns:",
))  # fmt: skip
"""Keys whose values include the blanks at the end of the line; for other keys these blanks do not count."""


class Entry(ValueClass):
    """A line `key value` of a window or histogram."""

    key: str
    value: str
    line: int


class Section(ValueClass):
    """A window or a histogram: its first line, and the lines that belong to it."""

    line: int
    entries: list[Entry] = field(default_factory=list)

    def get_entry(self, key: str) -> Entry | None:
        """Return the last line with a key, because that line counts."""
        return next((entry for entry in reversed(self.entries) if entry.key == key), None)

    def get_value(self, key: str, default: str = "") -> str:
        """Return the value of the last line with a key."""
        entry = self.get_entry(key)
        return default if entry is None else entry.value

    def get_number(self, key: str, default: float) -> float:
        """Return the value as a number; the default if it is not a number, which is already a problem."""
        value = self.get_value(key)
        return float(value) if words.is_number(value) else default


def parse_whole(digits: str) -> int:
    """Return the number of a window or row; 10^18, which is above all numbers, if it has 19 digits or more."""
    return int(digits) if len(digits) < 19 else 10**18


class CfgWindow(Section):
    """A window. `number` is its position in the file, from 1, by which others refer to it.

    functions and composes: in the order in which they apply; the last one of a level counts. numbers and labels: by
    filter (evt_type, ...). parents: numbers of the windows from which a derived window is made. Values that cannot be
    read are missing.
    """

    number: int = 0
    name: str = ""
    derived: bool = False
    functions: list[cfg_lists.Function] = field(default_factory=list)
    composes: list[cfg_lists.Function] = field(default_factory=list)
    parameters: list[cfg_lists.Parameters] = field(default_factory=list)
    numbers: dict[str, list[float]] = field(default_factory=dict)
    labels: dict[str, list[str]] = field(default_factory=dict)
    selections: list[cfg_lists.Selection] = field(default_factory=list)

    @property
    def level(self) -> str:
        """The level in the file. Paraver does not show a derived window at a finer level than its parents."""
        level = self.get_value("window_level", "thread")
        return words.ALIASES["ptask"] if level == "ptask" else level

    @property
    def parents(self) -> tuple[int, ...]:
        value = self.get_value("window_identifiers") if self.derived else ""
        return tuple(map(parse_whole, value.split(" "))) if re.fullmatch(r"[0-9]+ [0-9]+", value) else ()

    def get_function(self, level: str) -> str:
        """Return the last choice of a function for a level, a compose level or a filter, or the default."""
        chosen = [function.name for function in self.functions + self.composes if function.level == level]
        return chosen[-1] if chosen else words.DEFAULT_FUNCTION.get(level, "All")


class CfgFile(ValueClass):
    """The content of a .cfg. The entries of windows and histograms keep the order of the file."""

    windows: list[CfgWindow] = field(default_factory=list)
    histograms: list[Section] = field(default_factory=list)
    description: str = ""
    effective_levels: list[str] = field(default_factory=list)
    """The level at which Paraver shows each window, as far as it has been computed."""


class CfgReader:
    """Reader of the lines of one .cfg into `cfg`."""

    def __init__(self, findings: Findings) -> None:
        self.cfg = CfgFile()
        self._findings = findings
        self._line = 0
        self._window_name: tuple[str, int] | None = None
        self._in_histogram = False
        self._headers: dict[str, tuple[str, int]] = {}

    def read(self, path: Path) -> CfgFile:
        """Read the file. Raises OSError if it cannot be read."""
        consequence = "Paraver does not find the description of such a cfg"
        lines = [line for _, line in read_lines(path, self._findings, consequence, warns=True)]
        first, last = self._find_description(lines)
        for self._line, line in enumerate(lines, 1):
            if first < self._line < last:
                self._check_description_line(line)
            elif self._line not in (first, last):
                self._read_line(line)
        self._check_header(bool(first))
        return self.cfg

    def _note_problem(self, message: str, kind: str = "") -> None:
        self._findings.add(self._line, message, kind)

    def _note_warning(self, message: str) -> None:
        self._findings.warn(self._line, message)

    def _find_description(self, lines: list[str]) -> tuple[int, int]:
        """Return the first and the last line of the description; 0 and 0 if there is none."""
        first = next((number for number, line in enumerate(lines, 1) if line in _BEGIN), 0)
        last = next((number for number, line in enumerate(lines, 1) if number > first and line in _END), 0)
        if first and not last:
            self._findings.add(first, f"the description has no end ({_END[0]}): Paraver shows none")
        if not first or not last:
            return first, first
        self.cfg.description = "\n".join(lines[first : last - 1]).strip("\n")
        if not self.cfg.description:
            self._findings.warn(first, "the description is empty")
        return first, last

    def _check_description_line(self, line: str) -> None:
        key = line if line.startswith("<") else line.partition(" ")[0]
        if (
            key in words.WINDOW_KEYS
            or key in words.HISTOGRAM_KEYS
            or key in words.ALIAS_KEYS
            or key in (words.HISTOGRAM_MARK, "CFG4D_ENABLED")
        ):
            self._note_problem(f"a line of the description starts with '{key}': Paraver reads it as the key")

    def _read_line(self, line: str) -> None:
        key, _, value = line.partition(" ")
        if line.startswith("#"):
            if key == _MAGIC:
                self._headers.setdefault(key, ("", self._line))
        elif line.startswith("<"):
            self._read_mark(line)
        elif key in (*_VERSION, *_NUM_WINDOWS):
            if key in self._headers:
                self._note_problem(f"{key} is given twice")
            self._headers[key] = (value.strip(), self._line)
        elif key in words.WINDOW_KEYS:
            self._read_window_line(key, value)
        elif key in words.HISTOGRAM_KEYS:
            self._read_histogram_line(key, value)
        elif key in words.ALIAS_KEYS:
            self._read_alias_line(key, value)
        elif line and line != "CFG4D_ENABLED":
            self._check_unknown(line, key)

    def _check_unknown(self, line: str, key: str) -> None:
        if not line.strip():
            return
        if line[0] in " \t":
            self._note_problem("the line starts with a blank: Paraver ignores it")
        elif key in (*_BEGIN, *_END):
            message = f"'{key}' without its other half, or a second one"
            self._note_problem(f"{message}: Paraver takes the first description only")
        else:
            self._note_warning(f"'{key[:40]}' is not a key of Paraver, which ignores the line")

    def _read_mark(self, line: str) -> None:
        if line == words.HISTOGRAM_MARK:
            if not self.cfg.windows:
                self._note_problem("a histogram before the first window: Paraver crashes")
            self.cfg.histograms.append(Section(self._line))
            self._in_histogram = True
        elif not words.WINDOW_MARK.fullmatch(line):
            self._note_problem(f"'{line[:40]}' is not '{words.HISTOGRAM_MARK}': Paraver ignores the line")

    def _read_window_line(self, key: str, value: str) -> None:
        if key == "window_name":
            self._start_window(value)
        elif key == "window_type":
            self._add_window(value)
        elif self._in_histogram:
            message = f"'{key}' belongs to a window, but a histogram has begun: Paraver changes the last window"
            self._note_problem(message, "window key in a histogram")
        elif self._window_name is not None and key != "window_id":
            message = f"'{key}' comes before window_type: Paraver gives it to the window before"
            self._note_problem(message, "before type")
        elif self._window_name is None and not self.cfg.windows:
            self._note_problem(f"'{key}' comes before the first window: Paraver ignores it", "before window")
        elif self._window_name is None:
            self._read_window_entry(self.cfg.windows[-1], key, value)

    def _start_window(self, name: str) -> None:
        if self.cfg.histograms:
            self._note_problem("a window after a histogram: Paraver does not read the event types of its filter")
        if self._window_name is not None:
            self._note_problem("a second window_name: no window_type followed the first")
        self._window_name = (name, self._line)
        self._in_histogram = False

    def _add_window(self, kind: str) -> None:
        name, line = self._window_name or ("", self._line)
        if self._window_name is None:
            self._note_problem("window_type without window_name in front: Paraver mixes the filters of two windows")
        self._window_name = None
        self._check_value("window_type", words.WINDOW_KEYS["window_type"], kind, REFUSES)
        number = len(self.cfg.windows) + 1
        self.cfg.windows.append(CfgWindow(line, number=number, name=name, derived=kind == "composed"))

    def _read_window_entry(self, window: CfgWindow, key: str, value: str) -> None:
        spec = words.WINDOW_KEYS[key]
        if not (spec.derived if window.derived else spec.single):
            self._note_warning(f"'{key}' in a {'derived' if window.derived else 'single'} window: Paraver ignores it")
            return
        self._add_entry(window, key, value, spec, REFUSES)
        try:
            self._read_list(window, key, window.entries[-1].value)
        except cfg_lists.CfgSyntaxError as error:
            self._note_problem(str(error))

    def _read_list(self, window: CfgWindow, key: str, value: str) -> None:
        if key == "window_selected_functions":
            window.functions += cfg_lists.parse_functions(value, self._line)
        elif key == "window_compose_functions":
            window.composes += cfg_lists.parse_functions(value, self._line, composes=True)
        elif key == "window_semantic_module":
            window.parameters.append(cfg_lists.parse_parameters(value, self._line))
        elif key == "window_object":
            window.selections.append(cfg_lists.parse_selection(value, self._line))
        elif key == "window_filter_module":
            self._read_filter(window, value)

    def _read_filter(self, window: CfgWindow, value: str) -> None:
        part = cfg_lists.parse_filter(value)
        if part.kind in (window.numbers if part.labels is None else window.labels):
            self._note_problem(f"{part.kind} of the filter is given twice: Paraver puts both lists together")
        if part.numbers is not None:
            window.numbers.setdefault(part.kind, []).extend(part.numbers)
        if part.labels is not None:
            window.labels.setdefault(part.kind, []).extend(part.labels)

    def _read_histogram_line(self, key: str, value: str) -> None:
        if not self.cfg.histograms:
            self._note_problem(f"'{key}' without '{words.HISTOGRAM_MARK}' before it: {REFUSES}", "histogram key")
        else:
            self._add_entry(self.cfg.histograms[-1], key, value, words.HISTOGRAM_KEYS[key], DROPS)

    def _read_alias_line(self, key: str, value: str) -> None:
        sections: Sequence[Section] = self.cfg.histograms or self.cfg.windows
        if not sections:
            self._note_problem(f"'{key}' comes before the first window: Paraver ignores it")
        else:
            self._add_entry(sections[-1], key, value, words.ALIAS_KEYS[key], REFUSES)

    def _add_entry(self, section: Section, key: str, value: str, spec: words.Key, refusal: str) -> None:
        if not spec.repeated and section.get_entry(key) is not None:
            self._note_problem(f"'{key}' is given twice: Paraver takes the last")
        if key not in _TO_THE_END:
            value = value.rstrip(" ")
        section.entries.append(Entry(key, value, self._line))
        self._check_value(key, spec, value, refusal)

    def _check_value(self, key: str, spec: words.Key, value: str, refusal: str) -> None:
        if spec.accepts(value):
            return
        message = f"{key} '{value[:60]}' is not {spec.what}"
        first = value.partition(" ")[0]
        if key not in _TO_THE_END and spec.accepts(first):
            message += ": Paraver reads only the first word"
        elif spec.kept:
            message += f": Paraver {spec.kept}"
        elif not (spec.numeric and words.is_number(first)):
            message += f": {refusal}"
        self._note_problem(message)

    def _check_header(self, described: bool) -> None:
        """Check the lines that must be somewhere in the file, and the number of windows."""
        self._line = 0
        if _MAGIC not in self._headers and not any(
            version in self._headers and count in self._headers
            for version, count in zip(_VERSION, _NUM_WINDOWS, strict=True)
        ):
            self._note_problem(f"not a Paraver cfg: neither {_MAGIC} nor {_VERSION[0]} and {_NUM_WINDOWS[0]}")
        if not described:
            self._note_problem(f"there is no description ({_BEGIN[0]} ... {_END[0]})")
        if self._window_name is not None:
            self._line = self._window_name[1]
            self._note_problem("window_name without window_type: there is no such window")
        if not self.cfg.windows:
            self._note_problem(f"there is no window: {REFUSES}")
        for key in _NUM_WINDOWS:
            count, self._line = self._headers.get(key, ("", 0))
            if key in self._headers and count != str(len(self.cfg.windows)):
                self._note_problem(f"{key} is '{count[:40]}', the file has {len(self.cfg.windows)} windows")


def read_cfg(path: Path, findings: Findings) -> CfgFile:
    """Read a .cfg. Errors in its lines go to `findings`. Raises OSError if the file cannot be read."""
    return CfgReader(findings).read(path)
