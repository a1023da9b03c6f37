"""Checks whether Paraver loads a .cfg, and whether it then shows what the file specifies.

Paraver's own reader stops at the first line that it cannot read, without naming the line. It silently misreads much,
and crashes on names that it does not find. If Paraver loads a file but shows something else than was written, this
checker is stricter on purpose.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from nsys2prv_ng.errors import TranslationError
from nsys2prv_ng.paraver.checker.cfg_check_windows import check_window, get_effective_level, get_model, list_parents
from nsys2prv_ng.paraver.checker.cfg_lists import LABELLED
from nsys2prv_ng.paraver.checker.cfg_names import EVENT, FILTERS, STATISTICS, WINDOW_LEVELS
from nsys2prv_ng.paraver.checker.cfg_reader import DROPS, REFUSES, CfgFile, CfgWindow, Section, parse_whole, read_cfg
from nsys2prv_ng.paraver.read.label_files import ParaverConfig
from nsys2prv_ng.paraver.read.problems import Findings, Problem, sort_by_line
from nsys2prv_ng.paraver.read.prv_reader import TraceHeader
from nsys2prv_ng.text.formatting import join_first
from nsys2prv_ng.value_class import ValueClass


class CfgCheckResult(ValueClass):
    """The result of checking a .cfg. `problems` are wrong; `warnings` load, but are rarely meant or do not fit the
    trace."""

    problems: list[Problem]
    warnings: list[Problem]
    windows: int
    histograms: int


def check_cfg(
    path: Path, config: ParaverConfig | None, header: TraceHeader, types: Collection[int] | None = None
) -> CfgCheckResult:
    """Check a .cfg by itself and against a trace.

    Objects are not checked if the header has none. types: event types with events in the trace; by default the types
    that the .pcf declares. Raises TranslationError if the file cannot be read.
    """
    if path.suffix != ".cfg":
        raise TranslationError(f"{path}: not a Paraver cfg: its name must end in .cfg")
    findings = Findings(path)
    try:
        cfg = read_cfg(path, findings)
    except OSError as error:
        raise TranslationError(f"{path}: cannot be read: {error.strerror}") from None
    for window in cfg.windows:
        check_window(cfg, window, header, findings)
    for histogram in cfg.histograms:
        check_histogram(cfg, histogram, header, findings)
    if types is None and config is not None:
        types = config.types.keys()
    check_events(cfg, config, types, findings)
    return CfgCheckResult(
        problems=sort_by_line(findings.list_problems()),
        warnings=sort_by_line(findings.list_warnings()),
        windows=len(cfg.windows),
        histograms=len(cfg.histograms),
    )


# ---- histograms ------------------------------------------------------------------------------------------------------

MAX_COLUMNS = 1_000_000
"""More columns count as a mistake: Paraver keeps all of them in memory, and 100 million kill it."""

_CONTROL, _DATA, _PLANES = "Analyzer2D.ControlWindow:", "Analyzer2D.DataWindow:", "Analyzer2D.3D_ControlWindow:"
_REQUIRED = {
    "Analyzer2D.Statistic:": "Paraver crashes",
    _CONTROL: "Paraver crashes",
    "Analyzer2D.AnalysisLimits:": "Paraver shows nothing but zeros",
}


def check_histogram(cfg: CfgFile, histogram: Section, header: TraceHeader, findings: Findings) -> None:
    """Check a histogram by all rules."""
    for key, consequence in _REQUIRED.items():
        if histogram.get_entry(key) is None:
            findings.add(histogram.line, f"a histogram without {key[:-1]}: {consequence}")
    statistic = histogram.get_entry("Analyzer2D.Statistic:")
    if statistic is not None and statistic.value not in STATISTICS:
        findings.add(statistic.line, f"'{statistic.value[:40]}' is not a statistic: Paraver crashes")
    _check_windows(cfg, histogram, findings)
    _check_columns(histogram, findings)
    _check_planes(histogram, findings)
    _check_objects(cfg, histogram, header, findings)


def _get_window(cfg: CfgFile, histogram: Section, key: str) -> CfgWindow | None:
    """Return the window that a key names; None if there is no such window, or its number cannot be read."""
    value = histogram.get_value(key)
    number = parse_whole(value) if value.isdecimal() else 0
    return cfg.windows[number - 1] if 0 < number <= len(cfg.windows) else None


def _check_windows(cfg: CfgFile, histogram: Section, findings: Findings) -> None:
    control = histogram.get_entry(_CONTROL)
    for entry in histogram.entries:
        needs = entry.key == "Analyzer2D.Objects:" or (
            entry.key == "Analyzer2D.AnalysisLimits:" and entry.value == "Allwindow"
        )
        if needs and control is not None and entry.line < control.line:
            findings.add(entry.line, f"{entry.key} stands above {_CONTROL} Paraver crashes")
    if histogram.get_entry(_DATA) is None:
        findings.warn(histogram.line, "a histogram without Analyzer2D.DataWindow: Paraver takes its control window")
    for key in (_CONTROL, _DATA, _PLANES):
        reference = histogram.get_entry(key)
        if reference is not None and reference.value.isdecimal() and _get_window(cfg, histogram, key) is None:
            consequence = DROPS if parse_whole(reference.value) else "Paraver crashes"
            findings.add(reference.line, f"{key} there is no window {reference.value}: {consequence}")
    for data, larger in ((_DATA, _CONTROL), (_CONTROL, _PLANES), (_DATA, _PLANES)):
        _check_pair(cfg, histogram, data, larger, findings)


def _check_pair(cfg: CfgFile, histogram: Section, first: str, second: str, findings: Findings) -> None:
    """Check two windows of a histogram: the first must not have the finer level, and neither may derive from the
    other."""
    data, control = _get_window(cfg, histogram, first), _get_window(cfg, histogram, second)
    entry = histogram.get_entry(second)
    if data is None or control is None or data is control or entry is None:
        return
    names = f"windows {data.number} ({first[:-1]}) and {control.number} ({second[:-1]})"
    levels = get_effective_level(cfg, data), get_effective_level(cfg, control)
    if () not in map(get_model, levels):
        fine, coarse = map(WINDOW_LEVELS.index, levels)
        if get_model(levels[0]) != get_model(levels[1]) or fine > coarse:
            message = f"{names} have levels {levels[0]} and {levels[1]}, the first must not be finer than the second"
            findings.add(entry.line, f"{message}: {DROPS}")
    if data.number in _list_ancestors(cfg, control) or control.number in _list_ancestors(cfg, data):
        findings.add(entry.line, f"one of {names} is derived from the other: {DROPS}")


def _list_ancestors(cfg: CfgFile, window: CfgWindow) -> set[int]:
    """Return the numbers of the windows that a window derives from, directly or not."""
    ancestors: set[int] = set()
    waiting = [window]
    while waiting:
        new = [parent for parent in list_parents(cfg, waiting.pop()) if parent.number not in ancestors]
        ancestors.update(parent.number for parent in new)
        waiting += new
    return ancestors


def _check_columns(histogram: Section, findings: Findings) -> None:
    """Check the number of columns, which Paraver takes from Delta or NumColumns; UseFixedDelta chooses one."""
    fitted = histogram.get_value("Analyzer2D.ComputeYScale:", "True") == "True"
    by_count = histogram.get_entry("Analyzer2D.NumColumns:") is not None or fitted
    by_delta = histogram.get_value("Analyzer2D.UseFixedDelta:", "False" if by_count else "True") == "True"
    line = (histogram.get_entry("Analyzer2D.Delta:" if by_delta else "Analyzer2D.NumColumns:") or histogram).line
    columns = histogram.get_number("Analyzer2D.NumColumns:", 20)
    if by_delta and histogram.get_number("Analyzer2D.Delta:", 1) <= 0:
        findings.add(line, "Analyzer2D.Delta: must be above 0: Paraver crashes, or shows nonsense")
        return
    if not by_delta and columns < 1 and not fitted:
        findings.add(line, "Analyzer2D.NumColumns: must be above 0 without a fixed delta: Paraver crashes")
    if not fitted:
        low, high = (histogram.get_entry(f"Analyzer2D.{end}:") for end in ("Minimum", "Maximum"))
        minimum = histogram.get_number("Analyzer2D.Minimum:", 0)
        maximum = histogram.get_number("Analyzer2D.Maximum:", 1)
        if minimum > maximum:
            line = max(entry.line for entry in (low, high) if entry is not None)
            message = f"Analyzer2D.Minimum: {minimum:g} is above the maximum {maximum:g}: no value has a column"
            findings.add(line, message)
        if by_delta:
            columns = (maximum - minimum) / histogram.get_number("Analyzer2D.Delta:", 1)
    if columns > MAX_COLUMNS and not (by_delta and fitted):
        findings.add(line, f"{columns:.0f} columns: Paraver runs out of memory ({MAX_COLUMNS} are taken for meant)")


def _check_planes(histogram: Section, findings: Findings) -> None:
    """Check the third dimension, if there is one."""
    planes = histogram.get_entry(_PLANES)
    if planes is None or histogram.get_value("Analyzer3D.ComputeYScale:", "True") == "True":
        return
    if histogram.get_number("Analyzer2D.3D_Delta:", 1) <= 0:
        findings.add(planes.line, "Analyzer2D.3D_Delta: must be above 0: Paraver crashes")
    low, high = histogram.get_number("Analyzer2D.3D_Minimum:", 0), histogram.get_number("Analyzer2D.3D_Maximum:", 1)
    if low > high:
        findings.add(planes.line, f"Analyzer2D.3D_Minimum: {low:g} is above the maximum {high:g}: no value has a plane")


def _check_objects(cfg: CfgFile, histogram: Section, header: TraceHeader, findings: Findings) -> None:
    """Check the rows, which count from 0 at the level of the control window. Paraver reads beyond the last row."""
    entry, control = histogram.get_entry("Analyzer2D.Objects:"), _get_window(cfg, histogram, _CONTROL)
    if entry is None or control is None or not header.applications:
        return
    level = get_effective_level(cfg, control)
    sizes = {"workload": 1, "appl": len(header.applications), "task": header.tasks, "thread": header.rows}
    sizes |= {"system": 1, "node": len(header.cpus), "cpu": sum(header.cpus)}
    rows = [parse_whole(row) for row in entry.value.split(",") if row.isdecimal()]
    if level in sizes and max(rows, default=-1) >= sizes[level]:
        message = f"Analyzer2D.Objects: row {max(rows)}, the trace has {sizes[level]} at level {level} (from 0)"
        findings.add(entry.line, f"{message}: Paraver crashes or shows what is not there")


# ---- filters ---------------------------------------------------------------------------------------------------------

_RANGE = "[x,y]"


class FilterItem(ValueClass):
    """An item of an evt_type filter: the event types of the trace for which it stands, and its name in messages."""

    numbers: tuple[int, ...]
    name: str


def check_events(cfg: CfgFile, config: ParaverConfig | None, types: Collection[int] | None, findings: Findings) -> None:
    """Check all filters of a cfg. types: event types with events in the trace; None if they are unknown.

    If a cfg gives labels, Paraver takes the types with these labels from the trace's .pcf, and uses the numbers only
    for labels that it does not find. If the trace has none of the event types of a cfg, Paraver asks whether to load
    it, unless a window chooses the filter function All or None for evt_type. A later choice wins, but Paraver no longer
    asks: so `{evt_type, All}, {evt_type, =}` always loads, and filters by its types.
    """
    windows = [window for window in cfg.windows if not window.derived]
    for window in windows:
        for kind in LABELLED:
            _check_labels(window, kind, findings)
        _check_ranges(window, config, findings)
        if config is not None:
            _check_values(window, config, findings)
    _check_without_types(windows, findings)
    if types is not None:
        is_asked = _does_paraver_ask(cfg, config, types)
        typed = [window for window in windows if window.numbers.get("evt_type")]
        present = [_check_presence(window, config, types, is_asked, findings) for window in typed]
        if present and not any(present):
            findings.warn(0, "none of the event types of this cfg is in the trace")


def list_filter_items(window: CfgWindow, config: ParaverConfig | None) -> list[FilterItem]:
    """Return the items of a window's evt_type filter, resolved with the .pcf of the trace."""
    numbers = [int(number) for number in window.numbers.get("evt_type", [])]
    labels = window.labels.get("evt_type", [])
    if len(labels) != len(numbers):
        labels = [""] * len(numbers)
    return [_resolve_item(number, label, config) for number, label in zip(numbers, labels, strict=True)]


