"""Strict reader of a Paraver .cfg: windows and histograms, line by line, and what is wrong with the lines.

    #ParaverCFG
    ConfigFile.Version: 3.4
    ConfigFile.NumWindows: 1
    ConfigFile.BeginDescription
    ...
    ConfigFile.EndDescription
    window_name NAME
    window_type single|composed
    key value, one a line, for the window or histogram that was last begun
    < NEW ANALYZER2D >
    Analyzer2D.KEY: value

Paraver does not skip the description: a line there that starts with a key counts. It ignores keys that it does not
know, and the numbers of windows are their order in the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from nsys2prv_ng.paraver.checker.cfg_functions import ALIASES, DEFAULT_FUNCTION
from nsys2prv_ng.paraver.checker.cfg_keys import (
    ALIAS_KEYS,
    HISTOGRAM_KEYS,
    HISTOGRAM_MARK,
    WINDOW_KEYS,
    WINDOW_MARK,
    Key,
    is_number,
)
from nsys2prv_ng.paraver.checker.cfg_lists import (
    CfgFindings,
    CfgSyntaxError,
    Function,
    Parameters,
    Selection,
    parse_filter,
    parse_functions,
    parse_parameters,
    parse_selection,
)

__all__ = [
    "CfgFile",
    "CfgFindings",
    "CfgHistogram",
    "CfgWindow",
    "Entry",
    "Function",
    "Parameters",
    "Section",
    "Selection",
    "read_cfg",
]

REFUSES = "Paraver refuses the cfg"
DROPS = "Paraver drops the histogram and shows its window"

_MAGIC = "#ParaverCFG"
_VERSION = ("ConfigFile.Version:", "version")
_NUM_WINDOWS = ("ConfigFile.NumWindows:", "number_of_windows")
_BEGIN = ("ConfigFile.BeginDescription", "begin_description")
_END = ("ConfigFile.EndDescription", "end_description")
_NOT_UTF8 = re.compile("[\udc80-\udcff]")
_TO_THE_END = frozenset((
    "window_name", "window_type", "window_factors", "window_shifts", "window_identifiers", "window_operation",
    "window_gradient_function", "Analyzer2D.Name:", "Analyzer2D.Statistic:", "Analyzer2D.UseFixedDelta:",
    "Analyzer2D.AnalysisLimits:", "Analyzer2D.SortCriteria:", "Analyzer2D.Objects:", "Analyzer2D.DrawModeObjects:",
    "Analyzer2D.DrawModeColumns:",
))  # fmt: skip
"""Keys whose value reaches to the end of the line, blanks included; of others blanks at the end do not count."""


@dataclass(frozen=True)
class Entry:
    """A line `key value` of a window or histogram."""

    key: str
    value: str
    line: int


@dataclass
class Section:
    """A window or a histogram: the line where it begins, and those that belong to it."""

    line: int
    entries: list[Entry] = field(default_factory=list)

    def get_entry(self, key: str) -> Entry | None:
        """The last line with a key: it is the one that counts."""
        return next((entry for entry in reversed(self.entries) if entry.key == key), None)

    def get_value(self, key: str, default: str = "") -> str:
        found = self.get_entry(key)
        return default if found is None else found.value

    def get_number(self, key: str, default: float) -> float:
        """Of a value that is no number (it is a problem already) the default."""
        value = self.get_value(key)
        return float(value) if is_number(value) else default


def parse_whole(digits: str) -> int:
    """A number of windows or rows; one of more digits than any file or trace has is some number beyond all of them."""
    return int(digits) if len(digits) < 19 else 10**18


@dataclass
class CfgWindow(Section):
    """A window; `number` is its order in the file, from 1, by which others refer to it.

    functions and composes: in the order in which they apply; of one level the last counts. numbers and labels: of the
    filters (evt_type, ...). parents: the windows that a derived window is made of. What cannot be read is left out.
    """

    number: int = 0
    name: str = ""
    derived: bool = False
    functions: list[Function] = field(default_factory=list)
    composes: list[Function] = field(default_factory=list)
    parameters: list[Parameters] = field(default_factory=list)
    numbers: dict[str, list[float]] = field(default_factory=dict)
    labels: dict[str, list[str]] = field(default_factory=dict)
    selections: list[Selection] = field(default_factory=list)

    @property
    def level(self) -> str:
        """As the file says; a derived window cannot be finer than what it is made of."""
        level = self.get_value("window_level", "thread")
        return ALIASES["ptask"] if level == "ptask" else level

    @property
    def parents(self) -> tuple[int, ...]:
        value = self.get_value("window_identifiers") if self.derived else ""
        return tuple(map(parse_whole, value.split(" "))) if re.fullmatch(r"[0-9]+ [0-9]+", value) else ()

    def get_function(self, level: str) -> str:
        """What is chosen for a level, a compose level or a filter in the end."""
        found = [function.name for function in self.functions + self.composes if function.level == level]
        return found[-1] if found else DEFAULT_FUNCTION.get(level, "All")


@dataclass
class CfgHistogram(Section):
    """A histogram. `name` is the one it shows."""

    @property
    def name(self) -> str:
        return self.get_value("Analyzer2D.Name:")


@dataclass
class CfgFile:
    """What a .cfg says. entries of windows and histograms keep the order of the file."""

    windows: list[CfgWindow] = field(default_factory=list)
    histograms: list[CfgHistogram] = field(default_factory=list)
    description: str = ""
    effective_levels: list[str] = field(default_factory=list)
    """Level at which Paraver shows each window, as far as that has been asked for."""


class CfgReader:
    """Reads the lines of one .cfg; `cfg` is what they say."""

    def __init__(self, problems: CfgFindings, warnings: CfgFindings) -> None:
        self.cfg = CfgFile()
        self._problems = problems
        self._warnings = warnings
        self._line = 0
        self._window_name: tuple[str, int] | None = None
        self._in_histogram = False
        self._headers: dict[str, tuple[str, int]] = {}

    def read(self, lines: Iterable[str]) -> CfgFile:
        lines = list(map(self._clean, lines, range(1, 1 << 40)))
        begin, end = self._description(lines)
        for self._line, line in enumerate(lines, 1):
            if begin < self._line < end:
                self._description_line(line)
            elif self._line not in (begin, end):
                self._read_line(line)
        self._check_header(bool(begin))
        return self.cfg

    def _problem(self, message: str, kind: str = "") -> None:
        self._problems.note(self._line, message, kind)

    def _warn(self, message: str) -> None:
        self._warnings.note(self._line, message)

    def _clean(self, raw: str, number: int) -> str:
        self._line = number
        line = raw.removesuffix("\n")
        if "\r" in line:
            self._warn("carriage return: Paraver does not find the description of such a cfg")
        if _NOT_UTF8.search(line):
            self._problem("the line is not UTF-8")
        return _NOT_UTF8.sub("\ufffd", line).removesuffix("\r")

    def _description(self, lines: list[str]) -> tuple[int, int]:
        """First and last line of the description, 0 and 0 if there is none."""
        begin = next((number for number, line in enumerate(lines, 1) if line in _BEGIN), 0)
        end = next((number for number, line in enumerate(lines, 1) if number > begin and line in _END), 0)
        if begin and not end:
            self._line = begin
            self._problem(f"the description has no end ({_END[0]}): Paraver shows none")
        if not begin or not end:
            return begin, begin
        self.cfg.description = "\n".join(lines[begin : end - 1]).strip("\n")
        if not self.cfg.description:
            self._line = begin
            self._warn("the description is empty")
        return begin, end

    def _description_line(self, line: str) -> None:
        key = line if line.startswith("<") else line.partition(" ")[0]
        if key in WINDOW_KEYS or key in HISTOGRAM_KEYS or key in ALIAS_KEYS or key in (HISTOGRAM_MARK, "CFG4D_ENABLED"):
            self._problem(f"a line of the description starts with '{key}': Paraver reads it as the key")

    def _read_line(self, line: str) -> None:
        key, _, value = line.partition(" ")
        if line.startswith("#"):
            if key == _MAGIC:
                self._headers.setdefault(key, ("", self._line))
        elif line.startswith("<"):
            self._mark(line)
        elif key in (*_VERSION, *_NUM_WINDOWS):
            if key in self._headers:
                self._problem(f"{key} is given twice")
            self._headers[key] = (value.strip(), self._line)
        elif key in WINDOW_KEYS:
            self._window_line(key, value)
        elif key in HISTOGRAM_KEYS:
            self._histogram_line(key, value)
        elif key in ALIAS_KEYS:
            self._alias_line(key, value)
        elif line and line != "CFG4D_ENABLED":
            self._unknown(line, key)

    def _unknown(self, line: str, key: str) -> None:
        if not line.strip():
            return
        if line[0] in " \t":
            self._problem("the line starts with a blank: Paraver ignores it")
        elif key in (*_BEGIN, *_END):
            self._problem(f"'{key}' without its other half, or a second one: Paraver takes the first description only")
        else:
            self._warn(f"'{key[:40]}' is not a key of Paraver, which ignores the line")

    def _mark(self, line: str) -> None:
        if line == HISTOGRAM_MARK:
            if not self.cfg.windows:
                self._problem("a histogram before the first window: Paraver crashes")
            self.cfg.histograms.append(CfgHistogram(self._line))
            self._in_histogram = True
        elif not WINDOW_MARK.fullmatch(line):
            self._problem(f"'{line[:40]}' is not '{HISTOGRAM_MARK}': Paraver ignores the line")

    def _window_line(self, key: str, value: str) -> None:
        if key == "window_name":
            self._begin_window(value)
        elif key == "window_type":
            self._add_window(value)
        elif self._in_histogram:
            message = f"'{key}' belongs to a window, but a histogram has begun: Paraver changes the last window"
            self._problem(message, "window key in a histogram")
        elif self._window_name is not None and key != "window_id":
            self._problem(f"'{key}' comes before window_type: Paraver gives it to the window before", "before type")
        elif self._window_name is None and not self.cfg.windows:
            self._problem(f"'{key}' comes before the first window: Paraver ignores it", "before window")
        elif self._window_name is None:
            self._window_entry(self.cfg.windows[-1], key, value)

    def _begin_window(self, name: str) -> None:
        if self.cfg.histograms:
            self._problem("a window after a histogram: Paraver does not read the event types of its filter")
        if self._window_name is not None:
            self._problem("a second window_name: there was no window_type behind the one before")
        self._window_name = (name, self._line)
        self._in_histogram = False

    def _add_window(self, kind: str) -> None:
        name, line = self._window_name or ("", self._line)
        if self._window_name is None:
            self._problem("window_type without window_name in front: Paraver mixes the filters of two windows")
        self._window_name = None
        self._check_value("window_type", WINDOW_KEYS["window_type"], kind, REFUSES)
        number = len(self.cfg.windows) + 1
        self.cfg.windows.append(CfgWindow(line, number=number, name=name, derived=kind == "composed"))

    def _window_entry(self, window: CfgWindow, key: str, value: str) -> None:
        spec = WINDOW_KEYS[key]
        if not (spec.derived if window.derived else spec.single):
            self._warn(f"'{key}' in a {'derived' if window.derived else 'single'} window: Paraver ignores it")
            return
        self._add_entry(window, key, value, spec, REFUSES)
        try:
            self._read_list(window, key, window.entries[-1].value)
        except CfgSyntaxError as error:
            self._problem(str(error))

    def _read_list(self, window: CfgWindow, key: str, value: str) -> None:
        if key == "window_selected_functions":
            window.functions += parse_functions(value, self._line)
        elif key == "window_compose_functions":
            window.composes += parse_functions(value, self._line, composes=True)
        elif key == "window_semantic_module":
            window.parameters.append(parse_parameters(value, self._line))
        elif key == "window_object":
            window.selections.append(parse_selection(value, self._line))
        elif key == "window_filter_module":
            self._read_filter(window, value)

    def _read_filter(self, window: CfgWindow, value: str) -> None:
        found = parse_filter(value)
        if found.kind in (window.numbers if found.labels is None else window.labels):
            self._problem(f"{found.kind} of the filter is given twice: Paraver puts both lists together")
        if found.numbers is not None:
            window.numbers.setdefault(found.kind, []).extend(found.numbers)
        if found.labels is not None:
            window.labels.setdefault(found.kind, []).extend(found.labels)

    def _histogram_line(self, key: str, value: str) -> None:
        if not self.cfg.histograms:
            self._problem(f"'{key}' without '{HISTOGRAM_MARK}' before it: {REFUSES}", "histogram key")
        else:
            self._add_entry(self.cfg.histograms[-1], key, value, HISTOGRAM_KEYS[key], DROPS)

    def _alias_line(self, key: str, value: str) -> None:
        sections: list[CfgWindow] | list[CfgHistogram] = self.cfg.histograms or self.cfg.windows
        if not sections:
            self._problem(f"'{key}' comes before the first window: Paraver ignores it")
        else:
            self._add_entry(sections[-1], key, value, ALIAS_KEYS[key], REFUSES)

    def _add_entry(self, section: Section, key: str, value: str, spec: Key, refusal: str) -> None:
        if not spec.repeated and section.get_entry(key) is not None:
            self._problem(f"'{key}' is given twice: Paraver takes the last")
        if key not in _TO_THE_END:
            value = value.rstrip(" ")
        section.entries.append(Entry(key, value, self._line))
        self._check_value(key, spec, value, refusal)

    def _check_value(self, key: str, spec: Key, value: str, refusal: str) -> None:
        if spec.accepts(value):
            return
        message = f"{key} '{value[:60]}' is not {spec.what}"
        first = value.partition(" ")[0]
        if key not in _TO_THE_END and spec.accepts(first):
            message += ": Paraver reads only the first word"
        elif spec.kept:
            message += f": Paraver {spec.kept}"
        elif not (spec.numeric and is_number(first)):
            message += f": {refusal}"
        self._problem(message)

    def _check_header(self, described: bool) -> None:
        """What must stand anywhere in the file, and the number of windows."""
        self._line = 0
        if _MAGIC not in self._headers and not any(
            version in self._headers and count in self._headers
            for version, count in zip(_VERSION, _NUM_WINDOWS, strict=True)
        ):
            self._problem(f"not a Paraver cfg: neither {_MAGIC} nor {_VERSION[0]} and {_NUM_WINDOWS[0]}")
        if not described:
            self._problem(f"there is no description ({_BEGIN[0]} ... {_END[0]})")
        if self._window_name is not None:
            self._line = self._window_name[1]
            self._problem("window_name without window_type: there is no such window")
        if not self.cfg.windows:
            self._problem(f"there is no window: {REFUSES}")
        for key in _NUM_WINDOWS:
            count, self._line = self._headers.get(key, ("", 0))
            if key in self._headers and count != str(len(self.cfg.windows)):
                self._problem(f"{key} is '{count[:40]}', the file has {len(self.cfg.windows)} windows")


def read_cfg(path: Path, problems: CfgFindings, warnings: CfgFindings) -> CfgFile:
    """What the .cfg says; whatever is wrong with its lines goes to `problems`. Raises OSError if it cannot be read."""
    with path.open(encoding="utf-8", errors="surrogateescape", newline="\n") as lines:
        return CfgReader(problems, warnings).read(lines)
