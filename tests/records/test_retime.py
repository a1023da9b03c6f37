"""Records on another clock, compared with records that were made with its times."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys2prv_ng.clock.applying import ClockMap
from nsys2prv_ng.records.clip import retime_records, retime_rows
from nsys2prv_ng.records.columns import (
    BEGIN,
    EMPTY,
    END,
    Pair,
    Records,
    concatenate,
    count_events,
    make_communications,
    make_events,
    make_intervals,
    make_states,
)
from tests.examples import examples

Line = tuple[object, ...]


def lines(records: Records) -> list[Line]:
    """Return all of the records, apart from the order of records that agree in time and tie."""
    columns = zip(
        records.time.tolist(), records.tie.tolist(), records.place.tolist(), records.kind.tolist(), strict=True
    )
    words = [
        tuple(zip(records.handle[a:b].tolist(), records.value[a:b].tolist(), strict=True))
        for a, b in zip(records.first[:-1], records.first[1:], strict=True)
    ]
    return sorted((*fixed, of_line) for fixed, of_line in zip(columns, words, strict=True))


def array(values: object) -> np.ndarray:
    return np.array(values, np.int64)


def of_everything(times: list[tuple[int, int, int]], clock: ClockMap) -> Records:
    """Make intervals, points, states and communications at these (begin, length, place) on a clock."""
    begin, length, place = array(times).reshape(-1, 3).T
    b, e = clock(begin), clock(begin + length)
    attributes = [Pair(1, begin), Pair(2, length, length % 2 == 0)]
    return concatenate(
        [
            make_intervals(place, b, e, attributes, [1]),
            make_events(place, b, [Pair(3, length)]),
            make_states(place, b, e, length),
            make_communications(place, b, place + 1, e, length, 7),
        ]
    )


@pytest.mark.slow
@settings(deadline=None, max_examples=examples(300))
@given(
    times=st.lists(
        st.tuples(st.integers(-(10**6), 10**13), st.sampled_from([0, 1, 1, 1, 2, 3, 10**6, 10**12]), st.integers(0, 3)),
        max_size=40,
    ),
    offset=st.integers(-(10**15), 10**15),
    drift=st.floats(-1e-3, 1e-3),
    since=st.integers(0, 10**13),
)
def test_as_if_made_with_the_new_times(
    times: list[tuple[int, int, int]], offset: int, drift: float, since: int
) -> None:
    clock = ClockMap(offset, drift, since)
    before = of_everything(times, ClockMap())
    moved = retime_records(before, clock)
    assert lines(moved) == lines(of_everything(times, clock))
    assert count_events(moved) == count_events(before)


@settings(deadline=None, max_examples=examples(300))
@given(
    times=st.lists(st.integers(-(2**50), 2**50), min_size=2, max_size=50),
    drift=st.floats(-1e-3, 1e-3),
    since=st.integers(-(2**50), 2**50),
)
def test_clocks_keep_the_order_of_times(times: list[int], drift: float, since: int) -> None:
    clock = ClockMap(5, drift, since)
    ordered = np.sort(array(times + [t + 1 for t in times]))
    moved = clock(ordered)
    assert moved.dtype == np.int64
    assert (np.diff(moved) >= 0).all()
    exact = [t + 5 + drift * (t - since) for t in ordered.tolist()]
    assert np.abs(moved - np.array(exact)).max() <= 1


def test_an_interval_that_loses_its_length_opens_and_closes_in_one_line() -> None:
    clock = ClockMap(0, -1e-3)
    times = np.arange(0, 5000, 2, dtype=np.int64)
    lost = np.flatnonzero(clock(times + 1) == clock(times))
    assert 0 < lost.size < 10
    records = make_intervals(np.zeros(times.size, np.int64), times, times + 1, [Pair(1, times + 1)], [1])
    moved = retime_records(records, clock)
    assert (moved.tie_class == EMPTY).sum() == lost.size
    assert (moved.tie_class == BEGIN).sum() == (moved.tie_class == END).sum() == times.size - lost.size
    of_empty = [word for *_, word in lines(moved) if len(word) == 2]
    assert of_empty == [((1, int(times[i]) + 1), (1, 0)) for i in lost]


def test_nothing_to_move() -> None:
    assert len(retime_records(of_everything([], ClockMap()), ClockMap(1, 1e-4))) == 0


# ---- rows with clocks of their own -----------------------------------------------------------------------------------

_LATEST, _ROW_COUNT = 30, 3
CLOCKS = st.integers(0, 2**32).map(
    lambda seed: np.random.default_rng(seed).integers(0, 4, (_ROW_COUNT, 2 * _LATEST + 2)).cumsum(axis=1)
)
"""A clock of each row as a table: of each time, the new time (ns) of what ends then and of what starts then."""


def look_up(clocks: np.ndarray, row: np.ndarray, time: np.ndarray, is_end: bool) -> np.ndarray:
    moved: np.ndarray = clocks[row, 2 * time + (not is_end)]
    return moved


@settings(deadline=None, max_examples=examples(200))
@given(
    times=st.lists(
        st.tuples(st.integers(0, 15), st.integers(0, _LATEST - 16), st.integers(0, _ROW_COUNT - 1)), max_size=40
    ),
    clocks=CLOCKS,
    rows=st.permutations(range(_ROW_COUNT)),
)
def test_each_row_moves_with_its_own_clock(
    times: list[tuple[int, int, int]], clocks: np.ndarray, rows: list[int]
) -> None:
    """As if made with the new times; both lines of intervals and states that lose their length become one or none."""
    begin, length, place = array(times).reshape(-1, 3).T
    clock, row = partial(look_up, clocks), array(rows)[place]

    def make(b: np.ndarray, e: np.ndarray) -> Records:
        parts = [
            make_intervals(place, b, e, [Pair(1, length), Pair(2, begin, length % 2 == 0)], [1]),
            make_intervals(place, b, e, [Pair(4, length), Pair(5, begin)], [4, 5]),
            make_events(place, b, [Pair(3, length)]),
            make_states(place, b, e, length),
        ]
        return concatenate(parts).sorted()

    new_begin = clock(row, begin, False)
    new_end = np.where(length == 0, new_begin, np.maximum(new_begin, clock(row, begin + length, True)))
    moved = retime_rows(make(begin, begin + length), array(rows), clock)
    assert lines(moved) == lines(make(new_begin, new_end))


@settings(deadline=None, max_examples=examples(200))
@given(
    sends=st.lists(
        st.tuples(
            st.integers(0, _LATEST),
            st.integers(0, _LATEST),
            st.integers(0, _ROW_COUNT - 1),
            st.integers(0, _ROW_COUNT - 1),
        ),
        max_size=20,
    ),
    clocks=CLOCKS,
    rows=st.permutations(range(_ROW_COUNT)),
)
def test_messages_move_with_both_of_their_rows(
    sends: list[tuple[int, int, int, int]], clocks: np.ndarray, rows: list[int]
) -> None:
    """A send has the time of its row, a receive that of its own; what was received after the send stays after it."""
    sent, received, sender, receiver = array(sends).reshape(-1, 4).T
    before = make_communications(sender, sent, receiver, received, np.arange(sent.size), 7)
    wanted = []
    for size, (send, receive, of_send, of_receive) in enumerate(sends):
        new_send, new_receive = (
            int(clocks[rows[place], 2 * time + 1]) for place, time in ((of_send, send), (of_receive, receive))
        )
        if receive >= send:
            new_receive = max(new_receive, new_send)
        wanted.append((new_send, of_send, of_receive, new_send, new_receive, new_receive, (7, size)))
    moved = retime_rows(before, array(rows), partial(look_up, clocks))
    found = []
    for i in range(len(moved)):
        (receiver_place, physical), (_, logical), (_, late), tag = zip(
            moved.handle[4 * i : 4 * i + 4].tolist(), moved.value[4 * i : 4 * i + 4].tolist(), strict=True
        )
        found.append((int(moved.time[i]), int(moved.place[i]), receiver_place, physical, logical, late, tag))
    assert sorted(found) == sorted(wanted)


@pytest.mark.parametrize("outer_first", [True, False])
def test_vanished_intervals_keep_their_own_ends(outer_first: bool) -> None:
    """All intervals vanish at one time: each line closes what it opens, whatever the others close."""

    def make(types: list[int], begin: int, end: int) -> Records:
        pairs = [Pair(one, array([9])) for one in types]
        return make_intervals(array([0]), array([begin]), array([end]), pairs, types)

    made = [make([1, 2], 10, 40), make([1], 20, 30), make([1, 3], 20, 30), make([1], 10, 40)]
    moved = retime_records(concatenate(made if outer_first else made[::-1]), lambda times: np.full_like(times, 50))
    words = [moved.handle[a:b].tolist() for a, b in zip(moved.first[:-1], moved.first[1:], strict=True)]
    assert sorted(words) == [[1, 1], [1, 1], [1, 2, 1, 2], [1, 3, 1, 3]]
