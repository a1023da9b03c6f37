"""Loads the calls of a report's threads for the critical path, and finds what each one waits for on the device.

Operations and calls may also wait for other ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from nsys2prv_ng import source_names
from nsys2prv_ng.analysis.host_activity import MPI_CALL
from nsys2prv_ng.analysis.host_activity import load_calls as load_outermost
from nsys2prv_ng.analysis.path import columns as path
from nsys2prv_ng.analysis.path import streams as path_streams
from nsys2prv_ng.analysis.path.columns import LOST, NONE, PathCalls, PathOperations, PlaceNumbers
from nsys2prv_ng.analysis.waits.clocks import place_parts
from nsys2prv_ng.analysis.waits.waits import Waits
from nsys2prv_ng.arrays.row_keys import find_rows
from nsys2prv_ng.arrays.types import BoolArray, IntArray, pick
from nsys2prv_ng.intervals.device_sweep import COMMUNICATION
from nsys2prv_ng.intervals.step_functions import find_latest
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.operations.parts import OTHER, TO_ROOT
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver.value_tables import HANDS_OVER
from nsys2prv_ng.reading.opened_events import Names, OpenedEvents, load_opened_events
from nsys2prv_ng.reading.read_reports import ReportRecords
from nsys2prv_ng.records.store import Store

_SLEEPS = ("nanosleep", "clock_nanosleep", "usleep", "sched_yield")
_BLOCKS = ("DeviceSynchronize", "CtxSynchronize", "StreamSynchronize", "EventSynchronize", "cudaFree", "cuMemFree")
"""Parts of names of calls that wait for the device. Only synchronization records show which stream a call waits for."""
COPY_CALLS = ("cudaMemcpy", "cuMemcpy")
"""How the names of calls start that may return only when their own operation has ended."""
_ASYNC = "Async"
"""Part of the names of calls that do not wait, unless they copy from or to pageable memory."""
_QUERY = "EventQuery"
_POLLED_NS = 20_000
"""Longest time (ns) of host code between two calls of a thread that polls an event."""
_QUEUED = 1_000
"""Queued operations of a stream from which a launch call must wait: CUDA queues 1,024, real reports show 1,022."""
_BLOCKED_NS = 20_000
"""Shortest launch call (ns) that may have waited for a place in the queue: others take 4 to 10 us in real reports."""


Marks = Mapping[str, BoolArray]
"""For each kind of name, which calls have such a name."""


def load_calls(
    report: ReportRecords, store: Store, names: Names, numbers: PlaceNumbers
) -> tuple[dict[str, IntArray], Marks]:
    """Return (outermost calls of a report's threads, ordered by thread and start; marks by their names)."""
    threads = np.flatnonzero(numbers.thread != NONE)
    outermost = load_outermost(report, load_opened_events(report, source_names.CUDA_API, store), threads, store)
    flat = outermost.flat
    n = flat.row.size
    calls = {
        "begin": flat.begin,
        "end": flat.end,
        "thread": numbers.thread[flat.row],
        "sync": np.full(n, path.NO_SYNC, np.int64),
        "target": np.full(n, NONE, np.int64),
        "since": flat.begin.copy(),
        "name": names.number(outermost.names, flat.state),
        "kind": outermost.kind[flat.state],
    }
    return calls, _mark_names(names.texts, calls["name"])


def _mark_names(names: Sequence[str], name: IntArray) -> Marks:
    """Mark calls by what they may wait for, according to their names."""
    tests: dict[str, Callable[[str], bool]] = {
        "blocks": lambda text: any(part in text for part in _BLOCKS) and _ASYNC not in text,
        "copies": lambda text: text.startswith(COPY_CALLS),
        "async": lambda text: _ASYNC in text,
        "queries": lambda text: _QUERY in text,
        "sleeps": lambda text: text in _SLEEPS,
        "hands_over": lambda text: text in HANDS_OVER,
    }
    return {key: np.array([test(text) for text in names] or [False], np.bool_)[name] for key, test in tests.items()}


def add_syncs(
    syncs: OpenedEvents,
    streams: path_streams.Streams,
    operations: dict[str, IntArray],
    copies: tuple[IntArray, IntArray],
    calls: dict[str, IntArray],
    marks: Marks,
    numbers: PlaceNumbers,
) -> tuple[path_streams.EventSteps, IntArray]:
    """Set what each call waits for, and the producers of operations. `copies`: the result of `find_copies`.

    Return what calls did with CUDA events, and the call that made each of these records; NONE without one.
    """
    steps = path_streams.list_event_steps(syncs, streams, numbers.process)
    waited = path_streams.follow_events(steps, operations, syncs.place.size)
    calls["sync"][marks["blocks"]] = path.SYNC_PROCESS
    calls["sync"][marks["hands_over"]] = path.SYNC_THREAD
    launched = np.flatnonzero(operations["thread"] >= 0)
    launched_by_call = find_rows(
        [operations["thread"][launched], operations["launched"][launched]], [calls["thread"], calls["begin"]]
    )
    launched_by_call = pick(launched, launched_by_call, NONE)
    copying, pageable = copies
    waits = np.where(marks["async"], np.isin(launched_by_call, pageable), np.isin(launched_by_call, copying))
    waits &= marks["copies"]  # a copy call may wait for its own operation
    calls["sync"][waits], calls["target"][waits] = path.SYNC_OPERATION, launched_by_call[waits]
    _add_full_queues(operations, calls, launched_by_call)

    value = syncs.get_values(types.CUDA_SYNCHRONIZATION)
    line = np.flatnonzero(
        np.isin(value, (path_streams.EVENT_SYNC, path_streams.STREAM_SYNC, path_streams.CONTEXT_SYNC))
    )
    events = path_streams.read_events(syncs, line, numbers.process)
    thread = numbers.thread[syncs.place[line]]
    call = find_latest(calls["thread"], calls["begin"], thread, events.time)
    inside = (call >= 0) & (events.time <= pick(calls["end"], call, 0))
    targets = (
        (path.SYNC_STREAM, path_streams.STREAM_SYNC, streams.find(events.process, events.context, events.stream)),
        (path.SYNC_DEVICE, path_streams.CONTEXT_SYNC, streams.find_device(events.process, events.context)),
        (path.SYNC_OPERATION, path_streams.EVENT_SYNC, waited[line]),
        (path.SYNC_OPERATION, path_streams.STREAM_SYNC, waited[line]),
    )
    # A long wait for something recorded before the window counts as a wait for any stream of the process.
    short = inside & (pick(calls["end"] - calls["begin"], call, 0) < _BLOCKED_NS)
    calls["sync"][call[short & (pick(calls["sync"], call, path.NO_SYNC) == path.SYNC_PROCESS)]] = path.NO_SYNC
    for sync, kind, target in targets:
        which = np.flatnonzero(inside & (value[line] == kind) & (target >= 0))
        calls["sync"][call[which]], calls["target"][call[which]] = sync, target[which]
    _join_queries(calls, marks)
    call_of_line = np.full(syncs.place.size, NONE, np.int64)
    call_of_line[line] = np.where(inside, call, NONE)
    return steps, call_of_line[steps.line]


def _add_full_queues(operations: dict[str, IntArray], calls: dict[str, IntArray], launched: IntArray) -> None:
    """Let long launch calls wait for their stream if its queue was full: for the operation that ended as they returned.

    `launched`: the operation that each call launched.
    """
    at = np.flatnonzero((launched >= 0) & (calls["end"] - calls["begin"] >= _BLOCKED_NS))
    if not at.size:
        return
    is_known = operations["thread"] >= 0
    operation = np.flatnonzero(is_known | find_queued_before(operations["stream"], is_known))
    ended = operation[np.lexsort((operations["end"][operation], operations["stream"][operation]))]
    stream, end = operations["stream"][ended], operations["end"][ended]
    call_stream = operations["stream"][launched[at]]
    before, last = (find_latest(stream, end, call_stream, calls[limit][at]) for limit in ("begin", "end"))
    first = np.where(before >= 0, before + 1, np.searchsorted(stream, call_stream))  # the first that has not ended
    queued = np.searchsorted(operation, launched[at]) - first
    time = np.where(last >= 0, end[last], path.NEVER)
    waits = (queued >= _QUEUED) & (time > calls["begin"][at])  # calls return up to 40 us after a place was free
    calls["sync"][at[waits]], calls["target"][at[waits]] = path.SYNC_OPERATION, ended[last[waits]]


def find_queued_before(stream: IntArray, is_known: BoolArray) -> BoolArray:
    """Tell which operations were given to their streams before the capture: those before the first known launch.

    Operations come in the order of their starts; `is_known`: whether the launch of each is recorded. On streams without
    any known launch, as those of migrations of managed memory, nothing tells when operations were given.
    """
    first = np.zeros(int(stream.max(initial=NONE)) + 1, np.int64)
    known = np.flatnonzero(is_known)[::-1]
    first[stream[known]] = known
    return np.arange(stream.size) < first[stream]


def _join_queries(calls: dict[str, IntArray], marks: Marks) -> None:
    """Let a thread that polls an event wait since the query before.

    A thread that queries only now and then does not wait.
    """
    query = np.flatnonzero(marks["queries"])
    no_sleep = np.flatnonzero(~marks["sleeps"])
    slept = np.cumsum(np.where(marks["sleeps"], calls["end"] - calls["begin"], 0))
    nth = np.searchsorted(no_sleep, query)
    before = pick(no_sleep, nth - 1, NONE)
    code = calls["begin"][query] - calls["end"][before] - (slept[query] - slept[before])
    same = (nth > 0) & marks["queries"][before] & (code <= _POLLED_NS)
    for column in ("thread", "target"):
        same &= calls[column][before] == calls[column][query]
    same &= calls["target"][query] >= 0
    calls["since"][query[same]] = calls["begin"][before[same]]
    calls["sync"][query[~same]] = path.NO_SYNC


# ---- waits for other ranks -------------------------------------------------------------------------------------------


class BesideRecords(NamedTuple):
    """Columns of n operations and m calls that the walk does not read, as in `Lanes`."""

    row: IntArray
    name: IntArray
    kind: IntArray
    kernel_class: IntArray
    launch: IntArray
    call_name: IntArray
    call_kind: IntArray


def add_operation_waits(job: Job, waits: Waits, operations: PathOperations, beside: BesideRecords) -> BoolArray:
    """Set until, culprit and kind of all operations; return whether each culprit is unsure.

    If clocks are too uncertain to tell which rank was last, the one that seems to be last is the culprit.
    """
    begin, row, communicates = operations.begin, beside.row, beside.kind & COMMUNICATION > 0
    until, culprit, kind = operations.until, operations.culprit, operations.kind
    until[:], culprit[:], kind[:] = begin, NONE, np.where(communicates, path.NOT_SPLIT, path.OPERATION)
    operation = np.flatnonzero(communicates)
    operation, known = _match_waits(waits, np.flatnonzero(~waits.is_mpi), operation, row, begin)
    kind[operation[waits.has_parts[known]]] = path.MOVING
    late = waits.is_split[known] & (waits.until[known] > begin[operation])
    known, operation = known[late], operation[late]
    last_row, last_begin = _find_last_parts(job, waits, known)
    last = find_rows([row, begin], [last_row, last_begin])
    until[operation] = waits.until[known]
    culprit[operation] = np.where(last >= 0, last, LOST)
    is_unsure = np.zeros(begin.size, np.bool_)
    is_unsure[operation] = waits.culprit[known] < 0
    return is_unsure


def add_call_waits(job: Job, waits: Waits, calls: PathCalls, kind: IntArray, thread_row: IntArray) -> None:
    """Set until, culprit and culprit_begin of all calls, given their kinds."""
    until, culprit, culprit_begin = calls.until, calls.culprit, calls.culprit_begin
    until[:], culprit[:], culprit_begin[:] = calls.begin, NONE, calls.begin
    known = np.flatnonzero(waits.is_mpi & waits.is_split & (waits.wait > 0))
    if known.size:
        call = np.flatnonzero(kind == MPI_CALL)
        call, known = _match_waits(waits, known, call, thread_row[calls.thread], calls.begin)
        late = waits.until[known] > calls.begin[call]
        known, call = known[late], call[late]
        last_row, last_begin = _find_last_parts(job, waits, known)
        thread_of_row = np.full(job.whole.model.row_count + 1, LOST, np.int64)
        chosen = np.flatnonzero((thread_row >= 0) & (job.new_row[thread_row] >= 0))
        thread_of_row[thread_row[chosen]] = chosen
        until[call], culprit[call], culprit_begin[call] = waits.until[known], thread_of_row[last_row], last_begin


def _find_last_parts(job: Job, waits: Waits, which: IntArray) -> tuple[IntArray, IntArray]:
    """Return row and start (ns) of the part of an operation that ended each wait, even if that is not sure.

    A root waits for the first of the others to send, but cannot continue before the last one has: the path goes there.
    """
    row, begin = waits.culprit[which].copy(), waits.culprit_begin[which].copy()
    operations, table = job.operations, job.operations.table
    kind = pick(table.kind[operations.leader], waits.operation[which], OTHER)
    looked_up = np.flatnonzero((waits.operation[which] >= 0) & ((row < 0) | (kind == TO_ROOT)))
    if looked_up.size:
        parts = place_parts(job, job.operations.part)
        number = np.repeat(np.arange(len(operations)), np.diff(operations.first))
        waits_itself = table.is_root[operations.part] & (table.kind[operations.part] == TO_ROOT)
        last = np.lexsort((parts.begin, ~waits_itself, number))[operations.first[1:] - 1]
        part = last[waits.operation[which][looked_up]]
        row[looked_up], begin[looked_up] = parts.row[part], parts.begin[part]
    return row, begin


def _match_waits(
    waits: Waits, known: IntArray, items: IntArray, row: IntArray, begin: IntArray
) -> tuple[IntArray, IntArray]:
    """Return (operations or calls, their waits): an operation or call may be a piece of a wait that a window has cut.

    `known` and `items`: which waits, and which operations or calls. `row` and `begin` (ns): of all operations or calls.
    """
    latest = find_latest(waits.row[known], waits.begin[known], row[items], begin[items])
    items, wait = items[latest >= 0], known[latest[latest >= 0]]
    same = (waits.end[wait] > begin[items]) | (waits.begin[wait] == begin[items])
    return items[same], wait[same]
