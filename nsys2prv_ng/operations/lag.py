"""Finds by how many operations the sequences of two ranks are shifted against each other.

A capture range starts and stops between any two operations, and not between the same ones on all ranks. So the k-th
operation that one rank recorded is the (k + lag)-th of the other. Where both recorded an operation, they agree in its
kind and size. Programs repeat themselves, so that several lags may agree. With the right one, the differences of the
ends are steady (the clocks' offset and drift), while steps of a program never take the same time.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nsys2prv_ng.arrays.types import FloatArray, IntArray
from nsys2prv_ng.operations.parts import ANY_SIZE
from nsys2prv_ng.runtime.jit import compiled

FURTHEST_UTC_NS = 2 * 10**9
"""Most difference in UTC of nodes that are compared: operations further apart are another part of the program."""

LEAST_OVERLAP = 0.5
"""Part of the shorter sequence that must be in both, and at least _FEW of its operations if it has them."""

_FEW = 3

_AS_STEADY = 3.0
_STEADY_FLOOR_NS = 1000.0
"""Limits, relative to the best lag, within which the ends of other lags count as equally steady."""

_SAMPLES = 129


class Sequence(NamedTuple):
    """Operations of one rank in a communicator, in order: the kind, size and end (ns) of each."""

    operation: IntArray
    bytes: IntArray
    end: IntArray


class Lag(NamedTuple):
    """Operations first .. last - 1 of the one sequence are first - lag .. of the other."""

    lag: int
    first: int
    last: int


def find_lag(one: Sequence, other: Sequence) -> Lag | None:
    """Return the shift of `other` against `one`; None if no part of them agrees within reach of their clocks.

    If no lag makes all of the overlap agree (operations were lost), return the longest run that does.
    """
    n, m = one.end.size, other.end.size
    least = max(min(_FEW, n, m), int(LEAST_OVERLAP * min(n, m)))
    columns = (one.operation, one.bytes, one.end, other.operation, other.bytes, other.end)
    lags, spreads, middles = _find_agreeing(*columns, least, FURTHEST_UTC_NS)
    if not lags.size:
        lag, first, last = _find_longest_run(*columns, FURTHEST_UTC_NS)
        return Lag(int(lag), int(first), int(last)) if last - first >= max(least, 2) else None
    steady = np.flatnonzero(spreads <= _AS_STEADY * spreads.min() + _STEADY_FLOOR_NS)
    whole = steady[lags[steady] == 0] if n == m else steady[:0]
    best = int(whole[0] if whole.size else steady[np.argmin(np.abs(middles[steady]))])
    lag = int(lags[best])
    return Lag(lag, max(0, lag), min(n, m + lag))


@compiled
def _are_equal(op_a: int, size_a: int, op_b: int, size_b: int) -> bool:
    return op_a == op_b and (size_a in (size_b, ANY_SIZE) or size_b == ANY_SIZE)


@compiled
def _are_near(end_a: IntArray, end_b: IntArray, lag: int, low: int, high: int, furthest: int) -> bool:
    """Return whether the ends of an overlap are within reach, by the median of three."""
    x = end_a[low] - end_b[low - lag]
    y = end_a[(low + high - 1) // 2] - end_b[(low + high - 1) // 2 - lag]
    z = end_a[high - 1] - end_b[high - 1 - lag]
    return abs(max(min(x, y), min(max(x, y), z))) <= furthest


@compiled
def _measure_spread(end_a: IntArray, end_b: IntArray, lag: int, low: int, high: int) -> tuple[float, float]:
    """Return the median distance of the differences of ends from their line, and the median difference (sampled)."""
    count = min(high - low, _SAMPLES)
    time, difference = np.empty(count), np.empty(count)
    for i in range(count):
        k = low + (i * (high - low)) // count
        time[i] = float(end_a[k] - end_a[low])
        difference[i] = float(end_a[k] - end_b[k - lag])
    half = count // 2
    slope = 0.0
    if half >= 4:
        slopes = np.empty(half)
        for i in range(half):
            slopes[i] = (difference[i + count - half] - difference[i]) / max(1.0, time[i + count - half] - time[i])
        slope = min(1e-4, max(-1e-4, np.median(slopes)))
    middle = np.median(difference)
    straight = difference - slope * time
    return np.median(np.abs(straight - np.median(straight))), middle


@compiled
def _find_agreeing(
    op_a: IntArray,
    size_a: IntArray,
    end_a: IntArray,
    op_b: IntArray,
    size_b: IntArray,
    end_b: IntArray,
    least: int,
    furthest: int,
) -> tuple[IntArray, FloatArray, FloatArray]:
    """Return the lags at which all of the overlap agrees, with the spread of the ends and their median difference."""
    n, m = end_a.size, end_b.size
    lags = np.empty(n + m, np.int64)
    spreads, middles = np.empty(n + m), np.empty(n + m)
    count = 0
    for lag in range(least - m, n - least + 1):
        low, high = max(0, lag), min(n, m + lag)
        if not _are_near(end_a, end_b, lag, low, high, furthest):
            continue
        agrees = True
        for k in range(low, high):
            if not _are_equal(op_a[k], size_a[k], op_b[k - lag], size_b[k - lag]):
                agrees = False
                break
        if agrees:
            lags[count] = lag
            spread, middles[count] = _measure_spread(end_a, end_b, lag, low, high)
            # A few ends may well be steady by chance: then their distance counts as well.
            spreads[count] = spread + abs(middles[count]) * 0.25 ** (high - low)
            count += 1
    return lags[:count], spreads[:count], middles[:count]


@compiled
def _find_longest_run(
    op_a: IntArray,
    size_a: IntArray,
    end_a: IntArray,
    op_b: IntArray,
    size_b: IntArray,
    end_b: IntArray,
    furthest: int,
) -> tuple[int, int, int]:
    """Return (lag, first, last) of the longest run that agrees with ends within reach; the nearest of equal runs."""
    n, m = end_a.size, end_b.size
    best_lag, best_first, best_last, best_distance = 0, 0, 0, furthest
    for lag in range(1 - m, n):
        low, high = max(0, lag), min(n, m + lag)
        if high - low < best_last - best_first:
            continue
        start = low
        for k in range(low, high + 1):
            if k < high and _are_equal(op_a[k], size_a[k], op_b[k - lag], size_b[k - lag]):
                continue
            if k > start and k - start >= best_last - best_first:
                middle = (start + k - 1) // 2
                distance = abs(end_a[middle] - end_b[middle - lag])
                if distance <= furthest and (k - start > best_last - best_first or distance < best_distance):
                    best_lag, best_first, best_last, best_distance = lag, start, k, distance
            start = k + 1
    return best_lag, best_first, best_last
