"""How intervals nest, against brute force."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.intervals.lanes import mark_crossing
from nsys2prv_ng.intervals.nesting import find_innermost, measure_depths
from tests.examples import examples

INTERVALS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 30), st.integers(0, 9)), max_size=30)
POINTS = st.lists(st.tuples(st.integers(0, 3), st.integers(-1, 41)), max_size=30)


def columns(rows: list[tuple[int, int, int]]) -> tuple[IntArray, IntArray, IntArray]:
    """Group, begin and end of intervals by group, begin and length."""
    group, begin, length = np.array(rows, np.int64).reshape(-1, 3).T
    return group, begin, begin + length


@settings(deadline=None)  # numba compiles in the first example
@given(INTERVALS)
def test_depth_is_the_number_of_intervals_that_are_open(rows: list[tuple[int, int, int]]) -> None:
    """Those that began before, or at the same time and end later, or are equal and come before."""
    depths = measure_depths(*columns(rows))
    for i, (group, low, size) in enumerate(rows):
        around = 1
        for j, (other, b, n) in enumerate(rows):
            before = (b, -(b + n), j) < (low, -(low + size), i)
            around += other == group and before and b + n > low
        assert depths[i] == around


@pytest.mark.slow
@settings(max_examples=examples(300), deadline=None)
@given(INTERVALS, POINTS)
def test_the_innermost_interval_is_the_last_to_begin_around_a_point(
    rows: list[tuple[int, int, int]], points: list[tuple[int, int]]
) -> None:
    group, begin, end = columns(rows)
    nests = ~mark_crossing(group, begin, end)
    group, begin, end = group[nests], begin[nests], end[nests]
    order = np.lexsort((-end, begin, group))
    group, begin, end = group[order], begin[order], end[order]
    point_group, point_time = np.array(sorted(points), np.int64).reshape(-1, 2).T
    nesting = find_innermost(group, begin, end, point_group, point_time)
    for i, (of_group, time) in enumerate(sorted(points)):
        around = np.flatnonzero((group == of_group) & (begin <= time) & (end >= time))
        assert nesting.innermost[i] == (around[-1] if around.size else -1)
    for i in range(group.size):
        holding = [j for j in range(i) if group[j] == group[i] and end[j] > begin[i]]
        assert nesting.parent[i] == (holding[-1] if holding else -1)
        assert nesting.depth[i] == len(holding)
