"""Finds short and long steps that take turns, for example if a program waits for its GPUs in every second step."""

from __future__ import annotations

import numpy as np

from nsys2prv_ng.arrays.types import IntArray

_FEWEST = 4
"""Fewest steps of each length."""
_LONGER = 1.25
"""How many times as long as short steps the long steps are, at least."""
_MOST = 0.9
"""Share of the steps that must take turns."""


def find_turns(ns: IntArray) -> tuple[int, int] | None:
    """Return the medians (ns) of short and long steps, from the lengths of all steps in order; None without turns."""
    if ns.size < 2 * _FEWEST:
        return None
    low, high = sorted((ns[::2], ns[1::2]), key=lambda half: float(np.median(half)))
    short, long = (round(float(np.median(half))) for half in (low, high))
    limit = (short + long) / 2
    regular = np.count_nonzero(low < limit) + np.count_nonzero(high > limit)
    return (short, long) if long >= _LONGER * short and regular >= _MOST * ns.size else None
