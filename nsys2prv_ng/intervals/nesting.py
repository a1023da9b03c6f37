"""Finds how intervals nest: their depths and parents, and the innermost interval around a point in time.

Also separates intervals that do not nest: intervals on one row must nest, or Paraver shows the wrong one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nsys2prv_ng.arrays.row_keys import sort_nested, sort_rows
from nsys2prv_ng.arrays.types import BoolArray, IntArray
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
    """Nesting of intervals, and the place of points in time within them.

    `innermost`: index of the innermost interval around each point, limits included; -1 for none. `parent`: index of the
    interval around each interval, -1 for none, and `depth`: their number. An interval that ends when another begins
    does not contain it.
    """

    innermost: IntArray
    parent: IntArray
    depth: IntArray


def find_innermost(
    group: IntArray, begin: IntArray, end: IntArray, point_group: IntArray, point_time: IntArray
) -> Nesting:
    """Find the innermost interval of its group around each point in time.

    The intervals of a group nest. They are ordered by group, start and falling end; points by group and time.
    """
    nesting = Nesting(np.full(point_time.size, -1), np.full(begin.size, -1), np.zeros(begin.size, np.int64))
    _find_innermost(group, begin, end, point_group, point_time, nesting)
    return nesting


@compiled
def _find_innermost(
    group: IntArray, begin: IntArray, end: IntArray, point_group: IntArray, point_time: IntArray, nesting: Nesting
) -> None:
    innermost, parent, depth = nesting
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


# ---- lanes -----------------------------------------------------------------------------------------------------------


def assign_lanes(group: IntArray, begin: IntArray, end: IntArray) -> IntArray:
    """Return a lane (from 0) for each interval, so that intervals in one group and lane do not overlap.

    Intervals take the first free lane in the order of their starts; on a tie, in the order of the columns.
    """
    order = sort_rows(group, begin)
    lane, free_at = np.zeros((2, order.size), np.int64)
    _free_lanes(group, begin, end, order, free_at, lane)
    return lane


@compiled
def _free_lanes(
    group: IntArray, begin: IntArray, end: IntArray, order: IntArray, free_at: IntArray, lane: IntArray
) -> None:
    """Set the lane of each interval. `free_at` (n): room for the time from which each lane is free."""
    lanes = 0
    for position in range(order.size):
        i = order[position]
        if position == 0 or group[i] != group[order[position - 1]]:
            lanes = 0
        j = 0
        while j < lanes and free_at[j] > begin[i]:
            j += 1
        if j == lanes:
            lanes += 1
        free_at[j] = end[i]
        lane[i] = j


def mark_crossing(group: IntArray, begin: IntArray, end: IntArray) -> BoolArray:
    """Mark the intervals that begin within an earlier interval of their group and end after it: they do not nest.

    All other intervals nest. The first of equal intervals in the columns is the outer one.
    """
    crosses = np.zeros(group.size, np.bool_)
    nowhere = np.iinfo(np.int64).min  # no interval ends there
    _nest(sort_nested(group, begin, end), group, begin, end.copy(), nowhere, crosses, np.empty_like(end))
    return crosses


def clamp_to_parents(group: IntArray, begin: IntArray, end: IntArray, forever: int) -> IntArray:
    """Return the ends of intervals. One without an end (`forever`) ends with the earlier interval around it, if any."""
    closed = end.copy()
    _nest(sort_nested(group, begin, end), group, begin, closed, forever, np.zeros(0, np.bool_), np.empty_like(end))
    return closed


@compiled
def _nest(
    order: IntArray, group: IntArray, begin: IntArray, end: IntArray, forever: int, crosses: BoolArray, ends: IntArray
) -> None:
    """Nest intervals: mark those that cross, which no other is then within, or change ends of `forever`.

    `crosses` (n) is empty if crossing intervals contain others as well. `ends` (n): room for the ends of those around.
    """
    depth = 0
    for position in range(order.size):
        i = order[position]
        if position == 0 or group[i] != group[order[position - 1]]:
            depth = 0
        while depth > 0 and ends[depth - 1] <= begin[i]:
            depth -= 1
        if depth > 0 and end[i] == forever:
            end[i] = ends[depth - 1]
        if depth > 0 and crosses.size > 0 and end[i] > ends[depth - 1]:
            crosses[i] = True
            continue
        ends[depth] = end[i]
        depth += 1
