"""Walks the critical path backward, from the end of a window to its start, over operations, calls and host code.

At any time the path is on one lane (a stream or a host thread). From there it goes back to what let the lane go on:

- An operation started after the latest of these: the end of the operation before it on its stream; the end of the
  operations that its stream waited for through CUDA events; the start of its launch call. If none of these is near, it
  followed an operation of its stream that still ran, or one on another stream of the process and device that ended just
  as it started.
- An NCCL kernel that waited for another rank started to move data when the last rank started: the path continues there.
- A call that waited for the device returned when the operation that it waited for had ended.
- An MPI call that waited for another rank could continue after that rank had made its own call.
- A thread that waited for another thread follows the thread of its process that launches kernels and was active last
  (PyTorch's main thread waits like this in a backward pass). A long time without calls is such a wait if the report
  would not record the wait and the other thread made calls.
- Host code follows the call before it on its thread. A thread without an earlier call was created by another thread.

This is Scalasca's backward replay (CriticalPath.pattern of Scalasca 2.5) for streams and threads. It needs no graph in
memory. Time never increases, and each piece of the window belongs to exactly one segment.
"""

from __future__ import annotations

import numpy as np

from nsys2prv_ng.analysis.path.causes import find_active, find_call, find_cause, find_waited
from nsys2prv_ng.analysis.path.columns import (
    BEGIN,
    CALL,
    CODE,
    CREATED,
    CREATOR,
    CULPRIT,
    CULPRIT_BEGIN,
    END,
    KIND,
    LAUNCH,
    LOST,
    MOVING,
    NONE,
    OUTSIDE,
    PROCESS,
    SHORTEST_WAIT,
    STREAM,
    SYNC,
    SYNC_STREAM,
    SYNC_THREAD,
    TARGET,
    THREAD,
    UNKNOWN,
    UNTIL,
    PathLists,
    PathTables,
    PathThreads,
    Segments,
    Start,
)
from nsys2prv_ng.arrays.row_keys import sort_rows
from nsys2prv_ng.arrays.types import IntArray, IntTable
from nsys2prv_ng.runtime.jit import compiled

HANDED_OVER_NS = 20_000
"""Shortest time (ns) without calls in which a thread may have waited for another one: PyTorch's calls follow each other
faster, and handing over a backward pass takes longer."""
_MOST_STALLED = 1000
"""Most steps that the walk takes without going back in time."""
_SEGMENTS = 1 << 12
"""Initial room for segments."""
_MOST_ADDED = 4
"""Room that one step of the walk needs, and the segment after the last one."""


def walk(tables: PathTables, start: Start, window: tuple[int, int]) -> Segments:
    """Return the critical path from the end of a window (ns) back to its start.

    The lengths of the segments add up to the window.
    """
    low, high = window
    segments = np.empty((6, _SEGMENTS), np.int64)
    count, time = 0, high
    if start.operation >= 0 and tables.operations[END, start.operation] < high:
        time = tables.operations[END, start.operation]
        segments[:, 0] = time, high, UNKNOWN, start.operation, NONE, NONE
        count = 1
    state = np.array([start.operation, start.thread, time, 0])
    while (count := _walk(tables, segments, count, state, low)) > segments.shape[1] - _MOST_ADDED:
        segments = np.concatenate([segments, np.empty_like(segments)], axis=1)
    k, t, time, _ = state
    if time > low:
        segments[:, count] = low, time, UNKNOWN, k, t, NONE
        count += 1
    return Segments(*segments[:, :count])


def join_tables(operations: IntTable, calls: IntTable, threads: PathThreads) -> PathTables:
    """Return all that the walk reads, given the tables of operations and calls."""
    stream, process, end = operations[STREAM], operations[PROCESS], operations[END]
    # Calls may wait for a stream without any operation.
    awaited = calls[TARGET][calls[SYNC] == SYNC_STREAM]
    streams = np.arange(max(column.max(initial=NONE) for column in (stream, awaited)) + 2)
    processes = np.arange(max(column.max(initial=NONE) for column in (process, threads.process)) + 2)
    by_end = sort_rows(process, end)
    launching = np.flatnonzero(threads.launches)
    launching = launching[np.argsort(threads.process[launching], kind="stable")]
    lists = PathLists(
        stream_first=np.searchsorted(stream, streams),
        by_end=by_end,
        process_first=np.searchsorted(process[by_end], processes),
        launching=launching,
        launching_first=np.searchsorted(threads.process[launching], processes),
    )
    first, after = threads.first[:-1], threads.first[1:]
    rows = (first, after, threads.shortest_wait, threads.creator, threads.created, threads.process)
    return PathTables(operations, calls, np.stack(rows).astype(np.int64, copy=False), lists)


