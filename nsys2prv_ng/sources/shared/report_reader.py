"""Gives sources the tables of one report and the texts in their rows, and makes pairs of what they read.

Columns and shared intermediate results are read only once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, TypeVar, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nsys2prv_ng.arrays.row_keys import find_distinct, find_distinct_rows
from nsys2prv_ng.arrays.types import BoolArray, IntArray, put
from nsys2prv_ng.objects.places import Places
from nsys2prv_ng.paraver.event_type import EventType
from nsys2prv_ng.paraver.labels import Labels
from nsys2prv_ng.records.columns import Pair
from nsys2prv_ng.report.database import NULL, Columns, Database, Table
from nsys2prv_ng.report.diagnostics import TABLE as MESSAGES
from nsys2prv_ng.report.metadata import Metadata, Strings, get_process
from nsys2prv_ng.report.nvtx_payload import LINKS, Fields, read_payload_tables
from nsys2prv_ng.sources.shared.reasons import move_late_times
from nsys2prv_ng.sources.shared.source_options import SourceOptions

T = TypeVar("T")

_LATENESS = 10**9
"""Events end up to this time (ns) after the capture: no event of a real report ends later, except messages of nsys.

Calls of the OS runtime end up to 0.99 s later (ex2a-zero3), as nsys waits for them, samples of GPU metrics are up to
0.74 s later (torchrun-one-report), CUDA calls end up to 1 us later (ex1a-fast). All others end in time; nsys closes
NVTX ranges. But what nsys still writes then may be of any kind, such as a kernel that runs on.
"""


class ReportReader:
    """One report while it is read: its columns, read once for all sources, and the places and labels of its records."""

    def __init__(
        self,
        database: Database,
        metadata: Metadata,
        strings: Strings,
        sources: Mapping[str, Sequence[Table]],
        options: SourceOptions,
    ) -> None:
        """`sources`: the tables of each chosen source, by its name."""
        self.options = options
        self.chosen = frozenset(sources)
        self.metadata = metadata
        self.strings = strings
        self.places = Places()
        self.labels = Labels()
        self._database = database
        self._changes: dict[str, Callable[[Columns], Columns]] = {}
        self._tables = _merge_declarations(chain.from_iterable(sources.values()))
        self._columns: dict[str, Columns] = {}
        self._computed: dict[object, object] = {}

    def columns(self, table: str) -> Columns:
        """Return the columns of a table that a chosen source declares; no rows if no source declares it."""
        if table not in self._columns:
            declared = self._tables.get(table)
            columns = self.read(declared) if declared else Columns(0, {}, {})
            change = self._changes.get(table)
            self._columns[table] = columns if change is None else change(columns)
        return self._columns[table]

    def change(self, tables: Iterable[str], change: Callable[[Columns], Columns]) -> None:
        """Change the columns of tables for all sources, also those that were read before."""
        for table in tables:
            self._changes[table] = change
            if table in self._columns:
                self._columns[table] = change(self._columns[table])

    def stack(self, tables: Iterable[str], names: Iterable[str]) -> dict[str, IntArray]:
        """Return columns of several declared tables, one table after the other."""
        parts = [self.columns(table) for table in tables]
        return {name: np.concatenate([part[name] for part in parts]) for name in names}

    def list_rows(self, table: str, *names: str) -> Iterator[tuple[Any, ...]]:
        """Return the rows of a small table as tuples of these columns, which are integers or texts."""
        columns = self.columns(table)
        lists = (columns.texts[n].to_pylist() if n in columns.texts else columns[n].tolist() for n in names)
        return zip(*lists, strict=True)

    def read(self, table: Table) -> Columns:
        """Read columns that few reports need, without keeping them."""
        return self._mark_late(table, self._database.read(table, self.metadata.schema_version))

    def _mark_late(self, table: Table, columns: Columns) -> Columns:
        """Return columns of a table in which times that no capture can have are marked as such."""
        latest = self.metadata.end + _LATENESS
        times = [name for name in ("start", "end", "timestamp") if name in columns.numbers and table.name != MESSAGES]
        moved = {name: move_late_times(columns[name], latest) for name in times}
        return replace(columns, numbers={**columns.numbers, **moved})

    def read_payload_tables(self, rows: IntArray, names: Sequence[str]) -> tuple[IntArray, list[Fields | None]]:
        """Return the payloads, stored as tables, of rows of NVTX_EVENTS, as report/nvtx_payload.py does."""
        if not self.is_in_report(LINKS.name):
            return np.full(rows.size, -1, np.int64), []
        columns = self.read(Table("NVTX_EVENTS", (), dict.fromkeys(("eventId", "globalTid", "domainId"), NULL)))
        event, tid, domain = (columns[name][rows] for name in ("eventId", "globalTid", "domainId"))
        return read_payload_tables(self._database, event, get_process(tid), domain, names)

    def has(self, table: str) -> bool:
        """Return whether the report has the table and a chosen source reads it."""
        return table in self._tables and table in self._database.tables

    def is_in_report(self, table: str) -> bool:
        """Return whether the report has the table, even if no source reads it; nsys writes no empty tables."""
        return table in self._database.tables

    def read_by_block(self, table: str, convert: Callable[[Columns], T]) -> list[T]:
        """Call `convert` with one block of rows after the other, and return its results.

        Use it for declared tables that are too large for the memory. `convert` gets columns of integers only, which are
        gone when it returns.
        """
        declared = self._tables.get(table)
        if declared is None:
            return []
        version = self.metadata.schema_version
        return self._database.read_by_block(declared, version, lambda block: convert(self._mark_late(declared, block)))

    def apart(self, name: str, tables: Sequence[Table]) -> ReportReader:
        """Return a reader of the same report for one source with these tables.

        Its places and names do not become part of the trace.
        """
        reader = ReportReader(self._database, self.metadata, self.strings, {name: tables}, self.options)
        reader._changes = self._changes
        for name, table in reader._tables.items():
            known = self._tables.get(name)
            if known is not None and _merge_declarations((known, table)) == {name: known}:
                reader._columns[name] = self.columns(name)
        return reader

    def find_gpus(self, process: IntArray, device: IntArray) -> IntArray:
        """Return the keys of n GPUs in the metadata, given their processes and CUDA's ordinals within these."""
        codes, pairs = find_distinct_rows(process, device)
        return np.array([self.metadata.find_gpu(*pair) for pair in pairs], np.int64)[codes]

    def names(self, ids: IntArray) -> tuple[IntArray, list[str]]:
        """Return (index into the names for each of n string ids, distinct names)."""
        index, distinct = find_distinct(ids)
        return index, self.strings(distinct)

    def once(self, compute: Callable[[ReportReader], T]) -> T:
        """Return `compute(self)`, which is computed for the first source that asks for it and kept for the others."""
        if compute not in self._computed:
            self._computed[compute] = compute(self)
        return cast(T, self._computed[compute])


