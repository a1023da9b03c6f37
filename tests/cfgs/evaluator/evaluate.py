"""What Paraver shows of a trace with a .cfg: bursts of windows and cells of histograms, computed without Paraver.

It is checked against Paraver's own paramedir, whose output it equals burst by burst and cell by cell, oddities
included. Only a state without length, of which Paraver makes one thing or another if there are events at the same time,
always has none here. RefusedError where Paraver refuses the file or crashes, NotImplementedError with the name of what
is not computed here.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd

from tests.cfgs.evaluator.cpus import cpu_leaves_of
from tests.cfgs.evaluator.file import Cfg, RefusedError, WindowSpec, read_cfg
from tests.cfgs.evaluator.graph import Graph, Objects
from tests.cfgs.evaluator.histogram import Histogram
from tests.cfgs.evaluator.machine import timeline
from tests.cfgs.evaluator.records import TraceRecords
from tests.cfgs.evaluator.threads import Leaves, leaves_of
from tests.trace_reader import Trace

__all__ = ["Evaluated", "Histogram", "RefusedError", "Window", "evaluate"]


class Windows:
    """The windows of a file and what they have in common."""

    def __init__(self, cfg: Cfg, trace: Trace) -> None:
        self.specs = cfg.windows
        self.objects = Objects(trace)
        self.records = TraceRecords(trace)
        self._leaves: dict[int, Leaves] = {}

    def graph(self) -> Graph:
        """Without any nodes so far, so that nothing is left of what another evaluation did."""
        return Graph(self.specs, self.objects, self._leaves_of)

    def _leaves_of(self, window: int) -> Leaves:
        if window not in self._leaves:
            spec = self.specs[window]
            is_cpu = spec.level in ("system", "node", "cpu")
            self._leaves[window] = cpu_leaves_of(self.records, spec) if is_cpu else leaves_of(self.records, spec)
        return self._leaves[window]


@dataclass(frozen=True)
class Window:
    spec: WindowSpec
    _index: int
    _windows: Windows

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def level(self) -> str:
        return self.spec.level

    @cached_property
    def bursts(self) -> pd.DataFrame:
        """object (from 0, at the window's level), begin, end, value; times in ns, by object and time."""
        graph = self._windows.graph()
        nodes = [graph.top(self._index, index) for index in range(self._windows.objects.count(self.level))]
        machine = graph.machine(self._windows.records.finish)
        found = [timeline(machine, node, 0) for node in nodes]
        columns = np.concatenate(found)
        index = np.repeat(np.arange(len(found)), [len(bursts) for bursts in found])
        times = {name: columns[:, i].astype(np.int64) for i, name in enumerate(("begin", "end"))}
        return pd.DataFrame({"object": index, **times, "value": columns[:, 2]})


@dataclass(frozen=True)
class Evaluated:
    windows: list[Window]
    histograms: list[Histogram]
    dropped: str
    """Why a histogram is missing, which Paraver itself does not say."""

    @property
    def last(self) -> Window | Histogram:
        """What paramedir prints: the last histogram if there is any, else the last window."""
        return self.histograms[-1] if self.histograms else self.windows[-1]


def evaluate(cfg_path: Path, trace: Trace) -> Evaluated:
    """Each window and histogram is computed when its bursts or cells are asked for."""
    cfg = read_cfg(cfg_path, trace)
    windows = Windows(cfg, trace)
    return Evaluated(
        [Window(spec, i, windows) for i, spec in enumerate(cfg.windows)],
        [Histogram(spec, windows) for spec in cfg.histograms],
        cfg.dropped,
    )
