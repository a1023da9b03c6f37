"""Flat states against a brute force that looks at every nanosecond."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys2prv_ng.intervals.states import FlatStates, fill_gaps, flatten
from tests.examples import examples

SPAN = 40
STATES = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, SPAN - 1), st.integers(0, 12), st.integers(1, 9)), max_size=25
)


def columns(states):
    row, begin, length, state = (np.array([s[i] for s in states], np.int64) for i in range(4))
    return row, begin, begin + length, state


def painted(flat, rows=3):
    """State of each row at each ns; no ns may be painted twice."""
    canvas = np.zeros((rows, 2 * SPAN), np.int64)
    for row, begin, end, state in zip(*flat, strict=True):
        assert end > begin
        assert not canvas[row, begin:end].any()
        canvas[row, begin:end] = state
    return canvas


@settings(max_examples=examples(300), deadline=None)
@given(STATES)
def test_the_state_that_began_first_wins(states):
    row, begin, end, state = columns(states)
    expected = np.zeros((3, 2 * SPAN), np.int64)
    # Painted backwards in the order of beginning, what began first (of equal begins, the longest) is on top.
    for i in sorted(range(len(states)), key=lambda i: (begin[i], -end[i], i), reverse=True):
        expected[row[i], begin[i] : end[i]] = state[i]
    flat = flatten(row, begin, end, state)
    # A state within another never shows, not even after a third has cut it: it was not the outermost.
    got = painted(flat)
    assert ((got != 0) == (expected != 0)).all()
    nested = [
        any(
            row[i] == row[j] and i != j and begin[j] <= begin[i] and end[i] <= end[j] and end[j] - begin[j] > 0
            for j in range(len(states))
        )
        for i in range(len(states))
    ]
    if not any(
        row[i] == row[j] and begin[i] < begin[j] < end[i] < end[j]
        for i in range(len(states))
        for j in range(len(states))
    ):
        outer = np.zeros_like(expected)
        for i in sorted(range(len(states)), key=lambda i: (begin[i], -end[i], i), reverse=True):
            if not nested[i] or not outer[row[i], begin[i] : end[i]].all():
                outer[row[i], begin[i] : end[i]] = state[i]
        assert (got == expected).all()


@settings(max_examples=examples(200), deadline=None)
@given(STATES)
def test_gaps_are_filled_from_first_to_last(states):
    flat = flatten(*columns(states))
    first, last = np.array([0, 5, 1]), np.array([2 * SPAN - 1, 2 * SPAN - 5, 0])
    inside = (flat.row != 2) & (flat.begin >= first[flat.row]) & (flat.end <= last[flat.row])
    kept = FlatStates(*(column[inside] for column in flat))
    canvas = painted(kept)
    gaps = painted(fill_gaps(kept, first, last, 1))
    assert not gaps[2].any()
    for row in (0, 1):
        window = np.zeros(2 * SPAN, np.bool_)
        window[first[row] : last[row]] = True
        assert (gaps[row] == (window & (canvas[row] == 0))).all()
