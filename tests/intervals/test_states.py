"""Flat states against a brute force that looks at every nanosecond."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys2prv_ng.intervals.states import FlatStates, fill_gaps, flatten, flatten_innermost, overlay
from tests.examples import examples

ROWS, SPAN = 3, 40
STATES = st.lists(
    st.tuples(st.integers(0, ROWS - 1), st.integers(0, SPAN), st.integers(0, 15), st.integers(1, 9)), max_size=25
)


def columns(states):
    row, begin, length, state = (np.array([s[i] for s in states], np.int64) for i in range(4))
    return row, begin, begin + length, state


def paint(flat: FlatStates) -> np.ndarray:
    """State of each row at each ns; no ns may be painted twice, and pieces are ordered by row and begin."""
    canvas = np.zeros((ROWS, 2 * SPAN), np.int64)
    for row, begin, end, state in zip(*flat, strict=True):
        assert end > begin
        assert not canvas[row, max(begin, 0) : end].any()  # a bin may begin before 0
        canvas[row, max(begin, 0) : end] = state
    assert list(zip(flat.row, flat.begin, strict=True)) == sorted(zip(flat.row, flat.begin, strict=True))
    return canvas


@settings(max_examples=examples(300), deadline=None)
@given(STATES)
def test_the_state_that_began_first_wins(states):
    row, begin, end, state = columns(states)
    expected = np.zeros((ROWS, 2 * SPAN), np.int64)
    # Painted backwards in the order of beginning, what began first (of equal begins, the longest) is on top.
    for i in sorted(range(len(states)), key=lambda i: (begin[i], -end[i], i), reverse=True):
        expected[row[i], begin[i] : end[i]] = state[i]
    flat = flatten(row, begin, end, state)
    # A state within another never shows, not even after a third has cut it: it was not the outermost.
    got = paint(flat)
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
    canvas = paint(kept)
    gaps = paint(fill_gaps(kept, first, last, 1))
    assert not gaps[2].any()
    for row in (0, 1):
        window = np.zeros(2 * SPAN, np.bool_)
        window[first[row] : last[row]] = True
        assert (gaps[row] == (window & (canvas[row] == 0))).all()


@pytest.mark.slow
@settings(max_examples=examples(400), deadline=None)
@given(STATES, STATES)
def test_what_is_laid_over_wins_everywhere_and_nothing_else_changes(below, above):
    under, over = flatten(*columns(below)), flatten(*columns(above))
    top = paint(over)
    assert (paint(overlay(under, over)) == np.where(top > 0, top, paint(under))).all()


@st.composite
def nested(draw):
    """Intervals that nest, in any order."""
    found: list[tuple[int, int, int, int]] = []

    def fill(row: int, low: int, high: int, depth: int) -> None:
        at = low
        while depth < 4 and at < high and draw(st.booleans()):
            begin = draw(st.integers(at, high))
            end = draw(st.integers(begin, high))
            found.append((row, begin, end - begin, draw(st.integers(1, 9))))
            fill(row, begin, end, depth + 1)
            at = end

    for row in range(ROWS):
        fill(row, 0, 2 * SPAN - 1, 0)
    return draw(st.permutations(found))


@pytest.mark.slow
@settings(max_examples=examples(400), deadline=None)
@given(nested())
def test_the_innermost_state_shows(states):
    row, begin, end, state = columns(states)
    order = np.lexsort((-end, begin, row))
    expected = np.zeros((ROWS, 2 * SPAN), np.int64)
    # Painted by begin, the longer first, what is within comes last. Equal intervals: the later in the columns is inner.
    for i in order:
        expected[row[i], begin[i] : end[i]] = state[i]
    assert (paint(flatten_innermost(row, begin, end, state)) == expected).all()


@settings(max_examples=examples(200), deadline=None)
@given(STATES)
def test_innermost_of_intervals_that_do_not_nest_still_has_one_state_at_a_time(states):
    row, begin, end, state = columns(states)
    covered = np.zeros((ROWS, 2 * SPAN), np.bool_)
    for i in range(row.size):
        covered[row[i], begin[i] : end[i]] = True
    got = paint(flatten_innermost(row, begin, end, state))
    assert not got[~covered].any()


def test_empty_states():
    none = columns([])
    assert overlay(FlatStates(*none), FlatStates(*none)).row.size == 0
    point = columns([(0, 3, 0, 1)])
    assert overlay(FlatStates(*point), FlatStates(*none)).row.size == 0, "what has no length shows nothing"
    assert flatten_innermost(*none).row.size == 0
