"""What a source of events is: a declaration of the columns it needs and one function from columns to records."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar, cast

import numpy as np
import pyarrow as pa

from nsys2prv_ng.arrays.row_keys import find_distinct
from nsys2prv_ng.arrays.types import BoolArray, IntArray
from nsys2prv_ng.clock.applying import ClockMap
from nsys2prv_ng.clock.collectives import Evidence
from nsys2prv_ng.objects.places import Places
from nsys2prv_ng.objects.tree import ObjectTree
from nsys2prv_ng.paraver.labels import Labels, Value
from nsys2prv_ng.paraver.model import LONGEST_TRACE_NS, Communicator
from nsys2prv_ng.records.columns import Pair, Records, count_events, drop_places, make_intervals, select
from nsys2prv_ng.records.runs import Run
from nsys2prv_ng.report.database import NULL, Columns, Database, Table
from nsys2prv_ng.report.metadata import FARTHEST, Metadata, Strings

T = TypeVar("T")

NO_END = 2**62
"""End of an interval that has none: far beyond any time, and still so when a clock is added to it."""

NOT_SELECTED = "outside --ranks or --gpus"
"""Reason to drop what is on rows that the user did not choose."""


class StateIntervals(NamedTuple):
    """States that events ask for: place, begin and end (ns), state, of n. They may nest; the outermost will win."""

    place: IntArray
    begin: IntArray
    end: IntArray
    state: IntArray


class Unended(NamedTuple):
    """Intervals of n that have no end and last until the trace ends: place, begin (ns), what they open and close."""

    place: IntArray
    begin: IntArray
    opening: list[Pair]
    closing: list[int]


@dataclass
class Result:
    """What a source made of one report. Law: `read` equals the events or communications written plus those dropped."""

    read: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    """Number of events that were left out, by reason."""
    closed: int = 0
    """Number of intervals without an end, which the end of the trace closes. They are written."""
    pieces: int = 0
    """How many more intervals the records hold because windows of time cut some into several pieces."""
    windows: IntArray = field(default_factory=lambda: np.zeros((0, 2), np.int64))
    """Begin and end (ns) of the ranges that the user wants to see, n x 2; only NVTX knows them."""
    records: list[Records] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    """Records that were put away."""
    unended: list[Unended] = field(default_factory=list)
    states: list[StateIntervals] = field(default_factory=list)
    shared: object = None
    """What `Source.join` needs of this report, in its own times and places."""
    evidence: Evidence = field(default_factory=Evidence)
    """What the source tells of the report's clock, in the report's own times."""

    @property
    def written(self) -> int:
        """Events and communications among the records."""
        away = sum(run.facts.events for run in self.runs)
        return sum(count_events(records) for records in self.records) + away - self.pieces

    def drop(self, reason: str, count: int) -> None:
        if count:
            self.dropped[reason] = self.dropped.get(reason, 0) + int(count)

    def drop_rows(self, reasons: Mapping[str, BoolArray]) -> IntArray:
        """Rows for which no reason holds; the others are counted as dropped. The masks do not overlap."""
        for reason, mask in reasons.items():
            self.drop(reason, int(mask.sum()))
        return np.flatnonzero(~np.logical_or.reduce(list(reasons.values())))

    def add_intervals(
        self, place: IntArray, begin: IntArray, end: IntArray, opening: Sequence[Pair], closing: Sequence[int]
    ) -> None:
        """Add intervals of n as `make_intervals` takes them; one whose end is NO_END lasts until the trace ends."""
        has_no_end = end == NO_END
        if has_no_end.any():
            rows = np.flatnonzero(has_no_end)
            # A pair that none of them has would make its type one that is used.
            pairs = [pair for pair in select(opening, rows) if pair.present is None or pair.present.any()]
            self.unended.append(Unended(place[rows], begin[rows], pairs, list(closing)))
            self.closed += rows.size
            rows = np.flatnonzero(~has_no_end)
            place, begin, end, opening = place[rows], begin[rows], end[rows], select(opening, rows)
        if place.size:
            self.records.append(make_intervals(place, begin, end, opening, closing))

    def add(self, other: Result) -> None:
        """Count what is in another result, which has put its records away, and have its runs."""
        self.read += other.read
        self.pieces += other.pieces
        self.runs += other.runs
        for reason, count in other.dropped.items():
            self.drop(reason, count)

    def drop_places(self, without: BoolArray, reason: str) -> None:
        """Leave out all that happened at some places: a mask by place."""
        dropped = 0
        for i, records in enumerate(self.records):
            self.records[i] = drop_places(records, without)
            dropped += count_events(records) - count_events(self.records[i])
        self.states = [StateIntervals(*(c[~without[each.place]] for c in each)) for each in self.states]
        lasting = []
        for place, begin, opening, closing in self.unended:
            kept = ~without[place]
            dropped += int((~kept).sum())
            self.closed -= int((~kept).sum())
            lasting.append(Unended(place[kept], begin[kept], select(opening, kept), closing))
        self.unended = [each for each in lasting if each.place.size]
        self.drop(reason, dropped)


@dataclass(frozen=True)
class JoinInput:
    """One report's part in what a source joins over all reports, after the objects of the trace are known."""

    metadata: Metadata
    places: Places
    rows: IntArray
    """Row of the trace by place."""
    clock: ClockMap
    """From the report's times (ns) to those on the common clock."""
    shared: object
    """What the source left in `Result.shared`."""
    windows: Sequence[tuple[int, int]]
    """First and last time of the trace on the common clock (ns), or of each part of it that the user chose."""
    kept: BoolArray
    """Whether the user wants each row. What is on the others is dropped afterwards, if it is not before."""


