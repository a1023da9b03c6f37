"""Computes with step functions and intervals: cuts them to windows, measures what they cover, sums, finds peaks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from nsys2prv_ng.arrays.row_keys import combine_columns, list_indices
from nsys2prv_ng.arrays.types import BoolArray, IntArray, pick
from nsys2prv_ng.intervals.states import FlatStates, flatten
from nsys2prv_ng.runtime.jit import compiled, search

NOTHING = -1
"""Value when no value is in force."""


class StepFunction(NamedTuple):
    """Step function: times (ns, ascending, all different) from which each value is in force."""

    time: IntArray
    value: IntArray

    def get_values(self, time: IntArray) -> IntArray:
        """Return the value in force at each time (ns); NOTHING before the first step."""
        return pick(self.value, np.searchsorted(self.time, time, "right") - 1, NOTHING)


class Pieces(NamedTuple):
    """n pieces of intervals: index of the interval, start and end (ns), and the value in force."""

    interval: IntArray
    begin: IntArray
    end: IntArray
    value: IntArray


def make_steps(begin: IntArray, end: IntArray, value: IntArray, between: int = NOTHING) -> StepFunction:
    """Return the steps of sorted intervals that do not overlap; the value `between` is in force between them."""
    time = np.stack([begin, end], axis=1).ravel()
    values = np.stack([value, np.full(value.size, between, np.int64)], axis=1).ravel()
    last = np.append(time[1:] != time[:-1], True)[: time.size]  # only the last change at each time
    return StepFunction(time[last], values[last])


def make_row_steps(flat: FlatStates, row: int, between: int = NOTHING) -> StepFunction:
    """Return the state of a row over time; `between`: its value while the row is in no state."""
    low, high = np.searchsorted(flat.row, [row, row + 1])
    return make_steps(flat.begin[low:high], flat.end[low:high], flat.state[low:high], between)


def fill_steps(steps: StepFunction, other: StepFunction) -> StepFunction:
    """Return the step function with the values of another one while NOTHING is in force."""
    time = np.union1d(steps.time, other.time)
    values, other_values = steps.get_values(time), other.get_values(time)
    return StepFunction(time, np.where(values == NOTHING, other_values, values))


def split_at_steps(begin: IntArray, end: IntArray, steps: StepFunction) -> Pieces:
    """Cut intervals, begin < end (ns), where a step function changes."""
    first = np.searchsorted(steps.time, begin, "right")
    count = 1 + np.searchsorted(steps.time, end, "left") - first
    index = np.repeat(np.arange(begin.size), count)
    step = list_indices(first, count)  # the next one; nothing follows the last step
    time, value = np.append(steps.time, np.iinfo(np.int64).max), np.append(steps.value, NOTHING)
    return Pieces(
        index,
        np.where(step == first[index], begin[index], time[step - 1]),
        np.minimum(time[step], end[index]),
        value[step - 1],  # before the first step: the appended one
    )


def measure_durations(row: IntArray, time: IntArray) -> IntArray:
    """Return how long (ns) each value lasts; values are in the order of rows and times. 0 for the last of a row."""
    length = np.zeros(row.size, np.int64)
    same = row[1:] == row[:-1]
    length[:-1][same] = (time[1:] - time[:-1])[same]
    return length


def sum_parts(row: IntArray, part: IntArray, time: IntArray, level: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """Return (row, time, sum of the levels of all parts of the row after it); a level is 0 until its first value.

    The sums are in the order of rows and times, with each time of a row once: all changes at one time happen together.
    """
    order = np.lexsort((time, part, row))
    row, part, time, level = row[order], part[order], time[order], level[order]
    change = level.copy()
    same = (row[1:] == row[:-1]) & (part[1:] == part[:-1])
    change[1:][same] -= level[:-1][same]

    order = np.lexsort((time, row))
    row, time, change = row[order], time[order], change[order]
    total = np.cumsum(change)
    is_first = np.append(True, row[1:] != row[:-1])[: row.size]
    before = (total - change)[is_first]
    total -= np.repeat(before, np.diff(np.flatnonzero(np.append(is_first, True))))
    is_last = np.append((row[1:] != row[:-1]) | (time[1:] != time[:-1]), True)[: row.size]
    return row[is_last], time[is_last], total[is_last]


def find_peaks(row: IntArray, time: IntArray, level: IntArray) -> dict[int, tuple[int, int]]:
    """Return (highest level, its first time) of each row; levels are in the order of rows and times."""
    limits = [0, *(np.flatnonzero(row[1:] != row[:-1]) + 1).tolist(), row.size] if row.size else []
    peaks = {}
    for low, high in pairwise(limits):
        at = low + int(np.argmax(level[low:high]))
        peaks[int(row[low])] = int(level[at]), int(time[at])
    return peaks


def find_latest(group: IntArray, time: IntArray, query_group: IntArray, query_time: IntArray) -> IntArray:
    """Return for each query the index of the last entry (group, time) in its group that is not later; -1 for none."""
    if not group.size:
        return np.full(query_group.size, -1)
    # Unknown times are extreme values. Moved next to the entries, they get the same answer, and rows fit into 64 bits.
    near = np.clip(query_time, max(int(time.min()) - 1, np.iinfo(np.int64).min), time.max())
    both = combine_columns(np.concatenate([group, query_group]), np.concatenate([time, near]))
    entries, queries = both[: group.size], both[group.size :]
    order, of_queries = (np.argsort(keys, kind="stable") for keys in (entries, queries))
    at = np.empty(queries.size, np.int64)
    at[of_queries] = np.searchsorted(entries[order], queries[of_queries], "right") - 1  # in order, it is far faster
    latest = order[at]
    return np.where((at >= 0) & (group[latest] == query_group), latest, -1)


def cut_to_windows(
    begin: IntArray, end: IntArray, windows: Sequence[tuple[int, int]]
) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """Return (index of the interval, index of the window, start, end) of every piece of an interval within a window.

    Times are ns. The windows are sorted and do not touch. An interval without length on a limit of a window is within
    the window.
    """
    index, window = match_windows(begin, end, windows, touching=begin == end)
    lows, highs = np.array(windows, np.int64).T
    return index, window, np.maximum(begin[index], lows[window]), np.minimum(end[index], highs[window])


def mark_inside(begin: IntArray, end: IntArray, windows: Sequence[tuple[int, int]]) -> BoolArray:
    """Mark the intervals that are within one of the windows as a whole. Without windows, all intervals are.

    Times are ns. The windows are sorted and do not touch. Their limits belong to them.
    """
    if not windows:
        return np.ones(begin.size, np.bool_)
    lows, highs = np.array(windows, np.int64).T
    window = np.searchsorted(lows, begin, "right") - 1
    return np.asarray((window >= 0) & (end <= highs[window]), np.bool_)


def unite_windows(begin: IntArray, end: IntArray) -> list[tuple[int, int]]:
    """Return the union of intervals (ns) as windows, which are sorted and do not touch."""
    order = np.argsort(begin, kind="stable")
    begin, open_until = begin[order], np.maximum.accumulate(end[order])
    # A window starts if an interval starts after all earlier ones have ended.
    starts = np.flatnonzero(np.append(True, begin[1:] > open_until[:-1])[: begin.size])
    last = np.append(starts, begin.size)[1:] - 1
    return list(zip(begin[starts].tolist(), open_until[last].tolist(), strict=True))


def match_windows(
    begin: IntArray, end: IntArray, windows: Sequence[tuple[int, int]], *, touching: BoolArray
) -> tuple[IntArray, IntArray]:
    """Return (index of the interval, index of the window) of each pair that shares time, by interval and window.

    Times are ns. The windows are sorted and do not touch. If `touching` is set for an interval, a common limit is
    enough.
    """
    if len(windows) == 1:  # as nearly always: comparisons take a third of the time
        [(low, high)] = windows
        shares = (end > low) & (begin < high) | touching & (end >= low) & (begin <= high)
        index = np.flatnonzero(shares)
        return index, np.zeros_like(index)
    lows, highs = np.array(windows, np.int64).T
    from_window = np.where(touching, np.searchsorted(highs, begin, "left"), np.searchsorted(highs, begin, "right"))
    to_window = np.where(touching, np.searchsorted(lows, end, "right"), np.searchsorted(lows, end, "left"))
    count = np.maximum(to_window - from_window, 0)
    return np.repeat(np.arange(begin.size), count), list_indices(from_window, count)


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
