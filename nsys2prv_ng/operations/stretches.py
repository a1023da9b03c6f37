"""Matches the sequences of two ranks if reports lack some of their operations: finds a lag for each stretch.

The lag changes at a lost operation. Then no lag is right for the whole sequence, and a lag that is wrong by whole steps
of the program may agree best, though its ends are not steady. So the search finds a lag for each of many short pieces,
by the same rules as for a whole sequence. A lag of two or more pieces in a row extends as far as its ends are the
steadiest. A loss among the first or last eight operations does not show, nor does a loss in a sequence of fewer than
two pieces.
"""

from __future__ import annotations

import numpy as np

from nsys2prv_ng.arrays.types import FloatArray, IntArray
from nsys2prv_ng.operations.lag import FURTHEST_UTC_NS, LEAST_OVERLAP, STEEPEST, Lag, Sequence, find_lag
from nsys2prv_ng.operations.parts import ANY_SIZE

# A choice: fewer agree by chance, and with more, a loss near the start or end of a sequence does not show.
_PIECE = 16
"""Number of operations that are searched together if some were lost."""
_STEADY_NS = 100_000
"""Largest change (ns) of the median difference of ends from one piece to the next. Real reports have up to 50 us."""
_PROBES = 9
"""Number of pieces that are searched as far as FURTHEST_UTC_NS; the others only _NEAR_NS around their median."""
# A choice: at 50 ppm, clocks drift apart by as much in 2,000 s. A wider search takes longer and finds other steps.
_NEAR_NS = 10**8
# A choice, for speed: the lags of pieces cannot add much to such an overlap.
_MOSTLY = 0.9
"""Share of the shorter sequence in the overlap of a lag from which the search stops."""
_FAR = 1 << 62
_NEVER = 1e15
"""Difference (ns) of the ends of operations that do not agree."""


def find_lags(one: Sequence, other: Sequence) -> list[Lag]:
    """Return the shifts of `other` against `one` in order: several if operations were lost, [] if nothing agrees."""
    whole, shorter = find_lag(one, other), min(one.end.size, other.end.size)
    shared = 0 if whole is None else whole.last - whole.first
    steady = shared if whole is not None and _is_steady(one, other, whole) else 0
    if whole is not None and steady >= _MOSTLY * shorter:
        return [whole]
    probes = _probe_lags(one, other)
    if whole is not None and set(probes.values()) == {whole.lag} and shared == _overlap(one, other, whole.lag):
        return [whole]  # the ends of other lags are not steady either
    stretches = _find_stretches(one, other, probes)
    found = sum(stretch.last - stretch.first for stretch in stretches)
    if found > steady and found >= LEAST_OVERLAP * shorter:
        return stretches
    return [] if whole is None else [whole]


def _compare_ends(one: Sequence, other: Sequence, low: int, high: int, lag: int) -> FloatArray:
    """Return the differences of ends (ns) of operations low .. high - 1 of `one`; _NEVER if they do not agree."""
    difference = np.full(high - low, _NEVER)
    k = np.arange(max(low, lag), max(low, lag, min(high, other.end.size + lag)))
    sizes = one.size[k], other.size[k - lag]
    agrees = (sizes[0] == sizes[1]) | (sizes[0] == ANY_SIZE) | (sizes[1] == ANY_SIZE)
    k = k[agrees & (one.operation[k] == other.operation[k - lag])]
    difference[k - low] = one.end[k] - other.end[k - lag]
    return difference


def find_agreeing(one: Sequence, other: Sequence, stretch: Lag) -> IntArray:
    """Return the operations of a stretch that agree in kind and size, counted from its first."""
    return np.flatnonzero(_compare_ends(one, other, stretch.first, stretch.last, stretch.lag) != _NEVER)


def _is_steady(one: Sequence, other: Sequence, lag: Lag) -> bool:
    """Return whether the ends of each piece differ by about as much as the ends of the next."""
    starts = np.array(_list_pieces(lag.last - lag.first), np.int64)
    difference = _compare_ends(one, other, lag.first, lag.last, lag.lag)
    medians = np.median(difference[starts[:, None] + np.arange(_PIECE)], axis=1)
    time = one.end[lag.first + starts]
    return bool((np.abs(np.diff(medians)) <= _STEADY_NS + STEEPEST * np.diff(time)).all())


def _list_pieces(n: int) -> list[int]:
    """Return the starts of the pieces of n operations; the last two pieces may overlap."""
    return [*range(0, n - _PIECE, _PIECE), n - _PIECE] if n >= _PIECE else []


def _overlap(one: Sequence, other: Sequence, lag: int) -> int:
    return min(one.end.size, other.end.size + lag) - max(0, lag)


