"""Finds the group of intervals that covers times nearly alone, such as the class of the kernels that run."""

from __future__ import annotations

import numpy as np

from nsys2prv_ng.arrays.types import IntArray, IntTable
from nsys2prv_ng.intervals.states import flatten
from nsys2prv_ng.runtime.jit import compiled
from nsys2prv_ng.runtime.kernels import search

_MOST, _LEAST = 9, 1
"""Least tenths of a time that its group covers, and most tenths that all others together cover.

No capture set them: with a lower share, more of a metric is of other kernels; with a higher one, fewer times count."""

Groups = tuple[IntArray, IntArray, IntArray]
"""Group, start and end (ns) of n intervals."""


def unite_groups(groups: Groups) -> Groups:
    """Return the intervals, ordered by group and start, so that those of one group do not overlap."""
    group, begin, end = groups
    flat = flatten(group, begin, end, np.zeros(group.size, np.int64))
    return flat.row, flat.begin, flat.end


def find_alone(groups: Groups, low: IntArray, high: IntArray) -> IntArray:
    """Return the group that covers at least 90% of each of n times (ns), if the others cover at most 10%; else -1.

    `groups`: from `unite_groups`. The times are ordered by `low`. The cover of the others is the sum of their covers,
    so a group of groups covers every time that one of its groups covers alone.
    """
    reach = np.maximum.accumulate(high)
    found, cover = np.full(low.size, -1), np.zeros((3, low.size), np.int64)
    _find_alone(groups, np.ascontiguousarray(low), np.ascontiguousarray(high), reach, cover, found)
    return found


@compiled
def _find_alone(
    groups: Groups, low: IntArray, high: IntArray, reach: IntArray, cover: IntTable, found: IntArray
) -> None:
    """Set the group of each time. `reach`: the largest `high` until each time.

    `cover` (3 x n): how much of each time (ns) the group that covers most, all groups and this group cover; 0 at first.
    """
    group, begin, end = groups
    most, total, current = cover
    first = last = 0  # times before `first` are done; the group has not reached those from `last` on
    for i in range(group.size + 1):
        is_new = i == group.size or (i > 0 and group[i] != group[i - 1])
        while first < last and (is_new or reach[first] <= begin[i]):
            total[first] += current[first]
            if current[first] > most[first]:
                most[first], found[first] = current[first], group[i - 1]
            current[first] = 0
            first += 1
        if i == group.size:
            break
        if first == last:
            first = last = search(reach, 0, low.size, begin[i] + 1)
        time = first
        while time < low.size and low[time] < end[i]:
            current[time] += max(0, min(end[i], high[time]) - max(begin[i], low[time]))
            time += 1
        last = max(last, time)
    for time in range(low.size):
        length = high[time] - low[time]
        if 10 * most[time] < _MOST * length or 10 * (total[time] - most[time]) > _LEAST * length:
            found[time] = -1