@dataclass
class JoinResult:
    """What a source made of all reports together: lines between them, and values that only they tell together."""

    assigned: dict[str, dict[str, Value]] = field(default_factory=dict)
    communicators: list[Communicator] = field(default_factory=list)
    accounts: dict[str, Result] = field(default_factory=dict)
    """By name in the summary: `records` (with rows of the trace as places, on the common clock), the number that was
    `read`, and what was `dropped`."""
    partial_results: tuple[str, Iterator[Result]] | None = None
    """A name in the summary and its results in parts, made as they are asked for: each is put away before the next."""


@dataclass(frozen=True)
class EventRows:
    """A table whose rows are a source's events: what tells what a report holds before any event is read."""

    table: str
    process: str = ""
    """Column of the globalTid or globalPid of the process that a row makes a task; none where rows make no task."""
    application: bool = True
    system_calls: bool = False
    """What such rows say of the process, as in `Places.threads`."""
    device: str = ""
    """Column of the process's ordinal of the GPU that the row's operation ran on."""
    no_task: tuple[str, tuple[int, ...]] | None = None
    """A column and its values in rows that make no task, since they only name things or are no calls."""
    names: re.Pattern[str] | None = None
    """Only rows whose textId is that of such a name are the source's."""
    otherwise: bool = False
    """Only where the tables before it have no rows."""
    count: Callable[[ReportReader], int] | None = None
    """Number of the rows that are the source's, where not all are."""

    @property
    def process_columns(self) -> tuple[str, ...]:
        """Columns that `make_task` needs."""
        return (self.process,) if self.no_task is None else (self.process, self.no_task[0])

    def make_task(self, columns: Columns) -> BoolArray:
        """Which rows make their process a task."""
        made: BoolArray = columns[self.process] != NULL
        if self.no_task is not None:
            name, values = self.no_task
            made &= ~np.isin(columns[name], values)
        return made


@dataclass(frozen=True)
class Source:
    """A kind of event: its name on the command line, what it is, the tables it reads and how.

    `join`, where a source has one, is given its part of every report (in an order that does not depend on the command
    line) and the tree, once rows are known.
    """

    name: str
    title: str
    tables: tuple[Table, ...]
    read: Callable[[ReportReader], Result]
    join: Callable[[Sequence[JoinInput], ObjectTree], JoinResult] | None = None
    derived: bool = False
    """Made of what other sources read: only its join has an account."""
    rows: tuple[EventRows, ...] = ()
    row: str = ""
    """What each of these rows is, in the plural."""
    made_of: tuple[tuple[str, ...], ...] = ()
    """Of a source that has no such rows: tables of other sources, one of each group of which must have rows."""


@dataclass(frozen=True)
class SourceOptions:
    """What a user chooses about single sources."""

    nvtx_domains: tuple[str, ...] = ()
    """Names of the NVTX domains to show (* and ? as in file names); none for all."""
    nvtx_range: str = ""
    """Text (* and ? likewise) of the NVTX ranges to whose time the trace is cut."""
    demangled_names: bool = False
    """Kernels by their demangled name, with template arguments, instead of the short one."""

    osrt_min: int = 10_000
    """Calls of the operating system that last less than this (ns) are left out; 0 keeps all."""

    stack_depth: int = 1
    """How many levels of call stacks are shown: of a sample its function and callers, of a call its callers."""

    metrics: tuple[str, ...] = ()
    """Patterns (* and ?) of the names of GPU metrics; none for all."""
    metrics_changes: bool = False
    """Of GPU metrics only the values that differ from those of the sample before."""


