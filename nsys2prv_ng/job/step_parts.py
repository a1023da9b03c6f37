"""Counts names in parts of a task's work, and compares the parts with the typical one."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nsys2prv_ng.arrays.row_keys import encode_rows
from nsys2prv_ng.arrays.types import FloatArray, IntArray, IntTable
from nsys2prv_ng.runtime.jit import compiled

_WORD = 4
"""Number of names that foretell the next one."""


class PartCounts(NamedTuple):
    """How often each of r pairs of a name and a part of m parts comes."""

    name: IntArray
    part: IntArray
    times: IntArray
    parts: int

    def choose(self, first: int, last: int) -> PartCounts:
        """Return the counts of the parts first to last - 1."""
        kept = (self.part >= first) & (self.part < last)
        return PartCounts(self.name[kept], self.part[kept] - first, self.times[kept], last - first)

    def find_typical(self, names: int) -> IntArray:
        """Return how often a part has each of k names, at the median of all parts (the lower one)."""
        most = int(self.times.max(initial=0)) + 1
        ranked = np.sort(self.name * most + self.times)
        present = np.bincount(self.name, minlength=names)
        at = (self.parts - 1) // 2 - (self.parts - present)
        start = np.cumsum(present) - present
        typical = np.zeros(names, np.int64)
        known = np.flatnonzero((at >= 0) & (present > 0))
        typical[known] = ranked[start[known] + at[known]] - known * most
        return typical

    def compare(self, typical: IntArray, weight: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return what each part (m) shares with the typical part, and what either has. `weight` of a name (k)."""
        least = np.minimum(self.times, typical[self.name])
        shared, own = (
            np.bincount(self.part, times * weight[self.name], self.parts).astype(np.float64)
            for times in (least, self.times)
        )
        return shared, own + float(typical @ weight) - shared


def count_names(name: IntArray, names: int, limits: IntArray) -> PartCounts:
    """Return the counts of the names in the parts between limits (m + 1). `name`: index, below `names`, of each (n)."""
    pairs = np.empty((3, int(limits[-1] - limits[0])), np.int64)
    found = _count_in_parts(name, limits, np.full(names, -1), pairs)
    found_name, found_part, times = pairs[:, :found].copy()
    return PartCounts(found_name, found_part, times, limits.size - 1)


@compiled
def _count_in_parts(name: IntArray, limits: IntArray, latest: IntArray, pairs: IntTable) -> int:
    """Set name, part and count of each pair of a name and a part that has it, and return how many there are.

    `limits`: of m parts (m + 1). `latest`: the latest pair of each name, -1 at first.
    """
    found = 0
    for part in range(limits.size - 1):
        first = found
        for at in range(limits[part], limits[part + 1]):
            own = name[at]
            if latest[own] < first:
                pairs[0, found], pairs[1, found], pairs[2, found] = own, part, 0
                latest[own] = found
                found += 1
            pairs[2, latest[own]] += 1
    return found


def find_largest_sum(value: FloatArray) -> tuple[int, int]:
    """Return the first index and the one after the last index of the run of values with the largest sum."""
    # No run contains an infinite value, since it costs more than all others are worth.
    total = np.append(0.0, np.cumsum(np.where(np.isinf(value), -np.abs(value[~np.isinf(value)]).sum() - 1, value)))
    least = np.minimum.accumulate(total)
    last = int(np.argmax(total - least))
    return int(np.flatnonzero(total[: last + 1] == least[last])[-1]), last


def foresee(name: IntArray) -> float:
    """Return the share of names (n) that are the most frequent ones after the same four names; 1 for a few names.

    A name does not count for itself, so that rare words foretell nothing.
    """
    size = name.size - _WORD
    if size < 2 * _WORD:
        return 1.0
    word = np.zeros(size, np.int64)
    names = int(name.max()) + 1
    for at in range(_WORD):
        word, _ = encode_rows(word * names + name[at : at + size])
    pair, first = encode_rows(word * names + name[_WORD:])
    count = np.bincount(pair)
    owner = word[first]
    times = np.bincount(owner, count).astype(np.int64)
    best = np.zeros(times.size, np.int64)
    np.maximum.at(best, owner, count)
    again = times > 1
    return float((best[again] - 1).sum() / max((times[again] - 1).sum(), 1))
