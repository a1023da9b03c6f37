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
    CALL,
    CODE,
    LAUNCH,
    LOST,
    MOVING,
    NONE,
    OUTSIDE,
    SYNC_STREAM,
    SYNC_THREAD,
    UNKNOWN,
    PathCalls,
    PathLanes,
    PathLists,
    PathOperations,
    PathThreads,
    Segments,
    Start,
)
from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.runtime.jit import compiled

HANDED_OVER_NS = 20_000
"""Shortest time (ns) without calls in which a thread may have waited for another one: PyTorch's calls follow each other
faster, and handing over a backward pass takes longer."""
_MOST_STALLED = 1000
"""Most steps that the walk takes without going back in time."""
_SEGMENTS = 1 << 12
"""Initial room for segments."""


def walk(lanes: PathLanes, start: Start, window: tuple[int, int]) -> Segments:
    """Return the critical path from the end of a window (ns) back to its start.

    The lengths of the segments add up to the window.
    """
    return Segments(*_walk(lanes, start.operation, start.thread, *window))


def join_lanes(operations: PathOperations, calls: PathCalls, threads: PathThreads) -> PathLanes:
    """Return operations, calls and threads with their lists by stream and process."""
    # Calls may wait for a stream without any operation.
    awaited = calls.target[calls.sync == SYNC_STREAM]
    streams = np.arange(max(column.max(initial=NONE) for column in (operations.stream, awaited)) + 2)
    processes = np.arange(max(part.process.max(initial=NONE) for part in (operations, threads)) + 2)
    by_end = np.lexsort((operations.end, operations.process))
    launching = np.flatnonzero(threads.launches)
    launching = launching[np.argsort(threads.process[launching], kind="stable")]
    lists = PathLists(
        stream_first=np.searchsorted(operations.stream, streams),
        by_end=by_end,
        process_first=np.searchsorted(operations.process[by_end], processes),
        launching=launching,
        launching_first=np.searchsorted(threads.process[launching], processes),
    )
    return PathLanes(operations, calls, threads, lists)


@compiled
def _walk(lanes: PathLanes, operation: int, thread: int, low: int, high: int) -> IntArray:
    operations, calls, threads, lists = lanes
    segments = np.empty((6, _SEGMENTS), np.int64)
    count = 0
    now = np.int64(high)
    k, t = np.int64(operation), np.int64(thread)
    if k >= 0 and operations.end[k] < now:
        count = _add(segments, count, operations.end[k], now, UNKNOWN, k, NONE, NONE)
        now = operations.end[k]
    stalled, previous = 0, now
    while now > low and (k >= 0 or t >= 0):
        # Wrong clocks can send the path in circles without going back in time.
        stalled = stalled + 1 if now == previous else 0
        previous = now
        if stalled == _MOST_STALLED:
            break
        if count + 4 > segments.shape[1]:
            longer = np.empty((6, 2 * segments.shape[1]), np.int64)
            longer[:, :count] = segments[:, :count]
            segments = longer
        if k >= 0:
            count, k, now = _leave_operation(operations, segments, count, k, now, low)
            if now > low:
                count, k, t, now = _leave_begin(operations, lists, segments, count, k, now, low)
        else:
            c = find_call(calls, threads, t, now)
            if c >= 0 and calls.end[c] >= now:
                count, k, t, now = _leave_call(lanes, segments, count, c, now, low)
            else:
                count, t, now = _leave_code(lanes, segments, count, t, c, now, low)
    count = _add(segments, count, low, now, UNKNOWN, k, t, NONE)
    return segments[:, :count].copy()


@compiled
def _add(
    segments: IntArray, count: int, begin: int, end: int, kind: int, operation: int, thread: int, call: int
) -> int:
    """Add a segment, unless its length is 0, and return the number of segments."""
    if end <= begin:
        return count
    segments[:, count] = begin, end, kind, operation, thread, call
    return count + 1


# ---- operations ------------------------------------------------------------------------------------------------------


