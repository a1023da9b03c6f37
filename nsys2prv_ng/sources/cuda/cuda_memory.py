"""Reads CUDA memory: allocations and frees on the threads that requested them, and the level, the memory in use.

Reports list memory that was allocated before the capture at time 0. It is part of the level from the start, but not an
event, because nothing happened at that time. The level of a GPU counts all processes on it, over all reports, so it is
computed in the join. It covers the memory in the reports, but not the memory of the driver or of other programs.

An allocation has its lifetime, if the report shows its free. What is on a GPU has the GPU's number, unless it is a free
that changes no level.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from nsys2prv_ng import source_names
from nsys2prv_ng.arrays.pick import pick
from nsys2prv_ng.arrays.row_keys import find_distinct_rows, find_starts
from nsys2prv_ng.arrays.types import BoolArray, IntArray
from nsys2prv_ng.objects.tree import ObjectTree
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver.load_cost import LoadCost
from nsys2prv_ng.records.columns import Pair, Records, make_events
from nsys2prv_ng.report.database import NULL, Columns, Table
from nsys2prv_ng.report.metadata import get_main_thread, get_process
from nsys2prv_ng.sources.cuda.device_operations import CALLS, CONTEXTS, find_devices, read_recorded_calls
from nsys2prv_ng.sources.shared import reasons
from nsys2prv_ng.sources.shared.report_reader import ReportReader
from nsys2prv_ng.sources.shared.source import EventRows, JoinInput, JoinResult, Result, Source

USAGE = "CUDA_GPU_MEMORY_USAGE_EVENTS"
TABLE = Table(
    USAGE,
    ("start", "globalPid", "deviceId", "bytes", "memKind", "memoryOperationType"),
    {"address": NULL, "correlationId": NULL, "contextId": NULL},
)

# ENUM_CUDA_DEV_MEM_EVENT_OPER and ENUM_CUDA_MEM_KIND of the export.
_ALLOCATION, _FREE = 0, 1
_HOST_KINDS = (0, 1)
_UNKNOWN_KIND = 7

LEVEL = "cuda_memory_level"


class MemoryChanges(NamedTuple):
    """n changes of the memory in use: place, CUPTI's kind of memory, time (ns), bytes.

    `unknown`: the number of frees that change nothing, because the allocation is not in the report.
    """

    place: IntArray
    kind: IntArray
    time: IntArray
    bytes: IntArray
    unknown: int


def read(reader: ReportReader) -> Result:
    """Return a point for each allocation and free since the capture started, and leave the changes for `join`."""
    columns = reader.columns(USAGE)
    result = Result(read=columns.rows)
    allocation, size = _match_frees(columns)
    rows = result.drop_rows(
        {
            reasons.NO_PROCESS: columns["globalPid"] == NULL,
            reasons.NO_TIME: reasons.lacks_time(columns["start"]),
            reasons.NO_MEMORY_CHANGE: ~np.isin(columns["memoryOperationType"], (_ALLOCATION, _FREE)),
            reasons.NO_BYTES: size == NULL,
        }
    )
    if not rows.size:
        return result
    is_known = (columns["memKind"] >= 0) & (columns["memKind"] < len(types.MEMORY_LEVELS))
    kind = np.where(is_known, columns["memKind"], _UNKNOWN_KIND)
    gpu, is_unknown = _find_gpus(reader, columns, rows, kind), _mark_unknown_frees(columns, allocation)
    result.join_data = _collect_changes(
        reader, columns, rows[~is_unknown[rows]], kind, allocation, size, gpu, int(is_unknown[rows].sum())
    )

    rows = rows[result.drop_rows({reasons.BEFORE_CAPTURE: columns["start"][rows] == 0})]
    labels = reader.labels
    is_free = columns["memoryOperationType"][rows] == _FREE
    handles = np.where(is_free, labels.handle(types.FREED_BYTES), labels.handle(types.ALLOCATED_BYTES))
    lifetime = _measure_lifetimes(columns, allocation)[rows]
    pairs = [
        Pair(handles, size[rows]),
        Pair(labels.handle(types.ALLOCATION_KIND), kind[rows] + 1),
        Pair(labels.handle(types.ALLOCATION_LIFETIME), lifetime, lifetime != NULL),
        Pair(labels.handle(types.ALLOCATION_GPU), gpu[rows], (gpu[rows] != NULL) & ~is_unknown[rows]),
    ]
    place = reader.places.threads(_find_threads(reader, columns, rows), application=True)
    result.records.append(make_events(place, columns["start"][rows], pairs))
    return result


def _match_frees(columns: Columns) -> tuple[IntArray, IntArray]:
    """Return (row of the allocation that each free undoes, or -1 if the report has none; bytes of each row).

    A free undoes the last allocation at its address, unless that was freed before. A free without bytes has the bytes
    of its allocation. What happened before the capture has the time 0 and may be in any order: correlation ids, which
    rise with each call, show the order of rows with equal times.
    """
    allocation = np.full(columns.rows, -1, np.int64)
    process, address = get_process(columns["globalPid"]), columns["address"]
    order = np.lexsort((columns["correlationId"], columns["start"], address, process))
    is_free = columns["memoryOperationType"] == _FREE
    before, after = order[:-1], order[1:]
    same = (process[before] == process[after]) & (address[before] == address[after]) & (address[after] != NULL)
    undone = same & is_free[after] & (columns["memoryOperationType"][before] == _ALLOCATION)
    allocation[after[undone]] = before[undone]

    size = columns["bytes"].copy()
    filled = (allocation >= 0) & ((size == NULL) | (size == 0))
    size[filled] = size[allocation[filled]]
    return allocation, size


def _mark_unknown_frees(columns: Columns, allocation: IntArray) -> BoolArray:
    """Mark the frees that change nothing, because their allocation is not in the report or was freed before."""
    is_free = columns["memoryOperationType"] == _FREE
    return np.asarray(is_free & (allocation < 0) & (columns["address"] != NULL), np.bool_)


def _measure_lifetimes(columns: Columns, allocation: IntArray) -> IntArray:
    """Return the time (ns) from each allocation to its free; NULL for frees, and without a free in the report."""
    start = columns["start"]
    lifetime = np.full(columns.rows, NULL, np.int64)
    free = np.flatnonzero((allocation >= 0) & ~reasons.lacks_time(start))
    lifetime[allocation[free]] = start[free] - start[allocation[free]]
    return lifetime


def _find_gpus(reader: ReportReader, columns: Columns, rows: IntArray, kind: IntArray) -> IntArray:
    """Return the number in nsys of the GPU that each row's memory is on; NULL on the host, and for other rows."""
    gpu = np.full(columns.rows, NULL, np.int64)
    rows = rows[~np.isin(kind[rows], _HOST_KINDS)]
    process = get_process(columns["globalPid"][rows])
    device = find_devices(reader, process, columns["contextId"][rows], columns["deviceId"][rows])
    codes, pairs = find_distinct_rows(process, device)
    gpu[rows] = np.array([reader.metadata.gpu(*pair).number for pair in pairs], np.int64)[codes]
    return gpu


