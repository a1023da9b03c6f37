"""Loads the streams and threads of a job for the walk along the critical path, with what each waits for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from nsys2prv_ng.analysis.path import columns as path
from nsys2prv_ng.analysis.path.calls import MPI_CALL, SYSTEM_CALL, add_syncs, load_calls
from nsys2prv_ng.analysis.path.columns import LOST, NONE, PathCalls, PathOperations, PathThreads
from nsys2prv_ng.analysis.path.streams import Names, Streams, find_copies, load_operations, search_rows
from nsys2prv_ng.analysis.waits.late_devices import number_streams
from nsys2prv_ng.analysis.waits.placed_parts import place_collectives
from nsys2prv_ng.analysis.waits.waits import Waits
from nsys2prv_ng.arrays.row_keys import find_rows, mark_duplicates
from nsys2prv_ng.arrays.types import BoolArray, IntArray
from nsys2prv_ng.intervals.device_sweep import COMMUNICATION, COMPUTE, WHOLE_GRAPH
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.job.opened_events import load_opened_events
from nsys2prv_ng.job.read_reports import ReportRecords
from nsys2prv_ng.objects.places import Place, Stream, Thread
from nsys2prv_ng.operations.parts import OTHER, TO_ROOT
from nsys2prv_ng.records.store import Store
from nsys2prv_ng.report.metadata import PID_MASK


@dataclass(frozen=True)
class Lanes:
    """Operations, calls and threads of a job, with their rows (of the whole tree) and names."""

    operations: PathOperations
    is_unsure: BoolArray
    """Whether the culprit of each operation is the rank that seems to be last, within the uncertainty of the clocks."""
    operation_row: IntArray
    operation_name: IntArray
    operation_kind: IntArray
    """COMPUTE, COMMUNICATION, MEMORY or, of graphs as a whole in which NCCL may be, WHOLE_GRAPH."""
    launch: IntArray
    """The operation that has the launch of each: itself, or for a node of a CUDA graph the one before it; else NONE."""
    calls: PathCalls
    call_name: IntArray
    call_kind: IntArray
    threads: PathThreads
    thread_row: IntArray
    thread_place: IntArray
    """Place of each thread in its report."""
    thread_report: IntArray
    is_main: BoolArray
    """Whether a thread is the main thread of a process with events of GPUs, MPI or NCCL; of any if none has these."""
    names: list[str]


class _Loaded(NamedTuple):
    """What one report shows, with its own numbers of threads, streams, devices and processes."""

    operations: dict[str, IntArray]
    calls: dict[str, IntArray]
    thread_process: IntArray
    launches: BoolArray
    shortest_wait: int
    creator: IntArray
    created: IntArray
    is_main: BoolArray
    is_application: BoolArray
    thread_place: IntArray
    streams: int
    devices: int
    processes: int
    names: list[str]


def load_lanes(job: Job, waits: Waits) -> Lanes:
    """Load what the critical path can run over."""
    reports = list(zip(job.reports, job.spans, strict=True))
    store = job.store  # the whole job would be sent with each piece otherwise
    loaded = list(job.engine.map(lambda report: _load_report(*report, store), reports))
    names = _unite_names(loaded)
    operations, calls = _join_operations(job, loaded), _join_calls(loaded)
    counts = [part.thread_process.size for part in loaded]
    report = np.repeat(np.arange(len(loaded)), counts)
    place = np.concatenate([part.thread_place for part in loaded])
    row = np.concatenate([rows[part.thread_place] for rows, part in zip(job.whole.rows, loaded, strict=True)])
    until, culprit, kind, is_unsure = _find_operation_waits(job, waits, operations)
    call_waits = _find_call_waits(job, waits, calls, row)
    return Lanes(
        operations=PathOperations(
            **{name: operations[name] for name in _OPERATION_COLUMNS}, until=until, culprit=culprit, kind=kind
        ),
        is_unsure=is_unsure,
        operation_row=operations["row"],
        operation_name=operations["name"],
        operation_kind=_name_kinds(job, operations["kind"]),
        launch=operations["launch"],
        calls=PathCalls(**{name: calls[name] for name in _CALL_COLUMNS}, **call_waits),
        call_name=calls["name"],
        call_kind=calls["kind"],
        threads=_join_threads(loaded, calls["thread"]),
        thread_row=row,
        thread_place=place,
        thread_report=report,
        is_main=_find_main(loaded),
        names=names,
    )


def _name_kinds(job: Job, kind: IntArray) -> IntArray:
    """Return the kinds of operations: graphs as a whole compute if no NCCL can be in them."""
    return kind if job.hides_nccl else np.where(kind == WHOLE_GRAPH, COMPUTE, kind)


def _unite_names(loaded: Sequence[_Loaded]) -> list[str]:
    """Number the names of all reports, sorted, instead of those of each; return them."""
    names = sorted({name for part in loaded for name in part.names})
    number = {name: n for n, name in enumerate(names)}
    for part in loaded:
        numbers = np.array([number[name] for name in part.names] or [NONE], np.int64)
        for columns in (part.operations, part.calls):
            columns["name"] = numbers[columns["name"]]
    return names


_KERNELS = (COMPUTE, COMMUNICATION, WHOLE_GRAPH)
_OPERATION_COLUMNS = ("begin", "end", "stream", "device", "process", "thread", "launched", "producer")
_CALL_COLUMNS = ("begin", "end", "thread", "sync", "target", "since")


def _offsets(loaded: Sequence[_Loaded], name: str) -> IntArray:
    """Return what to add to the numbers of each report, so that they differ from those of the others."""
    counts = [part.thread_process.size if name == "threads" else getattr(part, name) for part in loaded]
    return np.cumsum([0, *counts])[:-1].astype(np.int64)


def _join_operations(job: Job, loaded: Sequence[_Loaded]) -> dict[str, IntArray]:
    """Return the operations of all reports, ordered by stream and begin."""
    first = np.cumsum([0, *(part.operations["begin"].size for part in loaded)])[:-1].astype(np.int64)
    shifts = {
        "stream": _offsets(loaded, "streams"),
        "device": _offsets(loaded, "devices"),
        "process": _offsets(loaded, "processes"),
        "thread": _offsets(loaded, "threads"),
        "producer": first,
        "launch": first,
    }
    columns = {name: _concatenate(loaded, name, shifts.get(name)) for name in loaded[0].operations}
    columns["row"] = np.concatenate(
        [rows[part.operations["place"]] for rows, part in zip(job.whole.rows, loaded, strict=True)]
    )
    return columns


def _join_threads(loaded: Sequence[_Loaded], thread: IntArray) -> PathThreads:
    """Return the threads of all reports. `thread`: that of each call."""
    counts = [part.thread_process.size for part in loaded]
    shift = np.repeat(_offsets(loaded, "threads"), counts)
    creator = np.concatenate([part.creator for part in loaded])
    return PathThreads(
        process=np.concatenate([part.thread_process for part in loaded])
        + np.repeat(_offsets(loaded, "processes"), counts),
        first=np.searchsorted(thread, np.arange(shift.size + 1)).astype(np.int64),
        launches=np.concatenate([part.launches for part in loaded]),
        shortest_wait=np.repeat(np.array([part.shortest_wait for part in loaded], np.int64), counts),
        creator=np.where(creator == NONE, NONE, creator + shift),
        created=np.concatenate([part.created for part in loaded]),
    )


def _concatenate(loaded: Sequence[_Loaded], name: str, shift: IntArray | None, *, calls: bool = False) -> IntArray:
    """Return a column of all reports; NONE stays NONE."""
    parts = [(part.calls if calls else part.operations)[name] for part in loaded]
    if shift is not None:
        parts = [np.where(part == NONE, NONE, part + by) for part, by in zip(parts, shift.tolist(), strict=True)]
    return np.concatenate(parts).astype(np.int64, copy=False)


def _join_calls(loaded: Sequence[_Loaded]) -> dict[str, IntArray]:
    """Return the calls of all reports, ordered by thread and begin."""
    first = np.cumsum([0, *(part.operations["begin"].size for part in loaded)])[:-1].astype(np.int64)
    columns = {
        name: _concatenate(loaded, name, _offsets(loaded, "threads") if name == "thread" else None, calls=True)
        for name in loaded[0].calls
    }
    report = np.repeat(np.arange(len(loaded)), [part.calls["begin"].size for part in loaded])
    by_sync = {
        path.SYNC_OPERATION: first,
        path.SYNC_STREAM: _offsets(loaded, "streams"),
        path.SYNC_DEVICE: _offsets(loaded, "devices"),
    }
    for sync, shift in by_sync.items():
        which = columns["sync"] == sync
        columns["target"][which] += shift[report[which]]
    return columns


# ---- waits -----------------------------------------------------------------------------------------------------------


def _find_operation_waits(
    job: Job, waits: Waits, operations: dict[str, IntArray]
) -> tuple[IntArray, IntArray, IntArray, BoolArray]:
    """Return (until, culprit, kind, whether the culprit is unsure) of all operations.

    Where several ranks may have been last, within the uncertainty of the clocks, it is the one that seems to be.
    """
    begin, row = operations["begin"], operations["row"]
    until, culprit = begin.copy(), np.full(begin.size, NONE, np.int64)
    kind = np.where(operations["kind"] == COMMUNICATION, path.NOT_SPLIT, path.OPERATION).astype(np.int64)
    own = np.flatnonzero(operations["kind"] == COMMUNICATION)
    own, known = _match_waits(waits, np.flatnonzero(~waits.is_mpi), own, row, begin)
    kind[own[waits.has_parts[known]]] = path.MOVING
    late = waits.is_split[known] & (waits.until[known] > begin[own])
    known, own = known[late], own[late]
    last_row, last_begin = _find_last_parts(job, waits, known)
    once = np.flatnonzero(~mark_duplicates(row, begin))
    last = find_rows([row[once], begin[once]], [last_row, last_begin])
    until[own] = waits.until[known]
    culprit[own] = np.where(last >= 0, np.append(once, LOST)[last], LOST)
    is_unsure = np.zeros(begin.size, np.bool_)
    is_unsure[own] = waits.culprit[known] < 0
    return until, culprit, kind, is_unsure


def _find_call_waits(job: Job, waits: Waits, calls: dict[str, IntArray], thread_row: IntArray) -> dict[str, IntArray]:
    """Return until, culprit and culprit_begin of all calls."""
    n = calls["begin"].size
    until, culprit, culprit_begin = calls["begin"].copy(), np.full(n, NONE, np.int64), calls["begin"].copy()
    known = np.flatnonzero(waits.is_mpi & waits.is_split & (waits.wait > 0))
    if known.size:
        own = np.flatnonzero(calls["kind"] == MPI_CALL)
        own, known = _match_waits(waits, known, own, thread_row[calls["thread"]], calls["begin"])
        late = waits.until[known] > calls["begin"][own]
        known, own = known[late], own[late]
        last_row, last_begin = _find_last_parts(job, waits, known)
        thread_of_row = np.full(job.whole.model.row_count + 1, LOST, np.int64)
        chosen = np.flatnonzero((thread_row >= 0) & (job.new_row[thread_row] >= 0))
        thread_of_row[thread_row[chosen]] = chosen
        until[own], culprit[own], culprit_begin[own] = waits.until[known], thread_of_row[last_row], last_begin
    return {"until": until, "culprit": culprit, "culprit_begin": culprit_begin}


def _find_last_parts(job: Job, waits: Waits, which: IntArray) -> tuple[IntArray, IntArray]:
    """Return row and begin (ns) of the part of an operation that each wait ended with, also where that is not sure.

    A root waits for the first of the others to send, but cannot go on before the last has: the path goes there.
    """
    row, begin = waits.culprit[which].copy(), waits.culprit_begin[which].copy()
    operations, table = job.operations, job.operations.table
    kind = np.append(table.kind[operations.leader], OTHER)[waits.operation[which]]
    looked_up = np.flatnonzero((waits.operation[which] >= 0) & ((row < 0) | (kind == TO_ROOT)))
    if looked_up.size:
        parts = place_collectives(job)
        number = np.repeat(np.arange(len(operations)), np.diff(operations.first))
        waits_itself = table.is_root[operations.part] & (table.kind[operations.part] == TO_ROOT)
        last = np.lexsort((parts.begin, ~waits_itself, number))[operations.first[1:] - 1]
        own = last[waits.operation[which][looked_up]]
        row[looked_up], begin[looked_up] = parts.row[own], parts.begin[own]
    return row, begin


def _match_waits(
    waits: Waits, known: IntArray, own: IntArray, row: IntArray, begin: IntArray
) -> tuple[IntArray, IntArray]:
    """Return operations or calls and the waits that they are of, or a piece of: windows of time cut them.

    `known` and `own`: which waits, and which operations or calls; `row` and `begin` (ns): of all operations or calls.
    """
    known = known[np.lexsort((waits.begin[known], waits.row[known]))]
    nth = search_rows(waits.row[known], waits.begin[known], row[own], begin[own] + 1) - 1
    own, wait = own[nth >= 0], known[nth[nth >= 0]]
    same = (waits.row[wait] == row[own]) & ((waits.end[wait] > begin[own]) | (waits.begin[wait] == begin[own]))
    return own[same], wait[same]


# ---- one report ------------------------------------------------------------------------------------------------------


def _load_report(report: ReportRecords, spans: tuple[IntArray, IntArray], store: Store) -> _Loaded:
    """Load the operations and calls of a report. `spans`: first and last time (ns) of the events on each place."""
    names = Names()
    places = report.places.all
    threads = np.array([n for n, place in enumerate(places) if isinstance(place, Thread)], np.int64)
    thread_of_place = np.full(len(places), NONE, np.int64)
    thread_of_place[threads] = np.arange(threads.size)
    processes = sorted({place.process for place in places if isinstance(place, Thread | Stream)})
    number = {process: n for n, process in enumerate(processes)}
    process_of_place = np.array(
        [number[place.process] if isinstance(place, Thread | Stream) else NONE for place in places] or [NONE], np.int64
    )
    operations = load_operations(report, store, names, thread_of_place, process_of_place)
    calls, marks = load_calls(report, store, names, thread_of_place)
    add_syncs(
        load_opened_events(report, "cuda_sync", store),
        Streams(report, process_of_place),
        operations,
        find_copies(report, store, operations),
        calls,
        marks,
        thread_of_place,
        process_of_place,
    )
    is_main = np.array([_is_main(places[n]) for n in threads.tolist()], np.bool_)
    creations = {name: calls[name][marks["creates"]] for name in ("thread", "begin", "end")}
    creator, created = _find_creators(creations, process_of_place[threads], is_main, spans[0][threads])
    device, stream = number_streams(report)
    kernels = operations["thread"][(operations["thread"] >= 0) & np.isin(operations["kind"], _KERNELS)]
    return _Loaded(
        operations=operations,
        calls=calls,
        thread_process=process_of_place[threads],
        launches=np.isin(np.arange(threads.size), kernels),
        shortest_wait=_find_shortest_wait(report, calls),
        creator=creator,
        created=created,
        is_main=is_main,
        is_application=np.isin([places[n].process for n in threads.tolist()], list(report.places.application)),
        thread_place=threads,
        # Those without operations count too: calls wait for them.
        streams=int(stream.max(initial=NONE)) + 1,
        devices=int(device.max(initial=NONE)) + 1,
        processes=len(processes),
        names=list(names.index),
    )


def _find_shortest_wait(report: ReportRecords, calls: dict[str, IntArray]) -> int:
    """Return from what length (ns) on a report records calls of the operating system; never, if it has none at all."""
    if "os_runtime" not in report.results or not report.results["os_runtime"].read:
        return int(np.iinfo(np.int64).max)
    length = (calls["end"] - calls["begin"])[calls["kind"] == SYSTEM_CALL]
    return int(length.min()) if length.size else 0


def _find_creators(
    creations: dict[str, IntArray], process: IntArray, is_main: BoolArray, first: IntArray
) -> tuple[IntArray, IntArray]:
    """Return (thread that created each thread, when): by the last creation in its process before its first event (ns).

    Without one, by the main thread, when its first event was; NONE for main threads, and where there is none.
    """
    of_call = process[creations["thread"]]
    order = np.lexsort((creations["begin"], of_call))
    nth = search_rows(of_call[order], creations["begin"][order], process, first) - 1
    call = np.append(order, NONE)[nth]
    known = (nth >= 0) & (np.append(of_call, NONE)[call] == process)
    main = np.full(int(process.max(initial=NONE)) + 1, NONE, np.int64)
    main[process[is_main]] = np.flatnonzero(is_main)
    creator = np.where(known, np.append(creations["thread"], NONE)[call], main[process])
    created = np.where(known, np.minimum(np.append(creations["end"], 0)[call], first), first)
    return np.where(is_main, NONE, creator), created


def _find_main(loaded: Sequence[_Loaded]) -> BoolArray:
    """Mark the main threads of the processes of the application, not those of launchers."""
    is_main = np.concatenate([part.is_main for part in loaded])
    application = is_main & np.concatenate([part.is_application for part in loaded])
    return application if application.any() else is_main


def _is_main(place: Place) -> bool:
    return isinstance(place, Thread) and place.global_tid & PID_MASK == place.process & PID_MASK
