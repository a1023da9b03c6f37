"""Rules for a histogram: its windows, its statistic, its columns."""

from __future__ import annotations

from nsys2prv_ng.paraver.checker.cfg_check_windows import effective_level, model, parents
from nsys2prv_ng.paraver.checker.cfg_functions import STATISTICS, WINDOW_LEVELS
from nsys2prv_ng.paraver.checker.cfg_reader import DROPS, CfgFile, CfgFindings, CfgHistogram, CfgWindow, whole
from nsys2prv_ng.paraver.read.header_reader import TraceHeader

MAX_COLUMNS = 1_000_000
"""Columns that are still believed to be meant; Paraver keeps all in memory, and dies of 100 million."""

_CONTROL, _DATA, _PLANES = "Analyzer2D.ControlWindow:", "Analyzer2D.DataWindow:", "Analyzer2D.3D_ControlWindow:"


def check_histogram(
    cfg: CfgFile, histogram: CfgHistogram, header: TraceHeader, problems: CfgFindings, warnings: CfgFindings
) -> None:
    """All rules that a histogram can break."""
    _check_statistic(histogram, problems)
    _check_windows(cfg, histogram, problems, warnings)
    _check_limits(histogram, problems)
    _check_columns(histogram, problems)
    _check_planes(histogram, problems)
    _check_objects(cfg, histogram, header, problems)


def _check_statistic(histogram: CfgHistogram, problems: CfgFindings) -> None:
    entry = histogram.entry("Analyzer2D.Statistic:")
    if entry is None:
        problems.tell(histogram.line, "a histogram without Analyzer2D.Statistic: Paraver crashes")
    elif entry.value not in STATISTICS:
        problems.tell(entry.line, f"'{entry.value[:40]}' is not a statistic: Paraver crashes")


def _window(cfg: CfgFile, histogram: CfgHistogram, key: str) -> CfgWindow | None:
    """The window that a key names, None if there is none or it says nothing that can be read."""
    value = histogram.value(key)
    number = whole(value) if value.isdecimal() else 0
    return cfg.windows[number - 1] if 0 < number <= len(cfg.windows) else None


def _check_windows(cfg: CfgFile, histogram: CfgHistogram, problems: CfgFindings, warnings: CfgFindings) -> None:
    control = histogram.entry(_CONTROL)
    if control is None:
        problems.tell(histogram.line, "a histogram without Analyzer2D.ControlWindow: Paraver crashes")
    else:
        for entry in histogram.entries:
            needs = entry.key == "Analyzer2D.Objects:" or (
                entry.key == "Analyzer2D.AnalysisLimits:" and entry.value == "Allwindow"
            )
            if needs and entry.line < control.line:
                problems.tell(entry.line, f"{entry.key} stands above {_CONTROL} Paraver crashes")
    if histogram.entry(_DATA) is None:
        warnings.tell(histogram.line, "a histogram without Analyzer2D.DataWindow: Paraver takes its control window")
    for key in (_CONTROL, _DATA, _PLANES):
        found = histogram.entry(key)
        if found is not None and found.value.isdecimal() and _window(cfg, histogram, key) is None:
            consequence = DROPS if whole(found.value) else "Paraver crashes"
            problems.tell(found.line, f"{key} there is no window {found.value}: {consequence}")
    for data, larger in ((_DATA, _CONTROL), (_CONTROL, _PLANES), (_DATA, _PLANES)):
        _check_pair(cfg, histogram, data, larger, problems)


def _check_pair(cfg: CfgFile, histogram: CfgHistogram, first: str, second: str, problems: CfgFindings) -> None:
    """Of two windows of a histogram, the level of the first must not be finer, and neither made of the other."""
    data, control = _window(cfg, histogram, first), _window(cfg, histogram, second)
    entry = histogram.entry(second)
    if data is None or control is None or data is control or entry is None:
        return
    names = f"windows {data.number} ({first[:-1]}) and {control.number} ({second[:-1]})"
    levels = effective_level(cfg, data), effective_level(cfg, control)
    if () not in map(model, levels):
        fine, coarse = map(WINDOW_LEVELS.index, levels)
        if model(levels[0]) != model(levels[1]) or fine > coarse:
            message = f"{names} have levels {levels[0]} and {levels[1]}, the first must not be finer than the second"
            problems.tell(entry.line, f"{message}: {DROPS}")
    if data.number in _ancestors(cfg, control) or control.number in _ancestors(cfg, data):
        problems.tell(entry.line, f"one of {names} is derived from the other: {DROPS}")


