"""Step functions, against a look at every instant."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nsys2prv_ng.intervals.step_functions import (
    NOTHING,
    find_latest,
    find_peaks,
    make_steps,
    measure_durations,
    split_at_steps,
    sum_parts,
)

LAST = 30


@st.composite
def apart(draw: st.DrawFn) -> list[tuple[int, int, int]]:
    """Intervals (begin, end, value) in order, which may touch."""
    limits = sorted(draw(st.lists(st.integers(0, LAST), min_size=0, max_size=10, unique=True)))
    spans = [span for span in itertools.pairwise(limits) if draw(st.booleans())]
    return [(begin, end, draw(st.integers(0, 3))) for begin, end in spans]


def columns(rows: list[tuple[int, ...]], width: int) -> list[np.ndarray]:
    return list(np.array(rows, np.int64).reshape(-1, width).T)


@given(apart(), st.lists(st.tuples(st.integers(0, LAST), st.integers(1, 10)), max_size=5))
def test_pieces_cover_the_intervals_and_have_the_value_of_each_instant(
    flat: list[tuple[int, int, int]], spans: list[tuple[int, int]]
) -> None:
    begin, length = columns(spans, 2)
    pieces = split_at_steps(begin, begin + length, make_steps(*columns(flat, 3)))
    assert np.all(pieces.begin < pieces.end)
    for index, (low, size) in enumerate(spans):
        of = np.flatnonzero(pieces.interval == index)
        assert pieces.begin[of[0]] == low and pieces.end[of[-1]] == low + size
        assert np.array_equal(pieces.begin[of[1:]], pieces.end[of[:-1]])
        for instant in range(low, low + size):
            [value] = [int(pieces.value[i]) for i in of if pieces.begin[i] <= instant < pieces.end[i]]
            assert value == next((v for b, e, v in flat if b <= instant < e), NOTHING)


@given(st.lists(st.tuples(*(st.integers(0, n) for n in (1, 2, LAST)), st.integers(0, 9)), max_size=20))
def test_peaks_are_those_of_the_sums_at_each_instant(events: list[tuple[int, int, int, int]]) -> None:
    events = list({(row, part, time): (row, part, time, level) for row, part, time, level in events}.values())
    expected, levels_of = {}, []
    for row in sorted({event[0] for event in events}):
        sums = {}
        for instant in sorted({time for r, _, time, _ in events if r == row}):
            levels = {p: level for r, p, t, level in sorted(events, key=lambda e: e[2]) if r == row and t <= instant}
            sums[instant] = sum(levels.values())
        levels_of += [(row, instant, level) for instant, level in sums.items()]
        highest = max(sums.values())
        expected[row] = highest, min(instant for instant, level in sums.items() if level == highest)
    found = sum_parts(*columns(events, 4))
    assert list(zip(*(column.tolist() for column in found), strict=True)) == levels_of
    assert find_peaks(*found) == expected


def test_values_last_until_the_next_of_their_row() -> None:
    assert measure_durations(np.array([0, 0, 0, 1, 1]), np.array([3, 5, 9, 1, 8])).tolist() == [2, 4, 0, 7, 0]
    assert measure_durations(np.zeros(0, np.int64), np.zeros(0, np.int64)).tolist() == []


few = st.integers(0, 3)
times = st.integers(-3, 9) | st.sampled_from([-(2**63), 2**63 - 1])


@given(st.lists(st.tuples(few, times)), st.lists(st.tuples(few, times)))
def test_the_last_of_a_group_that_is_not_later(entries: list[tuple[int, int]], queries: list[tuple[int, int]]) -> None:
    columns = [np.array([row[i] for row in rows], np.int64) for rows in (entries, queries) for i in range(2)]
    expected = []
    for group, at in queries:
        fits = [(time, index) for index, (other, time) in enumerate(entries) if other == group and time <= at]
        expected.append(max(fits)[1] if fits else -1)
    assert find_latest(*columns).tolist() == expected
