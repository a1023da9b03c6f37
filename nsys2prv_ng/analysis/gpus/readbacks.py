"""Finds where hosts wait for GPUs: calls that synchronise, and copies that return only when they have ended.

A read-back is such a wait of a thread that launched something since its wait before; what waits for NCCL waits for
other ranks, and is none. It waits for the operation that its thread launched last, usually a copy to the host.
If the GPU runs dry during the wait, it idles until the thread has launched what comes next (`times.py`). A thread that
waits in the OS for another one, which copies, is not seen: reports do not tell what it waited for.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nsys2prv_ng import source_names
from nsys2prv_ng.analysis.gpus.samples import find_back_traces
from nsys2prv_ng.analysis.host_activity import load_thread_ranges
from nsys2prv_ng.arrays.groups import Table, drop_columns, make_objects
from nsys2prv_ng.arrays.row_keys import find_distinct_rows, find_rows, mark_duplicates
from nsys2prv_ng.arrays.types import IntArray, pick
from nsys2prv_ng.intervals.step_functions import NOTHING, find_latest
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver.value_tables import MEMORY_KINDS, MEMORY_OPERATIONS
from nsys2prv_ng.reading.device_operations import Launches, load_launches, mark_communication
from nsys2prv_ng.reading.opened_events import ABSENT, OpenedEvents, load_opened_events
from nsys2prv_ng.reading.read_reports import ReportRecords
from nsys2prv_ng.records.store import Store
from nsys2prv_ng.sources.cuda.cuda_api import choose_call_state

KEYS = ["call", "range", "function", "operation", "memory"]
_WAITING = (types.SYNCHRONIZATION, types.MEMORY_TRANSFER)
"""States of threads within calls that wait for GPUs: those that synchronise, and copies that do."""
_HOST_COPIES = (4, 5)
"""Values of MEMORY_OPERATION: copies to the host, and from it."""
_PAGEABLE = 1
"""Value of kinds of memory."""


class Readbacks(NamedTuple):
    """n waits of host threads for GPUs, by thread (place) and start; begin and end of the call (ns), bytes copied.

    `key`: index into `keys`, which has distinct texts for each of KEYS: the call, the innermost range in which it
    began, the program's function that called (if there are back traces), the copy that the thread launched last, and
    the kind of host memory of the copy; "" without one.
    """

    thread: IntArray
    begin: IntArray
    end: IntArray
    bytes: IntArray
    key: IntArray
    keys: list[tuple[str, ...]]

    def find(self, thread: IntArray, time: IntArray, sent: IntArray) -> IntArray:
        """Return the key of the wait that each thread was in at a time, before it called what it `sent` (ns).

        NOTHING without one.
        """
        at = find_latest(self.thread, self.begin, thread, time)
        inside = (at >= 0) & (pick(self.end, at, 0) > time) & (pick(self.begin, at, 0) < sent)
        return np.where(inside, pick(self.key, at, NOTHING), NOTHING)


def load_readbacks(report: ReportRecords, calls: OpenedEvents, store: Store) -> Readbacks:
    """Return the read-backs of a report. `calls`: its CUDA API calls."""
    launches = load_launches(report, store)
    copies = load_opened_events(report, source_names.MEMORY_OPERATIONS, store)
    operation = copies.get_values(types.MEMORY_OPERATION)
    copy_of_launch = np.full(launches.sent.size, NOTHING)
    launch = launches.find(copies.place, copies.begin)
    known = np.flatnonzero((launch >= 0) & np.isin(operation, _HOST_COPIES))
    copy_of_launch[launch[known]] = known
    source, target = (copies.get_values(side) for side in (types.MEMORY_SOURCE_KIND, types.MEMORY_DESTINATION_KIND))
    memory = np.where(operation == _HOST_COPIES[0], target, source)
    line = _find_waits(calls, launches, launch[known], copies.end[known], memory[known])
    thread, begin, end = calls.place[line], calls.begin[line], calls.end[line]
    by_thread = np.lexsort((launches.sent, launches.thread))
    last = find_latest(launches.thread[by_thread], launches.sent[by_thread], thread, end)
    last = pick(by_thread, last, NOTHING)
    kernels = load_opened_events(report, source_names.KERNELS, store)
    nccl = np.flatnonzero(mark_communication(kernels))
    # A wait for what the wait before was for costs nothing.
    kept = (
        (last >= 0) & ~mark_duplicates(last) & ~np.isin(last, launches.find(kernels.place[nccl], kernels.begin[nccl]))
    )
    line, thread, begin, end, copy = line[kept], thread[kept], begin[kept], end[kept], copy_of_launch[last[kept]]
    ranges = load_thread_ranges(report, np.unique(thread), store)
    inside = np.full(line.size, NOTHING)
    for number, steps in ranges.steps.items():
        inside[thread == number] = steps.get_values(begin[thread == number])
    value = calls.get_values(types.CUDA_API)[line]
    function, functions = _find_functions(report, thread, begin, store)
    key, found = find_distinct_rows(value, inside, function, pick(operation, copy, ABSENT), pick(memory, copy, ABSENT))
    names = calls.get_names(types.CUDA_API), dict(enumerate(ranges.names)), functions, MEMORY_OPERATIONS, MEMORY_KINDS
    keys = [tuple(texts.get(n, "") for texts, n in zip(names, numbers, strict=True)) for numbers in found]
    size = pick(copies.get_values(types.MEMORY_BYTES), copy, ABSENT)
    return Readbacks(thread, begin, end, np.where(size == ABSENT, 0, size), key, keys)


def _find_functions(
    report: ReportRecords, thread: IntArray, begin: IntArray, store: Store
) -> tuple[IntArray, dict[int, str]]:
    """Return (number of the function that began each of n calls, ABSENT without one; names of the numbers)."""
    if report.labels.find_handle(types.PROGRAM_PYTHON) is None:
        return np.full(thread.size, ABSENT), {}
    marks = load_opened_events(report, source_names.NVTX, store)
    traced = find_back_traces(marks)
    at = find_rows([marks.place[traced], marks.begin[traced]], [thread, begin])
    return pick(marks.get_values(types.PROGRAM_PYTHON)[traced], at, ABSENT), marks.get_names(types.PROGRAM_PYTHON)


def _find_waits(calls: OpenedEvents, launches: Launches, launch: IntArray, end: IntArray, memory: IntArray) -> IntArray:
    """Return the calls that synchronise, and those that wait for the copy that they launched, by thread and time.

    A copy waits if its call returned after it had ended; an asynchronous call does not wait for pinned memory, even if
    it is slower than its copy. `launch`, `end` (ns), `memory`: of copies from or to the host.
    """
    states = {number: choose_call_state(name) for number, name in calls.get_names(types.CUDA_API).items()}
    value = calls.get_values(types.CUDA_API)
    waiting, blocking = ([n for n, each in states.items() if each == s] for s in _WAITING)
    longest_first = np.argsort(-calls.length, kind="stable")  # if calls start at once, take the outermost
    keys = [calls.place[longest_first], calls.begin[longest_first]]
    copying = pick(longest_first, find_rows(keys, [launches.thread[launch], launches.sent[launch]]), NOTHING)
    waits = (memory == _PAGEABLE) | np.isin(pick(value, copying, ABSENT), blocking)
    copying = copying[(copying >= 0) & (pick(calls.end, copying, 0) >= end) & waits]
    line = np.union1d(np.flatnonzero(np.isin(value, waiting)), copying)
    return line[np.lexsort((-calls.length[line], calls.begin[line], calls.place[line]))]


def name_keys(table: Table, keys: list[tuple[str, ...]]) -> Table:
    """Return a table with the columns KEYS in place of `key`."""
    texts = list(zip(*(keys[n] for n in table["key"].tolist()), strict=True)) or [()] * len(KEYS)
    return {**dict(zip(KEYS, map(make_objects, texts), strict=True)), **drop_columns(table, "key")}
