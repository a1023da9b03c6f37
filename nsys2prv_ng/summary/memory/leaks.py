"""Finds leaks: memory in use that grows over the steps of a program and stays.

The rules, for the least memory in use in each of the steps after the warm-up:

- There are FEWEST_STEPS or more. From the first to the last, they are divided into PARTS parts of about equal length.
- Steps before the growth begins may not count, up to a quarter: an allocator that caches first gives what it has.
- The *floor* of a step is the least memory in use in it and in all later steps: what never becomes free again. The
  *ceiling* is the most in it and in all earlier steps. A leak raises both in every part. Noise around a level raises
  the ceiling early and the floor late. A cache that grows until it is large enough raises both early.
- The floor grows evenly: it is never further from the straight line between its ends than _BAND of its growth, and
  it grows in the last quarter of the parts at least _LATE times as much as in the first, and so for the halves. What
  grows to ever new maxima, as a cache of many sizes does, grows less and less.
- It grows by LEAST_BYTES or more.
- Kernels do not take longer and longer: those of the last quarter of the steps at least _LONGER times as long as those
  of the first, by median, and both halves of the steps more than _STEADY times as long at their end. Otherwise the
  inputs grow, and memory with them. A change of clocks makes kernels longer once.

Of values in random order, the largest so far is in every part with a probability of 1 / PARTS!.
"""

from __future__ import annotations

import numpy as np

from nsys2prv_ng.arrays.types import FloatArray, IntArray

FEWEST_STEPS = 20
PARTS = 8
LEAST_BYTES = 8_000_000
_BAND = 0.1
_LATE = 0.8
_LONGER = 1.1
_STEADY = 1.01
_QUARTERS = 4
_FEWEST_VALUES = 3
MOST_POINTS = 256
"""Most steps that are listed and between which slopes are computed; of more, evenly spaced ones."""


def is_leak(least: IntArray, kernel_ns: FloatArray) -> bool:
    """Return whether memory leaks, by the rules above.

    `least` (n): least memory in use in each step. `kernel_ns`: kernel time of each step, or block of steps; may be
    empty.
    """
    if least.size < FEWEST_STEPS or _have_longer_kernels(kernel_ns):
        return False
    floor = np.minimum.accumulate(least[::-1])[::-1]
    flat = int(np.searchsorted(floor, floor[0], "right")) - 1  # the last step before the growth
    return _grows(least) or (0 < flat <= least.size // 4 and _grows(least[flat:]))


def _grows(least: IntArray) -> bool:
    """Return whether floor and ceiling of some steps rise in every part, evenly and enough."""
    floor, ceiling = np.minimum.accumulate(least[::-1])[::-1], np.maximum.accumulate(least)
    edges = np.linspace(0, least.size - 1, PARTS + 1).round().astype(np.int64)
    growth = np.diff(floor[edges])
    whole = int(growth.sum())
    if (growth <= 0).any() or (np.diff(ceiling[edges]) <= 0).any() or whole < LEAST_BYTES:
        return False
    line = np.linspace(floor[0], floor[-1], floor.size)
    is_late = all(growth[-n:].sum() >= _LATE * growth[:n].sum() for n in (PARTS // 4, PARTS // 2))
    return is_late and bool((abs(floor - line) <= _BAND * whole).all())


def _have_longer_kernels(ns: FloatArray) -> bool:
    """Return whether kernels take longer and longer."""
    if ns.size < _QUARTERS:
        return False
    first, second, third, last = (float(np.median(part)) for part in np.array_split(ns, _QUARTERS))
    return last >= _LONGER * first and second > _STEADY * first and last > _STEADY * third


def measure_growth(values: IntArray) -> int | None:
    """Return the median slope of n values per step, between all pairs of them (Theil and Sen); None below three."""
    if values.size < _FEWEST_VALUES:
        return None
    at = choose_points(values.size)
    first, second = np.triu_indices(at.size, 1)
    return round(float(np.median((values[at[second]] - values[at[first]]) / (at[second] - at[first]))))


def choose_points(count: int) -> IntArray:
    """Return the indices of at most MOST_POINTS of `count` steps, with the first and the last one."""
    return np.unique(np.linspace(0, count - 1, min(count, MOST_POINTS)).round().astype(np.int64))
