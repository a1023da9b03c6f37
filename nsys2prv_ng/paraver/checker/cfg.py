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
from nsys2prv_ng.paraver.checker.cfg_check_histograms import check_histogram
from nsys2prv_ng.paraver.checker.cfg_check_windows import check_window
from nsys2prv_ng.paraver.checker.cfg_reader import read_cfg
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
