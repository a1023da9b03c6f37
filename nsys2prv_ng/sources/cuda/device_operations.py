"""Places the operations of all tables on CUDA streams; finds the calls that launched them and the devices of contexts.

An operation that overlaps an earlier one is on a second row. Some records name device 0 whatever the device of their
context is. Operations name the call that launched them by its correlation id, which is unique within a process only. So
the key of a call within a report is (process, correlation id).

No operation starts before its launch: of 450,176 in real reports, each starts at least 3.4 us after its call began.
CUPTI converts the times of a GPU to the clock of its host, and the conversion may be wrong by hundreds of us
(attention-gym issue 487): then most of the operations that find their GPU idle start too early. Single records may be
corrupt, and start seconds before their launch (pytorch issue 192021). A stream works in order. So an operation has
ended if a later one of its stream has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nsys2prv_ng.arrays.groups import map_unambiguous
from nsys2prv_ng.arrays.row_keys import encode_rows, find_distinct_rows, find_rows, mark_duplicates
from nsys2prv_ng.arrays.types import BoolArray, IntArray, find_most_at, pick
from nsys2prv_ng.intervals.nesting import assign_lanes, find_innermost
from nsys2prv_ng.report.database import NULL, Columns, Table
from nsys2prv_ng.report.metadata import PID_MASK, get_process
from nsys2prv_ng.sources.shared.reasons import AFTER_CAPTURE, BEFORE_LAUNCH, NO_STREAM, find_unsound_times, lacks_time
from nsys2prv_ng.sources.shared.report_reader import ReportReader
from nsys2prv_ng.sources.shared.source import Result
from nsys2prv_ng.text.formatting import format_time
from nsys2prv_ng.value_class import ValueClass

RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
MEMCPY = "CUPTI_ACTIVITY_KIND_MEMCPY"
MEMSET = "CUPTI_ACTIVITY_KIND_MEMSET"
DECOMPRESSION = "CUPTI_ACTIVITY_KIND_MEM_DECOMPRESS"
GRAPH = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
TABLES = (KERNEL, MEMCPY, MEMSET, DECOMPRESSION, GRAPH)
"""Tables of what runs on GPUs."""
HOST_FUNCTION = "CUPTI_ACTIVITY_KIND_GRAPH_HOST_NODE_AND_HOST_LAUNCH"
"""Table of what streams run on hosts."""

COLUMNS = ("start", "end", "globalPid", "deviceId", "contextId", "streamId")
"""Columns that every table of device operations has."""


class DeviceOperations(ValueClass):
    """The n operations of a report: the rows of all its tables, one table after the other.

    `columns`: the columns of the tables that the report has, by name. `accounts`: the number of rows of each table, and
    of dropped ones. `place`: the place of each operation; -1 if it is dropped. `call`: index of the call that launched
    it, of `read_recorded_calls`; -1 if none was recorded.
    """

    columns: dict[str, Columns]
    accounts: dict[str, Result] = field(default_factory=dict)
    place: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))
    call: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))

    def stack(self, name: str) -> IntArray:
        """Return a column of all operations; 0 for the operations of tables without it."""
        parts = [columns.numbers.get(name, np.zeros(columns.rows, np.int64)) for columns in self.columns.values()]
        return np.concatenate([np.zeros(0, np.int64), *parts])

    def spread(self, value_of_table: Mapping[str, int]) -> IntArray:
        """Return the value of the table of each operation; 0 for tables without one."""
        rows = [columns.rows for columns in self.columns.values()]
        return np.repeat(np.array([value_of_table.get(table, 0) for table in self.columns], np.int64), rows)

    def take(self, table: str, column: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the part of a column of all operations that belongs to a table, as a view."""
        rows = [columns.rows for columns in self.columns.values()]
        parts = np.split(column, np.cumsum(rows))
        return dict(zip(self.columns, parts, strict=False)).get(table, column[:0])


