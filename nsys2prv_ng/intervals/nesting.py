"""Finds how intervals nest: their depths and parents, and the innermost interval around a point in time."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nsys2prv_ng.arrays.row_keys import sort_nested
from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.runtime.jit import compiled


def measure_depths(group: IntArray, begin: IntArray, end: IntArray) -> IntArray:
    """Return in how many intervals of its group each interval begins, itself included: 1 for an outermost interval.

    An interval that ends when another begins does not contain it. The first of equal intervals in the columns is the
    outer one.
    """
    order = sort_nested(group, begin, end)
    depth, open_until = np.empty((2, order.size), np.int64)
    _depths(group, begin, end, order, open_until, depth)
    return depth


@compiled
def _depths(
    group: IntArray, begin: IntArray, end: IntArray, order: IntArray, open_until: IntArray, depth: IntArray
) -> None:
    """Set the depth of each interval. `open_until` (n): room for the ends of the intervals around."""
    count = 0
    for position in range(order.size):
        i = order[position]
        if position == 0 or group[i] != group[order[position - 1]]:
            count = 0
        # Intervals of other domains may cross: any of them may have ended.
        left = 0
        for j in range(count):
            if open_until[j] > begin[i]:
                open_until[left] = open_until[j]
                left += 1
        open_until[left] = end[i]
        count = left + 1
        depth[i] = count


class Nesting(NamedTuple):
    """Nesting of intervals, and the place of points in time within them."""

    innermost: IntArray
    """Index of the innermost interval around each point, limits included; -1 for none."""
    parent: IntArray
    """Index of the interval around each interval; -1 for none. An interval that ends when another begins does not
    contain it."""
    depth: IntArray
    """Number of intervals around each interval."""


def find_innermost(
    group: IntArray, begin: IntArray, end: IntArray, point_group: IntArray, point_time: IntArray
) -> Nesting:
    """Find the innermost interval of its group around each point in time.

    The intervals of a group nest. They are ordered by group, start and falling end; points by group and time.
    """
    nesting = Nesting(np.full(point_time.size, -1), np.full(begin.size, -1), np.zeros(begin.size, np.int64))
    _nest(group, begin, end, point_group, point_time, *nesting)
    return nesting


@compiled
def _nest(
    group: IntArray,
    begin: IntArray,
    end: IntArray,
    point_group: IntArray,
    point_time: IntArray,
    innermost: IntArray,
    parent: IntArray,
    depth: IntArray,
) -> None:
    current = np.int64(-1)
    r = np.int64(0)
    for i in range(point_time.size + 1):
        last = i == point_time.size
        # Every interval that begins up to this point, or all remaining intervals.
        while r < begin.size and (
            last or group[r] < point_group[i] or (group[r] == point_group[i] and begin[r] <= point_time[i])
        ):
            while current >= 0 and (group[current] != group[r] or end[current] <= begin[r]):
                current = parent[current]
            parent[r] = current
            depth[r] = depth[current] + 1 if current >= 0 else 0
            current = r
            r += 1
        if last:
            break
        inside = current
        while inside >= 0 and (group[inside] != point_group[i] or end[inside] < point_time[i]):
            inside = parent[inside]
        innermost[i] = inside