@compiled
def _walk(tables: PathTables, segments: IntTable, count: int, state: IntArray, low: int) -> int:
    """Walk until the window is done or the room for segments, and return how many there are.

    The state is where the walk is: operation, thread, time (ns), and how often it went on without going back in time.
    """
    operations, calls, threads, lists = tables
    k, t, now, stalled = state[0], state[1], state[2], state[3]
    room = segments.shape[1] - _MOST_ADDED
    # Wrong clocks can send the path in circles without going back in time.
    while now > low and (k >= 0 or t >= 0) and stalled < _MOST_STALLED and count <= room:
        previous = now
        if k >= 0:
            count, k, now = _leave_operation(operations, segments, count, k, now, low)
            if now > low:
                count, k, t, now = _leave_begin(operations, lists, segments, count, k, now, low)
        else:
            c = find_call(calls, threads, t, now)
            if c >= 0 and calls[END, c] >= now:
                count, k, t, now = _leave_call(tables, segments, count, c, now, low)
            else:
                count, t, now = _leave_code(tables, segments, count, t, c, now, low)
        stalled = stalled + 1 if now == previous else 0
    state[0], state[1], state[2], state[3] = k, t, now, stalled
    return count


@compiled
def _add(
    segments: IntTable, count: int, begin: int, end: int, kind: int, operation: int, thread: int, call: int
) -> int:
    """Add a segment, unless its length is 0, and return the number of segments."""
    if end <= begin:
        return count
    segments[0, count] = begin
    segments[1, count] = end
    segments[2, count] = kind
    segments[3, count] = operation
    segments[4, count] = thread
    segments[5, count] = call
    return count + 1


# ---- operations ------------------------------------------------------------------------------------------------------


@compiled
def _leave_operation(
    operations: IntTable, segments: IntTable, count: int, k: int, now: int, low: int
) -> tuple[int, int, int]:
    """Go back to the start of an operation, or of the one that it waited for: (segments, operation, time)."""
    culprit = operations[CULPRIT, k]
    began = operations[BEGIN, k]
    if culprit >= 0:
        # The culprit started last: data move from then on, and its start has a cause of its own.
        began = max(low, min(now, operations[BEGIN, culprit]))
        return _add(segments, count, began, now, MOVING, k, NONE, NONE), culprit, began
    if culprit == LOST:
        moved = max(low, min(now, operations[UNTIL, k]))
        began = max(low, min(moved, began))
        count = _add(segments, count, moved, now, MOVING, k, NONE, NONE)
        return _add(segments, count, began, moved, OUTSIDE, k, NONE, NONE), k, began
    began = max(low, min(now, began))
    return _add(segments, count, began, now, operations[KIND, k], k, NONE, NONE), k, began


@compiled
def _leave_begin(
    operations: IntTable, lists: PathLists, segments: IntTable, count: int, k: int, now: int, low: int
) -> tuple[int, int, int, int]:
    """Go back from the start of an operation to its cause: (segments, operation, thread, time); NONE if neither."""
    cause, time, kind = find_cause(operations, k, now, lists)
    time = max(low, time)
    count = _add(segments, count, time, now, kind, k, NONE, NONE)
    if kind == LAUNCH:
        return count, np.int64(NONE), operations[THREAD, k], time
    return count, cause, np.int64(NONE), time


# ---- threads ---------------------------------------------------------------------------------------------------------


@compiled
def _leave_call(
    tables: PathTables, segments: IntTable, count: int, c: int, now: int, low: int
) -> tuple[int, int, int, int]:
    """Go back from within a call to what it waited for, else to its start: (segments, operation, thread, time)."""
    operations, calls, threads, lists = tables
    t = calls[THREAD, c]
    if calls[SYNC, c] == SYNC_THREAD:
        other, time, waits = find_active(calls, threads, lists, t, calls[BEGIN, c], now)
        if other >= 0:
            time = max(low, time if waits else now)
            return _add(segments, count, time, now, CALL, NONE, t, c), np.int64(NONE), other, time
    last = find_waited(operations, calls, threads, lists, c, now)
    culprit = calls[CULPRIT, c]
    if last >= 0 and (culprit == NONE or calls[UNTIL, c] <= operations[END, last]):
        time = max(low, operations[END, last])
        return _add(segments, count, time, now, CALL, NONE, t, c), last, np.int64(NONE), time
    if culprit >= 0 and calls[CULPRIT_BEGIN, c] <= now:
        # The late call started there: what its thread did before counts.
        time = max(low, calls[CULPRIT_BEGIN, c])
        return _add(segments, count, time, now, CALL, NONE, t, c), np.int64(NONE), culprit, time
    begin = max(low, calls[BEGIN, c])
    moved = begin
    if culprit == LOST:
        moved = max(begin, min(now, calls[UNTIL, c]))
    count = _add(segments, count, moved, now, CALL, NONE, t, c)
    return _add(segments, count, begin, moved, OUTSIDE, NONE, t, c), np.int64(NONE), t, begin


@compiled
def _leave_code(
    tables: PathTables, segments: IntTable, count: int, t: int, c: int, now: int, low: int
) -> tuple[int, int, int]:
    """Go back over host code to the call c before it, or to another thread: (segments, thread, time)."""
    _, calls, threads, lists = tables
    other, time = np.int64(NONE), np.int64(low)
    if c >= 0:
        time = calls[END, c]
    elif threads[CREATOR, t] >= 0 and threads[CREATED, t] >= low:
        other, time = threads[CREATOR, t], min(now, threads[CREATED, t])
    if other < 0 and HANDED_OVER_NS <= now - time < threads[SHORTEST_WAIT, t]:
        other, time, _ = find_active(calls, threads, lists, t, time, now)
    time = max(low, time)
    return _add(segments, count, time, now, CODE, NONE, t, NONE), other if other >= 0 else t, time
