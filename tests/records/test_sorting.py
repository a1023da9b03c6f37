"""The stable order by time and tie against Python's, and records in an order against their own text."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys2prv_ng.records import columns as rec
from nsys2prv_ng.records.columns import Pair
from nsys2prv_ng.records.sorting import sort_by_time
from tests.examples import examples

TIMES = {
    "few": st.integers(0, 5),
    "UTC": st.integers(0, 5).map(lambda time: 1_700_000_000_000_000_000 + time),
    "below zero": st.integers(-3, 3),
    "too far apart to be packed": st.sampled_from([-(2**63), -1, 0, 1, 2**62, 2**63 - 1]),
}


@pytest.mark.parametrize("times", TIMES.values(), ids=TIMES)
@settings(max_examples=examples(200), deadline=None)
@given(st.data())
def test_time_order_is_the_stable_order_by_time_and_tie(times, data):
    keys = data.draw(st.lists(st.tuples(times, st.integers(0, 5)), max_size=60))
    time, tie = (np.array([key[i] for key in keys], np.int64) for i in range(2))
    assert sort_by_time(time, tie).tolist() == sorted(range(len(keys)), key=lambda i: keys[i])


@pytest.mark.parametrize("span", [2**62 - 1, 2**62, 2**63 - 1, 2**64 - 1])
def test_times_and_indices_just_fit_or_do_not(span):
    low = -(2**63)
    time = np.array([low + span, low, low + span, low], np.int64)
    assert sort_by_time(time, np.array([1, 0, 0, 0], np.int64)).tolist() == [1, 3, 2, 0]


def point(times, values):
    """A record at each time; they have as many pairs as its value says, of this value."""
    value, here = np.array(values, np.int64), np.arange(3)[:, None] < np.array(values, np.int64)
    pairs = [Pair(number, value, present) for number, present in enumerate(here)]
    return rec.make_events(np.arange(len(times)), np.array(times, np.int64), pairs)


def count_rows(records):
    """Time, tie, place, kind and words of each record."""
    words = list(zip(records.handle.tolist(), records.value.tolist(), strict=True))
    first = records.first.tolist()
    columns = [column.tolist() for column in (records.time, records.tie, records.place, records.kind)]
    return [(*fixed, words[low:high]) for *fixed, low, high in zip(*columns, first[:-1], first[1:], strict=True)]


RECORDS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3)), max_size=20).map(
    lambda rows: point([row[0] for row in rows], [row[1] for row in rows])
)


@pytest.mark.slow
@settings(max_examples=examples(200), deadline=None)
@given(RECORDS, st.lists(st.integers(0, 10**6), max_size=30))
def test_records_taken_in_any_order_and_repeatedly(records, indices):
    order = np.array(indices, np.int64)[: 30 * len(records)] % max(1, len(records))
    rows = count_rows(records)
    assert count_rows(records.take(order)) == [rows[i] for i in order]


@pytest.mark.slow
@settings(max_examples=examples(200), deadline=None)
@given(st.lists(RECORDS, max_size=6))
def test_merged_parts_are_in_order_and_equal_records_in_that_of_the_parts(parts):
    parts = [part.sorted() for part in parts]
    expected = sorted((row for part in parts for row in count_rows(part)), key=lambda row: row[:2])
    assert count_rows(rec.concatenate(parts).sorted()) == expected
