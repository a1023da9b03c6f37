"""Gathers the records of many runs in a time window, straight from the files of a store.

A job has some ten runs for each report, and a window has few records of each: all work on single runs is compiled.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nsys2prv_ng.arrays.types import ByteArray, IntArray, IntTable, ReadOnlyBytes, ReadOnlyInts, ReadOnlyInts32
from nsys2prv_ng.errors import TranslationError
from nsys2prv_ng.records import columns as rec
from nsys2prv_ng.records.columns import ColumnTuple, Records
from nsys2prv_ng.records.runs import SAMPLED, Run, count_bytes
from nsys2prv_ng.records.store import Slot, Store
from nsys2prv_ng.runtime.jit import compiled, search

_MOST_RUNS = 32
"""Most runs in a group: all of them are read before memory is given back."""

_TRUSTED = -1, -1
"""Stands for the numbers of places and of types if all ids are known to be below them."""

_Runs = tuple[IntArray, IntArray, IntArray, IntArray, IntArray, IntArray, IntArray]
"""The columns of a RunGroup."""

Maps = tuple[IntArray, IntArray, IntArray, IntArray]
"""Rows by place, and the maps of `Numbering`."""


class PlacedRun(NamedTuple):
    """A run that goes into the trace, with the maps from ids and times of the report to ids and times of the trace.

    `offset`: ns to add to times. `resolved_by`: None if rows and numbers are already those of the trace.
    """

    run: Run
    offset: int = 0
    resolved_by: Maps | None = None


class RunGroup(NamedTuple):
    """r consecutive runs that are on one shelf of the store and have the same maps.

    `at`: first byte of each run (r). `words`: numbers of records and words of each run (r). `width`: bytes of the
    values and offsets of each run (r): 4 or 8. `offset`: ns to add to the times of each run (r). `sampled`: times of
    every SAMPLED-th record, one run after the other, so that few pages of the file are read. `samples`: limits of the
    samples of each run (r + 1).
    """

    shelf: Slot
    at: IntArray
    records: IntArray
    words: IntArray
    width: IntArray
    offset: IntArray
    sampled: IntArray
    samples: IntArray
    resolved_by: Maps | None

    @property
    def ends(self) -> IntArray:
        """The byte after each run (r)."""
        return self.at + count_bytes(self.records, self.words, self.width)


def group_runs(runs: Sequence[PlacedRun]) -> list[RunGroup]:
    """Return runs in groups of at most _MOST_RUNS, in the same order."""
    groups: list[RunGroup] = []
    for _, same in groupby(runs, lambda placed: (id(placed.resolved_by), placed.run.slot[:2])):
        alike = list(same)
        groups += [_make_group(alike[first : first + _MOST_RUNS]) for first in range(0, len(alike), _MOST_RUNS)]
    return groups


def _make_group(group: Sequence[PlacedRun]) -> RunGroup:
    numbers = [(run.slot.at, len(run), run.words, run.width, offset) for run, offset, _ in group]
    at, records, words, width, offsets = np.array(numbers, np.int64).T.copy()
    sampled = [placed.run.sampled for placed in group]
    shelf, samples = group[0].run.slot._replace(at=0), np.cumsum([0, *map(len, sampled)])
    return RunGroup(shelf, at, records, words, width, offsets, np.concatenate(sampled), samples, group[0].resolved_by)


def gather_records(groups: Sequence[RunGroup], store: Store, rows: int, low: int, high: int) -> Records:
    """Return the records of runs with times (ns, common clock) of `low` or later and before `high`.

    They have the rows (`rows` in all) and the numbers of the trace. One run comes after the other.
    """
    located = []
    records = words = 0
    for group in groups:
        file = store.map(group.shelf, int(group.ends.max()))
        if group.at.min() < 0 or group.ends.max() > file.size:
            raise TranslationError(f"events of shelf {group.shelf.shelf} are missing; read its report again")
        found = np.empty((group.at.size, 4), np.int64)
        runs = group[1:8]
        views = _view_as(np.int32, file), _view_as(np.int64, file)
        _find(views, runs, low, high, found)
        # The compiled loops trust these numbers, which come from the file.
        if (found[:, 2] < 0).any() or (found[:, 3] < found[:, 2]).any() or (found[:, 3] > group.words).any():
            raise rec.make_damage_error(group.shelf.shelf)
        located.append(((file, *views), runs, found))
        records += int((found[:, 1] - found[:, 0]).sum())
        words += int((found[:, 3] - found[:, 2]).sum())
    gathered = Records.make_empty(records, words)
    record = word = 0
    for group, (views_of_all, runs, found) in zip(groups, located, strict=True):
        begin = record
        limits_of_ids = _TRUSTED
        if group.shelf.is_named:
            maps = group.resolved_by
            limits_of_ids = (rows, rec.MOST_TYPES) if maps is None else (maps[0].size, maps[1].size)
        record, word = _copy(views_of_all, runs, found, gathered.columns, record, word, limits_of_ids)
        if record < 0:
            raise rec.make_damage_error(group.shelf.shelf)
        store.release()
        if group.resolved_by is not None and record > begin:
            gathered.first[record] = word
            try:
                rec.resolve_maps(gathered.columns, begin, record, *group.resolved_by)
            except IndexError:
                raise rec.make_damage_error(group.shelf.shelf) from None
    gathered.first[records] = words
    return gathered


def _view_as(kind: type[np.generic], file: ByteArray) -> npt.NDArray[Any]:
    """Return the bytes of a file as values of another size. In a run, larger values come before smaller ones."""
    size = np.dtype(kind).itemsize
    return file[: file.size // size * size].view(kind)


@compiled
def _find(file: tuple[ReadOnlyInts32, ReadOnlyInts], runs: _Runs, low: int, high: int, found: IntTable) -> None:
    """Fill `found` (r x 4): first record, last record + 1, first word, last word + 1 of each run in a time window."""
    at, records, words, width, offset, sampled, limits = runs
    bytes_4, bytes_8 = file
    for run in range(at.size):
        time = at[run] // 8
        n = records[run]
        begin = end = 0
        for limit in (low - offset[run], high - offset[run]):
            # The first record that is not before the limit is in the block before the first such sample.
            before = search(sampled, limits[run], limits[run + 1], limit) - limits[run]
            block = time + max(0, before - 1) * SAMPLED
            begin, end = end, search(bytes_8, block, min(block + SAMPLED, time + n), limit) - time
        end = max(begin, end)
        found[run, 0], found[run, 1] = begin, end
        if width[run] == 4:
            first = 2 * (time + 2 * n) + words[run]
            found[run, 2], found[run, 3] = bytes_4[first + begin], bytes_4[first + end]
        else:
            first = time + 2 * n + words[run]
            found[run, 2], found[run, 3] = bytes_8[first + begin], bytes_8[first + end]


@compiled
def _copy(
    file: tuple[ReadOnlyBytes, ReadOnlyInts32, ReadOnlyInts],
    runs: _Runs,
    found: IntTable,
    columns: ColumnTuple,
    record: int,
    word: int,
    limits_of_ids: tuple[int, int],
) -> tuple[int, int]:
    """Copy the found records after `record` records with `word` words; return the new numbers of both.

    `limits_of_ids`: numbers of places and of types, or _TRUSTED. Returns (-1, -1) if the records exceed them.
    """
    bytes_1, bytes_4, bytes_8 = file
    at, records, words, widths, offsets, _, _ = runs
    to_time, to_tie, to_place, to_kind, to_first, to_handle, to_value = columns
    for run in range(at.size):
        low, high, low_word, high_word = found[run, 0], found[run, 1], found[run, 2], found[run, 3]
        n, m, offset = records[run], words[run], offsets[run]
        time = at[run] // 8
        tie = time + n
        # The columns of values and offsets are at these multiples of their own size, the others of 4 bytes or of 1.
        is_narrow = widths[run] == 4
        value = 2 * (tie + n) if is_narrow else tie + n
        first = value + m
        place = first + n + 1 if is_narrow else 2 * (first + n + 1)
        handle = place + n
        kind = 4 * (handle + m)
        for i in range(low, high):
            to_time[record + i - low] = bytes_8[time + i] + offset
            to_tie[record + i - low] = bytes_8[tie + i]
            to_place[record + i - low] = bytes_4[place + i]
            to_kind[record + i - low] = bytes_1[kind + i]
        shift = word - low_word
        if is_narrow:
            for i in range(low, high):
                to_first[record + i - low] = bytes_4[first + i] + shift
            for j in range(low_word, high_word):
                to_value[shift + j] = bytes_4[value + j]
                to_handle[shift + j] = bytes_4[handle + j]
        else:
            for i in range(low, high):
                to_first[record + i - low] = bytes_8[first + i] + shift
            for j in range(low_word, high_word):
                to_value[shift + j] = bytes_8[value + j]
                to_handle[shift + j] = bytes_4[handle + j]
        if limits_of_ids[0] >= 0:
            to_first[record + high - low] = word + high_word - low_word
            if not rec.are_sound(columns, record, record + high - low, limits_of_ids[0], limits_of_ids[1], offset):
                return -1, -1
        if offset != 0:
            rec.shift_words(to_kind, to_first, to_value, record, record + high - low, offset)
        record += high - low
        word += high_word - low_word
    return record, word
