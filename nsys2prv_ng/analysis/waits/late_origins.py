"""Finds who delayed the ranks that others waited for: the rank that they had waited for themselves, just before.

Operations of a device that follow each other without a gap pass a delay on. If the device was late with a kernel (the
operation before it on its stream, or one on another stream, ended just as it started), the search goes back over
operations that were launched in advance and waited for the one before them, until it reaches operations over ranks:

- If the late rank had waited there for another rank, for at least half of its lateness, that rank is the origin. What
  delayed the origin is found in the same way, to the end of the chain.
- If all ranks that waited for the late one also took part in that operation, they went on together: nothing before it
  explains why one was later than the others. If the late rank waited in a message, only the other side went on with it.
- If the operation is not split, nothing before it is known.

A wait is known only beyond the uncertainty of the clocks (`Waits`), and so is an origin. If the host was late, there is
no origin: the search does not follow what the host thread waited for.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nsys2prv_ng import source_names
from nsys2prv_ng.analysis.waits.clocks import place_parts
from nsys2prv_ng.analysis.waits.waits import Waits
from nsys2prv_ng.arrays.row_keys import find_rows, find_starts, list_indices, list_rows
from nsys2prv_ng.arrays.types import BoolArray, IntArray, pick
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.reading.device_operations import DeviceOperations, Launches, number_streams
from nsys2prv_ng.reading.read_reports import ReportRecords
from nsys2prv_ng.runtime.jit import compiled, inlined, search

NONE = -1
_MOST_STEPS = 1000
"""Most operations over ranks to search back over from one late kernel."""


class TaskLists(NamedTuple):
    """Lists of tasks: list i is item[first[i]] .. item[first[i + 1] - 1], ascending."""

    first: IntArray
    item: IntArray


def make_lists(number: IntArray, item: IntArray, size: int) -> TaskLists:
    """Return lists 0 .. size - 1 of pairs (number of the list, item); equal pairs count once."""
    order = np.lexsort((item, number))
    number, item = number[order], item[order]
    new = find_starts(number, item)
    return TaskLists(np.searchsorted(number[new], np.arange(size + 1)).astype(np.int64), item[new])


class Partners(NamedTuple):
    """The tasks that take part in operations over ranks.

    `collective` and `message`: for each of the waits, the number of its list, or NONE. The list of a collective has the
    members of its communicator; the list of a message has the other sides.
    """

    collective: IntArray
    message: IntArray
    tasks: TaskLists


def list_partners(job: Job, waits: Waits) -> Partners:
    """Return the tasks that take part in the operations of kernels."""
    operations, task_of_row = job.operations, job.whole.task_of_row.astype(np.int64)
    collective, message = np.full((2, waits.row.size), NONE, np.int64)
    # A split operation has all members of its communicator: one operation of each communicator is enough.
    known = np.flatnonzero((waits.operation >= 0) & waits.has_parts)
    groups, number = np.unique(operations.group[waits.operation[known]], return_inverse=True)
    collective[known] = number
    some = np.zeros(groups.size, np.int64)
    some[number] = waits.operation[known]
    first, count = operations.first[some], operations.first[some + 1] - operations.first[some]
    group = np.repeat(np.arange(groups.size), count)
    row = place_parts(job, operations.part[list_indices(first, count)]).row
    side, partner = _list_message_sides(job, waits)
    sides, number = np.unique(side, return_inverse=True)
    message[sides] = groups.size + np.arange(sides.size)
    lists = make_lists(
        np.concatenate([group[row >= 0], groups.size + number]),
        np.concatenate([task_of_row[row[row >= 0]], task_of_row[partner]]),
        groups.size + sides.size,
    )
    return Partners(collective, message, lists)


def _list_message_sides(job: Job, waits: Waits) -> tuple[IntArray, IntArray]:
    """Return, for each message, (index of the kernel that sends or receives, row of the other side)."""
    pairs = [joined.messages[source_names.NCCL] for joined in job.joined if source_names.NCCL in joined.messages]
    sides = [(p.send_row, p.send_begin, p.receiver) for p in pairs]
    sides += [(p.receive_row, p.receive_begin, p.sender) for p in pairs]
    row, begin, partner = (np.concatenate(column) for column in zip(_NO_SIDES, *sides, strict=True))
    side = _find_waits(waits, np.arange(waits.row.size), row, begin)
    return side[side >= 0], partner[side >= 0]


_NO_SIDES = np.zeros((3, 0), np.int64)


def _find_waits(waits: Waits, among: IntArray, row: IntArray, begin: IntArray) -> IntArray:
    """Return which of the waits `among` starts on each row at each time (ns); NONE without one."""
    at = find_rows([waits.row[among], waits.begin[among]], [row, begin])
    return np.where(at >= 0, pick(among, at, NONE), NONE)


# ---- what held kernels -----------------------------------------------------------------------------------------------


class Links:
    """What held up kernels: the nearest kernel over ranks before them, as an index of `Waits`; NONE without one."""

    def __init__(self, waits: Waits, late: int) -> None:
        self._waits = waits
        self.previous = np.full(waits.row.size, NONE, np.int64)
        """For each of the waits."""
        self.held_by = np.full(late, NONE, np.int64)
        """For each late kernel or call."""

    def add(
        self,
        report: ReportRecords,
        rows: IntArray,
        operations: DeviceOperations,
        launches: Launches,
        late: IntArray,
        last: IntArray,
    ) -> None:
        """Add the links of a report. Its device was late with operations `last`, which held up kernels `late`."""
        on_stream, on_other = find_ended(report, operations, operations.place, operations.begin)
        before = np.where(on_stream >= 0, on_stream, on_other)
        launch = launches.find(operations.place, operations.begin)
        sent = pick(launches.sent, launch, np.iinfo(np.int64).max // 2)
        before[~(operations.is_node | (operations.begin - sent > PROMPT_NS))] = NONE
        self.connect(rows[operations.place], operations.begin, before, late, last)

    def connect(self, row: IntArray, begin: IntArray, before: IntArray, late: IntArray, last: IntArray) -> None:
        """Add the links of operations: row, start (ns) and index of the operation that each had waited for, or NONE.

        The operations `last` held up the kernels `late`.
        """
        on_rows = list_rows(self._waits.row, np.unique(row))  # waits are ordered by row
        at = _find_waits(self._waits, on_rows, row, begin)
        nearest = np.full(before.size, NONE)
        _find_nearest(np.argsort(begin, kind="stable"), before, at, nearest)
        has = at >= 0
        self.previous[at[has]] = nearest[has]
        self.held_by[late] = np.where(at[last] >= 0, at[last], nearest[last])


@compiled
def _find_nearest(by_begin: IntArray, before: IntArray, at: IntArray, nearest: IntArray) -> None:
    """Set, for each operation, `at` of the nearest operation before it that has one; it is NONE if none has."""
    for i in by_begin:
        k = before[i]
        if k >= 0:
            nearest[i] = at[k] if at[k] >= 0 else nearest[k]


# ---- the way back ----------------------------------------------------------------------------------------------------


def trace_origins(
    job: Job, waits: Waits, instance: IntArray, begin: IntArray, lateness: IntArray, task: IntArray, links: Links | None
) -> IntArray:
    """Return the result of `find_origins`; NONE for each late kernel without `links`."""
    if links is None or (links.held_by < 0).all():
        return np.full(begin.size, NONE, np.int64)
    who = np.flatnonzero(instance >= 0)
    waiters = make_lists(instance[who], job.whole.task_of_row[waits.row[who]].astype(np.int64), begin.size)
    late = LateOnes(begin, lateness, task, waiters)
    known = (links.held_by, links.previous, waits.has_parts, waits.wait)
    return find_origins(*known, instance, late, list_partners(job, waits))


class LateOnes(NamedTuple):
    """n late kernels and calls: start and lateness (ns), task, and the tasks that waited for each."""

    begin: IntArray
    lateness: IntArray
    task: IntArray
    waiters: TaskLists


def find_origins(
    held_by: IntArray,
    previous: IntArray,
    is_known: BoolArray,
    wait: IntArray,
    instance: IntArray,
    late: LateOnes,
    partners: Partners,
) -> IntArray:
    """Return the index of the late kernel at the end of each late kernel's chain; NONE if no other kernel delayed it.

    `held_by` and `previous`: as in `Links`. For each of the waits: `is_known` marks those whose length `wait` (ns) is
    known, and `instance` is the index of the late kernel or call that it waited for; NONE without one.
    """
    origin = np.full(held_by.size, NONE)
    items = np.concatenate([late.task, late.waiters.item, partners.tasks.item])
    first_waiter = late.task.size + late.waiters.first
    first_partner = late.task.size + late.waiters.item.size + partners.tasks.first
    chains = _Chains(held_by, previous, is_known, wait, instance)
    _find_origins(chains, late, partners, _Tasks(items, first_waiter, first_partner), origin)
    return origin


class _Chains(NamedTuple):
    """What held up each late kernel, and each of the waits: as in `find_origins`."""

    held_by: IntArray
    previous: IntArray
    is_known: BoolArray
    wait: IntArray
    instance: IntArray


class _Tasks(NamedTuple):
    """The task of each late kernel, then the lists of those that waited for each, and of partners, in one array."""

    item: IntArray
    first_waiter: IntArray
    first_partner: IntArray


@compiled
def _find_origins(chains: _Chains, late: LateOnes, partners: Partners, tasks: _Tasks, origin: IntArray) -> None:
    held_by, previous, is_known, wait, instance = chains
    begin, lateness, collective, message = late.begin, late.lateness, partners.collective, partners.message
    item, first_waiter, first_partner = tasks
    for k in range(held_by.size):
        x, amount = k, max(1, lateness[k])
        waiting, waiting_end = first_waiter[k], first_waiter[k + 1]
        j, steps = held_by[k], 0
        while j >= 0 and is_known[j] and steps < _MOST_STEPS:
            steps += 1
            y = instance[j]
            number = collective[j] if collective[j] >= 0 else message[j]
            low, high = 0, 0
            if y >= 0 and collective[j] < 0:
                low, high = y, y + 1
            elif number >= 0:
                low, high = first_partner[number], first_partner[number + 1]
            if _holds_all(item, low, high, waiting, waiting_end):
                break
            if 2 * wait[j] < amount:
                j = previous[j]
                continue
            if y < 0 or begin[y] >= begin[x]:
                break
            # What delayed the origin counts, unless it also delayed the rank that waited for the origin in another way.
            origin[k], waiting, waiting_end, amount = y, x, x + 1, wait[j]
            x, j = y, held_by[y]


@inlined
def _holds_all(tasks: IntArray, low: int, high: int, wanted: int, wanted_end: int) -> bool:
    """Return whether tasks[low:high] contain all of tasks[wanted:wanted_end]; both are ascending."""
    for k in range(wanted, wanted_end):
        while low < high and tasks[low] < tasks[k]:
            low += 1
        if low >= high or tasks[low] != tasks[k]:
            return False
    return True


# ---- what ended as a kernel started ----------------------------------------------------------------------------------


ENDED_BEFORE_NS, ENDED_AFTER_NS = 10_000, 2_000
"""How long (ns) before and after a kernel's start an operation may end that the kernel waited for.

