"""Takes values of a column at indices of which some are missing."""

from __future__ import annotations

import numpy as np

from nsys2prv_ng.arrays.types import IntArray


def pick(column: IntArray, index: IntArray, missing: int) -> IntArray:
    """Return column[index] (n), and `missing` where an index is -1 or the length of the column."""
    return np.append(column, missing)[index]
