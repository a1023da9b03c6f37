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

from nsys2prv_ng.analysis.path import columns as path
from nsys2prv_ng.analysis.path.columns import NONE, PathLists, PathTables, PathThreads, Segments, Start
from nsys2prv_ng.analysis.waits.late_origins import ENDED_AFTER_NS, ENDED_BEFORE_NS, PROMPT_NS
from nsys2prv_ng.arrays.row_keys import sort_rows
from nsys2prv_ng.arrays.types import IntArray, IntTable
from nsys2prv_ng.runtime.jit import compiled, search

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
    if start.operation >= 0 and tables.operations[path.END, start.operation] < high:
        time = tables.operations[path.END, start.operation]
        segments[:, 0] = time, high, path.UNKNOWN, start.operation, NONE, NONE
        count = 1
    state = np.array([start.operation, start.thread, time, 0])
    while (count := _walk(tables, segments, count, state, low)) > segments.shape[1] - _MOST_ADDED:
        segments = np.concatenate([segments, np.empty_like(segments)], axis=1)
    k, t, time, _ = state
    if time > low:
        segments[:, count] = low, time, path.UNKNOWN, k, t, NONE
        count += 1
    return Segments(*segments[:, :count])


def join_tables(operations: IntTable, calls: IntTable, threads: PathThreads) -> PathTables:
    """Return all that the walk reads, given the tables of operations and calls."""
    stream, process, end = operations[path.STREAM], operations[path.PROCESS], operations[path.END]
    # Calls may wait for a stream without any operation.
    awaited = calls[path.TARGET][calls[path.SYNC] == path.SYNC_STREAM]
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
            if c >= 0 and calls[path.END, c] >= now:
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
    culprit = operations[path.CULPRIT, k]
    began = operations[path.BEGIN, k]
    if culprit >= 0:
        # The culprit started last: data move from then on, and its start has a cause of its own.
        began = max(low, min(now, operations[path.BEGIN, culprit]))
        return _add(segments, count, began, now, path.MOVING, k, NONE, NONE), culprit, began
    if culprit == path.LOST:
        moved = max(low, min(now, operations[path.UNTIL, k]))
        began = max(low, min(moved, began))
        count = _add(segments, count, moved, now, path.MOVING, k, NONE, NONE)
        return _add(segments, count, began, moved, path.OUTSIDE, k, NONE, NONE), k, began
    began = max(low, min(now, began))
    return _add(segments, count, began, now, operations[path.KIND, k], k, NONE, NONE), k, began


@compiled
def _leave_begin(
    operations: IntTable, lists: PathLists, segments: IntTable, count: int, k: int, now: int, low: int
) -> tuple[int, int, int, int]:
    """Go back from the start of an operation to its cause: (segments, operation, thread, time); NONE if neither."""
    cause, time, kind = find_cause(operations, k, now, lists)
    time = max(low, time)
    count = _add(segments, count, time, now, kind, k, NONE, NONE)
    if kind == path.LAUNCH:
        return count, np.int64(NONE), operations[path.THREAD, k], time
    return count, cause, np.int64(NONE), time


# ---- threads ---------------------------------------------------------------------------------------------------------


@compiled
def _leave_call(
    tables: PathTables, segments: IntTable, count: int, c: int, now: int, low: int
) -> tuple[int, int, int, int]:
    """Go back from within a call to what it waited for, else to its start: (segments, operation, thread, time)."""
    operations, calls, threads, lists = tables
    t = calls[path.THREAD, c]
    if calls[path.SYNC, c] == path.SYNC_THREAD:
        other, time, waits = find_active(calls, threads, lists, t, calls[path.BEGIN, c], now)
        if other >= 0:
            time = max(low, time if waits else now)
            return _add(segments, count, time, now, path.CALL, NONE, t, c), np.int64(NONE), other, time
    last = find_waited(operations, calls, threads, lists, c, now)
    culprit = calls[path.CULPRIT, c]
    if last >= 0 and (culprit == NONE or calls[path.UNTIL, c] <= operations[path.END, last]):
        time = max(low, operations[path.END, last])
        return _add(segments, count, time, now, path.CALL, NONE, t, c), last, np.int64(NONE), time
    if culprit >= 0 and calls[path.CULPRIT_BEGIN, c] <= now:
        # The late call started there: what its thread did before counts.
        time = max(low, calls[path.CULPRIT_BEGIN, c])
        return _add(segments, count, time, now, path.CALL, NONE, t, c), np.int64(NONE), culprit, time
    begin = max(low, calls[path.BEGIN, c])
    moved = begin
    if culprit == path.LOST:
        moved = max(begin, min(now, calls[path.UNTIL, c]))
    count = _add(segments, count, moved, now, path.CALL, NONE, t, c)
    return _add(segments, count, begin, moved, path.OUTSIDE, NONE, t, c), np.int64(NONE), t, begin


