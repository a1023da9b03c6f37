"""Checks the filters of a cfg: numbers and labels of event types and values, and whether the trace has them.

If a cfg gives labels, Paraver takes the types with these labels from the trace's .pcf, and uses the numbers only for
labels that it does not find. If the trace has none of the event types of a cfg, Paraver asks whether to load it, unless
a window chooses the filter function All or None for evt_type. A later choice wins, but Paraver no longer asks: so
`{evt_type, All}, {evt_type, =}` always loads, and filters by its types.
"""

from __future__ import annotations

from collections.abc import Collection

from nsys2prv_ng.light_dataclass import dataclass
from nsys2prv_ng.paraver.checker.cfg_lists import LABELLED
from nsys2prv_ng.paraver.checker.cfg_names import EVENT, FILTERS
from nsys2prv_ng.paraver.checker.cfg_reader import REFUSES, CfgFile, CfgWindow
from nsys2prv_ng.paraver.read.label_files import ParaverConfig
from nsys2prv_ng.paraver.read.problems import Findings
from nsys2prv_ng.text.formatting import join_first

_RANGE = "[x,y]"


@dataclass(frozen=True)
class FilterItem:
    """An item of an evt_type filter: the event types of the trace for which it stands, and its name in messages."""

    numbers: tuple[int, ...]
    name: str


def check_events(
    cfg: CfgFile,
    config: ParaverConfig | None,
    types: Collection[int] | None,
    findings: Findings,
) -> None:
    """Check all filters of a cfg. types: event types with events in the trace; None if they are unknown."""
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
        filters = window.get_function("evt_type")
        message = "a window without event types must choose {evt_type, All} or {evt_type, None}"
        if not explicit and not typed:
            findings.add(line, f"{message}: {REFUSES}")
        elif not explicit:
            findings.warn(
                line, f"{message}: Paraver asks where the event types of the other windows are not in the trace"
            )
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
