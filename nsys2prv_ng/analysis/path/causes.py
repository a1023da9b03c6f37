"""Searches of the critical path's walk: what let an operation start, a call return, or a thread go on."""

from __future__ import annotations

import numpy as np

from nsys2prv_ng.analysis.path.columns import (
    AFTER,
    BEGIN,
    DEVICE,
    END,
    FIRST,
    GAP,
    LAUNCH,
    LAUNCHED,
    NEVER,
    NONE,
    PROCESS,
    PRODUCER,
    SINCE,
    STREAM,
    SYNC,
    SYNC_DEVICE,
    SYNC_OPERATION,
    SYNC_PROCESS,
    SYNC_STREAM,
    SYNC_THREAD,
    TARGET,
    THREAD,
    UNKNOWN,
    PathLists,
)
from nsys2prv_ng.analysis.waits.late_origins import ENDED_AFTER_NS, ENDED_BEFORE_NS, PROMPT_NS
from nsys2prv_ng.arrays.types import IntArray, IntTable
from nsys2prv_ng.runtime.jit import compiled

_MOST_OVERLAPS = 64
"""Most operations of a stream to search: operations of a stream may overlap."""
_MOST_ENDS = 1024
"""Most operations of a process to search among those that end at nearly the same time."""


# ---- operations ------------------------------------------------------------------------------------------------------


@compiled
def find_cause(operations: IntTable, k: int, now: int, lists: PathLists) -> tuple[int, int, int]:
    """Return what let operation k start: (operation or NONE; when; LAUNCH, GAP or UNKNOWN)."""
    latest = np.int64(now + ENDED_AFTER_NS)
    first = lists.stream_first[operations[STREAM, k]]
    cause = _find_last_ended(operations, k - 1, first, latest)
    time = np.int64(NEVER)
    if cause >= 0:
        time = operations[END, cause]
    producer = operations[PRODUCER, k]
    if producer >= 0 and time < operations[END, producer] <= latest:
        cause, time = producer, operations[END, producer]
    is_launched = operations[THREAD, k] >= 0 and operations[LAUNCHED, k] >= time
    if is_launched:
        time = operations[LAUNCHED, k]
    if time == NEVER or now - time > (PROMPT_NS if is_launched else ENDED_BEFORE_NS):
        # Operations of a stream overlap if one may start before the operation before it has ended.
        running = _find_running(operations, k, first, latest)
        if running >= 0:
            return running, np.int64(now), GAP
        near = _find_near(operations, k, now - ENDED_BEFORE_NS, latest, lists)
        if near < 0 and time == NEVER:
            near = _find_near(operations, k, np.int64(NEVER), latest, lists)
        if near >= 0:
            return near, min(now, operations[END, near]), GAP
    if is_launched:
        return np.int64(NONE), min(now, time), LAUNCH
    if cause < 0:
        return np.int64(NONE), time, UNKNOWN
    return cause, min(now, time), GAP


@compiled
def _find_last_ended(operations: IntTable, k: int, first: int, latest: int) -> int:
    """Return the operation that ends last, by `latest` (ns), of k and those before it on its stream; NONE without one.

    Operations of a stream overlap rarely: the search ends at the first one that ended before the next one started.
    """
    best = np.int64(NONE)
    for i in range(k, max(first, k - _MOST_OVERLAPS + 1) - 1, -1):
        if best >= 0 and operations[END, i] <= operations[BEGIN, best]:
            break
        if operations[END, i] <= latest and (best < 0 or operations[END, i] > operations[END, best]):
            best = i
    return best


@compiled
def _find_running(operations: IntTable, k: int, first: int, time: int) -> int:
    """Return the last operation before k on its stream that ends after a time (ns); NONE without one."""
    for i in range(k - 1, max(first, k - _MOST_OVERLAPS) - 1, -1):
        if operations[END, i] > time:
            return i
    return NONE


@compiled
def _find_near(operations: IntTable, k: int, earliest: int, latest: int, lists: PathLists) -> int:
    """Return the operation on the device's other streams that ended last within a time (ns) and started before k.

    NONE without one.
    """
    first, after = lists.process_first[operations[PROCESS, k]], lists.process_first[operations[PROCESS, k] + 1]
    i = _search_ends(operations, lists.by_end, first, after, latest)
    lowest = max(first, i - _MOST_ENDS)
    while i > lowest:
        i -= 1
        other = lists.by_end[i]
        if operations[END, other] < earliest:
            break
        if (
            operations[STREAM, other] != operations[STREAM, k]
            and operations[DEVICE, other] == operations[DEVICE, k]
            and operations[BEGIN, other] < operations[BEGIN, k]
        ):
            return other
    return NONE


@compiled
def _search_ends(operations: IntTable, by_end: IntArray, low: int, high: int, time: int) -> int:
    """Return the index of the first operation in by_end[low:high] that ends after a time (ns), or `high`."""
    while low < high:
        middle = (low + high) // 2
        if operations[END, by_end[middle]] <= time:
            low = middle + 1
        else:
            high = middle
    return low


# ---- threads ---------------------------------------------------------------------------------------------------------


@compiled
def find_call(calls: IntTable, threads: IntTable, thread: int, now: int) -> int:
    """Return the last call of a thread that starts before a time (ns); NONE without one."""
    first, last = threads[FIRST, thread], threads[AFTER, thread]
    c = _search_begins(calls, first, last, now) - 1
    return c if c >= first else NONE


@compiled
def _search_begins(table: IntTable, low: int, high: int, time: int) -> int:
    """Return the first of the items low to high of a table that begins at a time (ns) or later, or `high`."""
    while low < high:
        middle = (low + high) // 2
        if table[BEGIN, middle] < time:
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def find_waited(operations: IntTable, calls: IntTable, threads: IntTable, lists: PathLists, c: int, now: int) -> int:
    """Return the operation that a call waited for, if it ended within the call and by `now` (ns); else NONE."""
    sync, target, since = calls[SYNC, c], calls[TARGET, c], calls[SINCE, c]
    if sync == SYNC_OPERATION:
        return target if since < operations[END, target] <= now else NONE
    if sync == SYNC_STREAM:
        first, after = lists.stream_first[target], lists.stream_first[target + 1]
        i = _search_begins(operations, first, after, now) - 1
        # The call does not wait for what another thread launched meanwhile.
        while i >= first and operations[LAUNCHED, i] > since:
            i -= 1
        last = _find_last_ended(operations, i, first, now)
        return last if last >= 0 and operations[END, last] > since else NONE
    if sync in (SYNC_DEVICE, SYNC_PROCESS):
        process = threads[PROCESS, calls[THREAD, c]]
        first = lists.process_first[process]
        i = _search_ends(operations, lists.by_end, first, lists.process_first[process + 1], now)
        while i > first:
            i -= 1
            last = lists.by_end[i]
            if operations[END, last] <= since:
                break
            if operations[LAUNCHED, last] <= since and (sync == SYNC_PROCESS or operations[DEVICE, last] == target):
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
    process = threads[PROCESS, thread]
    for n in range(lists.launching_first[process], lists.launching_first[process + 1]):
        i = lists.launching[n]
        if i == thread:
            continue
        c = find_call(calls, threads, i, now)
        if c < 0:
            continue
        is_waiting = calls[SYNC, c] == SYNC_THREAD and calls[END, c] >= now
        last = calls[BEGIN, c] if is_waiting else min(calls[END, c], now)
        if last > time:
            other, time, waits = i, last, is_waiting
    return other, time, waits