def _probe_lags(one: Sequence, other: Sequence) -> dict[int, int]:
    """Return the lags of some pieces, by the start of the piece, if they have a lag."""
    starts = _list_pieces(one.end.size)
    probes = {starts[i * (len(starts) - 1) // (_PROBES - 1)] for i in range(_PROBES)} if starts else set()
    lags = {at: _find_lag_of_piece(one, other, at, 0, FURTHEST_UTC_NS) for at in sorted(probes)}
    return {at: lag for at, lag in lags.items() if lag is not None}


def _find_stretches(one: Sequence, other: Sequence, probes: dict[int, int]) -> list[Lag]:
    """Return the lags that two or more pieces in a row share; [] if their ends are not steady either."""
    if not probes:
        return []
    apart = [np.median(_compare_ends(one, other, at, at + _PIECE, lag)) for at, lag in probes.items()]
    starts = _list_pieces(one.end.size)
    lags = [_find_lag_of_piece(one, other, at, int(np.median(apart)), _NEAR_NS) for at in starts]
    stretches: list[Lag] = []
    for at, following, lag, next_lag in zip(starts, starts[1:], lags, lags[1:], strict=False):
        if lag is not None and lag == next_lag:
            follows = bool(stretches) and stretches[-1].lag == lag and stretches[-1].last > at
            stretches.append(Lag(lag, stretches.pop().first if follows else at, following + _PIECE))
    for i in range(len(stretches) - 1):
        stretches[i : i + 2] = _choose_change(one, other, *stretches[i : i + 2])
    stretches = [stretch for stretch in stretches if stretch.last - stretch.first >= 2 * _PIECE]
    if not stretches or not all(_is_steady(one, other, stretch) for stretch in stretches):
        return []
    # Operations with which both sequences start or end were not lost.
    first, last, ends_both = stretches[0], stretches[-1], one.end.size - other.end.size
    stretches[0] = _trim(one, other, first, start=bool(first.first or first.lag), end=False)
    stretches[-1] = _trim(one, other, stretches[-1], start=False, end=last.last < one.end.size or last.lag != ends_both)
    return stretches


def _find_lag_of_piece(one: Sequence, other: Sequence, at: int, middle: int, furthest: int) -> int | None:
    """Return the lag of a piece of `one` against operations whose ends differ by `middle` ± `furthest` ns, or None."""
    piece = Sequence._make([column[at : at + _PIECE] for column in one])
    limits = [piece.end[0] - middle - furthest, piece.end[-1] - middle + furthest + 1]
    low, high = np.searchsorted(other.end, limits).tolist()
    found = find_lag(piece, Sequence._make([column[low:high] for column in other])) if high - low >= _PIECE else None
    return None if found is None or found.last - found.first < _PIECE else found.lag + at - low


def _choose_change(one: Sequence, other: Sequence, before: Lag, after: Lag) -> tuple[Lag, Lag]:
    """Return two stretches that follow each other, extended as far as the ends between them are steady."""
    lost = max(0, after.lag - before.lag)
    low, high = max(before.first, before.last - _PIECE - lost), min(after.last, after.first + _PIECE + lost)
    # Short stretches count as a whole: most of their operations are right.
    safe_last = low if low > before.first else before.last
    safe_first = high if high < after.last else after.first
    around = (
        _compare_ends(one, other, max(before.first, safe_last - _PIECE), safe_last, before.lag),
        _compare_ends(one, other, safe_first, min(after.last, safe_first + _PIECE), after.lag),
    )
    middle = float(np.median(np.concatenate(around)))
    one_cost, other_cost = (np.abs(_compare_ends(one, other, low, high, s.lag) - middle) for s in (before, after))
    until, since = np.append(0.0, np.cumsum(one_cost)), np.append(np.cumsum(other_cost[::-1])[::-1], 0.0)
    start = np.minimum(np.arange(until.size) + lost, high - low)
    # If both lags are the same, the operations between them differ: the change is at the largest deviation.
    change = int(np.argmin(until + since[start]) if before.lag != after.lag else np.argmax(one_cost))
    limit, since_limit = low + change, low + int(start[change])
    return (
        before._replace(last=limit - _count_unsteady(one, other, low, limit, before.lag, middle, backward=True)),
        after._replace(first=since_limit + _count_unsteady(one, other, since_limit, high, after.lag, middle)),
    )


def _trim(one: Sequence, other: Sequence, stretch: Lag, *, start: bool, end: bool) -> Lag:
    """Return a stretch without operations at its start or end that are not steady compared with the adjacent piece."""
    first, last, lag = stretch.first, stretch.last, stretch.lag
    if start:
        middle = float(np.median(_compare_ends(one, other, first + _PIECE, first + 2 * _PIECE, lag)))
        first += _count_unsteady(one, other, first, first + _PIECE, lag, middle)
    if end:
        middle = float(np.median(_compare_ends(one, other, last - 2 * _PIECE, last - _PIECE, lag)))
        last -= _count_unsteady(one, other, last - _PIECE, last, lag, middle, backward=True)
    return Lag(lag, first, last)


def _count_unsteady(
    one: Sequence, other: Sequence, low: int, high: int, lag: int, middle: float, *, backward: bool = False
) -> int:
    """Return the number of operations before the first steady one, or `backward`, after the last.

    An operation is steady if the ends differ by about `middle` (ns), or clearly less than from the ends of neighbours.
    """
    deviation = np.abs(_compare_ends(one, other, low, high, lag) - middle)
    k = np.arange(low, high)
    ends = np.concatenate([[-_FAR], other.end, [_FAR]]).astype(np.float64)
    beside = [ends[np.clip(k - lag + 1 + step, 0, ends.size - 1)] for step in (-1, 1)]
    nearest = np.minimum(*(np.abs(one.end[k] - end - middle) for end in beside))
    steady = (deviation <= _STEADY_NS) | (2 * deviation < nearest)
    return int(np.argmax(steady[::-1] if backward else steady)) if steady.any() else steady.size
