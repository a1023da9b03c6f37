"""How deep intervals are nested."""

from __future__ import annotations

import numpy as np

from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.runtime.jit import compiled


def measure_depths(group: IntArray, begin: IntArray, end: IntArray) -> IntArray:
    """Of each interval in how many of its group it begins, itself among them: 1 for an outermost one.

    One that ends when another begins does not hold it. Of equal intervals the first in the columns is the outer one.
    """
    order = np.lexsort((-end, begin, group))
    return _depths(group, begin, end, order)


@compiled
def _depths(group, begin, end, order):  # type: ignore[no-untyped-def]
    depth = np.empty(order.size, np.int64)
    open_until = np.empty(64, np.int64)
    count = 0
    for position in range(order.size):
        i = order[position]
        if position == 0 or group[i] != group[order[position - 1]]:
            count = 0
        # Those of other domains may cross: any of them may have ended.
        left = 0
        for j in range(count):
            if open_until[j] > begin[i]:
                open_until[left] = open_until[j]
                left += 1
        if left == open_until.size:
            open_until = np.concatenate((open_until, open_until))
        open_until[left] = end[i]
        count = left + 1
        depth[i] = count
    return depth
