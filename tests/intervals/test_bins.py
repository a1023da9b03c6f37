"""Sums over bins against loops over each ns."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys2prv_ng.intervals.states import FlatStates, make_edges, sum_held, sum_states
from tests.intervals.test_step_functions import columns

LAST, ROWS, STATES = 40, 3, 4
intervals = st.lists(
    st.tuples(st.integers(0, ROWS - 1), st.integers(-5, LAST), st.integers(0, 20), st.integers(0, STATES - 1)),
    max_size=12,
)
limits = st.tuples(st.integers(0, LAST), st.integers(1, 30), st.integers(1, 12))


@settings(deadline=None)  # the first example compiles
@given(intervals, limits)
def test_states_of_each_ns(rows: list[tuple[int, int, int, int]], limits: tuple[int, int, int]) -> None:
    """The order of intervals does not matter, nor whether they overlap: each counts."""
    begin, span, most = limits
    edges = make_edges(begin, begin + span, most)
    expected: Counter[tuple[int, int, int]] = Counter()
    for row, low, length, state in rows:
        for ns in range(low, low + length):
            at = [b for b in range(edges.size - 1) if edges[b] <= ns < edges[b + 1]]
            expected.update((row, b, state) for b in at)
    row, low, length, state = columns(rows, 4)
    sums = sum_states(FlatStates(row, low, low + length, state), edges, ROWS, STATES)
    assert {tuple(at): sums[tuple(at)] for at in np.argwhere(sums).tolist()} == dict(expected)


@settings(deadline=None)  # the first example compiles
@given(intervals, limits)
def test_amounts_of_each_ns(rows: list[tuple[int, int, int, int]], limits: tuple[int, int, int]) -> None:
    begin, span, most = limits
    edges = make_edges(begin, begin + span, most)
    row, low, length, state = columns(rows, 4)
    amount = np.arange(len(rows)) / 2
    expected = np.zeros((ROWS, edges.size - 1, STATES))
    for n, (own, first, ns, column) in enumerate(rows):
        for b in range(edges.size - 1):
            expected[own, b, column] += n / 2 * len(set(range(first, first + ns)) & set(range(edges[b], edges[b + 1])))
    assert np.array_equal(sum_held(FlatStates(row, low, low + length, state), amount, edges, ROWS, STATES), expected)


@given(st.integers(-(2**52), 2**52), st.integers(1, 2**53), st.integers(1, 2000))
def test_bins_cover_the_span_and_differ_by_a_ns_at_most(begin: int, span: int, most: int) -> None:
    edges = make_edges(begin, begin + span, most)
    lengths = np.diff(edges)
    assert (edges[0], edges[-1], edges.size - 1) == (begin, begin + span, min(most, span))
    assert lengths.min() > 0 and np.ptp(lengths) <= 1
