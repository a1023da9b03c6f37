"""Intervals cut to windows of time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nsys2prv_ng.arrays.types import IntArray


def cut_to_windows(
    begin: IntArray, end: IntArray, windows: Sequence[tuple[int, int]]
) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """(index of the interval, index of the window, begin, end) of every piece of intervals within windows.

    Times are ns. The windows are sorted and apart. An interval without length is within a window whose limit it is on.
    """
    lows, highs = np.array(windows, np.int64).T
    empty = begin == end
    from_window = np.where(empty, np.searchsorted(highs, begin, "left"), np.searchsorted(highs, begin, "right"))
    to_window = np.where(empty, np.searchsorted(lows, end, "right"), np.searchsorted(lows, end, "left"))
    count = np.maximum(to_window - from_window, 0)
    index = np.repeat(np.arange(begin.size), count)
    window = from_window[index] + np.arange(index.size) - np.repeat(np.cumsum(count) - count, count)
    return index, window, np.maximum(begin[index], lows[window]), np.minimum(end[index], highs[window])