@compiled
def _leave_operation(
    operations: PathOperations, segments: IntArray, count: int, k: int, now: int, low: int
) -> tuple[int, int, int]:
    """Go back to the start of an operation, or of the one that it waited for: (segments, operation, time)."""
    culprit = operations.culprit[k]
    began = operations.begin[k]
    if culprit >= 0:
        # The culprit started last: data move from then on, and its start has a cause of its own.
        began = max(low, min(now, operations.begin[culprit]))
        return _add(segments, count, began, now, MOVING, k, NONE, NONE), culprit, began
    if culprit == LOST:
        moved = max(low, min(now, operations.until[k]))
        began = max(low, min(moved, began))
        count = _add(segments, count, moved, now, MOVING, k, NONE, NONE)
        return _add(segments, count, began, moved, OUTSIDE, k, NONE, NONE), k, began
    began = max(low, min(now, began))
    return _add(segments, count, began, now, operations.kind[k], k, NONE, NONE), k, began


@compiled
def _leave_begin(
    operations: PathOperations, lists: PathLists, segments: IntArray, count: int, k: int, now: int, low: int
) -> tuple[int, int, int, int]:
    """Go back from the start of an operation to its cause: (segments, operation, thread, time); NONE if neither."""
    cause, time, kind = find_cause(operations, k, now, lists)
    time = max(low, time)
    count = _add(segments, count, time, now, kind, k, NONE, NONE)
    if kind == LAUNCH:
        return count, np.int64(NONE), operations.thread[k], time
    return count, cause, np.int64(NONE), time


# ---- threads ---------------------------------------------------------------------------------------------------------


@compiled
def _leave_call(
    lanes: PathLanes, segments: IntArray, count: int, c: int, now: int, low: int
) -> tuple[int, int, int, int]:
    """Go back from within a call to what it waited for, else to its start: (segments, operation, thread, time)."""
    operations, calls, threads, lists = lanes
    t = calls.thread[c]
    if calls.sync[c] == SYNC_THREAD:
        other, time, waits = find_active(calls, threads, lists, t, calls.begin[c], now)
        if other >= 0:
            time = max(low, time if waits else now)
            return _add(segments, count, time, now, CALL, NONE, t, c), np.int64(NONE), other, time
    last = find_waited(operations, calls, threads, lists, c, now)
    culprit = calls.culprit[c]
    if last >= 0 and (culprit == NONE or calls.until[c] <= operations.end[last]):
        time = max(low, operations.end[last])
        return _add(segments, count, time, now, CALL, NONE, t, c), last, np.int64(NONE), time
    if culprit >= 0 and calls.culprit_begin[c] <= now:
        # The late call started there: what its thread did before counts.
        time = max(low, calls.culprit_begin[c])
        return _add(segments, count, time, now, CALL, NONE, t, c), np.int64(NONE), culprit, time
    begin = max(low, calls.begin[c])
    moved = begin
    if culprit == LOST:
        moved = max(begin, min(now, calls.until[c]))
    count = _add(segments, count, moved, now, CALL, NONE, t, c)
    return _add(segments, count, begin, moved, OUTSIDE, NONE, t, c), np.int64(NONE), t, begin


@compiled
def _leave_code(
    lanes: PathLanes, segments: IntArray, count: int, t: int, c: int, now: int, low: int
) -> tuple[int, int, int]:
    """Go back over host code to the call c before it, or to another thread: (segments, thread, time)."""
    _, calls, threads, lists = lanes
    other, time = np.int64(NONE), np.int64(low)
    if c >= 0:
        time = calls.end[c]
    elif threads.creator[t] >= 0 and threads.created[t] >= low:
        other, time = threads.creator[t], min(now, threads.created[t])
    if other < 0 and HANDED_OVER_NS <= now - time < threads.shortest_wait[t]:
        other, time, _ = find_active(calls, threads, lists, t, time, now)
    time = max(low, time)
    return _add(segments, count, time, now, CODE, NONE, t, NONE), other if other >= 0 else t, time
