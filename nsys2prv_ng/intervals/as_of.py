"""Columns that are compared: what came last before a time."""

from __future__ import annotations

import numpy as np

from nsys2prv_ng.arrays.types import IntArray


def find_latest(group: IntArray, time: IntArray, of_group: IntArray, at: IntArray) -> IntArray:
    """For each (of_group, at) the index of the last (group, time) of its group that is not later; -1 for none."""
    both_groups, both_times = np.concatenate([group, of_group]), np.concatenate([time, at])
    is_query = np.repeat([0, 1], [group.size, of_group.size])
    order = np.lexsort((is_query, both_times, both_groups))
    is_entry = is_query[order] == 0
    last = np.maximum.accumulate(np.where(is_entry, np.arange(order.size), -1))
    found = np.where(last >= 0, order[last], -1)
    found = np.where((found >= 0) & (both_groups[found] == both_groups[order]), found, -1)
    result = np.empty(of_group.size, np.int64)
    result[order[~is_entry] - group.size] = found[~is_entry]
    return result