class ReportReader:
    """One report while it is read: its columns, each read once for all sources, and what its records refer to."""

    def __init__(
        self,
        database: Database,
        metadata: Metadata,
        strings: Strings,
        sources: Sequence[Source],
        options: SourceOptions,
    ) -> None:
        self.options = options
        self.chosen = frozenset(source.name for source in sources)
        self.metadata = metadata
        self.strings = strings
        self.places = Places()
        self.labels = Labels()
        self._database = database
        self._tables = _union(table for source in sources for table in source.tables)
        self._columns: dict[str, Columns] = {}
        self._computed: dict[object, object] = {}

    def columns(self, table: str) -> Columns:
        """Columns of a table that a chosen source declares; no rows where none does."""
        if table not in self._columns:
            declared = self._tables.get(table, Table(table, ()))
            if table in self._tables:
                self._columns[table] = self._database.read(declared, self.metadata.schema_version)
            else:
                self._columns[table] = Columns(0, {}, {})
        return self._columns[table]

    def read(self, table: Table) -> Columns:
        """Columns that are read when they are asked for, and not kept: those that few reports need."""
        return self._database.read(table, self.metadata.schema_version)

    def has(self, table: str) -> bool:
        """Whether the report has the table and a chosen source reads it."""
        return table in self._tables and table in self._database.tables

    def by_block(self, table: str, convert: Callable[[Columns], T]) -> list[T]:
        """What `convert` makes of some rows after the other of a declared table, too large to be in memory at once.

        It has columns of integers only, which are gone when `convert` returns.
        """
        declared = self._tables.get(table)
        return self._database.by_block(declared, self.metadata.schema_version, convert) if declared else []

    def text_by_block(self, table: str, column: str, convert: Callable[[pa.Array], T]) -> list[T]:
        """What `convert` makes of the strings of some rows after the other, of a column too large to be in memory."""
        return self._database.text_by_block(table, column, convert)

    def apart(self, source: Source) -> ReportReader:
        """The same report read for one source whose places and names are not those of the trace."""
        reader = ReportReader(self._database, self.metadata, self.strings, (source,), self.options)
        for name, table in reader._tables.items():
            if name in self._tables and _holds(self._tables[name], table):
                reader._columns[name] = self.columns(name)
        return reader

    def names(self, ids: IntArray) -> tuple[IntArray, list[str]]:
        """(index into the names for each id, distinct names) of a column of string ids."""
        index, found = find_distinct(ids)
        return index, self.strings(found)

    def once(self, compute: Callable[[ReportReader], T]) -> T:
        """What `compute` makes of this report, computed for the first of the sources that ask for it."""
        if compute not in self._computed:
            self._computed[compute] = compute(self)
        return cast(T, self._computed[compute])


def _union(tables: Iterable[Table]) -> dict[str, Table]:
    """One declaration for each table: all columns that any source needs."""
    joined: dict[str, Table] = {}
    for table in tables:
        before = joined.get(table.name, Table(table.name, ()))
        required = tuple(dict.fromkeys((*before.required, *table.required)))
        optional = {k: v for k, v in {**before.optional, **table.optional}.items() if k not in required}
        text, real, blob = (
            tuple(dict.fromkeys((*getattr(before, kind), *getattr(table, kind)))) for kind in ("text", "real", "blob")
        )
        joined[table.name] = Table(table.name, required, optional, text, real, blob)
    return joined


def _holds(whole: Table, part: Table) -> bool:
    """Whether all columns of the one declaration are in the other, with the same defaults."""
    of_kinds = ((set(getattr(whole, kind)), set(getattr(part, kind))) for kind in ("text", "real", "blob"))
    return (
        set(part.required) <= set(whole.required)
        and all(whole.optional.get(name) == default for name, default in part.optional.items())
        and all(needed <= held for held, needed in of_kinds)
    )


def find_unsound_times(begin: IntArray, end: IntArray) -> dict[str, BoolArray]:
    """Intervals that cannot be shown, by reason; the masks do not overlap."""
    null = (begin == NULL) | (end == NULL)
    backward = ~null & (end < begin)
    zero = ~null & (begin == 0) & (end == 0)
    # Compared so that nothing overflows, here or where they are put on another clock: such times are damage.
    far = FARTHEST - 2 * LONGEST_TRACE_NS
    endless = ~null & ((begin > far) | (begin < -far) | (end > np.minimum(begin, far) + LONGEST_TRACE_NS))
    return {
        "longer than Paraver can show": endless & ~backward,
        "no begin or end": null,
        "end before begin": backward,
        "no time (begin and end are 0)": zero,
    }
