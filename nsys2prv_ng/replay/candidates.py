"""Chooses the changes that a what-if analysis tries by itself, and the ranges and classes whose slack it measures."""

from __future__ import annotations

import numpy as np

from nsys2prv_ng.arrays.types import BoolArray, IntArray
from nsys2prv_ng.paraver.value_tables import HANDS_OVER
from nsys2prv_ng.replay import changes as what
from nsys2prv_ng.replay.changes import Change
from nsys2prv_ng.replay.columns import CALL, CODE, COPY, FAR, KERNEL, NEAR, NONE, mark_at, mark_kinds
from nsys2prv_ng.replay.model import Model
from nsys2prv_ng.replay.outcome import Outcome

_MOST = {what.RANGE: 8, what.CALL: 5, what.CLASS: 5}
"""Most changes of ranges, calls and classes of kernels: those with most time."""
_MOST_MEASURED = 24
"""Most names of ranges of which the time is measured: those that are open longest."""
_LEAST_SHARE = 0.005
"""Least part of the steps of all ranks that must be spent in something for its change to be tried."""
_HALF = 0.5
"""Kernels cannot vanish: they, and ranges that launch them, get twice as fast."""
_REPEATS = 3
"""Least number of calls of a thread that are not its start-up, in a job without steps."""
_STARTS = ("MPI_Init", "MPI_Finalize", "cuInit", "cuModuleLoad", "cuLibraryLoad", "cuLibraryGet", "ncclCommInit")
"""Beginnings of the names of calls that start or end a program, however often they are made."""
_LEAST_ON_DEVICE = 0.05
"""Least part of the time of a range in what it launched that makes it one that launches."""
_HOST_PER_LAUNCH_NS = 100_000
"""Host time for each operation launched in a range below which the range does little but launch."""


class Totals:
    """Time within the steps that count, by NVTX range, call and class of kernels (ns, added up over ranks).

    On hosts, main threads and those that launch count.
    """

    def __init__(self, model: Model, observed: Outcome) -> None:
        self._model = model
        self.observed = observed
        graph = model.graph
        ends = graph.time[graph.to]
        self._inside = (ends > observed.begin) & (ends <= observed.end)
        self._runs = self._inside & mark_kinds(graph.kind, (KERNEL, COPY)) & (model.edge_operation >= 0)
        works = mark_at(model.lanes.threads.launches | model.lanes.is_main, model.edge_thread)
        self._on_host = self._inside & mark_kinds(graph.kind, (CODE, CALL)) & works
        self.launching: set[str] = set()
        self.least_ns = _LEAST_SHARE * (observed.end - observed.begin) * max(observed.tasks.size, 1)

    def measure_ranges(self) -> dict[str, int]:
        """Return the host time and the time of the operations launched in each range, except in that of the steps.

        Keep which ones launch operations in `launching`.
        """
        model = self._model
        lengths = model.ranges.sum_lengths()
        steps = model.job.steps
        skipped = "" if steps is None else steps.name
        order = np.argsort(-lengths, kind="stable").tolist()
        chosen = [n for n in order if model.ranges.names[n] != skipped][:_MOST_MEASURED]
        weight = model.graph.weight
        runs = np.bincount(model.edge_operation[self._runs], weight[self._runs], model.numbers.operations)
        found = {}
        for n in chosen:
            edges, share, operations = model.in_ranges.find([n])
            host = float((share * weight[edges])[self._on_host[edges]].sum())
            device = round(runs[operations].sum())
            found[model.ranges.names[n]] = round(host) + device
            does_little_else = host < _HOST_PER_LAUNCH_NS * np.count_nonzero(runs[operations])
            if device > _LEAST_ON_DEVICE * (host + device) or does_little_else:
                self.launching.add(model.ranges.names[n])
        return found

    def measure_calls(self) -> dict[str, int]:
        """Return the time of calls by name, without what they waited for, and without calls that wait for threads."""
        lanes = self._model.lanes
        chosen = self._on_host & (self._model.graph.kind == CALL)
        sums = self._add_up(chosen, np.append(lanes.call_name, NONE)[self._model.edge_call], lanes.names)
        skipped = HANDS_OVER if self._model.job.steps is not None else {*HANDS_OVER, *self._list_starting()}
        return {name: ns for name, ns in sums.items() if name not in skipped}

    def _list_starting(self) -> list[str]:
        """Return the names of calls that start or end a program: no thread makes them repeatedly, or they load code."""
        lanes = self._model.lanes
        index, count = np.unique(np.stack([lanes.call_name, lanes.calls.thread]), axis=1, return_counts=True)
        most = np.zeros(len(lanes.names), np.int64)
        np.maximum.at(most, index[0], count)
        return [
            name for name, n in zip(lanes.names, most.tolist(), strict=True) if n < _REPEATS or name.startswith(_STARTS)
        ]

    def measure_classes(self) -> dict[str, int]:
        """Return the time of kernels by class."""
        index, names = self._model.kernel_class
        chosen = self._runs & (np.append(index, NONE)[self._model.edge_operation] >= 0)
        return self._add_up(chosen, np.append(index, NONE)[self._model.edge_operation], names)

    def measure_kinds(self, *kinds: int) -> int:
        """Return the time of edges of some kinds."""
        return int(self._model.graph.weight[self._inside & mark_kinds(self._model.graph.kind, kinds)].sum())

    def _add_up(self, chosen: BoolArray, key: IntArray, names: list[str]) -> dict[str, int]:
        sums = np.bincount(key[chosen], weights=self._model.graph.weight[chosen], minlength=len(names))
        return {names[n]: round(sums[n]) for n in np.flatnonzero(sums).tolist()}


def choose_largest(sums: dict[str, int], most: int, least: float) -> list[tuple[str, int]]:
    """Return the names with most time, in descending order."""
    largest = sorted(sums.items(), key=lambda item: (-item[1], item[0]))[:most]
    return [(name, ns) for name, ns in largest if ns > least]


def list_candidates(
    totals: Totals, ranges: dict[str, int], classes: dict[str, int], slowest: int | None
) -> list[Change]:
    """Return the changes to try. `ranges`, `classes`: their times (ns); `slowest`: the rank that sets the pace."""
    named = {what.RANGE: ranges, what.CALL: totals.measure_calls(), what.CLASS: classes}
    changes = [
        Change(target, name, _HALF if target == what.CLASS or name in totals.launching else 0.0)
        for target, sums in named.items()
        for name, _ in choose_largest(sums, _MOST[target], totals.least_ns)
    ]
    near, far = totals.measure_kinds(NEAR), totals.measure_kinds(FAR)
    if near + far:
        changes.append(Change(what.NETWORK))
    if near and far:
        changes.append(Change(what.NETWORK, what.BETWEEN))
    if totals.measure_kinds(CODE, CALL):
        changes.append(Change(what.HOST))
    if totals.measure_kinds(COPY):
        changes.append(Change(what.COPIES))
    if near + far:
        changes.append(Change(what.WAITS))
        if slowest is not None:
            changes.append(Change(what.RANK, ranks=(slowest,)))
    return changes