def _resolve_item(number: int, label: str, config: ParaverConfig | None) -> FilterItem:
    declared = config.types if config is not None else {}
    matching = []
    if label not in ("", "Unknown"):
        matching = sorted(type_ for type_, known in declared.items() if _matches(label, known.label))
    if "*" not in label:
        matching = matching[-1:]  # of several types with one label, Paraver uses the highest
    if "*" in label and matching:
        return FilterItem(tuple(matching), f'event types "{label}"')
    number = matching[0] if matching else number
    name = label or (declared[number].label if number in declared else "")
    return FilterItem((number,), f'event type {number} "{name}"' if name else f"event type {number}")


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


def _find_line(window: CfgWindow, start: str) -> int:
    """Return the line of the first entry of a window that starts with some text, or else the line of the window."""
    lines = (entry.line for entry in window.entries if f"{entry.key} {entry.value} ".startswith(start + " "))
    return next(lines, window.line)


def _is_unread(window: CfgWindow, kind: str) -> bool:
    """Return whether a window has an unreadable list of numbers, which is already a problem."""
    start = f"{kind} "
    lines = (entry.value for entry in window.entries if entry.key == "window_filter_module")
    return kind not in window.numbers and any(value.startswith(start) for value in lines)


def _check_labels(window: CfgWindow, kind: str, findings: Findings) -> None:
    numbers, labels = len(window.numbers.get(kind, [])), len(window.labels.get(kind, []))
    if labels and labels != numbers and not _is_unread(window, kind):
        line = _find_line(window, f"window_filter_module {kind}_label")
        findings.add(line, f"{kind}_label has {labels} labels for {numbers} numbers of {kind}: {REFUSES}")