def _find_threads(reader: ReportReader, columns: Columns, rows: IntArray) -> IntArray:
    """Return the globalTid of the thread that made the call; without a recorded call, of the main thread."""
    process = get_process(columns["globalPid"][rows])
    main = get_main_thread(process)
    recorded = reader.once(read_recorded_calls)
    call = recorded.find(process, columns["correlationId"][rows])
    return np.where(call >= 0, pick(recorded.global_tid, call, NULL), main)


def _collect_changes(
    reader: ReportReader,
    columns: Columns,
    rows: IntArray,
    kind: IntArray,
    allocation: IntArray,
    size: IntArray,
    gpu: IntArray,
    unknown: int,
) -> MemoryChanges:
    """Return the changes of the level by these rows, each at the place of its GPU or process."""
    is_free = columns["memoryOperationType"] == _FREE
    undoes = allocation[rows] >= 0
    change = np.where(is_free[rows], -np.where(undoes, size[allocation[rows]], size[rows]), size[rows])

    place = np.empty(rows.size, np.int64)
    on_host = gpu[rows] == NULL
    host = get_process(columns["globalPid"][rows[on_host]])
    place[on_host] = reader.places.threads(get_main_thread(host), application=True)
    place[~on_host] = reader.places.devices(gpu[rows[~on_host]])
    for one_kind in np.unique(kind[rows]):
        reader.labels.declare(types.MEMORY_LEVELS[one_kind])
    return MemoryChanges(place, kind[rows], columns["start"][rows], change, unknown)


# ---- the level -------------------------------------------------------------------------------------------------------


def join(parts: Sequence[JoinInput], tree: ObjectTree) -> JoinResult:
    """Return the memory in use by kind, on each GPU and by each process on the host: an event at each change."""
    result = Result()
    rows, kinds, times, changes = [], [], [], []
    for part in parts:
        data: MemoryChanges | None = part.data
        if data is None:
            continue
        result.read += data.unknown + data.time.size
        result.drop(reasons.NO_ALLOCATION, data.unknown)
        rows.append(part.rows[data.place])
        kinds.append(data.kind)
        times.append(_move_into_windows(part.clock(data.time), part.windows))
        changes.append(data.bytes)
    if not rows:
        return JoinResult()
    records, merged = compute_levels(*(np.concatenate(column) for column in (rows, kinds, times, changes)))
    result.drop(reasons.SAME_TIME, merged)
    result.records.append(records)
    return JoinResult(accounts={LEVEL: result})


def _move_into_windows(times: IntArray, windows: Sequence[tuple[int, int]]) -> IntArray:
    """Return the times at which changes are shown. Changes outside the windows move to the start of the next window.

    So each window starts with the memory in use.
    """
    lows, highs = np.array(windows, np.int64).T
    following = np.minimum(np.searchsorted(highs, times, "left"), lows.size - 1)
    return np.maximum(times, lows[following])


def compute_levels(row: IntArray, kind: IntArray, time: IntArray, change: IntArray) -> tuple[Records, int]:
    """Return (events with the sum of all changes so far, in bytes, by row and kind; number of changes without one).

    If several changes of a row and kind have the same time, only the last one gets an event.
    """
    order = np.lexsort((time, kind, row))
    row, kind, time, change = row[order], kind[order], time[order], change[order]
    first = find_starts(row, kind)
    total = np.cumsum(change)
    level = total - np.repeat((total - change)[first], np.diff(first, append=row.size))
    last = np.append(find_starts(row, kind, time), row.size)[1:] - 1
    numbers = np.array([event_type.number for event_type in types.MEMORY_LEVELS], np.int64)
    return make_events(row[last], time[last], [Pair(numbers[kind[last]], level[last])]), row.size - last.size


SOURCE = Source(
    source_names.CUDA_MEMORY,
    "CUDA memory allocations",
    (TABLE, CONTEXTS, CALLS),
    read,
    join,
    MemoryChanges,
    counted_tables=(EventRows(USAGE, "globalPid"),),
    noun="allocations, frees",
    needed_by=("memory",),
    load=LoadCost(events=0.1, pairs=0.1),
)
