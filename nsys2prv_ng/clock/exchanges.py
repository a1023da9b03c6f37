"""Turns messages in both directions of a link into operations for the fit, as NTP does (RFC 5905).

A message that leaves at `sent` by clock A and arrives at `received` by clock B took delay + difference. A message in
the other direction took delay - difference. If both delays are equal, the mean of the two times on A and the mean of
the two times on B are one instant. So an exchange of two messages is an operation that both clocks leave together.
Delays are not quite equal, and many are too long, because a receiver was late. So only the usual delays count, just
above the shortest ones (the lower envelope). Half of their spread is the error of a link: more messages do not make it
smaller.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pandas as pd

from nsys2prv_ng.arrays.types import BoolArray, FloatArray, IntArray
from nsys2prv_ng.clock.matches import Matches, match_reports
from nsys2prv_ng.clock.messages import NEVER_ENTERS, Delays, make_empty

FEWEST = 8
"""Fewest messages in each direction of a link."""

_USUAL = 4.0
_USUAL_FLOOR_NS = 20e3
"""Usual delays exceed the shortest (5 %) by at most this multiple of the distance to the first quartile, or the
floor."""
_LEAST_SPREAD_NS = 10e3
"""Links are not more symmetric than this, as measured on one physical clock."""

_BLOCK_NS = 1e9
_BLOCKS = (4, 64)
"""Fewest and most blocks of time for removing the drift along a link before delays are compared."""
_STEEPEST = 1e-4


Link = tuple[int, int, float]
"""Two domains with exchanges of messages, and the error (ns) of these exchanges."""


def make_exchanges(delays: Delays) -> tuple[Matches, list[Link]]:
    """Pair messages in opposite directions of each link, if it has enough of both; return them as operations."""
    tables: list[pd.DataFrame] = []
    links: list[Link] = []
    order = np.argsort(delays.link, kind="stable")
    limits = np.flatnonzero(np.diff(delays.link[order], prepend=-1, append=-1))
    for low, high in pairwise(limits.tolist()):
        rows = order[low:high]
        forward, back = (rows[delays.is_forward[rows] == is_forward] for is_forward in (True, False))
        if min(forward.size, back.size) < FEWEST:
            continue
        one, other = int(delays.sender[forward[0]]), int(delays.receiver[forward[0]])
        forward, back, error = _choose_usual(delays, forward, back)
        if min(forward.size, back.size) < FEWEST // 2:
            continue
        tables.append(_exchange(delays, forward, back, (one, other), len(links)))
        links.append((one, other, error))
    return match_reports(pd.concat(tables, ignore_index=True) if tables else make_empty()), links


def _exchange(delays: Delays, forward: IntArray, back: IntArray, ends: tuple[int, int], link: int) -> pd.DataFrame:
    """Pair messages in the order of time, as many as the rarer direction has. Return rows for `match_reports`."""
    count = min(forward.size, back.size)
    ordered = (rows[np.argsort(delays.sent[rows])] for rows in (forward, back))
    there, again = (rows[np.arange(count) * rows.size // count] for rows in ordered)  # spread evenly
    at_one = delays.sent[there] + (delays.received[again] - delays.sent[there]) // 2
    at_other = delays.received[there] + (delays.sent[again] - delays.received[there]) // 2
    return pd.DataFrame(
        {
            "group": np.full(2 * count, link, np.int64),
            "instance": np.tile(np.arange(count, dtype=np.int64), 2),
            "fits": np.ones(2 * count, np.bool_),
            "domain": np.repeat(np.array(ends, np.int64), count),
            "enter": np.full(2 * count, NEVER_ENTERS, np.int64),
            "leave": np.concatenate([at_one, at_other]),
        }
    )


def _choose_usual(delays: Delays, forward: IntArray, back: IntArray) -> tuple[IntArray, IntArray, float]:
    """Return the messages with usual delays in each direction, and the error of the link (ns)."""
    start = delays.sent[forward[0]]
    time_there, time_back = ((delays.sent[rows] - start).astype(np.float64) for rows in (forward, back))
    there, again = ((delays.received[rows] - delays.sent[rows]).astype(np.float64) for rows in (forward, back))
    drift = _find_drift(time_there, there, time_back, again)
    usual_there, usual_again = _mark_usual(there - drift * time_there), _mark_usual(again + drift * time_back)
    if drift:  # a rough estimate by the shortest delays of blocks would make delays at the ends look unusual
        drift = _refine_drift(
            time_there[usual_there], there[usual_there], time_back[usual_again], again[usual_again], drift
        )
        usual_there, usual_again = _mark_usual(there - drift * time_there), _mark_usual(again + drift * time_back)
    there, again = there - drift * time_there, again + drift * time_back
    spread = max(_measure_spread(there[usual_there]), _measure_spread(again[usual_again]), _LEAST_SPREAD_NS)
    return forward[usual_there], back[usual_again], spread


def _mark_usual(delay: FloatArray) -> BoolArray:
    """Mark the delays (ns) just above the shortest ones."""
    shortest, quarter = np.percentile(delay, [5, 25])
    reach = max(_USUAL * (quarter - shortest), _USUAL_FLOOR_NS)
    return np.asarray(np.abs(delay - shortest) <= reach, np.bool_)


def _measure_spread(delay: FloatArray) -> float:
    """Return half the distance (ns) between the shortest and the longest usual delay, without 5 % on each side."""
    low, high = np.percentile(delay, [5, 95])
    return float(high - low) / 2


def _find_drift(time_there: FloatArray, there: FloatArray, time_back: FloatArray, again: FloatArray) -> float:
    """Return the drift (relative) along a link by its shortest delays in blocks of time; 0 if the window is short."""
    low = max(time_there.min(), time_back.min())
    span = min(time_there.max(), time_back.max()) - low
    blocks = min(int(span / _BLOCK_NS), _BLOCKS[1])
    if blocks < _BLOCKS[0]:
        return 0.0
    times, differences = [], []
    for block in range(blocks):
        first, last = low + span * block / blocks, low + span * (block + 1) / blocks
        one = np.flatnonzero((time_there >= first) & (time_there < last))
        other = np.flatnonzero((time_back >= first) & (time_back < last))
        if one.size and other.size:
            a, b = one[np.argmin(there[one])], other[np.argmin(again[other])]
            times.append((time_there[a] + time_back[b]) / 2)
            differences.append((there[a] - again[b]) / 2)
    i, j = np.triu_indices(len(times), 1)
    time, difference = np.array(times), np.array(differences)
    if len(times) < _BLOCKS[0] or not (time[j] > time[i]).all():
        return 0.0
    return float(np.clip(np.median((difference[j] - difference[i]) / (time[j] - time[i])), -_STEEPEST, _STEEPEST))


def _refine_drift(
    time_there: FloatArray, there: FloatArray, time_back: FloatArray, again: FloatArray, drift: float
) -> float:
    """Return the drift by least squares over the usual delays of both directions."""
    one, other = time_there - time_there.mean(), time_back - time_back.mean()
    square = float(one @ one + other @ other)
    return float(one @ there - other @ again) / square if square > 0 else drift
