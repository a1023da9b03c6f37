"""Finds by how many operations the sequences of two ranks are shifted against each other.

A capture range starts and stops between any two operations, and not between the same operations on all ranks. So the
k-th operation that one rank recorded is the (k + lag)-th operation of the other. If both recorded an operation, they
agree in its kind and size. Programs repeat themselves, so several lags may agree. With the right lag, the differences
of the ends are steady (they are the offset and drift of the clocks), while steps of a program never take the same time.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nsys2prv_ng.arrays.types import FloatArray, FloatTable, IntArray
from nsys2prv_ng.operations.parts import ANY_SIZE
from nsys2prv_ng.runtime.jit import compiled, take_median

# A choice, far above the 37 ms of the nodes of a real capture: nodes with a larger difference are not fitted.
FURTHEST_UTC_NS = 2 * 10**9
"""Largest difference in UTC of compared nodes: operations further apart belong to another part of the program."""

# A choice: with less, parts of a program that repeats itself agree by chance; with more, short captures are not
# compared.
LEAST_OVERLAP = 0.5
"""Share of the shorter sequence that must be in both; and at least _FEW operations, if there are that many."""

_FEW = 3

# A choice: with wider limits, a lag that is wrong by a step of the program may be nearer and be chosen; with narrower
# ones, noise decides between equal lags.
_AS_STEADY = 3.0
_STEADY_FLOOR_NS = 1000.0
"""Limits, relative to the best lag, within which the ends of another lag count as equally steady."""

_SAMPLES = 129
"""Most ends that are compared of one lag. A choice, which bounds the time that a lag takes."""

_MOST_WORK = 1 << 26
"""Most comparisons in the search for the longest common run of two sequences: they take a tenth of a second."""
STEEPEST = 1e-4
"""Largest drift between two clocks that is removed from the differences of ends."""


class Sequence(NamedTuple):
    """Operations of one rank in a communicator, in order: kind, size and end (ns) of each."""

    operation: IntArray
    size: IntArray
    end: IntArray


class Lag(NamedTuple):
    """Operations first .. last - 1 of one sequence are first - lag .. last - 1 - lag of the other."""

    lag: int
    first: int
    last: int


class Lags(NamedTuple):
    """n lags, the spreads of the ends and their median differences (ns)."""

    lag: IntArray
    spread: FloatArray
    middle: FloatArray


def find_lag(one: Sequence, other: Sequence) -> Lag | None:
    """Return the shift of `other` against `one`; None if no part of them agrees within reach of their clocks.

    If the whole overlap agrees for no lag (operations were lost), return the longest run that agrees.
    """
    n, m = one.end.size, other.end.size
    least = max(min(_FEW, n, m), int(LEAST_OVERLAP * min(n, m)))
    nearest = n // 2 - int(np.searchsorted(other.end, one.end[n // 2])) if n and m else least - m
    found = Lags(np.empty(n + m, np.int64), np.empty(n + m), np.empty(n + m))
    count = _find_steady(one, other, least, nearest, found, np.empty((2, _SAMPLES)), np.empty(_SAMPLES))
    if not count:
        centre = min(n - 1, int(np.searchsorted(one.end, other.end[m // 2]))) - m // 2 if n and m else 0
        lag, first, last = _find_longest_run(one, other, centre)
        return Lag(int(lag), int(first), int(last)) if last - first >= max(least, 2) else None
    lags, spreads = found.lag[:count], found.spread[:count]
    by_distance = np.lexsort((lags, np.abs(found.middle[:count])))
    lag = int(_choose_lag(one, other, lags, spreads, np.argsort(spreads), by_distance))
    return Lag(lag, max(0, lag), min(n, m + lag))


@compiled
def _are_equal(op_a: int, size_a: int, op_b: int, size_b: int) -> bool:
    return op_a == op_b and (size_a in (size_b, ANY_SIZE) or size_b == ANY_SIZE)


@compiled
def _are_near(end_a: IntArray, end_b: IntArray, lag: int, low: int, high: int) -> bool:
    """Return whether the ends of an overlap are within reach, by the median of three."""
    x = end_a[low] - end_b[low - lag]
    y = end_a[(low + high - 1) // 2] - end_b[(low + high - 1) // 2 - lag]
    z = end_a[high - 1] - end_b[high - 1 - lag]
    return abs(max(min(x, y), min(max(x, y), z))) <= FURTHEST_UTC_NS


@compiled
def _sample(end_a: IntArray, end_b: IntArray, lag: int, low: int, high: int, samples: FloatTable) -> int:
    """Sample evenly spread operations: their times (ns) from the start of an overlap, and the differences of ends.

    Samples are (2, n): time and difference. Return how many there are.
    """
    count = min(high - low, _SAMPLES)
    for i in range(count):
        k = low + (i * (high - low)) // count
        samples[0, i] = end_a[k] - end_a[low]
        samples[1, i] = end_a[k] - end_b[k - lag]
    return count


@compiled
def _may_be_steady(samples: FloatTable, count: int, limit: float) -> bool:
    """Return False if the spread of the differences is certainly above the limit (ns). Compares three at once.

    If the spread is within the limit, at least half of the differences are within the limit of their line. Then so are
    two differences of at least a quarter of the triples, because a triple has at most three of them.
    """
    triples = count // 3
    needed = ((count + 1) // 2 - triples - count % 3 + 1) // 2
    near = 0
    for i in range(triples):
        if near >= needed:
            return True
        if near + triples - i < needed:
            return False
        a, b, c = 3 * i, 3 * i + 1, 3 * i + 2
        reach = 2 * limit + STEEPEST * abs(samples[0, c] - samples[0, a]) + 1.0
        x, y, z = samples[1, a], samples[1, b], samples[1, c]
        if min(abs(x - y), abs(y - z), abs(x - z)) <= reach:
            near += 1
    return near >= needed


@compiled
def _measure_spread(samples: FloatTable, count: int, limit: float, room: FloatArray) -> float:
    """Return the median distance of the differences of ends from their line; infinity if it is above the limit (ns)."""
    half = count // 2
    slope = 0.0
    if half >= 4:
        for i in range(half):
            k = i + count - half
            room[i] = (samples[1, k] - samples[1, i]) / max(1.0, samples[0, k] - samples[0, i])
        slope = min(STEEPEST, max(-STEEPEST, take_median(room, half)))
    for i in range(count):
        room[i] = samples[1, i] - slope * samples[0, i]
    middle = take_median(room, count)
    near = 0
    for i in range(count):
        room[i] = abs(samples[1, i] - slope * samples[0, i] - middle)
        near += room[i] <= limit
    return take_median(room, count) if near >= (count + 1) // 2 else np.inf


@compiled
def _agree(one: Sequence, other: Sequence, lag: int, low: int, high: int, stride: int) -> bool:
    """Return whether every `stride`-th operation of an overlap agrees in both sequences."""
    k = low
    while k < high and _are_equal(one.operation[k], one.size[k], other.operation[k - lag], other.size[k - lag]):
        k += stride
    return k >= high


@compiled
def _find_steady(
    one: Sequence, other: Sequence, least: int, nearest: int, found: Lags, samples: FloatTable, room: FloatArray
) -> int:
    """Find all steady lags that agree, and some others, and return how many there are.

    Steady means about as steady as the steadiest lag. The other lags may or may not agree. A program that repeats
    itself agrees with itself at thousands of lags. Only the lags that become the steadiest so far are compared in full,
    starting with the nearest, because the right lag soon makes the others unlikely.
    """
    n, m = one.end.size, other.end.size
    count = 0
    limit, best = np.inf, np.inf
    lowest, highest = least - m, n - least
    nearest = min(max(nearest, lowest), highest)
    for step in range(2 * max(highest - nearest, nearest - lowest) + 1):
        lag = nearest + (step + 1) // 2 if step % 2 else nearest - step // 2
        low, high = max(0, lag), min(n, m + lag)
        if lag < lowest or lag > highest or not _are_near(one.end, other.end, lag, low, high):
            continue
        if not _agree(one, other, lag, low, high, max(1, (high - low) // _SAMPLES)):
            continue
        size = _sample(one.end, other.end, lag, low, high, samples)
        if not _may_be_steady(samples, size, limit):
            continue
        spread = _measure_spread(samples, size, limit, room)
        if spread > limit:
            continue
        for i in range(size):
            room[i] = samples[1, i]
        middle = take_median(room, size)
        # A few ends may be steady by chance: then their distance counts as well.
        spread += abs(middle) * 0.25 ** (high - low)
        if spread > limit:
            continue
        if spread < best:
            if not _agree(one, other, lag, low, high, 1):
                continue
            best = spread
            limit = _AS_STEADY * best + _STEADY_FLOOR_NS
        found.lag[count], found.spread[count], found.middle[count] = lag, spread, middle
        count += 1
    return count


@compiled
def _choose_lag(
    one: Sequence, other: Sequence, lags: IntArray, spreads: FloatArray, by_spread: IntArray, by_distance: IntArray
) -> int:
    """Return a steady lag: 0 if it is steady and both sequences have equally many operations, else the nearest."""
    n, m = one.end.size, other.end.size
    limit = np.inf
    for i in by_spread:
        lag = lags[i]
        if _agree(one, other, lag, max(0, lag), min(n, m + lag), 1):
            limit = _AS_STEADY * spreads[i] + _STEADY_FLOOR_NS
            break
    nearest = lags[by_distance[0]]
    has_nearest = False
    for i in by_distance:
        lag = lags[i]
        if spreads[i] > limit or (has_nearest and (n != m or lag != 0)):
            continue
        if not _agree(one, other, lag, max(0, lag), min(n, m + lag), 1):
            continue
        if n == m and lag == 0:
            return 0
        if not has_nearest:
            nearest, has_nearest = lag, True
    return nearest


def overlap_in_time(one: Sequence, other: Sequence) -> bool:
    """Return whether most of `other` is within reach of `one` in time, so that only its content differs."""
    low, high = one.end[0] - FURTHEST_UTC_NS, one.end[-1] + FURTHEST_UTC_NS
    inside = int(((other.end >= low) & (other.end <= high)).sum())
    return inside >= other.end.size * (1 - LEAST_OVERLAP / 2)


@compiled
def _find_longest_run(one: Sequence, other: Sequence, centre: int) -> tuple[int, int, int]:
    """Return (lag, first, last) of the longest run that agrees, with ends within reach; on a tie, the nearest.

    The search starts at the lag `centre` and goes outwards, so that the limit on the work costs the unlikely lags.
    """
    end_a, end_b = one.end, other.end
    n, m = end_a.size, end_b.size
    best_lag, best_first, best_last, best_distance = 0, 0, 0, FURTHEST_UTC_NS
    centre = min(max(centre, 1 - m), n - 1)
    work = 0
    for i in range(2 * (n + m)):
        lag = centre + ((i + 1) // 2 if i % 2 else -(i // 2))
        if lag <= -m or lag >= n:
            continue
        if work > _MOST_WORK:
            break
        work += min(n, m + lag) - max(0, lag)
        low, high = max(0, lag), min(n, m + lag)
        if high - low < best_last - best_first:
            continue
        start = low
        for k in range(low, high + 1):
            if k < high and _are_equal(one.operation[k], one.size[k], other.operation[k - lag], other.size[k - lag]):
                continue
            if k > start and k - start >= best_last - best_first:
                middle = (start + k - 1) // 2
                distance = abs(end_a[middle] - end_b[middle - lag])
                if distance <= FURTHEST_UTC_NS and (k - start > best_last - best_first or distance < best_distance):
                    best_lag, best_first, best_last, best_distance = lag, start, k, distance
            start = k + 1
    return best_lag, best_first, best_last
