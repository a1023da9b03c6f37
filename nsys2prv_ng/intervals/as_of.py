"""Looks up the latest entry in one column of times before each time in another."""

from __future__ import annotations

import numpy as np

from nsys2prv_ng.arrays.row_keys import combine_columns
from nsys2prv_ng.arrays.types import IntArray


def find_latest(group: IntArray, time: IntArray, query_group: IntArray, query_time: IntArray) -> IntArray:
    """Return for each query the index of the last entry (group, time) in its group that is not later; -1 for none."""
    if not group.size:
        return np.full(query_group.size, -1)
    # Unknown times are extreme values. Moved next to the entries, they get the same answer, and rows fit into 64 bits.
    near = np.clip(query_time, max(int(time.min()) - 1, np.iinfo(np.int64).min), time.max())
    both = combine_columns(np.concatenate([group, query_group]), np.concatenate([time, near]))
    entries, queries = both[: group.size], both[group.size :]
    order, of_queries = (np.argsort(keys, kind="stable") for keys in (entries, queries))
    at = np.empty(queries.size, np.int64)
    at[of_queries] = np.searchsorted(entries[order], queries[of_queries], "right") - 1  # in order, it is far faster
    latest = order[at]
    return np.where((at >= 0) & (group[latest] == query_group), latest, -1)
