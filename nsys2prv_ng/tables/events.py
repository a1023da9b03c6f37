"""Reads rows of events of one report: where each is, who launched it, its step, its range and its attributes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property

import numpy as np

from nsys2prv_ng import source_names
from nsys2prv_ng.arrays.row_keys import find_rows, find_starts
from nsys2prv_ng.arrays.types import IntArray, pick
from nsys2prv_ng.job.counted import find_step
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver.event_type import EventType
from nsys2prv_ng.reading.device_operations import LaunchedOperations, load_launched_operations, load_launches
from nsys2prv_ng.reading.opened_events import ABSENT, keep_opened_events, load_opened_events, load_source_records
from nsys2prv_ng.sources.registry import GPU_OPERATIONS
from nsys2prv_ng.steps.spans import HostSpans
from nsys2prv_ng.tables.columns import (
    NO_ACCOUNT,
    NS,
    Account,
    Column,
    Part,
    Table,
    Values,
    lack_below,
    make_names,
    make_partial,
)
from nsys2prv_ng.tables.context import JobTables
from nsys2prv_ng.tables.ranges import NestedRanges


class EventsOfReport:
    """One report of a job, and what several of its tables need."""

    def __init__(self, tables: JobTables, index: int) -> None:
        self.tables, self.job, self.index = tables, tables.job, index
        self.report, self.rows = self.job.reports[index], self.job.tree.rows[index]

    @cached_property
    def ranges(self) -> NestedRanges:
        return NestedRanges(self.report, self.job.store)

    @cached_property
    def launched(self) -> LaunchedOperations:
        return load_launched_operations(self.report, self.job.store)


class SourceEvents:
    """All events of one source of a report, and what is found for all of them at once.

    `is_launched`: whether calls launched them; else they are on threads themselves.
    """

    def __init__(self, report: EventsOfReport, source: str, *, is_launched: bool) -> None:
        self.report, self._is_launched, self._is_nvtx = report, is_launched, source == source_names.NVTX
        self.events = load_opened_events(report.report, source, report.job.store)

    @cached_property
    def host(self) -> tuple[IntArray, IntArray]:
        """Place of the thread that launched each event or that it is on, and that time (ns); -1 and 0 if unknown."""
        place, begin = self.events.place, self.events.begin
        if not self._is_launched:
            return place, begin
        launched = self.report.launched
        at = find_rows([launched.place, launched.begin], [place, begin])
        at[~pick(launched.is_known, at, False)] = -1
        return pick(launched.thread, at, -1), pick(launched.launched, at, 0)

    @cached_property
    def range(self) -> IntArray:
        """The innermost range of the thread at that time; -1 for none. A range is not around itself."""
        if self._is_nvtx:
            lines = np.arange(self.events.begin.size)
            return self.report.ranges.find_around(lines, self.events.place, self.events.begin)
        return self.report.ranges.find(*self.host)

    @cached_property
    def correlation(self) -> IntArray:
        """CUPTI's id of each call, if it launched an operation; else ABSENT."""
        report, store = self.report.report, self.report.job.store
        launches = load_launches(report, store)
        ids = np.full(launches.place.size, ABSENT)
        for source in GPU_OPERATIONS:
            events = load_opened_events(report, source, store)
            at = find_rows([events.place, events.begin], [launches.place, launches.begin])
            ids = np.where(ids == ABSENT, pick(events.get_values(types.CORRELATION), at, ABSENT), ids)
        call = find_rows([launches.thread, launches.sent], [self.events.place, self.events.begin])
        return pick(ids, call, ABSENT)


class EventPart(Part):
    """n rows of events of a source. `line`: the index of each among the events of the source."""

    def __init__(self, source: SourceEvents, line: IntArray) -> None:
        self.source, self.events, self.line, self.report = source, source.events, line, source.report
        begin = self.events.begin[line]
        row = self.report.rows[self.events.place[line]]
        super().__init__(self.report.tables, row, begin, begin + self.events.length[line])

    def take(self, which: IntArray) -> EventPart:
        return EventPart(self.source, self.line[which])

    def get_values(self, *event_types: EventType) -> IntArray:
        """Return the value of each row for any of the types; ABSENT if it has none of them."""
        return self.events.get_values(*event_types)[self.line]

    @property
    def host(self) -> tuple[IntArray, IntArray]:
        """Place of the thread and time (ns) of what the host did."""
        place, time = self.source.host
        return place[self.line], time[self.line]

    @property
    def range(self) -> IntArray:
        """The innermost range of the thread at that time; -1 for none."""
        return self.source.range[self.line]


def load_samples(report: EventsOfReport, source: str) -> Part:
    """Return the values of all metrics of a source: each sample has a row for each of its values."""
    records = load_source_records(report.report, source, report.job.store)
    count, words = np.diff(records.first), slice(records.first[0], records.first[-1])
    row, time = (np.repeat(column, count) for column in (report.rows[records.place], records.time))
    metrics, index = report.report.labels.types, records.handle[words]
    given = {
        "name": make_names(index, [each.label for each in metrics]),
        "value": Values(records.value[words]),
        "unit": make_names(index, ["Hz" if each.unit == "MHz" else each.unit for each in metrics]),
    }
    part = Part(report.tables, row, time, time, given)
    part.further = time.size - count.size
    return part


# ---- tables of events ------------------------------------------------------------------------------------------------


