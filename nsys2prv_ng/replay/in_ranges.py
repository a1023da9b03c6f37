"""Finds what of a replay lies in NVTX ranges of some names: host time, and operations launched in them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from nsys2prv_ng.analysis.path.lanes import Lanes
from nsys2prv_ng.arrays.row_keys import find_starts, sort_rows
from nsys2prv_ng.arrays.types import BoolArray, FloatArray, Int32Array, IntArray, Integers, IntTable
from nsys2prv_ng.replay.columns import CODE, NETWORK, ON_HOST, STAGE, mark_kinds
from nsys2prv_ng.replay.graph import Graph
from nsys2prv_ng.replay.host_ranges import HostRanges, Limits
from nsys2prv_ng.runtime.jit import compiled
from nsys2prv_ng.runtime.kernels import search


class InRanges(NamedTuple):
    """Edges with time in ranges, the share of their time (0 to 1) that is, and the operations launched in ranges."""

    edges: Int32Array
    share: FloatArray
    operations: Int32Array


class _Stretches(NamedTuple):
    """Stretches of time (ns) by thread, then in the order of their ends: edges, or operations at their launch.

    Those of thread t are first[t] .. first[t + 1] - 1. `earliest`: the first start of each stretch and those after it.
    """

    first: IntArray
    number: Int32Array
    begin: IntArray
    end: IntArray
    earliest: IntArray

    def find(self, limits: Limits, thread_of: IntArray) -> tuple[IntArray, IntArray]:
        """Return (positions of the stretches with time within limits, how much (ns)).

        `thread_of`: the thread whose limits hold for each thread.
        """
        before = np.append(0, np.cumsum(limits.end - limits.begin))
        found = np.zeros((2, 0), np.int64)
        while (count := _find_inside(self, limits, before, thread_of, found)) > found.shape[1]:
            found = np.empty((2, count), np.int64)
        return found[0], found[1]


class RangeFinder:
    """Finds what lies in ranges."""

    def __init__(
        self, graph: Graph, lanes: Lanes, edge_thread: Integers, edge_call: Integers, ranges: HostRanges
    ) -> None:
        operations, threads = lanes.operations, lanes.thread_row.size
        edges = np.flatnonzero(mark_kinds(graph.kind, (*ON_HOST, *NETWORK, STAGE)) & (edge_thread >= 0))
        end = graph.time[graph.to[edges]]
        call_begin = np.append(lanes.calls.begin, 0)[edge_call[edges]]
        begin = np.where(graph.kind[edges] == CODE, end - graph.weight[edges], call_begin)
        sent = np.flatnonzero((operations.thread >= 0) & (lanes.launch >= 0))
        launched = operations.launched[sent]
        self._ranges = ranges
        self._edges = _order(edges, edge_thread[edges], begin, end, threads)
        self._launches = _order(sent, operations.thread[sent], launched, launched + 1, threads)

    def find(self, names: Sequence[int]) -> InRanges:
        """Return what lies in the ranges with some names, whatever other ranges are within them."""
        limits, thread_of = self._ranges.find_limits(names), self._ranges.thread_of
        edges, launches = self._edges, self._launches
        at, inside = edges.find(limits, thread_of)
        share = inside / np.maximum(edges.end[at] - edges.begin[at], 1)
        return InRanges(edges.number[at], share, launches.number[launches.find(limits, thread_of)[0]])


def _order(number: IntArray, thread: Integers, begin: IntArray, end: IntArray, threads: int) -> _Stretches:
    """Return n stretches of time (ns) by thread and end. `number`: of what each one is."""
    if (end[1:] < end[:-1]).any():
        by_end = np.argsort(end, kind="stable")
        order = by_end[sort_rows(thread[by_end])]
    else:
        order = sort_rows(thread)
    first = np.searchsorted(thread[order], np.arange(threads + 1))
    begin = begin[order]
    earliest = np.empty_like(begin)
    _find_earliest(first, begin, earliest)
    return _Stretches(first, number[order].astype(np.int32), begin, end[order], earliest)


@compiled
def _find_earliest(first: IntArray, begin: IntArray, earliest: IntArray) -> None:
    """Set the first start of each stretch and all after it on its thread."""
    for thread in range(first.size - 1):
        low, high = first[thread], first[thread + 1]
        for i in range(high - 1, low - 1, -1):
            earliest[i] = begin[i] if i == high - 1 else min(begin[i], earliest[i + 1])


@compiled
def _find_inside(stretches: _Stretches, limits: Limits, before: IntArray, thread_of: IntArray, found: IntTable) -> int:
    """Fill `found` with (position, time (ns) within limits) of stretches, as far as there is room; return how many.

    `before`: the time (ns) within all limits before each one, and within all.
    """
    count = 0
    for thread in range(thread_of.size):
        at, after = stretches.first[thread], stretches.first[thread + 1]
        low, high = limits.first[thread_of[thread]], limits.first[thread_of[thread] + 1]
        for k in range(low, high):
            at = search(stretches.end, at, after, limits.begin[k] + 1)
            while at < after and stretches.earliest[at] < limits.end[k]:
                begin, end = stretches.begin[at], stretches.end[at]
                one, last = search(limits.end, k, high, begin + 1), search(limits.begin, k, high, end)
                if one < last:
                    inside = before[last] - before[one]
                    inside -= max(begin - limits.begin[one], 0) + max(limits.end[last - 1] - end, 0)
                    if inside > 0:
                        if count < found.shape[1]:
                            found[0, count], found[1, count] = at, inside
                        count += 1
                at += 1
    return count


def group_by_thread(thread: Integers, which: BoolArray) -> Iterator[tuple[int, IntArray]]:
    """Yield each thread with the indices that have it among those that are marked."""
    chosen = np.flatnonzero(which)
    order = chosen[sort_rows(thread[chosen])]
    for rows in np.split(order, find_starts(thread[order]))[1:]:
        yield int(thread[rows[0]]), rows
