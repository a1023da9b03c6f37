"""Checks well-formed records: their objects, CPUs and times, and their relation to other records.

The kernels work on the columns of `trace_lines`: columns[f] is field f of the records, columns[LINE] their line.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nsys2prv_ng.arrays.types import Int32Table, IntArray, IntTable
from nsys2prv_ng.paraver.checker.trace_lines import COMMUNICATION, LINE, RECORD, STATE, TYPE, VALUE, Records, note
from nsys2prv_ng.paraver.checker.trace_lines import RULES as LINE_RULES
from nsys2prv_ng.runtime.jit import compiled

(
    NO_OBJECT, CPU_UNKNOWN, CPU_NOT_OF_NODE, CPU_ZERO, CPU_WITHOUT_RESOURCES,
    TIME_TOO_LARGE, AFTER_END, OUT_OF_ORDER, END_BEFORE_BEGIN, STATES_OVERLAP, TYPE_RANGE, STATE_RANGE, NEVER_OPENED,
    RECEIVE_BEFORE_SEND,
) = range(LINE_RULES, LINE_RULES + 14)  # fmt: skip
RULES = LINE_RULES + 14

RECORD_RULES = {
    NO_OBJECT: "object {0}.{1}.{2} (application.task.thread) is not in the header: Paraver drops the line",
    CPU_UNKNOWN: "CPU {0} is not in the header, which has {1}: Paraver drops the line",
    CPU_NOT_OF_NODE: "CPU {0} is not on the node of task {1}, whose CPUs are {2} to {3}: Paraver drops the line",
    CPU_ZERO: "CPU 0: the record is not shown at the levels of nodes and CPUs",
    CPU_WITHOUT_RESOURCES: "CPU {0}, but the header has no resources: Paraver drops the line",
    TIME_TOO_LARGE: "time {0} is not below 2^53: Paraver rounds it",
    AFTER_END: "time {0} is after the end of the trace, {1}",
    OUT_OF_ORDER: "time {0} comes after time {1}: the records are not in order of time",
    END_BEFORE_BEGIN: "the state begins at {0} and ends before that, at {1}",
    STATES_OVERLAP: "the state begins at {0}, before another one on thread {2}.{3} (task.thread) ends at {1}",
    TYPE_RANGE: "event type {0} is not between 1 and 2147483647",
    STATE_RANGE: "state {0} is above 2147483647",
    NEVER_OPENED: "value 0 ends an interval of event type {0} on {1}.{2}.{3}, where none is open",
}
_UNSENT = "received before it was sent: sent at {0}, received at {1} (physically at {2}, {3})"
RECORD_WARNINGS = {RECEIVE_BEFORE_SEND: _UNSENT}

_KIND = 1
_TIME_LIMIT = 2**53
_INT32_MAX = 2**31 - 1


class Objects(NamedTuple):
    """Objects of the header.

    first_task (applications + 1), first_row (tasks + 1): first task of each application, and first row of each task.
    node_cpus (tasks, 2): first and last CPU of the task's node. cpus: number of all CPUs.
    """

    first_task: IntArray
    first_row: IntArray
    node_cpus: IntTable
    cpus: int


class Intervals(NamedTuple):
    """Open intervals (rows, interval types): their number, and the line that opened the outermost one."""

    depth: Int32Table
    opened_at: IntTable


@compiled
def find_rows(columns: IntTable, sender: bool, objects: Objects, notes: IntTable, rows: IntArray) -> None:
    """Set rows[i] to the row (from 0) of record i, or -1, and check its CPU.

    Without `sender`, do so for the receivers of communications only.
    """
    first_task, first_row, total_cpus = objects.first_task, objects.first_row, objects.cpus
    at = 2 if sender else 8
    for i in range(rows.size):
        if not sender and columns[_KIND, i] != COMMUNICATION:
            continue
        line = columns[LINE, i]
        cpu, application = columns[at, i], columns[at + 1, i]
        task, thread = columns[at + 2, i], columns[at + 3, i]
        row = np.int64(-1)
        node_first, node_last = np.int64(1), np.int64(total_cpus)
        if 1 <= application < first_task.size and 1 <= task <= first_task[application] - first_task[application - 1]:
            index = first_task[application - 1] + task - 1
            node_first, node_last = objects.node_cpus[index, 0], objects.node_cpus[index, 1]
            if 1 <= thread <= first_row[index + 1] - first_row[index]:
                row = first_row[index] + thread - 1
        rows[i] = row
        if row < 0:
            note(notes, NO_OBJECT, line, application, task, thread)
        if total_cpus == 0:
            if cpu != 0:
                note(notes, CPU_WITHOUT_RESOURCES, line, cpu)
        elif cpu == 0:
            note(notes, CPU_ZERO, line)
        elif cpu > total_cpus:
            note(notes, CPU_UNKNOWN, line, cpu, total_cpus)
        elif cpu < node_first or cpu > node_last:
            note(notes, CPU_NOT_OF_NODE, line, cpu, task, node_first, node_last)


@compiled
def check_times(columns: IntTable, previous: int, end_time: int, notes: IntTable) -> int:
    """Check that times are in order, in range and before the end of the trace (end_time, -1 if unknown).

    `previous` is the time of the record before these; return the time of the last one. Each record is compared with the
    record before it, so that a single late record counts once.
    """
    for i in range(columns.shape[1]):
        line, kind = columns[LINE, i], columns[_KIND, i]
        time = columns[6, i]
        if time < previous:
            note(notes, OUT_OF_ORDER, line, time, previous)
        previous = time
        last = time
        if kind == STATE:
            last = max(time, columns[7, i])
        elif kind == COMMUNICATION:
            last = max(max(time, columns[7, i]), max(columns[12, i], columns[13, i]))
            if columns[12, i] < time or columns[13, i] < columns[7, i]:
                note(notes, RECEIVE_BEFORE_SEND, line, time, columns[12, i], columns[7, i], columns[13, i])
        if last >= _TIME_LIMIT:
            note(notes, TIME_TOO_LARGE, line, last)
        elif last > end_time and end_time >= 0:
            note(notes, AFTER_END, line, last, end_time)
    return previous


@compiled
def check_states(columns: IntTable, rows: IntArray, state_end: IntArray, notes: IntTable) -> None:
    """Check that states end after their start and do not overlap on a row.

    state_end (rows) is the end of the last state of each row; it is updated.
    """
    for i in range(rows.size):
        if columns[_KIND, i] != STATE:
            continue
        line, begin, end, row = columns[LINE, i], columns[6, i], columns[7, i], rows[i]
        if columns[8, i] > _INT32_MAX:
            note(notes, STATE_RANGE, line, columns[8, i])
        if end < begin:
            note(notes, END_BEFORE_BEGIN, line, begin, end)
        elif row >= 0:
            if begin < state_end[row]:
                note(notes, STATES_OVERLAP, line, begin, state_end[row], columns[4, i], columns[5, i])
            state_end[row] = max(end, state_end[row])


@compiled
def check_pairs(records: Records, rows: IntArray, column: IntArray, intervals: Intervals, notes: IntTable) -> None:
    """Check that types are positive and fit 32 bits, and count open intervals.

    column (pairs): column of `intervals` for the type of each pair; -1 if it is not of an interval.
    """
    columns, pairs = records
    depth, opened_at = intervals
    for i in range(pairs.shape[1]):
        record, event_type, value = pairs[RECORD, i], pairs[TYPE, i], pairs[VALUE, i]
        line, row = columns[LINE, record], rows[record]
        if event_type < 1 or event_type > _INT32_MAX:
            note(notes, TYPE_RANGE, line, event_type)
        elif row < 0 or column[i] < 0:
            continue
        elif value != 0:
            if depth[row, column[i]] == 0:
                opened_at[row, column[i]] = line
            depth[row, column[i]] += 1
        elif depth[row, column[i]] == 0:
            application, task, thread = columns[3, record], columns[4, record], columns[5, record]
            note(notes, NEVER_OPENED, line, event_type, application, task, thread)
        else:
            depth[row, column[i]] -= 1