In real reports of H200 GPUs (2,000 NCCL kernels that had been launched in advance), the gap to the preceding operation
on the stream is 1.2 to 6 us. An operation on another stream that the kernel waited for through an event ends between
3 us before and 1.2 us after the kernel's start.
"""

PROMPT_NS = 20_000
"""Longest time (ns) from a launch call to a kernel that waited for nothing: 8 to 13 us in real reports."""


class DeviceEnds(NamedTuple):
    """n operations, sorted by device and end: those of device d are limits[d] .. limits[d + 1] - 1. Times in ns."""

    limits: IntArray
    stream: IntArray
    begin: IntArray
    end: IntArray


class KernelStarts(NamedTuple):
    """n kernels: numbers of their devices and streams, and their starts (ns)."""

    device: IntArray
    stream: IntArray
    time: IntArray


def find_ended(
    report: ReportRecords, operations: DeviceOperations, place: IntArray, begin: IntArray
) -> tuple[IntArray, IntArray]:
    """Return the operations that ended just as kernels started: (the last on its stream, the last on another stream).

    `place` and `begin` (ns): n kernels. The results are indices of operations, -1 without one. Only other streams of
    the kernel's process and device count. The lanes of a stream are one stream.
    """
    device, stream = number_streams(report)
    order = np.lexsort((operations.end, device[operations.place]))
    by_device = device[operations.place][order]
    limits = np.searchsorted(by_device, np.arange(int(device.max(initial=-1)) + 2))
    ends = DeviceEnds(limits, stream[operations.place][order], operations.begin[order], operations.end[order])
    ended = np.full((2, begin.size), -1)
    _find_ended(ends, KernelStarts(device[place], stream[place], begin), ENDED_BEFORE_NS, ENDED_AFTER_NS, *ended)
    on_stream, on_other = (np.where(index >= 0, pick(order, index, -1), -1) for index in ended)
    return on_stream, on_other


@compiled
def _find_ended(
    ends: DeviceEnds, kernels: KernelStarts, before: int, after: int, on_stream: IntArray, on_other: IntArray
) -> None:
    """Set the result of `find_ended`, -1 at first. `before` and `after` (ns): how far from the start an end may be."""
    limits, stream, begin, end = ends
    device, kernel_stream, time = kernels
    for i in range(time.size):
        low, high = limits[device[i]], limits[device[i] + 1]
        k = search(end, low, high, time[i] - before)
        while k < high and end[k] <= time[i] + after:
            if begin[k] < time[i]:
                if stream[k] == kernel_stream[i]:
                    on_stream[i] = k
                else:
                    on_other[i] = k
            k += 1