@compiled
def _leave_code(
    tables: PathTables, segments: IntTable, count: int, t: int, c: int, now: int, low: int
) -> tuple[int, int, int]:
    """Go back over host code to the call c before it, or to another thread: (segments, thread, time)."""
    _, calls, threads, lists = tables
    other, time = np.int64(NONE), np.int64(low)
    if c >= 0:
        time = calls[path.END, c]
    elif threads[path.CREATOR, t] >= 0 and threads[path.CREATED, t] >= low:
        other, time = threads[path.CREATOR, t], min(now, threads[path.CREATED, t])
    if other < 0 and HANDED_OVER_NS <= now - time < threads[path.SHORTEST_WAIT, t]:
        other, time, _ = find_active(calls, threads, lists, t, time, now)
    time = max(low, time)
    return _add(segments, count, time, now, path.CODE, NONE, t, NONE), other if other >= 0 else t, time


# ---- causes ----------------------------------------------------------------------------------------------------------


_MOST_OVERLAPS = 64
"""Most operations of a stream to search: operations of a stream may overlap."""
_MOST_ENDS = 1024
"""Most operations of a process to search among those that end at nearly the same time."""


@compiled
def find_cause(operations: IntTable, k: int, now: int, lists: PathLists) -> tuple[int, int, int]:
    """Return what let operation k start: (operation or NONE; when; LAUNCH, GAP or UNKNOWN)."""
    latest = np.int64(now + ENDED_AFTER_NS)
    first = lists.stream_first[operations[path.STREAM, k]]
    cause = _find_last_ended(operations, k - 1, first, latest)
    time = np.int64(path.NEVER)
    if cause >= 0:
        time = operations[path.END, cause]
    producer = operations[path.PRODUCER, k]
    if producer >= 0 and time < operations[path.END, producer] <= latest:
        cause, time = producer, operations[path.END, producer]
    is_launched = operations[path.THREAD, k] >= 0 and operations[path.LAUNCHED, k] >= time
    if is_launched:
        time = operations[path.LAUNCHED, k]
    if time == path.NEVER or now - time > (PROMPT_NS if is_launched else ENDED_BEFORE_NS):
        # Operations of a stream overlap if one may start before the operation before it has ended.
        running = _find_running(operations, k, first, latest)
        if running >= 0:
            return running, np.int64(now), path.GAP
        near = _find_near(operations, k, now - ENDED_BEFORE_NS, latest, lists)
        if near < 0 and time == path.NEVER:
            near = _find_near(operations, k, np.int64(path.NEVER), latest, lists)
        if near >= 0:
            return near, min(now, operations[path.END, near]), path.GAP
    if is_launched:
        return np.int64(NONE), min(now, time), path.LAUNCH
    if cause < 0:
        return np.int64(NONE), time, path.UNKNOWN
    return cause, min(now, time), path.GAP


@compiled
def _find_last_ended(operations: IntTable, k: int, first: int, latest: int) -> int:
    """Return the operation that ends last, by `latest` (ns), of k and those before it on its stream; NONE without one.

    Operations of a stream overlap rarely: the search ends at the first one that ended before the next one started.
    """
    best = np.int64(NONE)
    for i in range(k, max(first, k - _MOST_OVERLAPS + 1) - 1, -1):
        if best >= 0 and operations[path.END, i] <= operations[path.BEGIN, best]:
            break
        if operations[path.END, i] <= latest and (best < 0 or operations[path.END, i] > operations[path.END, best]):
            best = i
    return best


