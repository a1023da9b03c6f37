"""Finds what of a replay lies in NVTX ranges of some names: host time, and operations launched in them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from nsys2prv_ng.analysis.path.lanes import Lanes
from nsys2prv_ng.arrays.row_keys import find_starts, sort_rows
from nsys2prv_ng.arrays.types import BoolArray, FloatArray, IntArray, Integers
from nsys2prv_ng.replay.columns import CODE, NETWORK, ON_HOST, STAGE, mark_kinds
from nsys2prv_ng.replay.graph import Graph
from nsys2prv_ng.replay.host_ranges import HostRanges, Limits, measure_inside


class InRanges(NamedTuple):
    """Edges with time in ranges, the share of their time (0 to 1) that is, and the operations launched in ranges."""

    edges: IntArray
    share: FloatArray
    operations: IntArray


class _Stretches(NamedTuple):
    """Stretches of time (ns) on a thread, ordered by their end: edges, or operations at their launch."""

    number: IntArray
    begin: IntArray
    end: IntArray
    earliest: IntArray
    """Earliest start of each stretch and all that end later."""

    def find(self, limits: Limits) -> tuple[IntArray, IntArray]:
        """Return (positions of the stretches with time within limits, how much (ns))."""
        lows, highs = limits
        first, last = np.searchsorted(self.end, lows, "right"), np.searchsorted(self.earliest, highs, "left")
        first = np.maximum(first, np.append(0, last[:-1]))  # none twice
        length = np.maximum(last - first, 0)
        at = np.repeat(first - np.append(0, np.cumsum(length)[:-1]), length) + np.arange(int(length.sum()))
        inside = measure_inside(limits, self.begin[at], self.end[at])
        return at[inside > 0], inside[inside > 0]


class RangeFinder:
    """Finds what lies in ranges, for each choice of names once."""

    def __init__(
        self, graph: Graph, lanes: Lanes, edge_thread: Integers, edge_call: Integers, ranges: HostRanges
    ) -> None:
        operations = lanes.operations
        end = graph.time[graph.to]
        begin = np.where(graph.kind == CODE, end - graph.weight, np.append(lanes.calls.begin, 0)[edge_call])
        on_host = mark_kinds(graph.kind, (*ON_HOST, *NETWORK, STAGE)) & (edge_thread >= 0)
        sent = (operations.thread >= 0) & (lanes.launch >= 0)
        self._ranges = ranges
        self._edges = _order(edge_thread, on_host, begin, end)
        self._launches = _order(operations.thread, sent, operations.launched, operations.launched + 1)
        self._found: dict[tuple[int, ...], InRanges] = {}

    def find(self, names: Sequence[int]) -> InRanges:
        """Return what lies in the ranges with some names, whatever other ranges are within them."""
        key = tuple(names)
        if key not in self._found:
            self._found[key] = self._find(key)
        return self._found[key]

    def _find(self, names: tuple[int, ...]) -> InRanges:
        edges, shares, operations = [np.zeros(0, np.int64)], [np.zeros(0)], [np.zeros(0, np.int64)]
        for thread in dict.fromkeys((*self._edges, *self._launches)):
            limits = self._ranges.find_limits(thread, names)
            if not limits[0].size:
                continue
            if stretches := self._edges.get(thread):
                at, inside = stretches.find(limits)
                edges.append(stretches.number[at])
                shares.append(inside / np.maximum(stretches.end[at] - stretches.begin[at], 1))
            if launches := self._launches.get(thread):
                operations.append(launches.number[launches.find(limits)[0]])
        return InRanges(np.concatenate(edges), np.concatenate(shares), np.concatenate(operations))


def _order(thread: Integers, which: BoolArray, begin: IntArray, end: IntArray) -> dict[int, _Stretches]:
    """Return the marked stretches of time of each thread, ordered by their end."""
    found = {}
    for number, rows in group_by_thread(thread, which):
        order = rows[np.argsort(end[rows], kind="stable")]
        earliest = np.minimum.accumulate(begin[order][::-1])[::-1]
        found[number] = _Stretches(order, begin[order], end[order], earliest)
    return found


def group_by_thread(thread: Integers, which: BoolArray) -> Iterator[tuple[int, IntArray]]:
    """Yield each thread with the indices that have it among those that are marked."""
    chosen = np.flatnonzero(which)
    order = chosen[sort_rows(thread[chosen])]
    for rows in np.split(order, find_starts(thread[order]))[1:]:
        yield int(thread[rows[0]]), rows
