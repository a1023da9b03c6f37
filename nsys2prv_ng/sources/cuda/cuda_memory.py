"""Reads CUDA memory: allocations and frees on the threads that requested them, and the level, the memory in use.

Reports list memory that was allocated before the capture at time 0. It is part of the level from the start, but not an
event, because nothing happened at that time. The level of a GPU counts all processes on it, over all reports, so it is
computed in the join. It covers the memory in the reports, but not the memory of the driver or of other programs.

An allocation has its lifetime, if the report shows its free. What is on a GPU has the GPU's number, unless it is a free
that changes no level.

Page faults of unified memory are on the GPU, by access, or on the process, by function. GPU faults come in groups that
overlap in time, so each group is a point at its start, with its duration. For a CPU fault the report contains the
process but not the thread, so it is shown on the main thread. The migrations that follow are copies.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, NamedTuple

import numpy as np

from nsys2prv_ng import source_names
from nsys2prv_ng.arrays.row_keys import find_starts
from nsys2prv_ng.arrays.types import Index, IntArray, PlaceColumn, pick
from nsys2prv_ng.objects.tree import ObjectTree
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver.load_cost import LoadCost
from nsys2prv_ng.paraver.value_tables import ACCESSES
from nsys2prv_ng.records.columns import Pair, Records, make_events
from nsys2prv_ng.report.database import NULL, Columns, Table
from nsys2prv_ng.report.metadata import get_main_thread, get_process
from nsys2prv_ng.sources.cuda.device_operations import CALLS, CONTEXTS, find_devices, read_recorded_calls
from nsys2prv_ng.sources.shared import reasons
from nsys2prv_ng.sources.shared.report_reader import ReportReader, make_id_pair, make_number_pair
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

    place: PlaceColumn
    kind: Annotated[IntArray, Index(len(types.MEMORY_LEVELS))]
    time: IntArray
    bytes: IntArray
    unknown: int


def read(reader: ReportReader) -> Result:
    """Return a point for each allocation and free since the capture started, and leave the changes for `join`."""
    columns = reader.columns(USAGE)
    result = Result(read=columns.rows)
    start, operation, kind = columns["start"], columns["memoryOperationType"], columns["memKind"]
    allocation, size = _match_frees(columns)
    rows = result.drop_rows(
        {
            reasons.NO_PROCESS: columns["globalPid"] == NULL,
            **reasons.find_unsound_points(start),
            reasons.NO_MEMORY_CHANGE: ~np.isin(operation, (_ALLOCATION, _FREE)),
            reasons.NO_BYTES: size == NULL,
        }
    )
    if not rows.size:
        return result
    kind = np.where((kind >= 0) & (kind < len(types.MEMORY_LEVELS)), kind, _UNKNOWN_KIND)
    process, is_free = get_process(columns["globalPid"]), operation == _FREE
    gpu = _find_gpus(reader, columns, rows[~np.isin(kind[rows], _HOST_KINDS)])
    # A free changes nothing if its allocation is not in the report or was freed before.
    is_unknown = is_free & (allocation < 0) & (columns["address"] != NULL)
    changed = rows[~is_unknown[rows]]
    change = np.where(is_free, -np.where(allocation >= 0, size[allocation], size), size)[changed]
    place = _place_levels(reader, process[changed], gpu[changed])
    for one_kind in np.unique(kind[changed]):
        reader.labels.declare(types.MEMORY_LEVELS[one_kind])
    result.join_data = MemoryChanges(place, kind[changed], start[changed], change, int(is_unknown[rows].sum()))

    rows = rows[result.drop_rows({reasons.BEFORE_CAPTURE: start[rows] == 0})]
    labels = reader.labels
    handles = np.where(is_free[rows], labels.handle(types.FREED_BYTES), labels.handle(types.ALLOCATED_BYTES))
    lifetime = np.full(columns.rows, NULL, np.int64)
    free = np.flatnonzero((allocation >= 0) & ~reasons.lacks_time(start))
    lifetime[allocation[free]] = start[free] - start[allocation[free]]
    pairs = [
        Pair(handles, size[rows]),
        Pair(labels.handle(types.ALLOCATION_KIND), kind[rows] + 1),
        make_number_pair(labels, types.ALLOCATION_LIFETIME, lifetime[rows]),
        Pair(labels.handle(types.ALLOCATION_GPU), gpu[rows], (gpu[rows] != NULL) & ~is_unknown[rows]),
    ]
    recorded = reader.once(read_recorded_calls)
    call = recorded.find(process[rows], columns["correlationId"][rows])
    thread = np.where(call >= 0, pick(recorded.global_tid, call, NULL), get_main_thread(process[rows]))
    result.records.append(make_events(reader.places.threads(thread, application=True), start[rows], pairs))
    return result


def _match_frees(columns: Columns) -> tuple[IntArray, IntArray]:
    """Return (row of the allocation that each free undoes, or -1 if the report has none; bytes of each row).

    A free undoes the last allocation at its address, unless that was freed before. A free without bytes has the bytes
    of its allocation. What happened before the capture has the time 0 and may be in any order: correlation ids, which
    rise with each call, show the order of rows with equal times.
    """
    allocation = np.full(columns.rows, -1, np.int64)
    process, address, operation = get_process(columns["globalPid"]), columns["address"], columns["memoryOperationType"]
    order = np.lexsort((columns["correlationId"], columns["start"], address, process))
    before, after = order[:-1], order[1:]
    same = (process[before] == process[after]) & (address[before] == address[after]) & (address[after] != NULL)
    undone = same & (operation[after] == _FREE) & (operation[before] == _ALLOCATION)
    allocation[after[undone]] = before[undone]

    size = columns["bytes"].copy()
    filled = (allocation >= 0) & ((size == NULL) | (size == 0))
    size[filled] = size[allocation[filled]]
    return allocation, size


def _find_gpus(reader: ReportReader, columns: Columns, rows: IntArray) -> IntArray:
    """Return the key of the GPU that the memory of `rows` is on; NULL for all other rows."""
    gpu = np.full(columns.rows, NULL, np.int64)
    process = get_process(columns["globalPid"][rows])
    device = find_devices(reader, process, columns["contextId"][rows], columns["deviceId"][rows])
    gpu[rows] = reader.find_gpus(process, device)
    return gpu


def _place_levels(reader: ReportReader, process: IntArray, gpu: IntArray) -> IntArray:
    """Return the place of the level of each of n changes: its GPU, or on the host (NULL) its process."""
    place = np.empty(gpu.size, np.int64)
    on_host = gpu == NULL
    place[on_host] = reader.places.threads(get_main_thread(process[on_host]), application=True)
    place[~on_host] = reader.places.devices(gpu[~on_host])
    return place


# ---- the level -------------------------------------------------------------------------------------------------------


def join(parts: Sequence[JoinInput], tree: ObjectTree) -> JoinResult:
    """Return the memory in use by kind, on each GPU and by each process on the host: an event at each change."""
    result = Result()
    changes = []
    for part in parts:
        data: MemoryChanges | None = part.data
        if data is not None:
            result.read += data.unknown + data.time.size
            result.drop(reasons.NO_ALLOCATION, data.unknown)
            time = _move_into_windows(part.clock(data.time), part.windows)
            changes.append((part.rows[data.place], data.kind, time, data.bytes))
    if not changes:
        return JoinResult()
    records, merged = _compute_levels(*(np.concatenate(columns) for columns in zip(*changes, strict=True)))
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


def _compute_levels(row: IntArray, kind: IntArray, time: IntArray, change: IntArray) -> tuple[Records, int]:
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


# ---- page faults -----------------------------------------------------------------------------------------------------


GPU_FAULTS = Table(
    "CUDA_UM_GPU_PAGE_FAULT_EVENTS",
    ("start", "end", "globalPid", "deviceId"),
    {"address": NULL, "numberOfPageFaults": NULL, "faultAccessType": 0},
)
CPU_FAULTS = Table(
    "CUDA_UM_CPU_PAGE_FAULT_EVENTS", ("start", "globalPid"), {"address": NULL, "CpuInstruction": NULL, "module": NULL}
)


def read_page_faults(reader: ReportReader) -> Result:
    """Return a point for each CPU fault and each group of GPU faults."""
    columns, labels = reader.columns(GPU_FAULTS.name), reader.labels
    result = Result(read=columns.rows)
    begin, end, pid, device = (columns[name] for name in GPU_FAULTS.required)
    no_device = (pid == NULL) | (device == NULL)
    rows = result.drop_rows({reasons.NO_PROCESS_OR_DEVICE: no_device, **reasons.find_unsound_times(begin, end)})
    access, faults, address = (columns[name][rows] for name in ("faultAccessType", "numberOfPageFaults", "address"))
    pairs = [
        Pair(labels.handle(types.GPU_PAGE_FAULT), np.where(np.isin(access + 1, list(ACCESSES)), access + 1, 1)),
        make_number_pair(labels, types.GPU_PAGE_FAULTS, faults),
        Pair(labels.handle(types.GPU_PAGE_FAULT_TIME), end[rows] - begin[rows]),
        make_number_pair(labels, types.GPU_PAGE_FAULT_ADDRESS, address),
    ]
    result.records.append(
        make_events(reader.places.devices(reader.find_gpus(get_process(pid[rows]), device[rows])), begin[rows], pairs)
    )

    columns = reader.columns(CPU_FAULTS.name)
    result.read += columns.rows
    begin, pid = columns["start"], columns["globalPid"]
    rows = result.drop_rows({reasons.NO_PROCESS: pid == NULL, **reasons.find_unsound_points(begin)})
    place = reader.places.threads(get_main_thread(get_process(pid[rows])), application=True)
    # `CpuInstruction` is the id of the function's name. If it is missing, the module may be known.
    function, module, address = (columns[name][rows] for name in ("CpuInstruction", "module", "address"))
    pairs = [
        make_id_pair(reader, types.CPU_PAGE_FAULT, np.where(function == NULL, module, function)),
        make_number_pair(labels, types.CPU_PAGE_FAULT_ADDRESS, address),
    ]
    result.records.append(make_events(place, begin[rows], pairs))
    return result


PAGE_FAULTS = Source(
    source_names.UNIFIED_MEMORY,
    "Page faults of unified memory",
    (GPU_FAULTS, CPU_FAULTS),
    read_page_faults,
    counted_tables=(EventRows(GPU_FAULTS.name), EventRows(CPU_FAULTS.name, "globalPid")),
    noun="faults",
    needed_by=(),
)