def _merge_declarations(tables: Iterable[Table]) -> dict[str, Table]:
    """Return one declaration for each table, with the columns of all sources."""
    declared: dict[str, Table] = {}
    for table in tables:
        before = declared.get(table.name, Table(table.name, ()))
        required = tuple(dict.fromkeys((*before.required, *table.required)))
        optional = {k: v for k, v in {**before.optional, **table.optional}.items() if k not in required}
        text, real, blob = (
            tuple(dict.fromkeys((*getattr(before, kind), *getattr(table, kind)))) for kind in ("text", "real", "blob")
        )
        declared[table.name] = Table(table.name, required, optional, text, real, blob)
    return declared


# ---- texts that are in the rows of a table, or that the rows name by an id -------------------------------------------


def read_texts(reader: ReportReader, columns: Columns, rows: IntArray, inline: str, by_id: str) -> pa.Array:
    """Return the text of each of n rows: in the column `inline`, else the text with the id in `by_id`, else null."""
    text = columns.texts[inline].combine_chunks().take(pa.array(rows, pa.int64()))
    if (columns[by_id][rows] == NULL).all():
        return text
    ids, position = np.unique(columns[by_id][rows], return_inverse=True)
    names = [None if i == NULL else name for i, name in zip(ids, reader.strings(ids), strict=True)]
    return pc.coalesce(text, pa.array(names, pa.string()).take(pa.array(position)))


def encode_texts(texts: pa.Array) -> tuple[IntArray, list[Any]]:
    """Return (index of each of n texts or blobs into the distinct ones, -1 for a null; distinct ones)."""
    encoded = texts.dictionary_encode()
    return encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64), encoded.dictionary.to_pylist()


def parse_json(text: str | None) -> dict[str, object] | None:
    """Return the members of a JSON object; None for any other text."""
    try:
        parsed = json.loads(text or "")
    except (ValueError, RecursionError):
        return None
    return parsed if isinstance(parsed, dict) else None


# ---- pairs of event type and value that n events show ----------------------------------------------------------------


def make_number_pair(labels: Labels, event_type: EventType, value: IntArray) -> Pair:
    """Make the pair for the events that have a value; NULL stands for no value."""
    return Pair(labels.handle(event_type), value, value != NULL)


def make_name_pair(
    labels: Labels, event_type: EventType, index: IntArray, names: Iterable[str], present: BoolArray | None = None
) -> Pair:
    """Make the pair that shows a name at each event, given the index of each into distinct names."""
    return Pair(labels.handle(event_type), labels.name_ids(event_type.names, names)[index], present)


def make_id_pair(reader: ReportReader, event_type: EventType, ids: IntArray, present: BoolArray | None = None) -> Pair:
    """Make the pair that shows a name of the report at each event, given its id."""
    return make_name_pair(reader.labels, event_type, *reader.names(ids), present)


def make_partial_pair(labels: Labels, event_type: EventType, value: IntArray, present: BoolArray) -> Pair:
    """Make the pair for the events in a mask of n, given the values of these events alone."""
    values = put(value, present, present.size, 0)
    return Pair(labels.handle(event_type), values, present)


def register_used(labels: Labels, space: str, names: Sequence[str], index: IntArray) -> IntArray:
    """Return the ids of the names at n indices. Names at no index are not registered."""
    position, used = find_distinct(index)
    return labels.name_ids(space, [names[i] for i in used])[position]


def register_ranks(
    labels: Labels, space: str, communicators: Sequence[str], communicator: IntArray, rank: IntArray
) -> IntArray:
    """Return the ids of the ranks (not NULL) of n events, by the names that `parse_rank` reads.

    `communicator`: index of each into the keys of communicators. The `join` of a source assigns the values of ranks,
    which depend on all reports.
    """
    known = rank != NULL
    codes, distinct = find_distinct_rows(communicator[known], rank[known])
    return labels.name_ids(space, [f"{communicators[index]} {local}" for index, local in distinct])[codes]


def parse_rank(name: str) -> tuple[str, int]:
    """Return the key of the communicator and the rank in it, for the name of a rank."""
    key, _, rank = name.rpartition(" ")
    return key, int(rank)
