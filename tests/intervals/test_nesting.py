"""How intervals nest, against brute force."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.intervals.nesting import assign_lanes, clamp_to_parents, find_innermost, mark_crossing, measure_depths
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


@settings(max_examples=examples(300), deadline=None)
@given(INTERVALS)
def test_intervals_of_a_lane_do_not_overlap_and_no_lower_lane_was_free(intervals):
    group, begin, end = columns(intervals)
    lane = assign_lanes(group, begin, end)
    order = sorted(range(len(intervals)), key=lambda i: (group[i], begin[i], i))
    earlier = []
    for i in order:
        taken = {int(lane[j]) for j in earlier if group[j] == group[i] and end[j] > begin[i]}
        assert lane[i] == min(set(range(len(intervals) + 1)) - taken)
        earlier.append(i)


def test_more_lanes_than_the_first_buffer_holds():
    n = 100
    lane = assign_lanes(np.zeros(n, np.int64), np.arange(n), np.full(n, 1000))
    assert lane.tolist() == list(range(n))


@settings(max_examples=examples(300), deadline=None)
@given(INTERVALS)
def test_what_does_not_cross_nests(intervals):
    group, begin, end = columns(intervals)
    crosses = mark_crossing(group, begin, end)
    kept = [i for i in range(len(intervals)) if not crosses[i]]
    for i in kept:
        for j in kept:
            if group[i] == group[j]:
                assert not (begin[i] < begin[j] < end[i] < end[j])
    # Nothing is left out without need: what crosses does cross one that is kept.
    for i in np.flatnonzero(crosses):
        assert any(group[i] == group[j] and begin[j] <= begin[i] < end[j] < end[i] for j in kept)


def test_deep_nesting_does_not_cross():
    n = 500
    assert not mark_crossing(np.zeros(n, np.int64), np.arange(n), 2000 - np.arange(n)).any()


FOREVER = 2**62


@settings(max_examples=examples(300), deadline=None)
@given(INTERVALS, st.lists(st.booleans(), min_size=40, max_size=40))
def test_open_intervals_end_with_the_one_around_them(intervals, opens):
    group, begin, end = columns(intervals)
    nest = ~mark_crossing(group, begin, end)
    group, begin, end = group[nest], begin[nest], end[nest]
    is_open = np.array(opens[: group.size], np.bool_)
    given_end = np.where(is_open, FOREVER, end)
    closed = clamp_to_parents(group, begin, given_end, FOREVER)
    assert (closed[~is_open] == end[~is_open]).all()
    for i in np.flatnonzero(is_open):
        around = [
            given_end[j]
            for j in range(group.size)
            if group[j] == group[i] and not is_open[j] and begin[j] < begin[i] < given_end[j]
        ]
        assert closed[i] == min(around, default=FOREVER)
