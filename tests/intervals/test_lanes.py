"""Lanes and nesting against brute force."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys2prv_ng.intervals.lanes import assign_lanes, clamp_to_parents, mark_crossing
from tests.examples import examples

INTERVALS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 20), st.integers(0, 6)), max_size=40)


def columns(intervals):
    group = np.array([g for g, _, _ in intervals], np.int64)
    begin = np.array([b for _, b, _ in intervals], np.int64)
    return group, begin, begin + np.array([n for _, _, n in intervals], np.int64)


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