@compiled
def _find_running(operations: IntTable, k: int, first: int, time: int) -> int:
    """Return the last operation before k on its stream that ends after a time (ns); NONE without one."""
    for i in range(k - 1, max(first, k - _MOST_OVERLAPS) - 1, -1):
        if operations[path.END, i] > time:
            return i
    return NONE


@compiled
def _find_near(operations: IntTable, k: int, earliest: int, latest: int, lists: PathLists) -> int:
    """Return the operation on the device's other streams that ended last within a time (ns) and started before k.

    NONE without one.
    """
    process = operations[path.PROCESS, k]
    first, after = lists.process_first[process], lists.process_first[process + 1]
    i = _search_ends(operations, lists.by_end, first, after, latest)
    lowest = max(first, i - _MOST_ENDS)
    while i > lowest:
        i -= 1
        other = lists.by_end[i]
        if operations[path.END, other] < earliest:
            break
        if (
            operations[path.STREAM, other] != operations[path.STREAM, k]
            and operations[path.DEVICE, other] == operations[path.DEVICE, k]
            and operations[path.BEGIN, other] < operations[path.BEGIN, k]
        ):
            return other
    return NONE


@compiled
def _search_ends(operations: IntTable, by_end: IntArray, low: int, high: int, time: int) -> int:
    """Return the index of the first operation in by_end[low:high] that ends after a time (ns), or `high`."""
    while low < high:
        middle = (low + high) // 2
        if operations[path.END, by_end[middle]] <= time:
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def find_call(calls: IntTable, threads: IntTable, thread: int, now: int) -> int:
    """Return the last call of a thread that starts before a time (ns); NONE without one."""
    first, last = threads[path.FIRST, thread], threads[path.AFTER, thread]
    c = search(calls[path.BEGIN], first, last, now) - 1
    return c if c >= first else NONE


@compiled
def find_waited(operations: IntTable, calls: IntTable, threads: IntTable, lists: PathLists, c: int, now: int) -> int:
    """Return the operation that a call waited for, if it ended within the call and by `now` (ns); else NONE."""
    sync, target, since = calls[path.SYNC, c], calls[path.TARGET, c], calls[path.SINCE, c]
    if sync == path.SYNC_OPERATION:
        return target if since < operations[path.END, target] <= now else NONE
    if sync == path.SYNC_STREAM:
        first, after = lists.stream_first[target], lists.stream_first[target + 1]
        i = search(operations[path.BEGIN], first, after, now) - 1
        # The call does not wait for what another thread launched meanwhile.
        while i >= first and operations[path.LAUNCHED, i] > since:
            i -= 1
        last = _find_last_ended(operations, i, first, now)
        return last if last >= 0 and operations[path.END, last] > since else NONE
    if sync in (path.SYNC_DEVICE, path.SYNC_PROCESS):
        process = threads[path.PROCESS, calls[path.THREAD, c]]
        first = lists.process_first[process]
        i = _search_ends(operations, lists.by_end, first, lists.process_first[process + 1], now)
        while i > first:
            i -= 1
            last = lists.by_end[i]
            if operations[path.END, last] <= since:
                break
            is_awaited = sync == path.SYNC_PROCESS or operations[path.DEVICE, last] == target
            if is_awaited and operations[path.LAUNCHED, last] <= since:
                return last
    return NONE


@compiled
def find_active(
    calls: IntTable, threads: IntTable, lists: PathLists, thread: int, after: int, now: int
) -> tuple[int, int, bool]:
    """Return (thread that was active last, when its last call ended, False), if that was from `after` to `now` (ns).

    A thread that itself waits for another one was active until then: (thread, start of its wait, True). Without such a
    thread: (NONE, `after`, False). Only the process's other threads that launch kernels count.
    """
    other, time, waits = np.int64(NONE), np.int64(after), False
    process = threads[path.PROCESS, thread]
    for n in range(lists.launching_first[process], lists.launching_first[process + 1]):
        i = lists.launching[n]
        if i == thread:
            continue
        c = find_call(calls, threads, i, now)
        if c < 0:
            continue
        is_waiting = calls[path.SYNC, c] == path.SYNC_THREAD and calls[path.END, c] >= now
        last = calls[path.BEGIN, c] if is_waiting else min(calls[path.END, c], now)
        if last > time:
            other, time, waits = i, last, is_waiting
    return other, time, waits
