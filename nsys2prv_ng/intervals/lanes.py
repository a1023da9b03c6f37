"""Separates intervals that do not nest: intervals on one row must nest, or Paraver shows the wrong one."""

from __future__ import annotations

import numpy as np

from nsys2prv_ng.arrays.row_keys import sort_nested, sort_rows
from nsys2prv_ng.arrays.types import BoolArray, IntArray
from nsys2prv_ng.runtime.jit import compiled

_NO_END = np.iinfo(np.int64).min
"""No interval ends there."""


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
    _nest(sort_nested(group, begin, end), group, begin, end.copy(), _NO_END, crosses, np.empty_like(end))
    return crosses


def clamp_to_parents(group: IntArray, begin: IntArray, end: IntArray, forever: int) -> IntArray:
    """Return the ends of intervals. One without an end (`forever`) ends with the earlier interval around it, if any."""
    closed = end.copy()
    _nest(sort_nested(group, begin, end), group, begin, closed, forever, np.zeros(0, np.bool_), np.empty_like(end))
    return closed


@compiled
def _nest(
    order: IntArray,
    group: IntArray,
    begin: IntArray,
    end: IntArray,
    forever: int,
    crosses: BoolArray,
    ends: IntArray,
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
