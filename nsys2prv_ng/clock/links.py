"""Compares two clocks by the messages of a link in both directions, as NTP does (RFC 5905).

A message that leaves at `sent` by clock A and arrives at `received` by clock B took its delay plus the difference of
the clocks. A message in the other direction took its delay minus that difference. If the shortest possible delays are
equal in both directions, half the difference of the shortest times is the difference of the clocks.

Most messages take longer because a receiver was late: in a chain of pipeline stages often by milliseconds. So only the
shortest ones count. If they form a cluster, its mean is taken. Otherwise the shortest message is taken, and the next
ones show how late it may still be. A wrong drift makes the sum of the shortest times of both directions smaller. So the
drift is where this sum is largest, and other drifts are possible while the sum is not smaller than the doubt about the
shortest times allows (after Zhang, Liu and Xia, 2002, who use convex hulls).
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from nsys2prv_ng.arrays.types import BoolArray, FloatArray, IntArray
from nsys2prv_ng.clock.fit import MOST_DRIFT
from nsys2prv_ng.clock.matches import Delays
from nsys2prv_ng.runtime.jit import compiled
from nsys2prv_ng.value_class import ValueClass

FEWEST = 8
"""Fewest messages in each direction of a link. A choice: the bound on how late the shortest is needs some others."""

_ASYMMETRY = 0.13
_LEAST_ASYMMETRY_NS = 10e3
"""Half the difference between both directions that is allowed for, as a share of the delay, and at least. On one
physical clock, it was 0.3 to 7.5 % for links of NCCL over a socket."""

# A choice, as the next two are: with a wider cluster, messages to late receivers count; with a narrower one, fewer do.
_REACH = 0.3
_LEAST_REACH_NS = 20e3
"""Messages of a cluster exceed the shortest by at most this share of the delay, and this time is always allowed."""
_FEWEST_IN_CLUSTER = 4
_USUAL = 4.0
"""Delays of a cluster count up to this multiple of the distance from its shortest (5 %) to its first quartile."""

_DOUBT = 0.01
"""Probability that the shortest message is later than its bound."""
_LEAST_LATE_NS = 2e3
"""Recorded times are not more exact than this."""
_MOST_NEXT = 256
"""Most of the next messages to use for that bound."""

_DRIFT_SPAN_NS = 1e9
"""Shortest time for fitting drift. In less time, drift adds less than the error of a link."""
_HALVINGS = 48


class Link(ValueClass):
    """The difference of two clocks: what `other` shows minus what `one` shows, by the time that `one` shows.

    `offset` (ns) is the difference at `since`, `drift` (relative) its change; both have a standard error, NaN if no
    drift was found. `error` bounds the error (ns) anywhere in the window with 99 % confidence, unless one direction
    takes even longer than allowed for. `pairs`: number of compared messages in the rarer direction; `median` and
    `percentile_95`: quantiles of the distance (ns) of compared messages from their mean.
    """

    one: int
    other: int
    offset: float
    drift: float
    error: float
    offset_error: float
    drift_error: float
    pairs: int
    median: float
    percentile_95: float


class _Direction(ValueClass):
    """The delays (ns) of one direction that count, which `usual` marks: their mean, and the shortest.

    The shortest is at most `late` longer than the shortest possible delay, with 99 % confidence. `deviation`: standard
    error of the center.
    """

    center: float
    shortest: float
    late: float
    usual: BoolArray
    deviation: float


def fit_links(delays: Delays, since: int, half_window: float) -> list[Link]:
    """Return the difference of both clocks of each link that has enough messages in both directions.

    The window is from since - half_window to since + half_window (ns).
    """
    links: list[Link] = []
    order = np.argsort(delays.link, kind="stable")
    limits = np.flatnonzero(np.diff(delays.link[order], prepend=-1, append=-1))
    for low, high in pairwise(limits.tolist()):
        rows = order[low:high]
        forward, back = (rows[delays.is_forward[rows] == is_forward] for is_forward in (True, False))
        if min(forward.size, back.size) >= FEWEST:
            links.append(_fit_link(delays, forward, back, since, half_window))
    return links


def _fit_link(delays: Delays, forward: IntArray, back: IntArray, since: int, half_window: float) -> Link:
    # A rough difference keeps the numbers small, so that they are exact as floats.
    rough = int(np.min(delays.received[forward] - delays.sent[forward]))
    time = (delays.sent[forward] - since).astype(np.float64), (delays.received[back] - since).astype(np.float64)
    there = (delays.received[forward] - delays.sent[forward] - rough).astype(np.float64)
    again = (delays.received[back] - delays.sent[back] + rough).astype(np.float64)

    best = _find_best_drift(time[0], there, time[1], again)
    one, other, _ = _choose(there - best * time[0], again + best * time[1])
    best = _refine_drift(time[0][one.usual], there[one.usual], time[1][other.usual], again[other.usual], best)
    one, other, delay = _choose(there - best * time[0], again + best * time[1])
    least = one.shortest + other.shortest - one.late - other.late
    low, high = _find_possible_drifts(time[0], there, time[1], again, best, least)
    is_short = min(np.ptp(time[0]), np.ptp(time[1])) < _DRIFT_SPAN_NS
    drift = 0.0 if is_short or low <= 0.0 <= high else best
    if drift != best:
        one, other, delay = _choose(there, again)

    tilt = 0.0
    for possible in (low, high):
        shortest = (there - possible * time[0]).min(), (again + possible * time[1]).min()
        moved = (shortest[0] - shortest[1] - one.shortest + other.shortest) / 2
        tilt = max(tilt, abs(moved) + abs(possible - drift) * half_window)
    longer = one.center - one.shortest, other.center - other.shortest
    middle = (one.center - other.center) / 2
    certain = max(one.shortest - middle, middle + other.shortest)  # no message arrives before it was sent
    late = abs(longer[0] - longer[1]) / 2 + max(one.late, other.late) / 2
    asymmetry = max(_ASYMMETRY * delay, _LEAST_ASYMMETRY_NS)
    sides = (there - drift * time[0], one), (again + drift * time[1], other)
    distance = np.concatenate([np.abs(delays_of[side.usual] - side.center) for delays_of, side in sides])
    return Link(
        one=int(delays.sender[forward[0]]),
        other=int(delays.receiver[forward[0]]),
        offset=rough + middle,
        drift=drift,
        error=min(float(np.hypot(asymmetry, late + tilt)), certain + tilt),
        offset_error=float(np.hypot(one.deviation, other.deviation)) / 2,
        drift_error=(high - low) / 4 if drift else np.nan,
        pairs=int(min(one.usual.sum(), other.usual.sum())),
        median=float(np.median(distance)),
        percentile_95=float(np.percentile(distance, 95)),
    )


# ---- the shortest delays ---------------------------------------------------------------------------------------------


def _choose(there: FloatArray, again: FloatArray) -> tuple[_Direction, _Direction, float]:
    """Return the delays that count in both directions, and the usual delay (ns)."""
    delay = max(float(there.min() + again.min()) / 2, 0.0)
    reach = max(_REACH * delay, _LEAST_REACH_NS)
    return _choose_shortest(there, reach), _choose_shortest(again, reach), delay


def _choose_shortest(delay: FloatArray, reach: float) -> _Direction:
    """Return the delays (ns) of one direction that count: those within `reach` of the shortest, if they are a cluster.

    A cluster is at least twice as dense as the delays after it; its tail does not count. Without a cluster, only the
    shortest delay counts.
    """
    count = min(_MOST_NEXT + 1, delay.size)
    next_ones = np.sort(np.partition(delay, count - 1)[:count])
    shortest = float(next_ones[0])
    rank = np.arange(1, next_ones.size)
    # Where delays are evenly dense, the shortest is later than this with the probability _DOUBT.
    late = max(float(((_DOUBT ** (-1 / rank) - 1) * (next_ones[1:] - shortest)).min()), _LEAST_LATE_NS)
    inside = delay <= shortest + reach
    count, following = int(inside.sum()), int((delay <= shortest + 3 * reach).sum())
    if count < _FEWEST_IN_CLUSTER or count < following - count:
        return _Direction(shortest, shortest, late, delay == shortest, late / 2)
    low, quarter = np.percentile(delay[inside], [5, 25])
    inside &= delay <= low + max(_USUAL * (quarter - low), _LEAST_REACH_NS)
    count = int(inside.sum())
    deviation = float(delay[inside].std() / np.sqrt(count))
    return _Direction(float(delay[inside].mean()), shortest, late, inside, deviation)


# ---- drift -----------------------------------------------------------------------------------------------------------


@compiled
def _sum_shortest(
    time_there: FloatArray, there: FloatArray, time_again: FloatArray, again: FloatArray, drift: float
) -> float:
    """Return the sum of the shortest delays of both directions without a drift: a concave function of it."""
    shortest_there, shortest_again = np.inf, np.inf
    for i in range(there.size):
        shortest_there = min(shortest_there, there[i] - drift * time_there[i])
    for i in range(again.size):
        shortest_again = min(shortest_again, again[i] + drift * time_again[i])
    return shortest_there + shortest_again


@compiled
def _find_best_drift(time_there: FloatArray, there: FloatArray, time_again: FloatArray, again: FloatArray) -> float:
    """Return the drift with the largest sum of the shortest delays."""
    low, high = -MOST_DRIFT, MOST_DRIFT
    for _ in range(2 * _HALVINGS):
        one, other = low + (high - low) / 3, high - (high - low) / 3
        at_one = _sum_shortest(time_there, there, time_again, again, one)
        at_other = _sum_shortest(time_there, there, time_again, again, other)
        if at_one <= at_other:
            low = one
        if at_other <= at_one:
            high = other
    return (low + high) / 2


@compiled
def _find_possible_drifts(
    time_there: FloatArray, there: FloatArray, time_again: FloatArray, again: FloatArray, best: float, least: float
) -> tuple[float, float]:
    """Return the least and the largest drift for which the sum of the shortest delays is at least `least` (ns)."""
    lowest, highest = best, best
    for limit in (-MOST_DRIFT, MOST_DRIFT):
        inside, outside = best, limit
        if _sum_shortest(time_there, there, time_again, again, limit) >= least:
            inside = limit
        for _ in range(_HALVINGS):
            middle = (inside + outside) / 2
            if _sum_shortest(time_there, there, time_again, again, middle) >= least:
                inside = middle
            else:
                outside = middle
        lowest, highest = min(lowest, inside), max(highest, inside)
    return lowest, highest


def _refine_drift(
    time_there: FloatArray, there: FloatArray, time_again: FloatArray, again: FloatArray, drift: float
) -> float:
    """Return the drift by least squares over the clusters of both directions."""
    one, other = time_there - time_there.mean(), time_again - time_again.mean()
    square = float(one @ one + other @ other)
    if min(there.size, again.size) < _FEWEST_IN_CLUSTER or square <= 0:
        return drift
    return float(np.clip((one @ there - other @ again) / square, -MOST_DRIFT, MOST_DRIFT))
