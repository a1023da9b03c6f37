"""Checks whether Paraver loads a .cfg, and whether it then shows what the file specifies.

Paraver's own reader stops at the first line that it cannot read, without naming the line. It silently misreads much,
and crashes on names that it does not find. If Paraver loads a file but shows something else than was written, this
checker is stricter on purpose.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from nsys2prv_ng.errors import TranslationError
from nsys2prv_ng.light_dataclass import dataclass
from nsys2prv_ng.paraver.checker.cfg_check_events import check_events
from nsys2prv_ng.paraver.checker.cfg_check_windows import check_window, get_effective_level, get_model, list_parents
from nsys2prv_ng.paraver.checker.cfg_names import STATISTICS, WINDOW_LEVELS
from nsys2prv_ng.paraver.checker.cfg_reader import DROPS, CfgFile, CfgWindow, Section, parse_whole, read_cfg
from nsys2prv_ng.paraver.read.label_files import ParaverConfig
from nsys2prv_ng.paraver.read.problems import Findings, Problem, sort_by_line
from nsys2prv_ng.paraver.read.prv_reader import TraceHeader

__all__ = ["CfgCheckResult", "check_cfg"]


@dataclass(frozen=True)
class CfgCheckResult:
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
        minimum, maximum = (
            histogram.get_number("Analyzer2D.Minimum:", 0),
            histogram.get_number("Analyzer2D.Maximum:", 1),
        )
        if minimum > maximum:
            line = max(entry.line for entry in (low, high) if entry is not None)
            findings.add(
                line, f"Analyzer2D.Minimum: {minimum:g} is above the maximum {maximum:g}: no value has a column"
            )
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