def make_table(
    name: str,
    meaning: str,
    sources: Sequence[str],
    columns: Sequence[Column],
    *,
    launched: bool = False,
    make_part: Callable[[EventsOfReport, str], Part] | None = None,
    make_more: Callable[[EventsOfReport], Part] | None = None,
    group: str = "events",
) -> Table:
    """Return a table with a row for each event of sources.

    `launched`: whether calls launched the events; else they are on threads themselves. `make_part`: makes the rows of a
    source of a report, if these are not simply its events. `make_more`: makes rows that are no events.
    """

    def make(report: EventsOfReport, source: str) -> Part:
        events = SourceEvents(report, source, is_launched=launched)
        return EventPart(events, np.arange(events.events.begin.size))

    @keep_opened_events()
    def read(tables: JobTables, index: int) -> tuple[list[Part], Account]:
        report, account, parts = EventsOfReport(tables, index), NO_ACCOUNT, list[Part]()
        if tables.reports is not None:
            report = tables.reports.setdefault(index, report)
        for source in sources:
            result = report.report.results.get(source)
            if result is not None:
                parts.append((make_part or make)(report, source))
                account = account.add(Account(result.read, result.dropped, result.pieces + parts[-1].further))
        if make_more is not None and parts:
            parts.append(make_more(report))
            account = account.add(Account(0, {}, parts[-1].row.size))
        return parts, account

    return Table(name, meaning, tuple(columns), lambda tables: range(len(tables.job.reports)), read, group=group)


def take_number(*event_types: EventType, least: int | None = None) -> Callable[[EventPart], Values]:
    """Return a function that reads the value of any of some types; what is below `least` counts as unknown."""
    return lambda part: lack_below(part.get_values(*event_types), ABSENT + 1 if least is None else least)


def take_name(*event_types: EventType) -> Callable[[EventPart], Values]:
    """Return a function that reads the name of any of some types."""
    return lambda part: find_names(part, event_types)


def find_names(
    part: EventPart, event_types: Iterable[EventType], rename: Callable[[EventType, str], str] = lambda _, name: name
) -> Values:
    """Return the name of each row: that of its value for any of the types."""
    index, names = np.full(part.line.size, -1, np.int32), list[str]()
    for event_type in event_types:
        value = part.get_values(event_type)
        known = part.events.get_names(event_type)
        keys = np.array(sorted(known), np.int64)
        at = np.searchsorted(keys, value)
        has = pick(keys, at, ABSENT) == value
        has &= value != ABSENT
        index[has] = len(names) + at[has]
        names += [rename(event_type, known[key]) for key in keys.tolist()]
    return make_names(index, names)


def find_type_names(part: EventPart, labels: Sequence[tuple[EventType, str]]) -> Values:
    """Return the label of the type that each row has."""
    index = np.full(part.line.size, -1, np.int32)
    for number, (event_type, _) in enumerate(labels):
        index[part.get_values(event_type) != ABSENT] = number
    return make_names(index, [label for _, label in labels])


def _find_steps(part: EventPart) -> Values:
    place, time = part.host
    return number_steps(part.tables, find_step(part.tables.job, pick(part.report.rows, place, -1), time))


def _find_steps_of_time(part: Part) -> Values:
    """Return the step of the task of the row in which a time is, by the limits of the steps on the task."""
    job = part.tables.job
    if job.steps is None:
        return number_steps(part.tables, np.full(part.row.size, -1, np.int64))
    spans = HostSpans(job.new_task[job.steps.task], job.steps.begin, job.steps.end)
    first = find_starts(part.row, part.start)  # the values of a sample share its time
    found = spans.find(job.find_tasks(part.row[first]), part.start[first])
    step = np.repeat(pick(job.steps.step, found, -1), np.diff(first, append=part.row.size))
    return number_steps(part.tables, step)


def number_steps(tables: JobTables, step: IntArray) -> Values:
    """Return the number of each step, given by index; -1 stands for none."""
    numbers = np.zeros(0, np.int64) if tables.job.steps is None else tables.job.steps.number
    return make_partial(pick(numbers, step, 0), np.asarray(step < 0, np.bool_))


_STEP = "Number of the step of the program"
STEP = Column(
    "step", f"{_STEP} to which its host belongs, or in which it was launched", may_lack=True, find=_find_steps
)
STEP_OF_TIME = Column(
    "step", f"{_STEP} in which it is, by the steps of its rank", may_lack=True, find=_find_steps_of_time
)
RANGE = Column(
    "range", "Innermost NVTX push/pop range of its thread, or of the thread that launched it, then", kind="name",
    find=lambda part: make_names(part.report.ranges.name_of(part.range), part.report.ranges.names),
)  # fmt: skip
RANGE_PATH = Column(
    "range_path", "The range and those around it, the outermost first, with / between them", kind="name",
    find=lambda part: make_names(part.report.ranges.path_of(part.range), part.report.ranges.paths),
)  # fmt: skip
LAUNCH_START = Column(
    "launch_ns", "Start of the call that launched it, if recorded; of the graph's for its nodes", NS, may_lack=True,
    find=lambda part: make_partial(part.host[1] - part.tables.job.scope.origin, part.host[0] < 0),
)  # fmt: skip
LAUNCH_THREAD = Column(
    "launch_thread", "Thread id of the thread that launched it", may_lack=True,
    find=lambda part: lack_below(pick(part.tables.facts.thread, pick(part.report.rows, part.host[0], -1), -1)),
)  # fmt: skip
CORRELATION = Column(
    "correlation_id", "CUPTI's id of the call that launched it", may_lack=True, find=take_number(types.CORRELATION)
)
