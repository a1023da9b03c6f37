"""Checks whether Paraver loads a .cfg, and whether the trace has what the file shows.

    #ParaverCFG
    ConfigFile.Version: 3.4
    ConfigFile.NumWindows: 1
    ConfigFile.BeginDescription
    ...
    ConfigFile.EndDescription
    window_name NAME
    window_type single|composed
    window_selected_functions { 2, { {level, function}, {level, function} } }
    window_semantic_module LEVEL FUNCTION { 2, { 1 value, 2 value value } }
    window_filter_module evt_type 2 number number
    window_filter_module evt_type_label 2 "label" "label"
    key value, one a line, for the last window or histogram that has started
    < NEW ANALYZER2D >
    Analyzer2D.KEY: value

Paraver's own reader stops at the first line that it cannot read, without naming the line, and crashes on names that it
does not find. The number of a window is its position in the file, from 1. A window that derives from others names two
above it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import NamedTuple

from nsys2prv_ng.errors import TranslationError
from nsys2prv_ng.paraver.read.label_files import ParaverConfig, read_pcf
from nsys2prv_ng.paraver.read.problems import Findings, Problem, sort_by_line
from nsys2prv_ng.paraver.read.prv_reader import TraceHeader, read_header
from nsys2prv_ng.value_class import ValueClass
from tests.cfgs import cfg_names as words

REFUSES = "Paraver refuses the cfg"
DROPS = "Paraver drops the histogram and shows its window"

_MAGIC, _VERSION, _NUM_WINDOWS = "#ParaverCFG", "ConfigFile.Version:", "ConfigFile.NumWindows:"
_OLD_HEADER = {"version": _VERSION, "number_of_windows": _NUM_WINDOWS}
_KEYS = ("window_", "Analyzer2D.", "Analyzer3D.")
_BEGIN = ("ConfigFile.BeginDescription", "begin_description")
_END = ("ConfigFile.EndDescription", "end_description")


class TraceContents(NamedTuple):
    """What a trace has: its objects, its .pcf, and the types of its events, of which a .pcf may declare more."""

    header: TraceHeader
    config: ParaverConfig
    types: frozenset[int]


def read_contents(path: Path) -> TraceContents:
    """Return what a small trace has, which is not compressed and has its .pcf beside it."""
    first, *lines = path.read_text(encoding="latin-1").splitlines()
    events = (line.split(":")[6::2] for line in lines if line.startswith("2:"))
    types = frozenset(int(number) for numbers in events for number in numbers)
    config = read_pcf(path.with_suffix(".pcf"), Findings(path))
    return TraceContents(read_header(first, Findings(path)), config, types)


class CfgCheckResult(ValueClass):
    """The result of checking a .cfg. `problems` are wrong; `warnings` load, but are rarely meant or do not fit the
    trace."""

    problems: list[Problem]
    warnings: list[Problem]
    windows: int
    histograms: int


class Entry(ValueClass):
    """A line `key value` of a window or histogram."""

    key: str
    value: str
    line: int


class Section(ValueClass):
    """A window or a histogram: its first line, and its lines by key; of several lines with a key the last counts.

    Of windows only: `functions` by level or filter, `numbers` and `labels` by filter (evt_type, ...), which are empty
    if they cannot be read; `loads`: whether it chooses All or None for evt_type, even if another choice follows.
    """

    line: int
    derived: bool = False
    loads: bool = False
    entries: dict[str, Entry] = field(default_factory=dict)
    functions: dict[str, str] = field(default_factory=dict)
    numbers: dict[str, list[float]] = field(default_factory=dict)
    labels: dict[str, list[str]] = field(default_factory=dict)
    filter_line: int = 0

    def list_numbers(self, key: str) -> list[int]:
        """Return the one or two numbers of a line; none without the line, or if its value is something else."""
        value = self.entries[key].value.strip() if key in self.entries else ""
        return [int(number) for number in value.split()] if re.fullmatch(r"\d{1,9}( \d{1,9})?", value) else []


def check_cfg(
    path: Path, config: ParaverConfig | None, header: TraceHeader, types: Collection[int] | None = None
) -> CfgCheckResult:
    """Check a .cfg by itself and against a trace.

    Levels are not checked if the header has no objects. types: event types with events in the trace; by default the
    types that the .pcf declares. Raises TranslationError if the file cannot be read.
    """
    if path.suffix != ".cfg":
        raise TranslationError(f"{path}: not a Paraver cfg: its name must end in .cfg")
    findings = Findings(path)
    reader = _CfgReader(findings)
    try:
        reader.read(path)
    except OSError as error:
        raise TranslationError(f"{path}: cannot be read: {error.strerror}") from None
    for number, window in enumerate(reader.windows, 1):
        _check_window(window, number, header, findings)
    for histogram in reader.histograms:
        _check_histogram(histogram, len(reader.windows), findings)
    _check_events(reader.windows, config, config.types if types is None and config is not None else types, findings)
    problems, warnings = sort_by_line(findings.list_problems()), sort_by_line(findings.list_warnings())
    return CfgCheckResult(problems, warnings, len(reader.windows), len(reader.histograms))


# ---- lines -----------------------------------------------------------------------------------------------------------


def _read_lines(path: Path, findings: Findings, consequence: str) -> Iterator[tuple[int, str]]:
    """Yield the number and the text of each line, without its end. Carriage returns are warnings."""
    with path.open(encoding="utf-8", errors="surrogateescape", newline="\n") as lines:
        for number, raw in enumerate(lines, 1):
            line = raw.removesuffix("\n")
            if "\r" in line:
                findings.warn(number, f"carriage return: {consequence}", "carriage return")
            if re.search("[\udc80-\udcff]", line):
                findings.add(number, "the line is not UTF-8", "encoding")
            yield number, re.sub("[\udc80-\udcff]", "\ufffd", line).removesuffix("\r")


class _CfgReader:
    """Reader of the lines of a .cfg into windows and histograms; the problems of lines go to `findings`."""

    def __init__(self, findings: Findings) -> None:
        self.windows: list[Section] = []
        self.histograms: list[Section] = []
        self._findings = findings
        self._headers: dict[str, str] = {}

    def read(self, path: Path) -> None:
        """Read the file. Raises OSError if it cannot be read."""
        consequence = "Paraver does not find the description of such a cfg"
        lines = list(_read_lines(path, self._findings, consequence))
        first = next((number for number, line in lines if line in _BEGIN), 0)
        last = next((number for number, line in lines if number > first and line in _END), 0)
        if not first:
            self._findings.add(0, f"there is no description ({_BEGIN[0]} ... {_END[0]})")
        elif not last:
            self._findings.add(first, f"the description has no end ({_END[0]}): Paraver shows none")
        for number, line in lines:
            if not first <= number <= last:
                self._read_line(number, line)
            elif line.startswith((*_KEYS, words.HISTOGRAM_MARK)):
                message = f"the description has a line '{line[:40]}': Paraver reads it as a key"
                self._findings.add(number, message)
        self._check_header()

    def _check_header(self) -> None:
        count = self._headers.get(_NUM_WINDOWS)
        if _MAGIC not in self._headers and (_VERSION not in self._headers or count is None):
            self._findings.add(0, f"not a Paraver cfg: neither {_MAGIC} nor {_VERSION} and {_NUM_WINDOWS}")
        if not self.windows:
            self._findings.add(0, f"there is no window: {REFUSES}")
        if count is not None and count != str(len(self.windows)):
            self._findings.add(0, f"{_NUM_WINDOWS} is '{count[:40]}', the file has {len(self.windows)} windows")

    def _read_line(self, number: int, line: str) -> None:
        key, _, value = line.partition(" ")
        header = _OLD_HEADER.get(key, key)
        section = (self.histograms or self.windows)[-1:]
        if line == words.HISTOGRAM_MARK:
            self.histograms.append(Section(number))
        elif header in (_MAGIC, _VERSION, _NUM_WINDOWS):
            self._headers[header] = value.strip()
        elif key == "window_name":
            self.windows.append(Section(number))
        elif key.startswith("Analyzer") and not self.histograms:
            self._findings.add(number, f"'{key}' without '{words.HISTOGRAM_MARK}' before it: {REFUSES}", "histogram")
        elif key.startswith("window_") and not section:
            self._findings.add(number, f"'{key}' comes before the first window: Paraver ignores it", "before window")
        elif key.startswith("window_") and self.histograms:
            message = f"'{key}' belongs to a window, but a histogram has begun: Paraver changes the last window"
            self._findings.add(number, message, "window key in a histogram")
        elif key.startswith(_KEYS):
            self._add_entry(section[0], Entry(key, value, number))

    def _add_entry(self, section: Section, entry: Entry) -> None:
        section.entries[entry.key] = entry
        if entry.key == "window_type":
            section.derived = entry.value.strip() == "composed"
        elif entry.key in ("window_selected_functions", "window_compose_functions"):
            self._read_functions(section, entry)
        elif entry.key == "window_semantic_module":
            self._read_parameters(entry)
        elif entry.key == "window_filter_module":
            self._read_filter(section, entry)

    def _read_functions(self, window: Section, entry: Entry) -> None:
        """Read { n, { {level, function}, ... } }, and check that each level has the function."""
        composes = entry.key == "window_compose_functions"
        match = re.fullmatch(r"\{ (\d{1,5}), ?\{((?: ?\{[^,{}]*, [^{}]*\},?)*) ?\} ?\}", entry.value.rstrip(" "))
        if match is None:
            message = f"'{entry.value[:60]}' is not {{ n, {{ {{level, function}}, ... }} }}"
            self._findings.add(entry.line, message)
            window.loads = True  # as far as one can know
            return
        items = re.findall(r"\{([^,{}]*), ([^{}]*)\}", match[2])
        if len(items) != int(match[1]):
            message = f"{match[1]} functions are announced, {len(items)} follow: Paraver takes others"
            self._findings.add(entry.line, message)
        for given, name in items:
            level = words.ALIASES.get(given, given)
            level = f"compose_{level}" if composes and level in words.WINDOW_LEVELS else level
            window.functions[level] = name
            window.loads |= level == "evt_type" and name in ("All", "None")
            filters = () if window.derived else words.FILTERS
            known = words.FILTER_FUNCTIONS if level in filters else _get_functions(level)
            if not known:
                self._findings.add(entry.line, f"'{level}' is neither a level nor a filter of the window: {REFUSES}")
            elif name not in known:
                message = f"'{name}' is not a function of level {level}: Paraver refuses the cfg, or crashes"
                self._findings.add(entry.line, message)

    def _read_parameters(self, entry: Entry) -> None:
        """Read LEVEL FUNCTION { parameters, { values value ..., values value ... } }, and check the numbers of both."""
        form = r"(\S+) ([^{]*) \{ (\d{1,5}), \{ ([^{}]*)\} ?\}"
        match = re.fullmatch(form, entry.value.rstrip(" "))
        if match is None:
            message = f"'{entry.value[:60]}' is not 'level function {{ n, {{ values value ..., ... }} }}'"
            self._findings.add(entry.line, message)
            return
        level, name, count, values = match.groups()
        texts = values.strip().split(", ") if values.strip() else []
        known = _get_functions(words.ALIASES.get(level, level)).get(name, len(texts))
        if not len(texts) == int(count) == known:
            message = f"'{name}' has {known} parameters, {count} are announced and {len(texts)} given: Paraver crashes"
            self._findings.add(entry.line, message)
        for text in texts:
            self._read_numbers(f"a parameter of '{name}'", text, entry.line)

    def _read_filter(self, window: Section, entry: Entry) -> None:
        """Read FILTER n number ..., or FILTER_label n "label" ...."""
        kind, _, rest = entry.value.rstrip(" ").partition(" ")
        window.filter_line = window.filter_line or entry.line
        labels = re.fullmatch(r'(\d{1,5})((?: "[^"]*")*)', rest)
        if kind in words.FILTERS:
            window.numbers.setdefault(kind, []).extend(self._read_numbers(kind, rest, entry.line))
        elif kind.removesuffix("_label") not in words.FILTERS:
            message = f"'{kind[:40]}' is not a filter ({', '.join(words.FILTERS)}): Paraver ignores the line"
            self._findings.add(entry.line, message)
        elif labels is None or labels[2].count('"') != 2 * int(labels[1]):
            message = f"'{rest[:60]}' is not a count followed by that many labels in \"quotes\": Paraver finds others"
            self._findings.add(entry.line, message)
        else:
            window.labels.setdefault(kind.removesuffix("_label"), []).extend(re.findall(r'"([^"]*)"', labels[2]))

    def _read_numbers(self, what: str, text: str, line: int) -> list[float]:
        """Read a count and as many numbers."""
        count, *texts = text.split(" ")
        if not all(map(_is_number, texts)) or count != str(len(texts)):
            message = f"{what}: '{text[:60]}' is not a count followed by that many numbers: {REFUSES}"
            self._findings.add(line, message)
            return []
        return list(map(float, texts))


def _is_number(text: str) -> bool:
    return words.NUMBER.fullmatch(text) is not None and math.isfinite(float(text))


def _get_functions(level: str) -> words.Functions:
    return words.FUNCTIONS_OF_LEVEL.get(level) or words.COMPOSES_OF_LEVEL.get(level, {})


# ---- windows and histograms ------------------------------------------------------------------------------------------


def _check_window(window: Section, number: int, header: TraceHeader, findings: Findings) -> None:
    level = window.entries.get("window_level")
    if level is not None and level.value in words.RESOURCE_LEVELS and header.applications and not header.cpus:
        findings.add(level.line, f"level {level.value} of a trace that has no resources: {REFUSES}")
    if "window_type" not in window.entries:
        findings.add(window.line, "window_name without window_type: there is no such window")
    if not window.derived:
        return
    for key in ("window_operation", "window_identifiers", "window_factors", "window_shifts"):
        if key not in window.entries:
            findings.add(window.line, f"a derived window without {key}: Paraver crashes")
    operation = window.entries.get("window_operation")
    if operation is not None and operation.value not in words.DERIVED:
        message = f"'{operation.value[:40]}' is not an operation of derived windows: Paraver crashes"
        findings.add(operation.line, message)
    parents = window.list_numbers("window_identifiers")
    if "window_identifiers" in window.entries and (len(parents) < 2 or not all(0 < n < number for n in parents)):
        message = f"window_identifiers are not two numbers of windows above window {number}: Paraver crashes"
        findings.add(window.entries["window_identifiers"].line, message)


def _check_histogram(histogram: Section, windows: int, findings: Findings) -> None:
    for key, consequence in (
        ("Analyzer2D.Statistic:", "Paraver crashes"),
        ("Analyzer2D.ControlWindow:", "Paraver crashes"),
        ("Analyzer2D.AnalysisLimits:", "Paraver shows nothing but zeros"),
    ):
        if key not in histogram.entries:
            findings.add(histogram.line, f"a histogram without {key[:-1]}: {consequence}")
    statistic = histogram.entries.get("Analyzer2D.Statistic:")
    if statistic is not None and statistic.value not in words.STATISTICS:
        findings.add(statistic.line, f"'{statistic.value[:40]}' is not a statistic: Paraver crashes")
    for key in ("Analyzer2D.ControlWindow:", "Analyzer2D.DataWindow:", "Analyzer2D.3D_ControlWindow:"):
        for number in histogram.list_numbers(key):
            if not 0 < number <= windows:
                findings.add(histogram.entries[key].line, f"{key} there is no window {number}: {DROPS}")


# ---- event types -----------------------------------------------------------------------------------------------------

_RANGE = "[x,y]"


def _check_events(
    windows: list[Section], config: ParaverConfig | None, types: Collection[int] | None, findings: Findings
) -> None:
    """Check the evt_type filters. types: event types with events in the trace; None if they are unknown.

    If the trace has none of the event types of a cfg, Paraver asks whether to load it, unless a window chooses the
    filter function All or None for evt_type. If the cfg has none, Paraver does not load it without that choice.
    """
    single = [window for window in windows if not window.derived]
    if single and not any(window.loads or "evt_type" in window.numbers for window in single):
        message = "a window without event types must choose {evt_type, All} or {evt_type, None}"
        findings.add(single[0].line, f"{message}: {REFUSES}")
    for window in single:
        for kind, labels in window.labels.items():
            numbers = window.numbers.get(kind)
            if labels and numbers != [] and len(labels) != len(numbers or ()):
                message = f"{kind}_label has {len(labels)} labels for {len(numbers or ())} numbers of {kind}: {REFUSES}"
                findings.add(window.filter_line, message)
    if types is None:
        return
    typed = [window for window in single if window.numbers.get("evt_type")]
    present = [_check_presence(window, resolve_filter(window, config), types, findings) for window in typed]
    if present and not any(present):
        findings.warn(0, "none of the event types of this cfg is in the trace")


def resolve_filter(window: Section, config: ParaverConfig | None) -> dict[str, list[int]]:
    """Return the items of a window's evt_type filter: the name of each in messages, and its event types.

    If a cfg gives labels, Paraver takes the types with these labels from the trace's .pcf, and uses the numbers only
    for labels that it does not find. In a label, * is any text. Of several types with one label, it uses the highest.
    """
    declared = {} if config is None else {number: known.label for number, known in sorted(config.types.items())}
    numbers = [int(number) for number in window.numbers.get("evt_type", [])]
    labels = window.labels.get("evt_type", [])
    labels = labels if len(labels) == len(numbers) else [""] * len(numbers)
    items = {}
    for number, label in zip(numbers, labels, strict=True):
        known = label not in ("", "Unknown")
        matching = [other for other, its_label in declared.items() if known and _matches(label, its_label)]
        if "*" in label and matching:
            items[f'event types "{label}" are'] = matching
            continue
        number = matching[-1] if matching else number
        name = label or declared.get(number)
        items[f'event type {number} "{name}" is' if name else f"event type {number} is"] = [number]
    return items


def _matches(pattern: str, label: str) -> bool:
    """Return whether a label fits a pattern, in which * is any text. A regular expression may take for ever."""
    if "*" not in pattern:
        return pattern == label
    first, *middle, last = pattern.split("*")
    at = len(first)
    for part in middle:
        found = label.find(part, at)
        if found < 0:
            return False
        at = found + len(part)
    return label.startswith(first) and label.endswith(last) and at + len(last) <= len(label)


def _check_presence(
    window: Section, items: Mapping[str, list[int]], types: Collection[int], findings: Findings
) -> bool:
    """Warn of event types without an event in the trace; return whether any type of the window has an event."""
    if window.functions.get("evt_type") == _RANGE:
        numbers = [number for item in items.values() for number in item]
        low, high = min(numbers), max(numbers)
        found = any(low <= number <= high for number in types)
        if not found:
            message = f"event types {low} to {high} are not in the trace: Paraver shows an empty window"
            findings.warn(window.filter_line, message)
        return found
    absent = [name for name, numbers in items.items() if not any(number in types for number in numbers)]
    shown = "shows the others" if len(absent) < len(items) else "shows an empty window"
    for name in absent:
        findings.warn(window.filter_line, f"{name} not in the trace: Paraver {shown}")
    return len(absent) < len(items)
