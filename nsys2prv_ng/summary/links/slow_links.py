"""Finds pairs of GPUs, ranks or nodes whose messages take far longer than those of other pairs with the same size.

A pair has peers: the other pairs of the same library with messages of the same size, as many in a kernel or call, all
within nodes or all between nodes. It is compared at the size in which it moved most bytes. It is slow if

- it and at least two peers have at least FEWEST messages of the size,
- its median transfer time is at least FAR times the median of its peers' medians, and longer by SHORTEST_NS,
- three quarters of its messages took longer than the third quartile of its peers' third quartiles, by more than the
  clock errors of both.

Medians and quartiles bear single slow messages and single slow peers. If more than a quarter of the peers are as slow,
the pair is not named: then one direction, or the whole network, is slow.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nsys2prv_ng.arrays.row_keys import encode_rows, find_starts
from nsys2prv_ng.arrays.types import BoolArray, FloatArray, IntArray

FEWEST, FEWEST_PEERS = 8, 2
FAR = 4 / 3
"""Least ratio of transfer times: a rate that is a quarter lower.

In a real run over a socket between two nodes, the slowest of four healthy pairs takes 1.19 times as long as its peers.
"""
SHORTEST_NS = 20_000
"""Least difference of transfer times (ns): calls and launches take as long to return."""


class PairTimes(NamedTuple):
    """n pairs at one size, in columns. `group` is equal for peers. Times are ns, per message."""

    group: IntArray
    pair: IntArray
    """Equal for one pair at several sizes."""
    bytes: IntArray
    """Size of a message."""
    messages: IntArray
    """Number of messages."""
    low: IntArray
    """First quartile, median and third quartile of the transfer times."""
    median: IntArray
    high: IntArray
    error: FloatArray

    def take(self, which: IntArray | BoolArray) -> PairTimes:
        """Return the pairs that indices or a mask select."""
        return PairTimes._make([column[which] for column in self])


class SlowPairs(NamedTuple):
    """Pairs that are slow: index, number of peers, the shortest and the longest median of a peer (ns)."""

    which: IntArray
    peers: IntArray
    shortest: IntArray
    longest: IntArray


def find_slow_pairs(pairs: PairTimes) -> SlowPairs:
    """Return the slow pairs, by the rules above."""
    known = np.flatnonzero(pairs.messages >= FEWEST)
    chosen = pairs.take(known)
    size = np.bincount(chosen.group)[chosen.group] if known.size else known
    known, chosen = known[size > FEWEST_PEERS], chosen.take(size > FEWEST_PEERS)
    medians, highs = _Others(chosen.group, chosen.median), _Others(chosen.group, chosen.high)
    usual = medians.pick(medians.count // 2)
    limit = highs.pick(-(-3 * (highs.count - 1) // 4))
    errors = _Others(chosen.group, np.rint(np.minimum(chosen.error, np.iinfo(np.int64).max // 4)).astype(np.int64))
    error = chosen.error + errors.pick(errors.count - 1)
    slow = (chosen.median >= FAR * usual) & (chosen.median - usual >= SHORTEST_NS) & (chosen.low - limit > error)
    slow &= _mark_largest(chosen)
    return SlowPairs(
        known[slow], medians.count[slow], medians.pick(medians.count * 0)[slow], medians.pick(medians.count - 1)[slow]
    )


def _mark_largest(pairs: PairTimes) -> BoolArray:
    """Mark for each pair the size in which it moved most bytes."""
    order = np.lexsort((-(pairs.bytes * pairs.messages), pairs.pair))
    marks = np.zeros(order.size, np.bool_)
    marks[order[find_starts(pairs.pair[order])]] = True
    return marks


class _Others:
    """The values of the other members of the group of each of n members, in ascending order."""

    def __init__(self, group: IntArray, values: IntArray) -> None:
        code, _ = encode_rows(group)
        order = np.lexsort((values, code))
        self._sorted = values[order]
        first = find_starts(code[order])
        sizes = np.diff(np.append(first, order.size))
        self._first = first[code[order]][np.argsort(order)] if order.size else order
        self._rank = np.argsort(order) - self._first
        self.count: IntArray = (sizes[code] if order.size else order) - 1

    def pick(self, number: IntArray) -> IntArray:
        """Return the value with this number (0: the smallest) among the others of each member."""
        return self._sorted[self._first + number + (number >= self._rank)]
