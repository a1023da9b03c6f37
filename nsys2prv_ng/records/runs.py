"""Sorted runs of records, which a store keeps until they are merged."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nsys2prv_ng.arrays.types import BoolArray, IntArray
from nsys2prv_ng.records import columns as rec
from nsys2prv_ng.records.columns import Int32Array, Records, unpack_tie_class
from nsys2prv_ng.records.store import Array, Slot, Store
from nsys2prv_ng.runtime.jit import compiled

_RECORD_BYTES, _WORD_BYTES = 25, 12
"""Bytes of a record and of a word in the columns as they are stored."""

_NEVER = (np.iinfo(np.int64).max, np.iinfo(np.int64).min)


class Chunk(NamedTuple):
    """A part of a run: its slot in the store, the number of its records and of its words."""

    slot: Slot
    records: int
    words: int


class RunFacts(NamedTuple):
    """What a translation must know of records before it loads them again. Times are those that were stored."""

    first: int
    last: int
    """First and last time (ns) of all times in the records."""
    place_first: IntArray
    place_last: IntArray
    """First and last time (ns) of the events of each place; first > last where it has no event."""
    handles: IntArray
    """Handles of the types that have events."""
    kinds: dict[int, int]
    """Number of records by kind."""
    events: int
    """Intervals, points and communications."""

    def has_events_on(self, places: IntArray) -> bool:
        """Return whether any event is on one of these places."""
        known = places[places < self.place_first.size]
        return bool((self.place_first[known] <= self.place_last[known]).any())


@dataclass
class Run:
    """Records sorted by time and tie, in a store. A run has at least one record."""

    chunks: list[Chunk]
    facts: RunFacts
    on_common_clock: bool
    """Whether its times are those of the trace; otherwise they are those of its report."""

    def __len__(self) -> int:
        return sum(chunk.records for chunk in self.chunks)


def store_records(records: Records, store: Store, *, on_common_clock: bool) -> list[Run]:
    """Sort records and store them. Returns one run, or no run if there are no records."""
    if not len(records):
        return []
    facts = _collect_facts(records)
    records = records.sorted()
    chunks = []
    size = _RECORD_BYTES * len(records) + _WORD_BYTES * records.value.size
    step = max(1, len(records) * store.chunk_bytes // size)
    for low in range(0, len(records), step):
        part = records.part(low, min(low + step, len(records)))
        slot = store.put(_list_columns(part))
        chunks.append(Chunk(slot, len(part), part.value.size))
    return [Run(chunks, facts, on_common_clock)]


def load_chunks(run: Run, store: Store) -> Iterator[Records]:
    """Yield the records of a run, some at a time, in memory of their own."""
    for chunk in run.chunks:
        yield _load_chunk(chunk, store)


def load_records(run: Run, store: Store) -> Records:
    """Return the records of a run."""
    return rec.concatenate(list(load_chunks(run, store)))


def _load_chunk(chunk: Chunk, store: Store) -> Records:
    n, m = chunk.records, chunk.words
    i64, i32 = np.int64, np.int32
    time, tie, value = np.empty(n, i64), np.empty(n, i64), np.empty(m, i64)
    place, first, handle, kind = np.empty(n, i32), np.empty(n + 1, i32), np.empty(m, i32), np.empty(n, np.int8)
    store.get(chunk.slot, [time, tie, value, place, first, handle, kind])
    return Records(time, tie, place, kind, first.astype(i64), handle, value)


def _list_columns(records: Records) -> list[Array]:
    """Return the columns as they are stored: within a chunk the offsets of words fit into 32 bits."""
    first: Int32Array = records.first.astype(np.int32)
    return [records.time, records.tie, records.value, records.place, first, records.handle, records.kind]


def _collect_facts(records: Records) -> RunFacts:
    places = int(records.place.max()) + 1
    place_first = np.full(places, _NEVER[0], np.int64)
    place_last = np.full(places, _NEVER[1], np.int64)
    used = np.zeros(int(records.handle.max(initial=0)) + 1, np.bool_)
    kinds = np.zeros(max(rec.KINDS) + 1, np.int64)
    events, first, last = _gather_facts(
        records.time,
        records.tie,
        records.place,
        records.kind,
        records.first,
        records.handle,
        records.value,
        place_first,
        place_last,
        used,
        kinds,
    )
    by_kind = {kind: int(kinds[kind]) for kind in rec.KINDS}
    return RunFacts(first, last, place_first, place_last, np.flatnonzero(used), by_kind, events)


@compiled
def _gather_facts(
    time: IntArray,
    tie: IntArray,
    place: npt.NDArray[np.int32],
    kind: npt.NDArray[np.int8],
    first: IntArray,
    handle: npt.NDArray[np.int32],
    value: IntArray,
    place_first: IntArray,
    place_last: IntArray,
    used: BoolArray,
    kinds: IntArray,
) -> tuple[int, int, int]:
    events = 0
    low = high = time[0]
    for i in range(time.size):
        t = other = time[i]
        kinds[kind[i]] += 1
        if unpack_tie_class(tie[i]) in (rec.BEGIN, rec.EMPTY, rec.POINT, rec.COMMUNICATION_LINE):
            events += 1
        if kind[i] == rec.EVENT:
            p = place[i]
            place_first[p] = min(place_first[p], t)
            place_last[p] = max(place_last[p], t)
            for j in range(first[i], first[i + 1]):
                used[handle[j]] = True
        elif kind[i] == rec.STATE:
            other = value[first[i]]
        else:
            other = value[first[i] + 1]
        low = min(low, t, other)
        high = max(high, t, other)
    return events, low, high
