"""Columns made of values at indices, against loops over these."""

from __future__ import annotations

import numpy as np
import pytest

from nsys2prv_ng.arrays.types import find_most_at, mark, pick, put, sum_at


@pytest.mark.parametrize("seed", range(5))
def test_values_at_indices(seed: int) -> None:
    """Each value counts for its index: repeated indices, and indices without a value."""
    random = np.random.default_rng(seed)
    size, index, values = 9, random.integers(0, 9, 6), random.integers(-50, 50, 6)
    last, sums, most = [-1] * size, [0] * size, [-7] * size
    for at, value in zip(index.tolist(), values.tolist(), strict=True):
        last[at], sums[at], most[at] = value, sums[at] + value, max(most[at], value)
    assert put(values, index, size).tolist() == last
    assert sum_at(values, index, size).tolist() == sums
    assert find_most_at(values, index, size, -7).tolist() == most
    assert mark(index, size).tolist() == [at in index for at in range(size)]


def test_put_is_the_inverse_of_pick() -> None:
    column = np.array([4, 5, 6], np.int64)
    index = np.array([2, 0, 1], np.int64)
    assert pick(put(column, index, 3), index, -1).tolist() == column.tolist()
    assert put(column, np.array([True, False, True, True]), 4, 0).tolist() == [4, 0, 5, 6]
    assert put(column[:0], index[:0], 2, 7).dtype == np.int64
