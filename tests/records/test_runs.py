"""Runs in a store: the sorted records, and the facts about them that need no second look."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsys2prv_ng.records import columns as rec
from nsys2prv_ng.records import runs
from nsys2prv_ng.records.columns import Pair
from nsys2prv_ng.records.runs import SAMPLED, load_records, store_records
from nsys2prv_ng.records.store import LocalStore

COLUMNS = ("time", "tie", "place", "kind", "first", "handle", "value")


def some(seed, n, most=8):
    """Events with one or two pairs, intervals, states and communications on five places. `most`: of the values."""
    random = np.random.default_rng(seed)

    def times():
        return random.integers(-50, 1000, n)

    def places():
        return random.integers(0, 5, n)

    begin, state, send = times(), times(), times()
    two = Pair(8, random.integers(0, 9, n), random.random(n) < 0.5)
    return rec.concatenate(
        [
            rec.make_events(places(), times(), [Pair(random.integers(0, 7, n), random.integers(0, most + 1, n)), two]),
            rec.make_intervals(places(), begin, begin + random.integers(0, 99, n), [Pair(9, 1)], [9]),
            rec.make_states(places(), state, state + random.integers(0, 99, n), np.full(n, 3)),
            rec.make_communications(places(), send, places(), send + random.integers(-9, 99, n), 7, 1),
        ]
    )


def check_equal(back, expected):
    for column in COLUMNS:
        np.testing.assert_array_equal(getattr(back, column), getattr(expected, column), err_msg=column)


@pytest.mark.parametrize("in_order", [False, True])
@pytest.mark.parametrize(("value", "width"), [(2**31 - 1, 4), (2**31, 8), (-(2**31), 4), (-(2**31) - 1, 8), (5, 4)])
def test_values_that_fit_take_half_the_bytes(tmp_path, monkeypatch, in_order, value, width):
    """One value decides for its run, wherever it is."""
    monkeypatch.setattr(runs, "_PIECE", 8)
    for at in (0, 57, 99):
        values = np.arange(100)
        values[at] = value
        records = rec.make_events(np.arange(100) % 3, np.arange(100) // 4, [Pair(1, values), Pair(2, 10)])
        if not in_order:
            records = records.take(np.random.default_rng(at).permutation(100))
        with LocalStore(tmp_path, 10**6) as store:
            (run,) = store_records(records, store, on_common_clock=False)
            (after,) = store_records(some(1, 1), store, on_common_clock=False)
            check_equal(load_records(run, store), records.sorted())
        # Time, tie, place and kind of 100 records, handles of 200 words, and 200 values and 101 offsets.
        size = 100 * (8 + 8 + 4 + 1) + 200 * 4 + (200 + 101) * width
        assert (run.width, after.slot.at) == (width, -(-size // 8) * 8)


@pytest.mark.parametrize("most", [8, 2**40])
@pytest.mark.parametrize("memory", [0, 10**6])
def test_sorted_records_come_back(tmp_path, memory, most):
    records = some(1, 200, most)
    with LocalStore(tmp_path, memory) as store:
        (run,) = store_records(records, store, on_common_clock=False)
        check_equal(load_records(run, store), records.sorted())
        assert len(run) == len(records)
        assert run.sampled.tolist() == records.sorted().time[::SAMPLED].tolist()


@pytest.mark.parametrize("size", [1, 2, 7, 8, 9, 24, 100])
def test_records_are_gathered_in_pieces(tmp_path, monkeypatch, size):
    """Of 8 records each, the last of them shorter."""
    monkeypatch.setattr(runs, "_PIECE", 8)
    records = some(size, size)
    with LocalStore(tmp_path, 10**6) as store:
        (run,) = store_records(records, store, on_common_clock=True)
        order = np.lexsort((records.tie, records.time))
        check_equal(load_records(run, store), records.take(order))
        words = [records.value[records.first[i] : records.first[i + 1]] for i in order]
        assert load_records(run, store).value.tolist() == np.concatenate(words).tolist()


def test_no_records_are_no_run(tmp_path):
    with LocalStore(tmp_path, 0) as store:
        assert store_records(some(1, 0), store, on_common_clock=True) == []


@given(st.integers(0, 10**6), st.integers(1, 20))
def test_facts_equal_a_loop_over_the_records(tmp_path_factory, seed, n):
    records = some(seed, n)
    with LocalStore(tmp_path_factory.getbasetemp(), 10**6) as store:
        facts = store_records(records, store, on_common_clock=True)[0].facts
    spans: dict[int, list[int]] = {}
    handles, times, kinds, pairs = set(), [], dict.fromkeys(rec.KINDS, 0), 0
    for i in range(len(records)):
        time, words = int(records.time[i]), slice(records.first[i], records.first[i + 1])
        kinds[int(records.kind[i])] += 1
        times.append(time)
        if records.kind[i] == rec.EVENT:
            spans.setdefault(int(records.place[i]), []).append(time)
            handles |= set(records.handle[words].tolist())
            pairs += len(records.handle[words])
        elif records.kind[i] == rec.STATE:
            times.append(int(records.value[words][0]))
        else:
            times += records.value[words][:3].tolist()
    assert (facts.first, facts.last) == (min(times), max(times))
    assert facts.kinds == kinds
    assert facts.pairs == pairs
    assert set(facts.handles.tolist()) == handles
    assert facts.events == rec.count_events(records)
    limits = zip(facts.place_first, facts.place_last, strict=True)
    known = {place: (first, last) for place, (first, last) in enumerate(limits) if first <= last}
    assert known == {place: (min(times), max(times)) for place, times in spans.items()}