def _check_ranges(window: CfgWindow, config: ParaverConfig | None, findings: Findings) -> None:
    for kind in FILTERS:
        numbers = window.numbers.get(kind, [])
        if window.get_function(kind) != _RANGE or not numbers:
            continue
        if kind == "evt_type":
            numbers = [float(number) for item in list_filter_items(window, config) for number in item.numbers]
        line = _find_line(window, f"window_filter_module {kind}")
        if len(numbers) != 2:
            findings.add(line, f"{kind} {_RANGE} needs two numbers, there are {len(numbers)}: Paraver lets others pass")
        elif numbers[0] > numbers[1]:
            findings.add(line, f"{kind} {_RANGE} from {numbers[0]:.16g} to {numbers[1]:.16g}: nothing passes")


def _check_values(window: CfgWindow, config: ParaverConfig, findings: Findings) -> None:
    """Warn of ambiguous labels: Paraver looks up the label of a value in all event types of the .pcf."""
    values: dict[str, set[int]] = {}
    for declared in config.types.values():
        for value, label in (declared.values or {}).items():
            values.setdefault(label, set()).add(value)
    for label in window.labels.get("evt_value", []):
        several = sorted(values.get(label, ()))
        if label not in ("", "Unknown") and len(several) > 1:
            line = _find_line(window, "window_filter_module evt_value_label")
            shown = join_first(list(map(str, several)), 5)
            findings.warn(line, f'value "{label}" has several numbers in the trace ({shown}): Paraver takes all')