def _ancestors(cfg: CfgFile, window: CfgWindow) -> set[int]:
    """Numbers of the windows that a window is made of."""
    found: set[int] = set()
    waiting = [window]
    while waiting:
        new = [parent for parent in parents(cfg, waiting.pop()) if parent.number not in found]
        found.update(parent.number for parent in new)
        waiting += new
    return found


def _check_limits(histogram: CfgHistogram, problems: CfgFindings) -> None:
    if histogram.entry("Analyzer2D.AnalysisLimits:") is None:
        problems.tell(histogram.line, "a histogram without Analyzer2D.AnalysisLimits: Paraver shows nothing but zeros")


def _check_columns(histogram: CfgHistogram, problems: CfgFindings) -> None:
    """Paraver makes as many columns as Delta or NumColumns say, whichever UseFixedDelta chooses."""
    fitted = histogram.value("Analyzer2D.ComputeYScale:", "True") == "True"
    by_count = histogram.entry("Analyzer2D.NumColumns:") is not None or fitted
    by_delta = histogram.value("Analyzer2D.UseFixedDelta:", "False" if by_count else "True") == "True"
    line = (histogram.entry("Analyzer2D.Delta:" if by_delta else "Analyzer2D.NumColumns:") or histogram).line
    columns = histogram.numeric("Analyzer2D.NumColumns:", 20)
    if by_delta and histogram.numeric("Analyzer2D.Delta:", 1) <= 0:
        problems.tell(line, "Analyzer2D.Delta: must be above 0: Paraver crashes, or shows nonsense")
        return
    if not by_delta and columns < 1 and not fitted:
        problems.tell(line, "Analyzer2D.NumColumns: must be above 0 without a fixed delta: Paraver crashes")
    if not fitted:
        low, high = (histogram.entry(f"Analyzer2D.{end}:") for end in ("Minimum", "Maximum"))
        minimum, maximum = histogram.numeric("Analyzer2D.Minimum:", 0), histogram.numeric("Analyzer2D.Maximum:", 1)
        if minimum > maximum:
            line = max(entry.line for entry in (low, high) if entry is not None)
            problems.tell(
                line, f"Analyzer2D.Minimum: {minimum:g} is above the maximum {maximum:g}: no value has a column"
            )
        if by_delta:
            columns = (maximum - minimum) / histogram.numeric("Analyzer2D.Delta:", 1)
    if columns > MAX_COLUMNS and not (by_delta and fitted):
        problems.tell(line, f"{columns:.0f} columns: Paraver runs out of memory ({MAX_COLUMNS} are taken for meant)")


def _check_planes(histogram: CfgHistogram, problems: CfgFindings) -> None:
    """The third dimension, where there is one."""
    planes = histogram.entry(_PLANES)
    if planes is None or histogram.value("Analyzer3D.ComputeYScale:", "True") == "True":
        return
    if histogram.numeric("Analyzer2D.3D_Delta:", 1) <= 0:
        problems.tell(planes.line, "Analyzer2D.3D_Delta: must be above 0: Paraver crashes")
    low, high = histogram.numeric("Analyzer2D.3D_Minimum:", 0), histogram.numeric("Analyzer2D.3D_Maximum:", 1)
    if low > high:
        problems.tell(
            planes.line, f"Analyzer2D.3D_Minimum: {low:g} is above the maximum {high:g}: no value has a plane"
        )


def _check_objects(cfg: CfgFile, histogram: CfgHistogram, header: TraceHeader, problems: CfgFindings) -> None:
    """Rows by their number from 0, at the level of the control window; Paraver reads beyond the last."""
    entry, control = histogram.entry("Analyzer2D.Objects:"), _window(cfg, histogram, _CONTROL)
    if entry is None or control is None or not header.applications:
        return
    level = effective_level(cfg, control)
    sizes = {"workload": 1, "appl": len(header.applications), "task": header.tasks, "thread": header.rows}
    sizes |= {"system": 1, "node": len(header.cpus), "cpu": sum(header.cpus)}
    rows = [whole(row) for row in entry.value.split(",") if row.isdecimal()]
    if level in sizes and max(rows, default=-1) >= sizes[level]:
        message = f"Analyzer2D.Objects: row {max(rows)}, the trace has {sizes[level]} at level {level} (from 0)"
        problems.tell(entry.line, f"{message}: Paraver crashes or shows what is not there")
