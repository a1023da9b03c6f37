"""Cuts intervals to time windows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nsys2prv_ng.arrays.row_keys import list_indices
from nsys2prv_ng.arrays.types import BoolArray, IntArray


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
    lows, highs = np.array(windows, np.int64).T
    from_window = np.where(touching, np.searchsorted(highs, begin, "left"), np.searchsorted(highs, begin, "right"))
    to_window = np.where(touching, np.searchsorted(lows, end, "right"), np.searchsorted(lows, end, "left"))
    count = np.maximum(to_window - from_window, 0)
    return np.repeat(np.arange(begin.size), count), list_indices(from_window, count)
