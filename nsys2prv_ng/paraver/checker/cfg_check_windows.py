"""Checks a window as a whole: its level, scale and time, and the parents of a derived window."""

from __future__ import annotations

from collections.abc import Sequence

from nsys2prv_ng.paraver.checker.cfg_check_functions import check_functions, check_operation
from nsys2prv_ng.paraver.checker.cfg_check_objects import check_selections
from nsys2prv_ng.paraver.checker.cfg_functions import PROCESS_LEVELS, RESOURCE_LEVELS, WINDOW_LEVELS
from nsys2prv_ng.paraver.checker.cfg_keys import is_number
from nsys2prv_ng.paraver.checker.cfg_reader import REFUSES, CfgFile, CfgWindow, parse_whole
from nsys2prv_ng.paraver.read.header_reader import TraceHeader
from nsys2prv_ng.paraver.read.problems import Findings

_NEEDS_PARENTS = (
    "window_level", "window_object", "window_scale_relative", "window_end_time_relative",
    "window_begin_time_relative", "window_zoom_objects",
)  # fmt: skip
"""Keys for which Paraver needs the trace. A derived window gets the trace from its parents."""


def check_window(cfg: CfgFile, window: CfgWindow, header: TraceHeader, findings: Findings) -> None:
    """Check a window by itself, and together with the windows above it."""
    _check_level(window, header, findings)
    _check_limits(window, findings)
    _check_numbers(window, findings)
    if window.derived:
        _check_derived(cfg, window, findings)
    check_functions(window, findings)
    check_selections(window, get_effective_level(cfg, window), header, findings)


def get_model(level: str) -> Sequence[str]:
    """Return the levels of the model (processes or resources) of a level, coarse ones first; () if it has none."""
    return next((levels for levels in (PROCESS_LEVELS, RESOURCE_LEVELS) if level in levels), ())


def list_parents(cfg: CfgFile, window: CfgWindow) -> list[CfgWindow]:
    """Return the parents of a derived window that are above it in the file."""
    return [cfg.windows[number - 1] for number in window.parents if 0 < number < window.number]


def get_effective_level(cfg: CfgFile, window: CfgWindow) -> str:
    """Return the level at which Paraver shows a window: a derived window cannot be finer than its parents."""
    levels = cfg.effective_levels
    for next_window in cfg.windows[len(levels) : window.number]:  # parents are above the windows derived from them
        parent_levels = [levels[parent.number - 1] for parent in list_parents(cfg, next_window)]
        levels.append(_derive_level(next_window, parent_levels))
    return levels[window.number - 1]


def _derive_level(window: CfgWindow, parent_levels: Sequence[str]) -> str:
    if not window.derived:
        return window.level
    finest = max(map(_rank_level, parent_levels), default=-1)
    if finest < 0:
        return window.level
    given = _rank_level(window.level) if window.get_entry("window_level") else finest
    return WINDOW_LEVELS[min(given, finest)] if given >= 0 else window.level


def _rank_level(level: str) -> int:
    return WINDOW_LEVELS.index(level) if level in WINDOW_LEVELS else -1


def _check_level(window: CfgWindow, header: TraceHeader, findings: Findings) -> None:
    entry = window.get_entry("window_level")
    if entry is not None and window.level in RESOURCE_LEVELS and header.applications and not header.cpus:
        findings.add(entry.line, f"level {window.level} of a trace that has no resources: {REFUSES}")


def _check_limits(window: CfgWindow, findings: Findings) -> None:
    """Check each pair of keys whose first value must not be above the second."""
    for first, second, equal in (
        ("window_minimum_y", "window_maximum_y", True),
        ("window_begin_time_relative", "window_end_time_relative", False),
        ("window_begin_time_relative", "window_scale_relative", False),
        ("window_begin_time", "window_stop_time", False),
    ):
        low, high = window.get_entry(first), window.get_entry(second)
        if low is None or high is None or not (is_number(low.value) and is_number(high.value)):
            continue
        if float(low.value) > float(high.value) or (float(low.value) == float(high.value) and not equal):
            message = f"{first} {low.value} is not below {second} {high.value}: Paraver shows nothing"
            findings.add(max(low.line, high.line), message)


def _check_numbers(window: CfgWindow, findings: Findings) -> None:
    """Check the keys that number windows and rows."""
    entry = window.get_entry("window_id")
    if entry is not None and entry.value.strip() != str(window.number):
        message = f"window_id {entry.value[:20]}: Paraver does not read it, for others this is window {window.number}"
        findings.warn(entry.line, message)
    entry = window.get_entry("window_punctual_color_window")
    if entry is not None and entry.value.isdecimal() and not 0 < parse_whole(entry.value) < window.number:
        findings.add(entry.line, f"window_punctual_color_window {entry.value}: no window above this one has the number")
    entry = window.get_entry("window_zoom_objects")
    rows = entry.value.split(" ") if entry is not None else []
    are_two = len(rows) == 2 and all(row.isdecimal() for row in rows)
    if entry is not None and are_two and parse_whole(rows[0]) > parse_whole(rows[1]):
        findings.add(entry.line, f"window_zoom_objects {entry.value}: the first row is behind the last")


def _check_derived(cfg: CfgFile, window: CfgWindow, findings: Findings) -> None:
    check_operation(window, findings)
    for key in ("window_factors", "window_shifts"):
        if window.get_entry(key) is None:
            findings.add(window.line, f"a derived window without {key}")
    entry = window.get_entry("window_identifiers")
    if entry is None:
        findings.add(window.line, "a derived window without window_identifiers: Paraver crashes")
        return
    for number in window.parents:
        if not 0 < number < window.number:
            message = f"window_identifiers: there is no window {number} above window {window.number}: Paraver crashes"
            findings.add(entry.line, message)
    for other in window.entries:
        if other.key in _NEEDS_PARENTS and other.line < entry.line:
            findings.add(other.line, f"'{other.key}' stands above window_identifiers: Paraver crashes")
    _check_derived_level(cfg, window, findings)


def _check_derived_level(cfg: CfgFile, window: CfgWindow, findings: Findings) -> None:
    levels = [get_effective_level(cfg, parent) for parent in list_parents(cfg, window)]
    models = {get_model(level) for level in levels}
    line = window.get_entry("window_level") or window.get_entry("window_identifiers")
    if line is None or () in models or not levels or not get_model(window.level):
        return
    shown = get_effective_level(cfg, window)
    if len(models) > 1:
        message = f"windows of levels {' and '.join(levels)} cannot be combined: one has processes, one resources"
        findings.add(line.line, f"{message}; Paraver crashes or shows nonsense")
    elif window.get_entry("window_level") is None:
        return
    elif get_model(window.level) not in models:
        message = f"level {window.level} of a window that is derived from levels {' and '.join(levels)}"
        findings.add(line.line, f"{message}: Paraver crashes or keeps {shown}")
    elif window.level != shown:
        message = f"level {window.level} is finer than what the window is derived from"
        findings.add(line.line, f"{message}: Paraver keeps {shown}")
