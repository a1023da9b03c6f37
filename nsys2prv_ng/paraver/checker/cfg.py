"""`check_cfg`: does Paraver load a .cfg, and does it then show what the file says?

Paraver's own reader stops at the first line that it cannot read and does not tell which, takes much for something else
in silence, and crashes on names that it does not find. Where it loads a file and shows something else than was
written, this reader is stricter than Paraver on purpose.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from nsys2prv_ng.errors import TranslationError
from nsys2prv_ng.paraver.checker.cfg_check_events import check_events
from nsys2prv_ng.paraver.checker.cfg_check_histograms import check_histogram
from nsys2prv_ng.paraver.checker.cfg_check_windows import check_window
from nsys2prv_ng.paraver.checker.cfg_reader import CfgFindings, read_cfg
from nsys2prv_ng.paraver.checker.trace import BLOCK_BYTES, MAX_LINE_BYTES
from nsys2prv_ng.paraver.checker.trace_body import BodyCheck
from nsys2prv_ng.paraver.checker.trace_lines import TYPE
from nsys2prv_ng.paraver.checker.trace_notes import Bytes
from nsys2prv_ng.paraver.checker.trace_stream import TraceStream
from nsys2prv_ng.paraver.read.header_reader import TraceHeader, read_header
from nsys2prv_ng.paraver.read.pcf_reader import ParaverConfig, read_pcf
from nsys2prv_ng.paraver.read.problems import Findings, Problem

__all__ = ["CfgReport", "TraceContents", "check_cfg", "read_trace_contents"]


@dataclass(frozen=True)
class CfgReport:
    """What a check of a .cfg found. `problems` are wrong; `warnings` load, and are rarely meant or miss the trace."""

    problems: list[Problem]
    warnings: list[Problem]
    windows: int
    histograms: int


@dataclass(frozen=True)
class TraceContents:
    """What cfgs are compared with: the objects of a trace, its .pcf (None if there is none), types of its events."""

    header: TraceHeader
    config: ParaverConfig | None
    types: frozenset[int]


def check_cfg(
    path: Path, config: ParaverConfig | None, header: TraceHeader, types: Collection[int] | None = None
) -> CfgReport:
    """Checks a .cfg by itself and against a trace.

    Of a header without objects, objects are not checked. types: event types with events in the trace; if not given,
    those that the .pcf declares. Raises TranslationError if the file cannot be read.
    """
    if path.suffix != ".cfg":
        raise TranslationError(f"{path}: not a Paraver cfg: its name must end in .cfg")
    problems, warnings = CfgFindings(path), CfgFindings(path)
    try:
        cfg = read_cfg(path, problems, warnings)
    except OSError as error:
        raise TranslationError(f"{path}: cannot be read: {error.strerror}") from None
    for window in cfg.windows:
        check_window(cfg, window, header, problems, warnings)
    for histogram in cfg.histograms:
        check_histogram(cfg, histogram, header, problems, warnings)
    if types is None and config is not None:
        types = config.types.keys()
    check_events(cfg, config, types, problems, warnings)
    return CfgReport(_by_line(problems), _by_line(warnings), len(cfg.windows), len(cfg.histograms))


def _by_line(findings: CfgFindings) -> list[Problem]:
    return sorted(findings.problems(), key=lambda problem: problem.line)


class _TypesOfEvents(BodyCheck):
    """Reads records as a check does, and keeps only which event types there are."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, TraceHeader(), None, 0, MAX_LINE_BYTES)
        self.types: set[int] = set()

    def check(self, text: Bytes, size: int) -> None:
        _, pairs, n_pairs = self._read(text, size)
        self.types.update(np.unique(pairs[TYPE, :n_pairs]).tolist())


def read_trace_contents(path: Path, *, progress: Callable[[int], object] | None = None) -> TraceContents:
    """Reads x.prv or x.prv.gz and x.pcf, in bounded memory; what is wrong with them is left to `check_trace`.

    A .pcf may declare types that have no event, so all records are read. `progress` as for `check_trace`.
    """
    ignored = Findings(path)
    with TraceStream(path, MAX_LINE_BYTES, progress) as stream:
        header = read_header(stream.line().decode("latin-1").strip("\r\n"), ignored, ignored)
        events = _TypesOfEvents(path)
        for text, size in stream.blocks(BLOCK_BYTES, b""):
            events.check(text, size)
    stem = path.name.removesuffix(".gz").removesuffix(".prv")
    try:
        config = read_pcf(path.with_name(f"{stem}.pcf"), ignored, ignored)
    except OSError:
        config = None
    return TraceContents(header, config, frozenset(events.types))
