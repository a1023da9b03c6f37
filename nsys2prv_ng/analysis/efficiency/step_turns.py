"""Finds steps of two lengths that take turns, as where a program waits for its GPUs in every second step."""

from __future__ import annotations

import numpy as np

from nsys2prv_ng.arrays.types import IntArray

_FEWEST = 4
"""Least number of steps of each length."""
_LONGER = 1.25
"""How many times as long the long ones are, at least."""
_MOST = 0.9
"""Part of the steps that must take turns."""


def find_turns(ns: IntArray) -> tuple[int, int] | None:
    """Return the medians (ns) of short and of long steps, given the lengths of all in order; None without turns."""
    if ns.size < 2 * _FEWEST:
        return None
    low, high = sorted((ns[::2], ns[1::2]), key=lambda half: float(np.median(half)))
    short, long = (round(float(np.median(half))) for half in (low, high))
    limit = (short + long) / 2
    regular = np.count_nonzero(low < limit) + np.count_nonzero(high > limit)
    return (short, long) if long >= _LONGER * short and regular >= _MOST * ns.size else None
