"""Records of a stretch of time, gathered from many runs, against masks over whole runs."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import pytest

from nsys2prv_ng.errors import TranslationError
from nsys2prv_ng.records import columns as rec
from nsys2prv_ng.records.folder_store import FolderStore
from nsys2prv_ng.records.gather import PlacedRun, gather_records, group_runs
from nsys2prv_ng.records.runs import load_records, store_records
from nsys2prv_ng.records.store import LocalStore
from tests.records.test_runs import COLUMNS, some

MAPS = (np.arange(5)[::-1].copy(), np.arange(10) * 100, np.full(10, -1), np.zeros(0, np.int64))
OTHER = (np.arange(5) + 7, np.arange(10) + 3, np.where(np.arange(10) == 8, 0, -1), np.arange(9) * 1000)


def take_by_masks(runs, store, low, high):
    """Each run loaded whole, moved, resolved, and masked."""
    parts = []
    for placed in runs:
        records = load_records(placed.run, store)
        rec.shift_times(records, placed.offset)
        if placed.resolved_by is not None:
            rec.resolve_maps(records.columns, 0, len(records), *placed.resolved_by)
        parts.append(records.take(np.flatnonzero((records.time >= low) & (records.time < high))))
    return rec.concatenate(parts)


def check_stretches(runs, store):
    groups = group_runs(runs)
    limits = [-(2**62), -10, *range(-50, 1600, 150), 2**62]
    for low, high in zip(limits, [*limits[1:], limits[0]], strict=True):
        found, expected = gather_records(groups, store, 1 << 31, low, high), take_by_masks(runs, store, low, high)
        for column in COLUMNS:
            np.testing.assert_array_equal(getattr(found, column), getattr(expected, column), err_msg=column)


@pytest.mark.parametrize("sizes", [(1,), (300,), (40, 1, 2, 3, 700), (2, 2, 2)])
def test_runs_of_shelves_offsets_and_maps(tmp_path, sizes):
    """Some are in memory, some on disk, some in a folder; some have values of 4 bytes, some of 8."""
    shared = FolderStore(tmp_path)
    with LocalStore(tmp_path, 20_000, read_from=shared) as local:
        runs = []
        for seed, size in enumerate(sizes):
            for store, offset, maps in ((local, 0, None), (local, 77, MAPS), (local, -5, MAPS), (shared, 400, OTHER)):
                most = 8 if (seed + offset) % 2 else 2**40
                (run,) = store_records(some(seed, size, most), store, on_common_clock=True)
                runs.append(PlacedRun(run, offset, maps))
        assert {placed.run.width for placed in runs} == {4, 8}
        check_stretches(runs, local)
    shared.close()


def test_a_file_that_grows(tmp_path):
    with LocalStore(tmp_path, 10**6) as store:
        runs = []
        for seed in range(4):
            runs += [PlacedRun(run) for run in store_records(some(seed, 50), store, on_common_clock=True)]
            check_stretches(runs, store)


def test_groups_keep_the_order_of_runs(tmp_path):
    with LocalStore(tmp_path, 10**6) as store:
        runs = [PlacedRun(store_records(some(n, 3), store, on_common_clock=True)[0]) for n in range(6)]
    resolved = [MAPS, MAPS, None, OTHER, MAPS, MAPS]
    placed = [replace_maps(run, maps) for run, maps in zip(runs, resolved, strict=True)]
    groups = group_runs(placed)
    assert [group.at.size for group in groups] == [2, 1, 1, 2]
    assert np.concatenate([group.at for group in groups]).tolist() == [run.run.slot.at for run in runs]
    assert group_runs([]) == []


def replace_maps(placed, maps):
    return PlacedRun(replace(placed.run), placed.offset, maps)


@pytest.mark.parametrize(("most", "type_of_offsets", "far"), [(8, np.int32, 2**30), (2**40, np.int64, 2**40)])
def test_a_file_that_was_damaged(tmp_path, most, type_of_offsets, far):
    """Compiled loops would read and write anywhere otherwise."""
    store = FolderStore(tmp_path)
    (run,) = store_records(some(1, 100, most), store, on_common_clock=True)
    groups = group_runs([PlacedRun(run)])
    path = next(tmp_path.iterdir())
    first = 16 * len(run) + run.width * run.words  # after the times, ties and values
    with path.open("r+b") as file:
        for number in (-far, far):
            file.seek(first)
            file.write(np.full(len(run) + 1, number, type_of_offsets).tobytes())
            file.flush()
            with pytest.raises(TranslationError, match="are damaged; read its report again"):
                gather_records(groups, store, 1 << 31, -(2**62), 2**62)
    store.close()


def test_a_file_that_was_cut(tmp_path):
    store = FolderStore(tmp_path)
    (run,) = store_records(some(1, 100), store, on_common_clock=True)
    groups = group_runs([PlacedRun(run)])
    path = next(tmp_path.iterdir())
    assert groups[0].ends.tolist() == [path.stat().st_size]
    os.truncate(path, path.stat().st_size - 1)
    with pytest.raises(TranslationError, match="read its report again"):
        gather_records(groups, store, 1 << 31, 0, 100)
    store.close()