def select_operations(
    reader: ReportReader, result: Result, table: str
) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """Count the rows of a table; return (rows that can be shown, place of each, starts in ns, ends in ns)."""
    operations, columns = reader.once(locate), reader.columns(table)
    result.add(operations.accounts.get(table, Result()))
    place = operations.take(table, operations.place)
    rows = np.flatnonzero(place >= 0)
    return rows, place[rows], columns["start"][rows], columns["end"][rows]


def locate(reader: ReportReader) -> DeviceOperations:
    """Find the places and launches of all operations, and correct their times. Call it through `reader.once`.

    All tables share the lanes of a stream, so that operations on a row never overlap. Host functions have lanes of
    their own: they do not move what runs on the GPU to other rows.
    """
    operations = DeviceOperations(
        {table: reader.columns(table) for table in (*TABLES, HOST_FUNCTION) if reader.has(table)}
    )
    start, end, pid, device, context, stream = map(operations.stack, COLUMNS)
    process, recorded = get_process(pid), reader.once(read_recorded_calls)
    operations.call = recorded.find(process, operations.stack("correlationId"))
    launched = pick(recorded.begin, operations.call, NULL)
    no_stream = (pid == NULL) | (device == NULL) | (context == NULL) | (stream == NULL)
    reasons = {NO_STREAM: no_stream, **find_unsound_times(start, end)}
    sound = np.flatnonzero(~np.logical_or.reduce(list(reasons.values())))
    on_host = operations.spread({HOST_FUNCTION: 1})
    on_gpu = sound[on_host[sound] == 0]
    errors = find_clock_errors(*(column[on_gpu] for column in (process, device, start, end, launched)))
    if errors:
        correct_clocks(reader, operations, errors)
        start, end = operations.stack("start"), operations.stack("end")
    reasons[BEFORE_LAUNCH] = (launched != NULL) & (start < launched - CLOCK_ERROR)
    if (end[sound] > reader.metadata.end).any():
        late = mark_overtaken(
            encode_rows(process[sound], device[sound], context[sound], stream[sound])[0],
            start[sound],
            end[sound],
            reader.metadata.end,
        )
        reasons[AFTER_CAPTURE][sound[late]] = True
    operations.place = np.full(start.size, -1, np.int64)
    is_sound = np.zeros(start.size, np.bool_)
    for table, columns in operations.columns.items():
        account = operations.accounts[table] = Result(read=columns.rows)
        sound = account.drop_rows({reason: operations.take(table, mask) for reason, mask in reasons.items()})
        operations.take(table, is_sound)[sound] = True
    key = (process[is_sound], device[is_sound], context[is_sound], stream[is_sound])
    lane = assign_lanes(encode_rows(*key, on_host[is_sound])[0], start[is_sound], end[is_sound])
    operations.place[is_sound] = reader.places.streams(*key, lane)
    return operations


# ---- times that cannot be, by the launches and by the order of streams ----------------------------------------------


CLOCK_ERROR = 10**6
"""What starts earlier before its launch than this (ns) is corrupt: clocks were wrong by hundreds of us (issue 487)."""
_FEWEST = 3
"""Fewest operations that prove an error of a clock, if they are early by the same time but for CLOCK_ERROR. A choice:
one or two may be corrupt alike."""
SLOWEST_FIRST_LAUNCH = 136_000
"""An operation that finds its GPU idle starts up to this time (ns) after its call: the fastest launch of each of 103
processes and GPUs in real reports took 3.4 to 136 us (m-big). So a clock may be behind by as much more than launches
prove."""


class ClockError(NamedTuple):
    """A GPU whose clock is behind that of its host.

    `behind`: by at least this time (ns), as its launches prove. `open`: how much more or less (ns) it may be.
    `early`: number of operations that start before their launch. `launched`: number of operations with a recorded
    launch.
    """

    process: int
    device: int
    behind: int
    open: int
    early: int
    launched: int


