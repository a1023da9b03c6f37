"""Slices of a trace: the same lines as one sort of all records, wherever the limits are."""

from __future__ import annotations

import gzip
import itertools

import numpy as np
import pytest

from nsys2prv_ng.paraver.encode import RowNumbers, encode
from nsys2prv_ng.records.gather import PlacedRun, gather_records, group_runs
from nsys2prv_ng.records.runs import store_records
from nsys2prv_ng.records.store import LocalStore
from nsys2prv_ng.translation import slices as slices_module
from nsys2prv_ng.translation.slices import cut_into_slices, make_slice
from nsys2prv_ng.translation.translate import split_slices
from tests.records.test_runs import some

ROWS = RowNumbers(*(np.arange(1, 6) for _ in range(3)))


def make_runs(store, sizes):
    """Runs of random records, the second with other times than those of the trace."""
    runs = []
    for seed, size in enumerate(sizes):
        for run in store_records(some(seed, size), store, on_common_clock=True):
            runs.append(PlacedRun(run, offset=500 if seed == 1 else 0))
    return runs


def sort_at_once(store, runs):
    """All records of all runs, by one stable sort."""
    return gather_records(group_runs(runs), store, 1 << 31, -(2**62), 2**62).sorted()


@pytest.mark.parametrize("size", [1, 50, 700, 10**6])
@pytest.mark.parametrize("sizes", [(400, 30, 1, 0, 90), (1,), (2000, 2000)])
def test_slices_follow_each_other_as_one_sort_orders_them(tmp_path, monkeypatch, size, sizes):
    for limit in ("_FEWEST", "_MOST"):
        monkeypatch.setattr(slices_module, limit, size)
    with LocalStore(tmp_path, 10**7) as store:
        runs = make_runs(store, sizes)
        slices = cut_into_slices(runs, ROWS, -60, compressed=False)
        texts = [make_slice(slices, number, store) for number in range(len(slices))]
        records = sort_at_once(store, runs)
        whole = encode(records, np.arange(len(records)), ROWS, -60).tobytes()
    assert b"".join(bytes(part) for text in texts for part in text.parts) == whole
    assert sum(text.size for text in texts) == len(whole)
    counts = [bytes(b"".join(map(bytes, text.parts))).count(b"\n") for text in texts]
    assert sum(counts) == sum(slices.records) == whole.count(b"\n")
    # All records of a time are in one slice: what one time and one sample of each run may add.
    longest = max(np.unique(np.concatenate([run.run.sampled for run in runs]), return_counts=True)[1])
    assert len(slices) == 1 or max(counts) <= size + (len(runs) + longest) * slices_module.SAMPLED


def test_limits_do_not_depend_on_the_order_of_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(slices_module, "_FEWEST", 300)
    monkeypatch.setattr(slices_module, "_MOST", 300)
    with LocalStore(tmp_path, 10**7) as store:
        runs = make_runs(store, (900, 700, 30))
        one, other = (cut_into_slices(order, ROWS, 0, compressed=False) for order in (runs, runs[::-1]))
    assert len(one) > 3
    np.testing.assert_array_equal(one.limits, other.limits)


def test_no_records_are_no_slices(tmp_path):
    slices = cut_into_slices([], ROWS, 0, compressed=False)
    assert len(slices) == 0 and slices.memory == 0
    assert split_slices(slices, 3) == [0]


def test_compressed_slices_are_members(tmp_path, monkeypatch):
    for limit in ("_FEWEST", "_MOST"):
        monkeypatch.setattr(slices_module, limit, 300)
    with LocalStore(tmp_path, 10**7) as store:
        runs = make_runs(store, (900,))
        texts = [
            [make_slice(slices, number, store) for number in range(len(slices))]
            for slices in (cut_into_slices(runs, ROWS, 0, compressed=c) for c in (False, True))
        ]
    plain, packed = (b"".join(bytes(part) for text in own for part in text.parts) for own in texts)
    assert gzip.decompress(packed) == plain
    assert [text.size for text in texts[0]] == [text.size for text in texts[1]]


@pytest.mark.parametrize("parts", [1, 2, 3, 7, 100])
def test_groups_of_slices_have_about_as_many_records(parts):
    records = np.random.default_rng(parts).integers(1, 1000, 40)
    slices = slices_module.Slices([], ROWS, 0, False, np.arange(41), records)
    ends = split_slices(slices, parts)
    assert ends[0] == 0 and ends[-1] == 40 and sorted(set(ends)) == ends
    sums = [int(records[low:high].sum()) for low, high in itertools.pairwise(ends)]
    assert max(sums) <= records.sum() / parts + 1000
