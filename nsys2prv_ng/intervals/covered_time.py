"""Measures how much of an interval other intervals cover, such as the time in which a GPU computes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from nsys2prv_ng.arrays.types import BoolArray, IntArray
from nsys2prv_ng.intervals.states import flatten
from nsys2prv_ng.intervals.step_functions import measure_durations
from nsys2prv_ng.intervals.windows import cut_to_windows
from nsys2prv_ng.runtime.jit import compiled
from nsys2prv_ng.runtime.kernels import search

Intervals = tuple[IntArray, IntArray, IntArray]
"""Row, start and end (ns) of n intervals."""
NO_INTERVALS: Intervals = (np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64))


class CoveredTime:
    """The union of the intervals on each row."""

    def __init__(self, intervals: Intervals) -> None:
        row, begin, end = intervals
        flat = flatten(row, begin, end, np.zeros(row.size, np.int64))
        self.intervals: Intervals = (flat.row, flat.begin, flat.end)
        self._before = np.cumsum(flat.end - flat.begin) - (flat.end - flat.begin)

    def measure(self, row: IntArray, low: IntArray, high: IntArray) -> IntArray:
        """Return how much (ns) of each of n intervals, from low to high on a row, is covered."""
        return self._measure_until(row, high) - self._measure_until(row, low)

    def intersect(self, row: IntArray, low: IntArray, high: IntArray) -> Intervals:
        """Return (index of the interval, start, end) of the covered pieces of n intervals of rows."""
        rows, begin, end = self.intervals
        parts = [NO_INTERVALS]
        for number in np.unique(row).tolist():
            first, last = np.searchsorted(rows, [number, number + 1])
            here = np.flatnonzero(row == number)
            if first < last and here.size:
                windows: Any = np.stack([begin[first:last], end[first:last]], axis=1)
                index, _, piece_begin, piece_end = cut_to_windows(low[here], high[here], windows)
                parts.append((here[index], piece_begin, piece_end))
        return join_intervals(parts)

    def _measure_until(self, row: IntArray, time: IntArray) -> IntArray:
        rows, begin, end = self.intervals
        first, last = np.searchsorted(rows, row, "left"), np.searchsorted(rows, row, "right")
        covered = np.zeros(time.size, np.int64)
        _measure_until(first, last, np.ascontiguousarray(time), begin, end, self._before, covered)
        return covered


def join_intervals(parts: Iterable[Intervals]) -> Intervals:
    """Return the intervals of all parts."""
    row, begin, end = (np.concatenate(columns) for columns in zip(NO_INTERVALS, *parts, strict=True))
    return row, begin, end


def find_intervals(row: IntArray, time: IntArray, which: BoolArray) -> Intervals:
    """Return the intervals in which the marked values of n changes are in force. Changes are sorted by row and time."""
    at = np.flatnonzero(which)
    return row[at], time[at], time[at] + measure_durations(row, time)[at]


@compiled
def _measure_until(
    first: IntArray, last: IntArray, time: IntArray, begin: IntArray, end: IntArray, before: IntArray, covered: IntArray
) -> None:
    """Set how much (ns) the intervals first .. last - 1 cover until each time; it is 0 at first.

    `before`: the length of all intervals before each one.
    """
    for i in range(time.size):
        latest = search(begin, first[i], last[i], time[i]) - 1  # the last interval that starts before this time
        if latest >= first[i]:
            covered[i] = before[latest] - before[first[i]] + min(time[i], end[latest]) - begin[latest]
