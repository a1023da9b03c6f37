"""Looks up the latest entry in one column of times before each time in another."""

from __future__ import annotations

import numpy as np

from nsys2prv_ng.arrays.row_keys import sort_rows
from nsys2prv_ng.arrays.types import IntArray


def find_latest(group: IntArray, time: IntArray, query_group: IntArray, query_time: IntArray) -> IntArray:
    """Return for each query the index of the last entry (group, time) in its group that is not later; -1 for none."""
    both_groups, both_times = np.concatenate([group, query_group]), np.concatenate([time, query_time])
    is_query = np.repeat([0, 1], [group.size, query_group.size])
    order = sort_rows(both_groups, both_times, is_query)
    is_entry = is_query[order] == 0
    last = np.maximum.accumulate(np.where(is_entry, np.arange(order.size), -1))
    entry = np.where(last >= 0, order[last], -1)
    entry = np.where((entry >= 0) & (both_groups[entry] == both_groups[order]), entry, -1)
    latest = np.empty(query_group.size, np.int64)
    latest[order[~is_entry] - group.size] = entry[~is_entry]
    return latest
