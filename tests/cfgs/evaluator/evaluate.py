"""Bursts of windows and cells of histograms, as Paraver shows them of a trace with a .cfg, computed without Paraver.

The output was checked against Paraver's own paramedir and equals it burst by burst and cell by cell, oddities included.
One thing differs: if there are events at the same time, Paraver treats a state without length in one way or another;
here it never has a length. Raises RefusedError where Paraver refuses the file or crashes, NotImplementedError with the
name of what is not computed here.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd

from tests.cfgs.evaluator.cpus import make_cpu_leaves
from tests.cfgs.evaluator.file import Cfg, RefusedError, WindowSpec, read_cfg
from tests.cfgs.evaluator.graph import Graph, Objects
from tests.cfgs.evaluator.histogram import Histogram
from tests.cfgs.evaluator.machine import collect_bursts
from tests.cfgs.evaluator.records import TraceRecords
from tests.cfgs.evaluator.threads import Leaves, make_leaves
from tests.trace_reader import Trace

__all__ = ["Evaluated", "Histogram", "RefusedError", "Window", "evaluate"]


class Windows:
    """The windows of a file, and the objects, records and bursts that they share."""

    def __init__(self, cfg: Cfg, trace: Trace) -> None:
        self.specs = cfg.windows
        self.objects = Objects(trace)
        self.records = TraceRecords(trace)
        self._leaves: dict[int, Leaves] = {}

    def make_graph(self) -> Graph:
        """Return a graph without nodes, so that no evaluation changes another one."""
        return Graph(self.specs, self.objects, self._make_leaves)

    def _make_leaves(self, window: int) -> Leaves:
        """Return the bursts of the level thread or cpu of a window, computed once."""
        if window not in self._leaves:
            spec = self.specs[window]
            is_cpu = spec.level in ("system", "node", "cpu")
            self._leaves[window] = make_cpu_leaves(self.records, spec) if is_cpu else make_leaves(self.records, spec)
        return self._leaves[window]


@dataclass(frozen=True)
class Window:
    """A window of a file with this trace."""

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
        """Return object (from 0, at the window's level), begin, end and value, by object and time; times in ns."""
        graph = self._windows.make_graph()
        nodes = [graph.make_top(self._index, index) for index in range(self._windows.objects.count(self.level))]
        machine = graph.make_machine(self._windows.records.finish)
        bursts_of_objects = [collect_bursts(machine, node, 0) for node in nodes]
        columns = np.concatenate(bursts_of_objects)
        index = np.repeat(np.arange(len(nodes)), [len(bursts) for bursts in bursts_of_objects])
        times = {name: columns[:, i].astype(np.int64) for i, name in enumerate(("begin", "end"))}
        return pd.DataFrame({"object": index, **times, "value": columns[:, 2]})


@dataclass(frozen=True)
class Evaluated:
    """All windows and histograms of a file with one trace."""

    windows: list[Window]
    histograms: list[Histogram]
    dropped: str
    """Why a histogram is missing; Paraver itself reports no reason."""

    @property
    def last(self) -> Window | Histogram:
        """The part that paramedir prints: the last histogram if there is any, else the last window."""
        return self.histograms[-1] if self.histograms else self.windows[-1]


def evaluate(cfg_path: Path, trace: Trace) -> Evaluated:
    """Read a .cfg and return its windows and histograms, each computed on the first use of its bursts or cells."""
    cfg = read_cfg(cfg_path, trace)
    windows = Windows(cfg, trace)
    return Evaluated(
        [Window(spec, i, windows) for i, spec in enumerate(cfg.windows)],
        [Histogram(spec, windows) for spec in cfg.histograms],
        cfg.dropped,
    )