def find_clock_errors(
    process: IntArray, device: IntArray, begin: IntArray, end: IntArray, launched: IntArray
) -> list[ClockError]:
    """Return the GPUs of which most operations start before their launch, or most of those that find the GPU idle.

    A clock that drifts is behind by all times around the median of those that find the GPU idle, without a gap: the
    correction is the largest, and may be too large by twice what the median is below it, besides SLOWEST_FIRST_LAUNCH.
    What is beyond a gap of CLOCK_ERROR is corrupt.

    Columns of n operations, by process and CUDA ordinal. Times are ns; `launched` is when the call began, NULL if it
    was not recorded.
    """
    early = (launched != NULL) & (begin < launched)
    errors = []
    for gpu in find_distinct_rows(process[early], device[early])[1]:
        rows = np.flatnonzero((launched != NULL) & (process == gpu[0]) & (device == gpu[1]))
        rows = rows[np.argsort(launched[rows], kind="stable")]
        busy_until = np.append(NULL, np.maximum.accumulate(end[rows])[:-1])
        lead = launched[rows] - begin[rows]
        of_idle, leads = lead[busy_until <= launched[rows]], np.sort(lead[lead > 0])
        is_most = 2 * leads.size > rows.size or 2 * (of_idle > 0).sum() > of_idle.size
        usual = np.sort(of_idle[of_idle > 0]) if (of_idle > 0).any() else leads
        middle = int(usual[(usual.size - 1) // 2])
        is_far = leads[_FEWEST - 1 :] - leads[: 1 - _FEWEST] > CLOCK_ERROR
        far = np.append(np.flatnonzero(is_far) + _FEWEST - 1, leads.size)
        last = int(far[np.searchsorted(far, np.searchsorted(leads, middle), side="right")]) - 1
        if is_most and last >= _FEWEST - 1 and not is_far[last - _FEWEST + 1]:
            spread = SLOWEST_FIRST_LAUNCH + 2 * (int(leads[last]) - middle)
            errors.append(ClockError(gpu[0], gpu[1], int(leads[last]), spread, leads.size, rows.size))
    return errors


def mark_overtaken(stream: IntArray, begin: IntArray, end: IntArray, capture_end: int) -> BoolArray:
    """Mark the operations that end after the capture (ns) although a later one of their stream ended within it.

    `stream`: number of the stream of each of n operations, from 0.
    """
    late = end > capture_end
    last = find_most_at(begin[~late], stream[~late], int(stream.max(initial=-1)) + 1, NULL)
    return np.asarray(late & (begin < last[stream]), np.bool_)


def correct_clocks(reader: ReportReader, operations: DeviceOperations, errors: Sequence[ClockError]) -> None:
    """Move the operations of GPUs whose clocks are behind, for all sources, and warn of it."""

    def move(columns: Columns) -> Columns:
        moved = {name: columns[name] for name in ("start", "end")}
        process, device = get_process(columns["globalPid"]), columns["deviceId"]
        for error in errors:
            is_behind = (process == error.process) & (device == error.device)
            for name, time in moved.items():
                moved[name] = time + np.where(is_behind & ~lacks_time(time), error.behind, 0)
        return replace(columns, numbers={**columns.numbers, **moved})

    reader.change(TABLES, move)
    operations.columns = {table: reader.columns(table) for table in operations.columns}
    reader.metadata.gpu_clock_error = largest = max(error.open for error in errors)
    clocks = [
        f"GPU {reader.metadata.gpu(error.process, error.device).number} by {format_time(error.behind)}"
        f" ({error.early:,} of {error.launched:,} operations start before their launch)"
        for error in errors
    ]
    reader.metadata.warnings.append(
        f"clocks of GPUs are behind that of their host: {', '.join(clocks)}; corrected by as much, and waits below"
        f" {format_time(largest)} are not judged"
    )


# ---- devices of contexts ---------------------------------------------------------------------------------------------


CONTEXTS = Table("TARGET_INFO_CUDA_CONTEXT_INFO", ("processId", "contextId", "deviceId"))

_NO_CONTEXT = 0


def find_devices(reader: ReportReader, process: IntArray, context: IntArray, device: IntArray) -> IntArray:
    """Return CUDA's ordinal of the device of each of n records, by its process and context.

    A record without a context (static memory) belongs to the device of its process, if the process has only one. If the
    report does not contain the device of a context, the ordinal is the recorded one.
    """
    contexts = reader.columns(CONTEXTS.name)
    pid = process & PID_MASK
    pids, context_devices = contexts["processId"], contexts["deviceId"]
    at = find_rows([pids, contexts["contextId"]], [pid, context])

    single = map_unambiguous(zip(pids.tolist(), context_devices.tolist(), strict=True))
    single_at = find_rows([np.array([*single], np.int64)], [pid])
    single_devices = np.array([*single.values()], np.int64)

    corrected: IntArray = device.copy()
    corrected[at >= 0] = context_devices[at[at >= 0]]
    has_no_context = (at < 0) & (context == _NO_CONTEXT) & (single_at >= 0)
    corrected[has_no_context] = single_devices[single_at[has_no_context]]
    return corrected


# ---- calls that launched operations ----------------------------------------------------------------------------------


CALLS = Table(RUNTIME, ("start", "end", "globalTid"), {"correlationId": NULL})


class LaunchCalls(NamedTuple):
    """n calls with a correlation id: process, id, start, end (ns; NULL if a call has no end), thread and row."""

    process: IntArray
    correlation: IntArray
    begin: IntArray
    end: IntArray
    global_tid: IntArray
    row: IntArray

    def find(self, process: IntArray, correlation: IntArray) -> IntArray:
        """Return the index of the call for each pair of process and correlation id; -1 if no call was recorded."""
        return find_rows([self.process, self.correlation], [process, correlation])

    def find_ranges(self, call: IntArray, tid: IntArray, begin: IntArray, end: IntArray) -> IntArray:
        """Return the innermost range in which each of n calls (indices, -1 for none) started; -1 without one.

        The ranges, by thread, start and end (ns), nest on each thread and are sorted by thread and start.
        """
        found, known = np.full(call.size, -1, np.int64), np.flatnonzero(call >= 0)
        thread, time = self.global_tid[call[known]], self.begin[call[known]]
        order = np.lexsort((time, thread))
        found[known[order]] = find_innermost(tid, begin, end, thread[order], time[order]).innermost
        return found


def compute_queue_delays(reader: ReportReader, rows: IntArray) -> IntArray:
    """Return the time (ns) from the end of the call that launched each kernel (a row) to the kernel's start.

    This is the definition of NVIDIA's cuda_kern_exec_trace. The time is NULL for a kernel that started before its call
    ended, because it did not wait, and for a kernel without a recorded call.
    """
    operations = reader.once(locate)
    call = operations.take(KERNEL, operations.call)[rows]
    begin = reader.columns(KERNEL)["start"][rows]
    launched = pick(reader.once(read_recorded_calls).end, call, NULL)
    return np.where((launched != NULL) & (launched <= begin), begin - launched, NULL)


def read_recorded_calls(reader: ReportReader) -> LaunchCalls:
    """Return the calls of a report. Call it through `reader.once`."""
    columns = reader.columns(RUNTIME)
    if "correlationId" not in columns.numbers:  # no chosen source needs the calls otherwise
        columns = reader.read(CALLS)
    correlation, tid, begin = columns["correlationId"], columns["globalTid"], columns["start"]
    end = columns["end"]
    # A call that the trace cannot show is not a reference to measure from. If only its end is missing, its start is.
    unsound = find_unsound_times(begin, np.where(end == NULL, begin, end)).values()
    rows = np.flatnonzero((correlation != NULL) & (tid != NULL) & ~np.logical_or.reduce(list(unsound)))
    rows = rows[np.argsort(begin[rows], kind="stable")]
    process = get_process(tid[rows])
    # If calls share an id, the outermost call started first.
    first = ~mark_duplicates(process, correlation[rows])
    rows = rows[first]
    return LaunchCalls(process[first], correlation[rows], begin[rows], end[rows], tid[rows], rows)
