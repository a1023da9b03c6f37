"""States over and within others, against a brute force that looks at every nanosecond."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys2prv_ng.intervals.states import FlatStates, flatten, flatten_innermost, overlay
from tests.examples import examples

ROWS, SPAN = 3, 60
ANY = st.lists(
    st.tuples(st.integers(0, ROWS - 1), st.integers(0, 40), st.integers(0, 15), st.integers(1, 9)), max_size=25
)


def columns(states):
    row, begin, length, state = (np.array([s[i] for s in states], np.int64) for i in range(4))
    return row, begin, begin + length, state


def paint(flat: FlatStates) -> np.ndarray:
    """State of each row at each ns; no ns may be painted twice, and pieces are ordered by row and begin."""
    canvas = np.zeros((ROWS, SPAN), np.int64)
    for row, begin, end, state in zip(*flat, strict=True):
        assert end > begin
        assert not canvas[row, begin:end].any()
        canvas[row, begin:end] = state
    assert list(zip(flat.row, flat.begin, strict=True)) == sorted(zip(flat.row, flat.begin, strict=True))
    return canvas


@pytest.mark.slow
@settings(max_examples=examples(400), deadline=None)
@given(ANY, ANY)
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
        fill(row, 0, SPAN - 1, 0)
    return draw(st.permutations(found))


@pytest.mark.slow
@settings(max_examples=examples(400), deadline=None)
@given(nested())
def test_the_innermost_state_shows(states):
    row, begin, end, state = columns(states)
    order = np.lexsort((-end, begin, row))
    expected = np.zeros((ROWS, SPAN), np.int64)
    # Painted by begin, the longer first, what is within comes last. Equal intervals: the later in the columns is inner.
    for i in order:
        expected[row[i], begin[i] : end[i]] = state[i]
    assert (paint(flatten_innermost(row, begin, end, state)) == expected).all()


@settings(max_examples=examples(200), deadline=None)
@given(ANY)
def test_innermost_of_intervals_that_do_not_nest_still_has_one_state_at_a_time(states):
    row, begin, end, state = columns(states)
    covered = np.zeros((ROWS, SPAN), np.bool_)
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
