"""What many kernels need: numba's own search, median and sort take seconds to compile."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nsys2prv_ng.runtime.jit import compiled


@compiled
def search(values: npt.NDArray[np.int64], low: int, high: int, limit: int) -> int:
    """Return the index of the first of values[low:high], which ascend, that is not below a limit; else `high`."""
    while low < high:
        middle = (low + high) // 2
        if values[middle] < limit:
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def take_median(values: npt.NDArray[np.float64], count: int) -> float:
    """Sort the first `count` (1 or more) values in place with Shell's sort, and return their median."""
    gap = count // 2
    while gap:
        for i in range(gap, count):
            value, k = values[i], i
            while k >= gap and values[k - gap] > value:
                values[k] = values[k - gap]
                k -= gap
            values[k] = value
        gap //= 2
    return 0.5 * (values[(count - 1) // 2] + values[count // 2])
