"""Declares a source of events: the columns that it needs, one function from columns to records, and its results."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import Annotated, Any, NamedTuple

import numpy as np

from nsys2prv_ng.arrays.types import BoolArray, Index, IntArray, PlaceColumn
from nsys2prv_ng.clock.applying import ClockMap
from nsys2prv_ng.objects.places import Places
from nsys2prv_ng.objects.tree import ObjectTree
from nsys2prv_ng.operations.parts import Evidence, MessagePairs
from nsys2prv_ng.paraver.labels import Value
from nsys2prv_ng.paraver.load_cost import LoadCost
from nsys2prv_ng.paraver.model import Communicator
from nsys2prv_ng.records.columns import Pair, Records, count_events, drop_places, make_intervals, select
from nsys2prv_ng.records.runs import Run
from nsys2prv_ng.records.store import StoredColumns
from nsys2prv_ng.report.database import NULL, Columns, Table
from nsys2prv_ng.report.metadata import Metadata
from nsys2prv_ng.sources.shared.reasons import Reason
from nsys2prv_ng.sources.shared.report_reader import ReportReader
from nsys2prv_ng.value_class import ValueClass


class JoinInput(ValueClass):
    """The data of one report that a source joins over all reports, once the objects of the trace are known.

    `rows`: row of the trace by place. `clock`: maps times of the report (ns) to times on the common clock. `data`: the
    value of `Result.join_data`. `load_columns`: returns the columns of `Result.join_columns`. `windows`: first and last
    time (ns, common clock) of the trace, or of each selected part of it. `kept`: mask of the rows that the user
    selected; events on other rows are dropped after the join, if not before.
    """

    metadata: Metadata
    places: Places
    rows: IntArray
    clock: ClockMap
    data: Any
    load_columns: Callable[[], list[IntArray]]
    windows: Sequence[tuple[int, int]]
    kept: BoolArray


class NamedCommunicator(NamedTuple):
    """A communicator of NCCL: its id of 16 hexadecimal digits, its number, and its number, axis and members in words.

    `axis`: what it is for: data, sharded data, tensor, pipeline or expert; empty if that is not known. `tasks`: the
    tasks of the whole tree that use it.
    """

    id: str
    number: int
    label: str
    axis: str
    ranks: int
    tasks: tuple[int, ...]


class JoinResult(ValueClass):
    """What a source makes of all reports together: lines between them, and values that depend on all of them.

    `accounts`: results by their name in the account; their records are on the common clock, with rows of the trace as
    places. `nccl_communicators`: NCCL's, by number. `messages`: messages with both ends, by the name of the source of
    their kernels or calls; rows of the whole tree. `partial_results`: a name in the account, a function, and the items
    from which the function makes one result each; these results are made and stored independently.
    """

    assigned: dict[str, dict[str, Value]] = field(default_factory=dict)
    communicators: list[Communicator] = field(default_factory=list)
    accounts: dict[str, Result] = field(default_factory=dict)
    nccl_communicators: list[NamedCommunicator] = field(default_factory=list)
    messages: dict[str, MessagePairs] = field(default_factory=dict)
    partial_results: tuple[str, Callable[[Any], Result], Sequence[Any]] | None = None


class EventRows(ValueClass):
    """A table with the events of a source, to list the contents of a report before any event is read.

    `process`: the column with the globalTid or globalPid of the process that a row makes a task; empty if rows make no
    task. `application`, `system_calls`: what the rows show about the process, as arguments of `Places.threads`.
    `device`: the column with the process's ordinal of the GPU that the operation ran on. `no_task`: a column and its
    values in rows that make no task, because these rows only name things or are not calls. `names`: only rows with the
    textId of a matching name belong to the source. `otherwise`: count the rows only if the tables before this one have
    no rows. `count`: function that counts the rows of the source, if not all rows belong to it.
    """

    table: str
    process: str = ""
    application: bool = True
    system_calls: bool = False
    device: str = ""
    no_task: tuple[str, tuple[int, ...]] | None = None
    names: re.Pattern[str] | None = None
    otherwise: bool = False
    count: Callable[[ReportReader], int] | None = None

    @property
    def process_columns(self) -> tuple[str, ...]:
        """Names of the columns that `make_task` needs."""
        return (self.process,) if self.no_task is None else (self.process, self.no_task[0])

    def make_task(self, columns: Columns) -> BoolArray:
        """Return a mask of the rows that make their process a task."""
        made: BoolArray = columns[self.process] != NULL
        if self.no_task is not None:
            name, values = self.no_task
            made &= ~np.isin(columns[name], values)
        return made


class Source(ValueClass):
    """A kind of event: its name on the command line, its title, the tables it reads, and the function that reads them.

    `join`, if a source has one, is called once the rows are known, with the data of every report (in an order that does
    not depend on the command line) and the tree. `join_data`: type of its `Result.join_data`; None if it has none.
    `accounted_in_join`: whether only its join has an account, because its events need all reports together.

    `counted_tables`: the tables with one row for each of its events, and `noun`: the plural noun for these rows. For a
    source without such tables, `needed_tables`: groups of tables of other sources, each with a table that must have
    rows. `needed_by`: keys of the tables of a comparison that need its events on all sides; None if users do not choose
    it when they trace, so that a side without such events is no finding.

    `load`: records of a trace for one of these rows: a rounded mean over the reports of 23 jobs
    (benchmarks/paraver_estimate.py), with all that is derived from the row: its state, the line from its launch, GPU
    activity, waits and the critical path. The default has a line for the start and one for the end.
    """

    name: str
    title: str
    tables: tuple[Table, ...]
    read: Callable[[ReportReader], Result]
    join: Callable[[Sequence[JoinInput], ObjectTree], JoinResult] | None = None
    join_data: Any = None
    accounted_in_join: bool = False
    counted_tables: tuple[EventRows, ...] = ()
    noun: str = ""
    needed_tables: tuple[tuple[str, ...], ...] = ()
    needed_by: tuple[str, ...] | None = None
    load: LoadCost = LoadCost(events=2, pairs=2.5)


# ---- what a source makes of one report -------------------------------------------------------------------------------


NO_END = 2**62
"""End of an interval without an end: far after any time, even once the offset of a clock is added."""


class StateIntervals(NamedTuple):
    """n states that events ask for: place, start and end (ns), state. They may nest; the outermost state wins."""

    place: PlaceColumn
    begin: IntArray
    end: IntArray
    state: IntArray


class Unended(NamedTuple):
    """n intervals without an end, which last until the trace ends: place, start (ns), the types that they open and
    close."""

    place: PlaceColumn
    begin: IntArray
    opening: list[Pair]
    closing: Annotated[list[int], Index("labels.types")]


class Result(ValueClass):
    """Records of one source in one report.

    Law: `read` is the number of written events and communications plus the number of dropped ones.

    `dropped`: number of dropped events by reason. `closed`: number of intervals without an end, which the end of the
    trace closes; they count as written. `pieces`: number of additional intervals in the records, because windows of
    time cut some intervals. `cut`: number of intervals of idle threads that were shortened, because they outlast
    all other events; they count as written. `windows`: start and end (ns) of the n ranges that the user wants to see,
    n x 2; only the source of NVTX finds them. `runs`: records in the store.

    `join_data`: input of `Source.join` from this report, in times and places of the report. `join_columns`: further
    columns of n rows for the join, which are too long for the memory. `side_columns`: columns of n rows that analyses
    read and that no record has, in times and places of the report. `stored_join_columns`, `stored_side_columns`: where
    they are in the store. `evidence`: evidence on the clock of the report, in times of the report.
    """

    read: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    closed: int = 0
    pieces: int = 0
    cut: int = 0
    windows: IntArray = field(default_factory=lambda: np.zeros((0, 2), np.int64))
    records: list[Records] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    unended: list[Unended] = field(default_factory=list)
    states: list[StateIntervals] = field(default_factory=list)
    join_data: object = None
    join_columns: Sequence[IntArray] = ()
    stored_join_columns: StoredColumns | None = None
    side_columns: Sequence[IntArray] = ()
    stored_side_columns: StoredColumns | None = None
    evidence: Evidence = field(default_factory=Evidence)

    @property
    def written(self) -> int:
        """Number of events and communications among the records."""
        stored = sum(run.facts.events for run in self.runs)
        return sum(count_events(records) for records in self.records) + stored - self.pieces

    @property
    def accounted(self) -> int:
        """Number of events that are written, that the end of the trace will close, or that are dropped."""
        return self.written + sum(unended.place.size for unended in self.unended) + sum(self.dropped.values())

    def drop(self, reason: Reason, count: int) -> None:
        """Count events that are not written, for one reason."""
        if count:
            self.dropped[reason] = self.dropped.get(reason, 0) + int(count)

    def add_dropped(self, other: Result) -> None:
        """Count the events that another result does not write."""
        for reason, count in other.dropped.items():
            self.dropped[reason] = self.dropped.get(reason, 0) + count

    def drop_rows(self, reasons: Mapping[Reason, BoolArray], counted: BoolArray | bool = True) -> IntArray:
        """Return the rows to which no reason applies, and drop the others. The first reason that applies counts.

        `counted`: mask of the rows that are events; the others do not count as dropped.
        """
        is_sound: BoolArray = np.ones(next(iter(reasons.values())).size, np.bool_)
        for reason, mask in reasons.items():
            self.drop(reason, int((is_sound & mask & counted).sum()))
            is_sound &= ~mask
        return np.flatnonzero(is_sound)

    def add_intervals(
        self, place: IntArray, begin: IntArray, end: IntArray, opening: Sequence[Pair], closing: Sequence[int]
    ) -> None:
        """Add n intervals as `make_intervals` does; an interval with the end NO_END lasts until the trace ends."""
        has_no_end = end == NO_END
        if has_no_end.any():
            rows = np.flatnonzero(has_no_end)
            # If none of these intervals has a pair, its type must not count as used in the trace.
            pairs = [pair for pair in select(opening, rows) if pair.present is None or pair.present.any()]
            self.unended.append(Unended(place[rows], begin[rows], pairs, list(closing)))
            self.closed += rows.size
            rows = np.flatnonzero(~has_no_end)
            place, begin, end, opening = place[rows], begin[rows], end[rows], select(opening, rows)
        if place.size:
            self.records.append(make_intervals(place, begin, end, opening, closing))

    def add_states(self, place: IntArray, begin: IntArray, end: IntArray, state: IntArray | int) -> None:
        """Add the states that n intervals ask for; -1 stands for none."""
        states = StateIntervals(place, begin, end, np.full(place.size, state, np.int64))
        has_state = states.state >= 0
        self.states.append(states if has_state.all() else StateIntervals(*(column[has_state] for column in states)))

    def copy_records(self) -> Result:
        """Return a copy with the records and counts of this result, which others may change."""
        copied = replace(
            self, dropped=dict(self.dropped), join_data=None, stored_join_columns=None, evidence=Evidence()
        )
        copied.records, copied.runs = list(self.records), list(self.runs)
        copied.unended, copied.states = list(self.unended), list(self.states)
        return copied

    def take_records(self, changed: Result) -> None:
        """Take the records and counts of a copy that was changed."""
        self.runs, self.unended, self.dropped = changed.runs, changed.unended, changed.dropped
        self.closed, self.pieces, self.cut = changed.closed, changed.pieces, changed.cut

    def add(self, other: Result) -> None:
        """Add the counts and runs of another result, whose records must all be in the store."""
        self.read += other.read
        self.pieces += other.pieces
        self.runs += other.runs
        self.add_dropped(other)

    def drop_places(self, without: BoolArray, reason: Reason) -> None:
        """Drop everything at the places in `without`, a mask by place."""
        dropped = 0
        for i, records in enumerate(self.records):
            self.records[i] = drop_places(records, without)
            dropped += count_events(records) - count_events(self.records[i])
        self.states = [StateIntervals(*(c[~without[states.place]] for c in states)) for states in self.states]
        self.drop(reason, dropped)
        self.drop_unended(lambda unended: without[unended.place], reason)

    def drop_unended(self, find: Callable[[Unended], BoolArray], reason: Reason) -> None:
        """Drop the intervals without an end that `find` marks."""
        parts = [(unended, find(unended)) for unended in self.unended]
        dropped = sum(int(without.sum()) for _, without in parts)
        self.closed -= dropped
        self.drop(reason, dropped)
        self.unended = [
            Unended(part.place[~without], part.begin[~without], select(part.opening, ~without), part.closing)
            for part, without in parts
            if not without.all()
        ]


# ---- switches of threads and contexts --------------------------------------------------------------------------------


def pair_switches(
    result: Result, owner: IntArray, on: BoolArray, time: IntArray, repeated: Reason, unstarted: Reason
) -> tuple[IntArray, IntArray]:
    """Return (switches that put their owner, a thread or context, on; time (ns) at which each owner is taken off).

    `owner`, `on` (whether a switch puts its owner on) and `time` (ns) are columns of n switches, sorted by owner and
    time. The time is NO_END if no switch of the owner follows. Drops switches after which the owner is put on again,
    for the reason `repeated`: the switch that took it off is lost. Drops switches that take off an owner that was not
    put on, for the reason `unstarted`. `read` becomes the number of all turns.
    """
    same = owner[1:] == owner[:-1]
    followed = np.append(same, False)[: on.size]
    next_on = followed & np.append(on[1:], False)[: on.size]
    was_on = np.append(False, on[:-1] & same)[: on.size]
    result.drop(repeated, int((on & next_on).sum()))
    result.drop(unstarted, int((~on & ~was_on).sum()))
    shown = np.flatnonzero(on & ~next_on)
    result.read = sum(result.dropped.values()) + shown.size
    return shown, np.where(followed, np.append(time[1:], NO_END)[: on.size], NO_END)[shown]
