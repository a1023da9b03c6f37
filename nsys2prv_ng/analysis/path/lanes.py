"""Loads the streams and threads of a job for the walk along the critical path, and what each of them waits for."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from nsys2prv_ng import source_names
from nsys2prv_ng.analysis.host_activity import SYSTEM_CALL, map_main_threads
from nsys2prv_ng.analysis.path import columns as path
from nsys2prv_ng.analysis.path.calls import BesideRecords, add_call_waits, add_operation_waits, add_syncs, load_calls
from nsys2prv_ng.analysis.path.columns import (
    NONE,
    PathCalls,
    PathEvents,
    PathOperations,
    PathTables,
    PathThreads,
    PlaceNumbers,
)
from nsys2prv_ng.analysis.path.streams import EventSteps, Span, Streams, cut_to_span, find_copies, load_operations
from nsys2prv_ng.analysis.path.walk import join_tables
from nsys2prv_ng.analysis.waits.waits import Waits
from nsys2prv_ng.arrays.types import BoolArray, IntArray, IntTable, pick
from nsys2prv_ng.intervals.device_sweep import COMMUNICATION, COMPUTE, WHOLE_GRAPH
from nsys2prv_ng.intervals.step_functions import find_latest
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.objects.places import Stream, Thread
from nsys2prv_ng.reading.device_operations import number_streams
from nsys2prv_ng.reading.opened_events import Names, load_opened_events
from nsys2prv_ng.reading.read_reports import ReportRecords
from nsys2prv_ng.records.store import Store
from nsys2prv_ng.runtime.limits import give_back_freed_memory
from nsys2prv_ng.runtime.parallel import run_in_threads
from nsys2prv_ng.value_class import ValueClass


class Lanes(ValueClass):
    """Operations, calls and threads of a job, with their rows (of the whole tree) and names.

    The columns of operations and calls are rows of `tables`, which the walk reads, so that memory has them once.

    - `is_unsure`: whether the culprit of an operation only seems to be last: clocks are too uncertain to be sure.
    - `operation_kind`: COMPUTE, COMMUNICATION, MEMORY, COMMUNICATING_COPY, HOST_FUNCTION, or WHOLE_GRAPH for a graph
      traced as a whole that may contain NCCL.
    - `kernel_class`: number of KERNEL_CLASSES; NONE for what is no kernel.
    - `launch`: the operation whose launch counts: itself, or for a node of a CUDA graph an earlier node; else NONE.
    - `thread_place`: place of each thread in its report.
    - `thread_first`, `thread_last`: first and last time (ns) of each thread's events; first > last without events.
    - `is_main`: whether a thread is the main thread of a process with GPU, MPI or NCCL events; if no process has any,
      of any.
    """

    tables: PathTables
    operations: PathOperations
    is_unsure: BoolArray
    operation_row: IntArray
    operation_name: IntArray
    operation_kind: IntArray
    kernel_class: IntArray
    launch: IntArray
    calls: PathCalls
    call_name: IntArray
    call_kind: IntArray
    events: PathEvents
    threads: PathThreads
    thread_row: IntArray
    thread_place: IntArray
    thread_report: IntArray
    thread_first: IntArray
    thread_last: IntArray
    is_main: BoolArray
    names: list[str]


class LoadedReport(NamedTuple):
    """The contents of one report. Indices of operations and names are valid within the report."""

    operations: dict[str, IntArray]
    calls: dict[str, IntArray]
    steps: EventSteps
    call_of_step: IntArray
    shortest_wait: int
    names: list[str]


_Records = tuple[IntTable, IntTable, BesideRecords]
"""Operations, calls and their other columns, ordered by stream or thread, then start."""


def load_lanes(job: Job, waits: Waits, span: Span | None = None) -> Lanes:
    """Load everything that the critical path can run over, or only what runs in a span of time (ns)."""
    (loaded,) = load_reports(job, [span])
    return join_lanes(job, waits, loaded)


def load_reports(job: Job, spans: Sequence[Span | None]) -> list[list[LoadedReport]]:
    """Return what runs in each of some spans of time (ns; None: all time), by report, as `join_lanes` takes it."""
    numbers = number_places(job.reports)
    reports = list(zip(job.reports, job.whole.rows, numbers, strict=True))
    store = job.store  # otherwise the whole job would be sent with each report
    loaded = list(job.engine.map(lambda report: list(_load_report(*report, store, spans)), reports))
    give_back_freed_memory()  # what loading took
    return [list(parts) for parts in zip(*loaded, strict=True)]


def join_lanes(job: Job, waits: Waits, loaded: list[LoadedReport]) -> Lanes:
    """Return the lanes of a job, given what was loaded of each report. This is removed from the list."""
    names = _unite_names(loaded)
    events = _join_events(loaded)
    shortest_wait = [part.shortest_wait for part in loaded]
    operations, calls = [part.operations for part in loaded], [part.calls for part in loaded]
    loaded.clear()
    records = _join_reports(operations, calls, job.engine.cores)
    return _make_lanes(job, waits, records, events, shortest_wait, names)


def _make_lanes(
    job: Job, waits: Waits, records: _Records, events: PathEvents, shortest_wait: Sequence[int], names: list[str]
) -> Lanes:
    """Return lanes, given the operations and calls of all reports, whose waits are not set.

    `shortest_wait`: of each report.
    """
    operation_table, call_table, beside = records
    operations, calls = PathOperations(*operation_table), PathCalls(*call_table)
    numbers = number_places(job.reports)
    places = [np.flatnonzero(number.thread != NONE) for number in numbers]
    row = np.concatenate([rows[place] for rows, place in zip(job.whole.rows, places, strict=True)])
    first, last = (
        np.concatenate([limit[place] for limit, place in zip(limits, places, strict=True)])
        for limits in zip(*job.spans, strict=True)
    )
    is_unsure = add_operation_waits(job, waits, operations, beside)
    add_call_waits(job, waits, calls, beside.call_kind, row)
    computes = (beside.kind == WHOLE_GRAPH) & (not job.hides_nccl)  # a graph that cannot contain NCCL
    threads, is_main = _join_threads(job, shortest_wait, numbers, operations, calls, beside, names, first)
    return Lanes(
        tables=join_tables(operation_table, call_table, threads),
        operations=operations,
        is_unsure=is_unsure,
        operation_row=beside.row,
        operation_name=beside.name,
        operation_kind=np.where(computes, COMPUTE, beside.kind),
        kernel_class=beside.kernel_class,
        launch=beside.launch,
        calls=calls,
        call_name=beside.call_name,
        call_kind=beside.call_kind,
        events=events,
        threads=threads,
        thread_row=row,
        thread_place=np.concatenate(places),
        thread_report=np.repeat(np.arange(len(places)), [place.size for place in places]),
        thread_first=first,
        thread_last=last,
        is_main=is_main,
        names=names,
    )


def number_places(reports: Sequence[ReportRecords]) -> list[PlaceNumbers]:
    """Number the threads, processes, streams and devices of all reports."""
    numbers = []
    first = np.zeros((4, 1), np.int64)
    for report in reports:
        places = report.places.all
        is_thread = np.array([isinstance(place, Thread) for place in places], np.bool_)
        processes = [place.process if isinstance(place, Thread | Stream) else NONE for place in places]
        number = {process: n for n, process in enumerate(sorted(set(processes) - {NONE}))}
        process = np.array([number.get(process, NONE) for process in processes], np.int64)
        device, stream = number_streams(report)
        report_numbers = np.stack([np.where(is_thread, np.cumsum(is_thread) - 1, NONE), process, stream, device])
        numbers.append(PlaceNumbers(*np.where(report_numbers == NONE, NONE, report_numbers + first)))
        first += report_numbers.max(axis=1, keepdims=True, initial=NONE) + 1
    return numbers


def _unite_names(loaded: Sequence[LoadedReport]) -> list[str]:
    """Renumber the names of each report in the sorted list of all names, and return this list."""
    names = sorted({name for part in loaded for name in part.names})
    number = {name: n for n, name in enumerate(names)}
    for part in loaded:
        numbers = np.array([number[name] for name in part.names] or [NONE], np.int64)
        for columns in (part.operations, part.calls):
            columns["name"] = numbers[columns["name"]]
    return names


_CREATES = "pthread_create"
_KERNELS = (COMPUTE, COMMUNICATION, WHOLE_GRAPH)
_BESIDE_COLUMNS = ("row", "name", "kind", "kernel_class", "launch")
_OPERATION_COLUMNS = ("begin", "end", "stream", "device", "process", "thread", "launched", "producer")
_JOINERS = 4
"""Most columns to join at once: memory is not faster for more, and has them twice meanwhile."""
_WORTH_GIVING_BACK = 64 << 20
"""Bytes to free before memory goes back to the system: for that, glibc looks at its whole heap."""
_NUMBERS = {*_BESIDE_COLUMNS, "stream", "device", "process", "thread", "producer", "sync", "target"}
_CALL_COLUMNS = ("begin", "end", "thread", "sync", "target", "since")


def _join_reports(
    operations: Sequence[dict[str, IntArray]], calls: Sequence[dict[str, IntArray]], cores: int
) -> _Records:
    """Return the operations and calls of all reports, given those of each.

    The columns of the reports are moved, so that memory does not have all of them twice.
    """
    threads = min(_JOINERS, cores)
    counts, call_counts = ([columns["begin"].size for columns in parts] for parts in (operations, calls))
    first = np.repeat(np.cumsum(counts) - counts, counts)
    first_of_call = np.repeat(np.cumsum(counts) - counts, call_counts)
    row, name, kind, kernel_class, launch = (_join(operations, column) for column in _BESIDE_COLUMNS)
    launch += np.where(launch == NONE, 0, first)
    beside = BesideRecords(row, name, kind, kernel_class, launch, _join(calls, "name"), _join(calls, "kind"))
    operation_table = _join_table(operations, PathOperations._fields, _OPERATION_COLUMNS, threads)
    producer = operation_table[path.PRODUCER]
    producer += np.where(producer == NONE, 0, first)
    call_table = _join_table(calls, PathCalls._fields, _CALL_COLUMNS, threads)
    call_table[path.TARGET] += np.where(call_table[path.SYNC] == path.SYNC_OPERATION, first_of_call, 0)
    return operation_table, call_table, beside


def _join_table(
    parts: Sequence[dict[str, IntArray]], fields: Sequence[str], names: Sequence[str], threads: int
) -> IntTable:
    """Return a table with a row for each field. Those of `names` are the columns of all reports; others are not set."""
    table = np.empty((len(fields), sum(part["begin"].size for part in parts)), np.int64)
    deque(run_in_threads(lambda name: _join(parts, name, table[fields.index(name)]), names, threads), 0)
    return table


def _join(parts: Sequence[dict[str, IntArray]], name: str, joined: IntArray | None = None) -> IntArray:
    """Return a column of all reports, in an array if the caller has one, and remove it from the columns of each."""
    columns = [part.pop(name) for part in parts]
    joined = np.concatenate(columns, out=joined, dtype=None if joined is not None else np.int64)
    freed = sum(column.nbytes for column in columns)
    del columns
    if freed >= _WORTH_GIVING_BACK:
        give_back_freed_memory()
    return joined


def _join_events(loaded: Sequence[LoadedReport]) -> PathEvents:
    """Return the uses of CUDA events of all reports."""
    streams = 1 + max(int(part.operations["stream"].max(initial=NONE)) for part in loaded)
    streams = max(streams, 1 + max(int(part.steps.stream.max(initial=NONE)) for part in loaded))
    columns = [tuple(np.zeros(0, np.int64) for _ in PathEvents._fields)]
    events = calls = 0
    for part in loaded:
        steps = part.steps
        stream = np.where(steps.stream < NONE, streams - steps.stream + NONE - 1, steps.stream)
        call = np.where(part.call_of_step >= 0, part.call_of_step + calls, NONE)
        columns.append((steps.time, steps.kind, stream, steps.event + events, call))
        streams = max(streams, int(stream.max(initial=NONE)) + 1)
        events += int(steps.event.max(initial=NONE)) + 1
        calls += part.calls["begin"].size
    return PathEvents(*(np.concatenate(column) for column in zip(*columns, strict=True)))


def _join_threads(
    job: Job,
    shortest_wait: Sequence[int],
    numbers: Sequence[PlaceNumbers],
    operations: PathOperations,
    calls: PathCalls,
    beside: BesideRecords,
    names: Sequence[str],
    first: IntArray,
) -> tuple[PathThreads, BoolArray]:
    """Return the threads of all reports, and mark the main threads of the application (not of launchers).

    `first`: time of the first event of each thread.
    """
    columns = []
    for report, number, shortest in zip(job.reports, numbers, shortest_wait, strict=True):
        place = np.flatnonzero(number.thread != NONE)
        main = map_main_threads(report)
        application = [thread for process, thread in main.items() if process in report.places.application]
        is_main, is_application = (np.isin(place, threads) for threads in (list(main.values()), application))
        columns.append((number.process[place], is_main, is_application, np.full(place.size, shortest)))
    process, is_main, is_application, shortest_waits = (np.concatenate(c) for c in zip(*columns, strict=True))
    kernels = operations.thread[np.isin(beside.kind, _KERNELS)]
    creator, created = _find_creators(calls, beside.call_name, names, process, is_main, first)
    threads = PathThreads(
        process=process,
        first=np.searchsorted(calls.thread, np.arange(process.size + 1)).astype(np.int64),
        launches=np.isin(np.arange(process.size), kernels),
        shortest_wait=shortest_waits,
        creator=creator,
        created=created,
    )
    return threads, is_application if is_application.any() else is_main


def _find_creators(
    calls: PathCalls, name: IntArray, names: Sequence[str], process: IntArray, is_main: BoolArray, first: IntArray
) -> tuple[IntArray, IntArray]:
    """Return (thread that created each thread, when): the last creation in its process before its first event (ns).

    Without such a call, it is the main thread, at the time of the first event. NONE for main threads, and in processes
    without one. `name`: of each call, an index of `names`; `first`: time of the first event of each thread.
    """
    creations = np.flatnonzero(np.isin(name, [n for n, text in enumerate(names) if text == _CREATES]))
    creator_process = process[calls.thread[creations]]
    call = find_latest(creator_process, calls.begin[creations], process, first - 1)
    call = pick(creations, call, NONE)
    main = np.full(int(process.max(initial=NONE)) + 1, NONE, np.int64)
    main[process[is_main]] = np.flatnonzero(is_main)
    creator = np.where(call >= 0, pick(calls.thread, call, NONE), main[process])
    created = np.where(call >= 0, np.minimum(pick(calls.end, call, 0), first), first)
    return np.where(is_main, NONE, creator), created


# ---- one report ------------------------------------------------------------------------------------------------------


def _load_report(
    report: ReportRecords, rows: IntArray, numbers: PlaceNumbers, store: Store, spans: Sequence[Span | None]
) -> Iterator[LoadedReport]:
    """Load the operations and calls of a report in each span. `rows`: the row of each place in the whole tree."""
    names = Names()
    operations = load_operations(report, store, names, numbers)
    operations["row"] = rows[operations["place"]]
    calls, marks = load_calls(report, store, names, numbers)
    steps, call_of_step = add_syncs(
        load_opened_events(report, source_names.CUDA_SYNC, store),
        Streams(report, numbers),
        operations,
        find_copies(report, store, operations),
        calls,
        marks,
        numbers,
    )
    shortest_wait = _find_shortest_wait(report, calls)
    for columns in (operations, calls):
        for name in columns.keys() & _NUMBERS:
            columns[name] = columns[name].astype(np.int32)
    for span in spans:
        part = LoadedReport(dict(operations), dict(calls), steps, call_of_step, shortest_wait, names.texts)
        yield part if span is None else _cut(part, span)


def _cut(loaded: LoadedReport, span: Span) -> LoadedReport:
    """Return what runs in a span of time (ns) of a report; its columns take the place of the given ones."""
    operations, calls, steps, call_of_step, *_ = loaded
    inside, call_of_step = cut_to_span(operations, calls, steps.time, call_of_step, span)
    return loaded._replace(steps=EventSteps(*(column[inside] for column in steps)), call_of_step=call_of_step)


def _find_shortest_wait(report: ReportRecords, calls: dict[str, IntArray]) -> int:
    """Return the length (ns) of the shortest OS runtime call in a report.

    It is 0 if the report contains no such call, and the highest number if the report does not record such calls.
    """
    if source_names.OS_RUNTIME not in report.results or not report.results[source_names.OS_RUNTIME].read:
        return int(np.iinfo(np.int64).max)
    length = (calls["end"] - calls["begin"])[calls["kind"] == SYSTEM_CALL]
    return int(length.min()) if length.size else 0
