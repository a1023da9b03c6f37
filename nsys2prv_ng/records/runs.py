"""Stores sorted runs of records until they are merged."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple, TypeVar

import numpy as np

from nsys2prv_ng.arrays.row_keys import find_distinct
from nsys2prv_ng.arrays.types import BoolArray, Int8Array, Int32Array, IntArray, ReadOnlyInts
from nsys2prv_ng.records import columns as rec
from nsys2prv_ng.records.columns import Records, refuse_damaged, unpack_tie_class
from nsys2prv_ng.records.sorting import changes_nothing, gather_offsets, gather_words, sort_by_time
from nsys2prv_ng.records.store import Array, LocalStore, Slot, Store
from nsys2prv_ng.runtime.jit import compiled
from nsys2prv_ng.value_class import ValueClass

SAMPLED = 256
"""Each SAMPLED-th record also keeps its time in memory."""

Count = TypeVar("Count", int, IntArray)

_PIECE = 1 << 15
"""Records that are gathered at once."""

_MOST = 1 << 48
"""More than the bytes of a file of columns, and than the records and words in it."""

_MOST_HANDLES = 1 << 16
"""More handles than a report can have, which count from 0. In records of all reports, handles are type numbers."""

_STORED = ("time", "tie", "value", "first", "place", "handle", "kind")
"""Columns in the order in which they are stored: by the size of their values, largest first."""

_NARROW = np.iinfo(np.int32)

_TYPE_OF_WIDTH = {4: np.int32, 8: np.int64}

_NEVER = (np.iinfo(np.int64).max, np.iinfo(np.int64).min)


class RunFacts(NamedTuple):
    """Facts that a translation needs about records before it loads them again. Times are as stored.

    `first`, `last`: the limits (ns) of all times in the records. `place_first`, `place_last`: those of the events on
    each place; first > last if it has no event. `handles`: handles of types with events. `kinds`: number of records by
    kind. `events`: number of intervals, points and communications. `pairs`: number of type:value pairs on event lines.
    """

    first: int
    last: int
    place_first: IntArray
    place_last: IntArray
    handles: IntArray
    kinds: dict[int, int]
    events: int
    pairs: int

    def has_events_on(self, places: IntArray) -> bool:
        """Return whether any event is on one of these places."""
        known = places[places < self.place_first.size]
        return bool((self.place_first[known] <= self.place_last[known]).any())


class Run(ValueClass):
    """n > 0 stored records with m words, sorted by time and tie.

    `width`: bytes of each value and each offset: 4 if that is enough for all of them, else 8. `sampled`: times (ns, as
    stored) of the records 0, SAMPLED, 2 * SAMPLED, ... `on_common_clock`: whether its times are on the clock of the
    trace; otherwise they are on the clock of its report.
    """

    slot: Slot
    records: int
    words: int
    width: int
    sampled: IntArray
    facts: RunFacts
    on_common_clock: bool

    def __len__(self) -> int:
        return self.records

    @property
    def size(self) -> int:
        """Bytes in the store."""
        return count_bytes(self.records, self.words, self.width)

    def is_sound(self, places: int) -> bool:
        """Return whether compiled loops can trust the numbers of a run from a file. `places`: places of its report."""
        sizes = self.facts.place_first.size, self.facts.place_last.size
        at, n = self.slot.at, self.records
        has_layout = at >= 0 and at % 8 == 0 and n > 0 and self.words >= 0 and self.sampled.size == -(-n // SAMPLED)
        return has_layout and self.width in (4, 8) and max(at, n, self.words) < _MOST and max(sizes) <= places


def store_records(records: Records, store: Store, *, on_common_clock: bool) -> list[Run]:
    """Sort records and store them. Return one run, or no run if there are no records."""
    if not len(records):
        return []
    facts = _collect_facts(records)
    order = sort_by_time(records.time, records.tie)
    words, value = records.value.size, records.value
    # Durations, sizes, ids and samples mostly fit into 4 bytes, times do not.
    fits = value.min(initial=0) >= _NARROW.min and value.max(initial=0) <= _NARROW.max
    width = 4 if words < _NARROW.max and fits else 8
    pieces = _cut_into_pieces(records, width) if changes_nothing(order) else _gather_pieces(records, order, width)
    slot = store.put_pieces(pieces, count_bytes(len(records), words, width))
    return [Run(slot, len(records), words, width, records.time[order[::SAMPLED]], facts, on_common_clock)]


def load_records(run: Run, store: Store) -> Records:
    """Return the records of a run. The caller may change them."""
    n, m, narrow = len(run), run.words, _TYPE_OF_WIDTH[run.width]
    lengths, types = (n, n, m, n + 1, n, m, n), (np.int64, np.int64, narrow, narrow, np.int32, np.int32, np.int8)
    records = Records(**dict(zip(_STORED, store.load(run.slot, lengths, types), strict=True)))
    records.value, records.first = (words.astype(np.int64, copy=False) for words in (records.value, records.first))
    if run.slot.is_named:
        refuse_damaged(records, run.facts.place_first.size, run.slot.shelf)
    return records


def change_ids(run: Run, maps: tuple[IntArray, IntArray, IntArray, IntArray], store: LocalStore) -> Run:
    """Change the ids of stored events by `maps`, as `resolve_maps` does; return the run that they are then."""
    place_of, handle_of, _, tables = maps
    facts = run.facts
    used = np.flatnonzero(facts.place_first <= facts.place_last)
    limits = [np.full(int(place_of[used].max(initial=-1)) + 1, never, np.int64) for never in _NEVER]
    for limit, old in zip(limits, (facts.place_first, facts.place_last), strict=True):
        limit[place_of[used]] = old[used]
    if any((ids != np.arange(ids.size)).any() for ids in maps[:2]) or tables.any():
        records = load_records(run, store)
        rec.resolve_maps(records.columns, 0, len(records), *maps)
        store.overwrite(run.slot, _cut_into_pieces(records, run.width))
    changed = facts._replace(place_first=limits[0], place_last=limits[1], handles=np.sort(handle_of[facts.handles]))
    return replace(run, facts=changed)


def load_times(run: Run, store: Store) -> IntArray:
    """Return the times (n, ns, as stored) of the records of a run, in ascending order."""
    times = np.empty(len(run), np.int64)
    store.get(run.slot, [times])
    return times


def _list_columns(records: Records) -> list[Array]:
    """Return the columns in the order in which they are stored."""
    return [getattr(records, name) for name in _STORED]


def count_bytes(records: Count, words: Count, width: Count) -> Count:
    """Return the bytes of the columns of a run, as `_list_columns` lists them, given its records and words."""
    return (21 + width) * records + width + (4 + width) * words


def _cut_into_pieces(records: Records, width: int) -> Iterator[Array]:
    """Yield the columns of records, as `_list_columns` lists them: narrow ones in pieces, others whole."""
    for column in _list_columns(records):
        if width == 4 and (column is records.value or column is records.first):
            yield from (column[low : low + _PIECE].astype(np.int32) for low in range(0, column.size, _PIECE))
        else:
            yield column


def _gather_pieces(records: Records, order: IntArray, width: int) -> Iterator[Array]:
    """Yield pieces of the columns of records in an order, as `_list_columns` lists them. Each lasts until the next.

    Pieces fit the CPU cache, and memory has no second copy of all records.
    """
    first = np.empty(len(records) + 1, np.int64)
    gather_offsets(order, records.first, first)
    pieces = [order[low : low + _PIECE] for low in range(0, len(records), _PIECE)]
    words = np.diff(first[[*range(0, len(records), _PIECE), len(records)]])
    narrow = _TYPE_OF_WIDTH[width]
    for column in _list_columns(records):
        out = np.empty(_PIECE, column.dtype)
        if column is records.first:
            yield first.astype(narrow, copy=False)
        elif column is records.handle or column is records.value:
            gathered = np.empty(int(words.max()), column.dtype)
            for piece, count in zip(pieces, words, strict=True):
                gather_words(piece, records.first, column, gathered)
                found = gathered[:count]
                yield found if column is records.handle else found.astype(narrow, copy=False)
        else:
            for piece in pieces:
                # By default numpy would check all indices first, and fill a copy of `out`.
                yield column.take(piece, out=out[: piece.size], mode="clip")


def _collect_facts(records: Records) -> RunFacts:
    places = int(records.place.max()) + 1
    place_first = np.full(places, _NEVER[0], np.int64)
    place_last = np.full(places, _NEVER[1], np.int64)
    used = np.zeros(min(int(records.handle.max(initial=0)) + 1, _MOST_HANDLES), np.bool_)
    kinds = np.zeros(max(rec.KINDS) + 1, np.int64)
    time = records.time.view()
    time.flags.writeable = False  # times of points may be those of a file, and numba compiles for either kind
    events, pairs, beyond, first, last = _gather_facts(time, records.columns[1:], place_first, place_last, used, kinds)
    by_kind = {kind: int(kinds[kind]) for kind in rec.KINDS}
    handles = np.flatnonzero(used)
    if beyond:  # handles are type numbers, for which a table by handle would be too long
        is_event_word = np.repeat(records.kind == rec.EVENT, np.diff(records.first))
        handles = find_distinct(records.handle[is_event_word].astype(np.int64))[1]
    return RunFacts(first, last, place_first, place_last, handles, by_kind, events, pairs)


@compiled
def _gather_facts(
    time: ReadOnlyInts,
    columns: tuple[IntArray, Int32Array, Int8Array, IntArray, Int32Array, IntArray],
    place_first: IntArray,
    place_last: IntArray,
    used: BoolArray,
    kinds: IntArray,
) -> tuple[int, int, int, int, int]:
    """Return the numbers of events, of pairs, and of handles beyond `used`, and the first and last time (ns).

    `columns`: of the records, after the times. Mark the handles in `used`, count `kinds`, and set the times of places.
    """
    tie, place, kind, first, handle, value = columns
    events = pairs = beyond = 0
    low = high = time[0]
    for i in range(time.size):
        t = other = time[i]
        kinds[kind[i]] += 1
        if unpack_tie_class(tie[i]) in (rec.BEGIN, rec.EMPTY, rec.POINT, rec.COMMUNICATION_LINE):
            events += 1
        if kind[i] == rec.EVENT:
            p = place[i]
            pairs += first[i + 1] - first[i]
            place_first[p] = min(place_first[p], t)
            place_last[p] = max(place_last[p], t)
            for j in range(first[i], first[i + 1]):
                if handle[j] < used.size:
                    used[handle[j]] = True
                else:
                    beyond += 1
        elif kind[i] == rec.STATE:
            other = value[first[i]]
        else:
            other = value[first[i] + 1]
        low = min(low, t, other)
        high = max(high, t, other)
    return events, pairs, beyond, low, high
