"""Who delayed the ranks that others waited for: the rank that these had waited for themselves, just before.

Operations of a device that follow each other without a gap pass a delay on. So from a late kernel that the device was
late with (the operation before it on its stream, or one on another stream, ended just as it began), the way leads back
over operations that had been launched before and then waited for the one before them, to operations over ranks:

- Where the late rank had waited for another one, and for at least half of its lateness, that one is its origin. What
  delayed the origin is found likewise, to the end of the chain.
- Where all ranks that waited for the late one had taken part as well, they went on together: nothing before that
  explains why it was later than they. Of a message in which the late rank waited, only its other side went on with it.
- Where the operation is not split, nothing before it is known.

A wait is known only beyond the uncertainty of the clocks (`Waits`), and so is an origin. Where the host was late, there
is none: what its thread waited for is not followed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nsys2prv_ng.analysis.waits.late_devices import PROMPT_NS, DeviceOperations, Launches, find_ended
from nsys2prv_ng.analysis.waits.placed_parts import place_parts
from nsys2prv_ng.analysis.waits.waits import Waits
from nsys2prv_ng.arrays.row_keys import find_rows, find_starts, mark_duplicates
from nsys2prv_ng.arrays.types import BoolArray, IntArray
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.job.read_reports import ReportRecords
from nsys2prv_ng.runtime.jit import compiled, inlined

NONE = -1
_MOST_STEPS = 1000
"""Most operations over ranks on the way from one late kernel."""


class Lists(NamedTuple):
    """Lists of tasks: those of i are item[first[i]] .. item[first[i + 1] - 1], ascending."""

    first: IntArray
    item: IntArray


def make_lists(number: IntArray, item: IntArray, size: int) -> Lists:
    """Return lists 0 .. size - 1 from pairs of the number of a list and an item; equal pairs count once."""
    order = np.lexsort((item, number))
    number, item = number[order], item[order]
    new = find_starts(number, item)
    return Lists(np.searchsorted(number[new], np.arange(size + 1)).astype(np.int64), item[new])


class Partners(NamedTuple):
    """The tasks in operations over ranks. `collective` and `message`: number of a list for each of the waits, or NONE.

    Members of a collective are those of its communicator; of a message, the other sides.
    """

    collective: IntArray
    message: IntArray
    tasks: Lists


def list_partners(job: Job, waits: Waits) -> Partners:
    """Return the tasks that take part in the operations of kernels."""
    operations, task_of_row = job.operations, job.whole.task_of_row.astype(np.int64)
    collective, message = np.full((2, waits.row.size), NONE, np.int64)
    # In a split operation no member of the communicator is missing: one of each communicator is enough.
    known = np.flatnonzero((waits.operation >= 0) & waits.has_parts)
    groups, number = np.unique(operations.group[waits.operation[known]], return_inverse=True)
    collective[known] = number
    some = np.zeros(groups.size, np.int64)
    some[number] = waits.operation[known]
    first, count = operations.first[some], operations.first[some + 1] - operations.first[some]
    of_group = np.repeat(np.arange(groups.size), count)
    row = place_parts(job, operations.part[_list_indices(first, count)]).row
    side, partner = _list_message_sides(job, waits)
    sides, number = np.unique(side, return_inverse=True)
    message[sides] = groups.size + np.arange(sides.size)
    lists = make_lists(
        np.concatenate([of_group[row >= 0], groups.size + number]),
        np.concatenate([task_of_row[row[row >= 0]], task_of_row[partner]]),
        groups.size + sides.size,
    )
    return Partners(collective, message, lists)


def _list_message_sides(job: Job, waits: Waits) -> tuple[IntArray, IntArray]:
    """Return the indices of kernels that send or receive, and the row of the other side of each message."""
    pairs = [joined.messages["nccl"] for joined in job.joined if "nccl" in joined.messages]
    sides = [(p.send_row, p.send_begin, p.receiver) for p in pairs]
    sides += [(p.receive_row, p.receive_begin, p.sender) for p in pairs]
    row, begin, partner = (np.concatenate(column) for column in zip(_NO_SIDES, *sides, strict=True))
    side = _find_waits(waits, np.arange(waits.row.size), row, begin)
    return side[side >= 0], partner[side >= 0]


_NO_SIDES = np.zeros((3, 0), np.int64)


def _find_waits(waits: Waits, among: IntArray, row: IntArray, begin: IntArray) -> IntArray:
    """Return the index, `among` those of some waits, of what begins on each row at each time (ns); NONE for nothing."""
    among = among[~mark_duplicates(waits.row[among], waits.begin[among])]
    at = find_rows([waits.row[among], waits.begin[among]], [row, begin])
    return np.where(at >= 0, np.append(among, NONE)[at], NONE)


# ---- what held kernels -----------------------------------------------------------------------------------------------


class Links:
    """What held kernels over ranks: the nearest such kernel on the way back, as an index of `Waits`; NONE for none."""

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
        """Add the links of a report in which the device was late with the operations `last`, and kernels `late` so."""
        own, other = find_ended(report, operations, operations.place, operations.begin)
        before = np.where(own >= 0, own, other)
        launch = launches.find(operations.place, operations.begin)
        sent = np.append(launches.sent, np.iinfo(np.int64).max // 2)[launch]
        before[~(operations.is_node | (operations.begin - sent > PROMPT_NS))] = NONE
        self.connect(rows[operations.place], operations.begin, before, late, last)

    def connect(self, row: IntArray, begin: IntArray, before: IntArray, late: IntArray, last: IntArray) -> None:
        """Add the links of operations: row, begin (ns) and index of the one that each had waited for, NONE for none.

        `late` kernels were late with the operations `last`.
        """
        at = _find_waits(self._waits, self._list_on_rows(row), row, begin)
        nearest = _find_nearest(np.argsort(begin, kind="stable"), before, at)
        has = at >= 0
        self.previous[at[has]] = nearest[has]
        self.held_by[late] = np.where(at[last] >= 0, at[last], nearest[last])

    def _list_on_rows(self, row: IntArray) -> IntArray:
        """Return the indices of the waits on some rows: waits are ordered by row."""
        rows = np.unique(row)
        low, high = (np.searchsorted(self._waits.row, rows, side) for side in ("left", "right"))
        return _list_indices(low, high - low)


def _list_indices(first: IntArray, count: IntArray) -> IntArray:
    """Return first[i] .. first[i] + count[i] - 1 of each i, one after the other."""
    return np.arange(count.sum()) + np.repeat(first - np.cumsum(count) + count, count)


@compiled
def _find_nearest(by_begin: IntArray, before: IntArray, at: IntArray) -> IntArray:
    """Return `at` of the nearest operation on the way back from each one that has it; NONE if none has."""
    nearest = np.full(before.size, NONE, np.int64)
    for i in by_begin:
        k = before[i]
        if k >= 0:
            nearest[i] = at[k] if at[k] >= 0 else nearest[k]
    return nearest


# ---- the way back ----------------------------------------------------------------------------------------------------


def trace_origins(
    job: Job, waits: Waits, instance: IntArray, begin: IntArray, lateness: IntArray, task: IntArray, links: Links | None
) -> IntArray:
    """Return the index of the late kernel at the end of the chain of each late one; NONE without `links`.

    Arguments as of `find_origins`.
    """
    if links is None or (links.held_by < 0).all():
        return np.full(begin.size, NONE, np.int64)
    who = np.flatnonzero(instance >= 0)
    waiters = make_lists(instance[who], job.whole.task_of_row[waits.row[who]].astype(np.int64), begin.size)
    late = LateOnes(begin, lateness, task, waiters)
    return find_origins(waits, instance, late, links, list_partners(job, waits))


class LateOnes(NamedTuple):
    """n late kernels and calls: begin and lateness (ns), task, and the tasks that waited for each."""

    begin: IntArray
    lateness: IntArray
    task: IntArray
    waiters: Lists


def find_origins(waits: Waits, instance: IntArray, late: LateOnes, links: Links, partners: Partners) -> IntArray:
    """Return the index of the late kernel at the end of the chain of each late one; NONE if no other delayed it.

    `instance`: for each of the waits, the index of the late kernel or call that it waited for, NONE for nobody's.
    """
    return _follow_delays(links.held_by, links.previous, waits.has_parts, waits.wait, instance, late, partners)


@compiled
def _follow_delays(
    held_by: IntArray,
    previous: IntArray,
    is_known: BoolArray,
    wait: IntArray,
    instance: IntArray,
    late: LateOnes,
    partners: Partners,
) -> IntArray:
    collective, message, (first_task, tasks) = partners
    begin, lateness, task, (first_waiter, waiters) = late
    origin = np.full(held_by.size, NONE, np.int64)
    for k in range(held_by.size):
        x, amount = k, max(1, lateness[k])
        waiting = waiters[first_waiter[k] : first_waiter[k + 1]]
        j, steps = held_by[k], 0
        while j >= 0 and is_known[j] and steps < _MOST_STEPS:
            steps += 1
            y = instance[j]
            number = collective[j] if collective[j] >= 0 else message[j]
            went_on = tasks[:0]
            if y >= 0 and collective[j] < 0:
                went_on = task[y : y + 1]
            elif number >= 0:
                went_on = tasks[first_task[number] : first_task[number + 1]]
            if _holds_all(went_on, waiting):
                break
            if 2 * wait[j] < amount:
                j = previous[j]
                continue
            if y < 0 or begin[y] >= begin[x]:
                break
            # What delayed the origin counts as far as it did not delay the rank that waited for it in other ways.
            origin[k], waiting, amount = y, task[x : x + 1], wait[j]
            x, j = y, held_by[y]
    return origin


@inlined
def _holds_all(tasks: IntArray, wanted: IntArray) -> bool:
    """Return whether all wanted tasks are among ascending ones."""
    for item in wanted:
        at = np.searchsorted(tasks, item)
        if at >= tasks.size or tasks[at] != item:
            return False
    return True