def _check_without_types(windows: list[CfgWindow], findings: Findings) -> None:
    if any(window.get_entry("window_selected_functions") is not None and not window.functions for window in windows):
        return  # an unreadable list is already a problem
    choices = [chosen.name for window in windows for chosen in window.functions if chosen.level == "evt_type"]
    explicit = not {"All", "None"}.isdisjoint(choices)  # then Paraver loads the cfg without asking
    typed = [window for window in windows if window.numbers.get("evt_type") or _is_unread(window, "evt_type")]
    for window in windows:
        if window in typed:
            continue
        line = _find_line(window, "window_selected_functions")
        filters, types = window.get_function("evt_type"), "the event types of the other windows"
        message = "a window without event types must choose {evt_type, All} or {evt_type, None}"
        if not explicit and not typed:
            findings.add(line, f"{message}: {REFUSES}")
        elif not explicit:
            findings.warn(line, f"{message}: Paraver asks where {types} are not in the trace")
        if filters not in ("All", "None") and window.get_function("thread") in EVENT:
            findings.warn(line, f"the filter {{evt_type, {filters}}} has no event type: no event passes")


def _list_numbers(window: CfgWindow, config: ParaverConfig | None) -> list[int]:
    return [number for item in list_filter_items(window, config) for number in item.numbers]


