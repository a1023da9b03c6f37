"""Coarse states against a brute force that looks at every nanosecond of every bin."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys2prv_ng.intervals.states import FlatStates, coarsen, flatten, unite
from tests.examples import examples
from tests.intervals.test_states import ROWS, SPAN, STATES, columns, paint

END = 2 * SPAN


@settings(max_examples=examples(300), deadline=None)
@given(STATES, st.integers(1, 65), st.integers(-3, 10), st.integers(1, 70))
def test_each_bin_shows_the_state_that_covers_most_of_it(states, length, origin, span):
    flat = flatten(*columns(states))
    exact, last = paint(flat), min(origin + span, END)
    made = coarsen(flat, origin, last, length)
    shown = paint(made)
    expected = np.zeros_like(exact)
    bins = 0
    for low in range(origin, last, length):
        high = min(low + length, last)
        bins += 1
        for row in range(ROWS):
            # Nothing is painted before 0, where a bin can begin.
            counts = np.bincount(exact[row, max(low, 0) : high], minlength=10)
            counts[0] += max(0, -low)
            expected[row, max(low, 0) : high] = np.argmax(counts)  # the first of several is the lowest
    assert (shown[:, : max(last, 0)] == expected[:, : max(last, 0)]).all()
    assert not shown[:, max(last, 0) :].any()
    assert all(np.sum(made.row == row) <= bins for row in range(ROWS))
    same = (made.row[1:] == made.row[:-1]) & (made.begin[1:] == made.end[:-1])
    assert not (same & (made.state[1:] == made.state[:-1])).any()


@pytest.mark.parametrize("length", [1, END])
def test_bins_of_one_ns_and_of_all_time(length):
    flat = FlatStates(*(np.array(column, np.int64) for column in ([0, 0], [0, 60], [10, END], [2, 3])))
    made = coarsen(flat, 0, END, length)
    whole = [(0, 0, END, 0)]  # no state has more than the 50 ns without one
    expected = [(0, 0, 10, 2), (0, 60, END, 3)] if length == 1 else [line for line in whole if line[3]]
    assert list(zip(*(column.tolist() for column in made), strict=True)) == expected


@settings(max_examples=examples(300), deadline=None)
@given(STATES)
def test_of_united_states_the_lowest_shows(states):
    row, begin, end, state = columns(states)
    expected = np.zeros((ROWS, END), np.int64)
    for i in np.argsort(-state, kind="stable"):  # the lowest is painted last
        expected[row[i], begin[i] : end[i]] = state[i]
    united = unite(FlatStates(row, begin, end, state))
    assert (paint(united) == expected).all()
    changes = int((np.diff(expected, axis=1, prepend=0) != 0)[expected != 0].sum())
    assert united.row.size == changes