def _has_range(window: CfgWindow, numbers: list[int], types: Collection[int]) -> bool:
    """Return whether a window filters by a range that contains a type of the trace."""
    in_range = window.get_function("evt_type") == _RANGE and len(numbers) > 1
    return in_range and any(numbers[0] <= number <= numbers[1] for number in types)


def _does_paraver_ask(cfg: CfgFile, config: ParaverConfig | None, types: Collection[int]) -> bool:
    """Return whether Paraver asks about absent types.

    If it finds a type in a range, it forgets the absent types of the windows above. When a histogram starts, it looks
    at the last window again; if that window is derived, it follows first parents to a window that is not derived.
    """
    absent = False
    windows = [window for window in cfg.windows if not window.derived]
    if cfg.histograms and cfg.windows:
        last = cfg.windows[-1]
        while last.derived and last.parents and 0 < last.parents[0] < last.number:
            last = cfg.windows[last.parents[0] - 1]
        windows += [last]
    for index, window in enumerate(windows):
        numbers = _list_numbers(window, config)
        absent |= window not in windows[:index] and any(number not in types for number in numbers)
        absent &= not _has_range(window, numbers, types)
    return absent


def _check_presence(
    window: CfgWindow, config: ParaverConfig | None, types: Collection[int], is_asked: bool, findings: Findings
) -> bool:
    """Warn of event types without an event in the trace; return whether any type of the window has an event."""
    items, numbers = list_filter_items(window, config), _list_numbers(window, config)
    line = _find_line(window, "window_filter_module evt_type")
    if _has_range(window, numbers, types):
        return True
    question = "Paraver asks before it shows an empty window" if is_asked else "Paraver shows an empty window"
    if window.get_function("evt_type") == _RANGE and len(numbers) == 2 and numbers[0] != numbers[1]:
        findings.warn(line, f"event types {numbers[0]} to {numbers[1]} are not in the trace: {question}")
        return False
    absent = [item for item in items if not any(number in types for number in item.numbers)]
    if len(absent) < len(items):
        question = "Paraver asks, and shows the others" if is_asked else "Paraver shows the others"
    for item in dict.fromkeys(absent):
        are = "are" if item.name.startswith("event types") else "is"
        findings.warn(line, f"{item.name} {are} not in the trace: {question}")
    return len(absent) < len(items)
