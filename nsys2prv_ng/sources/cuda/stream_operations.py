"""Reads what CUDA streams run: kernels, memory operations, graphs and host functions; draws lines from launches to it.

NCCL kernels have a separate event type. Migrations of unified memory are copies with separate values, on the row of
stream 0, which the program cannot use. A graph is one interval if nsys traced it as a whole; if nsys traced its nodes
instead, these are kernels, copies and sets with the id of their node. Work of the decompression engine is a memory
operation: NVIDIA's recipes count it as GPU activity. No capture of it, or of host functions, was available: their
tables follow NVIDIA's documentation of the export.
"""

from __future__ import annotations

import re

import numpy as np

from nsys2prv_ng import source_names
from nsys2prv_ng.arrays.row_keys import encode_rows, mark_duplicates
from nsys2prv_ng.arrays.types import IntArray, pick, put
from nsys2prv_ng.intervals.step_functions import find_latest
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver.load_cost import LoadCost
from nsys2prv_ng.paraver.value_tables import MIGRATION_CAUSES
from nsys2prv_ng.records.columns import Pair, make_communications, make_events, make_intervals, select
from nsys2prv_ng.report.database import NULL, Columns, Table
from nsys2prv_ng.report.metadata import get_process
from nsys2prv_ng.sources.cuda import communication
from nsys2prv_ng.sources.cuda import device_operations as gpu
from nsys2prv_ng.sources.cuda.communication import find_classes, is_nccl, mark_communication
from nsys2prv_ng.sources.cuda.device_operations import DECOMPRESSION, GRAPH, HOST_FUNCTION, KERNEL, MEMCPY, MEMSET
from nsys2prv_ng.sources.shared import host_calls, reasons, report_reader
from nsys2prv_ng.sources.shared.report_reader import ReportReader, make_number_pair
from nsys2prv_ng.sources.shared.source import EventRows, Result, Source

GRAPH_COLUMNS = ("graphNodeId", "graphId")
"""Columns of device operations with the node and graph of an operation."""


def _read_graph_ids(reader: ReportReader, columns: Columns, rows: IntArray) -> list[Pair]:
    """Return the ids of the node and, if the export has them, of the graph of these device operations."""
    pairs = []
    for name, event_type in zip(GRAPH_COLUMNS, (types.GRAPH_NODE_ID, types.GRAPH_ID), strict=True):
        value = columns[name][rows]
        known = (value != NULL) & (value != 0)  # CUPTI writes 0 if there is no graph
        if known.any():
            pairs.append(Pair(reader.labels.handle(event_type), value, known))
    return pairs


# ---- kernels ---------------------------------------------------------------------------------------------------------


_KERNEL_ATTRIBUTES = {
    **dict(zip(("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ"), (*types.GRID, *types.BLOCK), strict=True)),
    "staticSharedMemory": types.STATIC_SHARED_MEMORY,
    "dynamicSharedMemory": types.DYNAMIC_SHARED_MEMORY,
    "localMemoryPerThread": types.LOCAL_MEMORY,
    "registersPerThread": types.REGISTERS,
    "correlationId": types.CORRELATION,
}
_ABI_TAG = re.compile(r"\[abi:\w+,\w+\]$")
"""What numba adds to the name of a function: a version, and a hash of its types and options."""
KERNEL_TABLE = Table(
    KERNEL, (*gpu.COLUMNS, "shortName", "demangledName"), dict.fromkeys((*_KERNEL_ATTRIBUTES, *GRAPH_COLUMNS), NULL)
)


def read_kernels(reader: ReportReader) -> Result:
    """Return an interval for each kernel, with its attributes at its start only."""
    columns, labels, result = reader.columns(KERNEL), reader.labels, Result()
    rows, place, begin, end = gpu.select_operations(reader, result, KERNEL)
    short_index, short = reader.names(columns["shortName"][rows])
    demangled_index, demangled = reader.names(columns["demangledName"][rows])
    nccl = np.array([is_nccl(name) for name in short], np.bool_)[short_index]
    handles = np.where(nccl, labels.handle(types.NCCL_KERNEL), labels.handle(types.KERNEL))
    shown = [_ABI_TAG.sub("", name) for name in short]
    index, names = (demangled_index, demangled) if reader.options.demangled_names else (short_index, shown)
    ids = np.zeros(rows.size, np.int64)
    for space, mask in ((types.KERNEL.names, ~nccl), (types.NCCL_KERNEL.names, nccl)):
        ids[mask] = report_reader.register_used(labels, space, names, index[mask])
    class_handle = labels.handle(types.KERNEL_CLASS)
    kernel_class = reader.once(gpu.locate).take(KERNEL, reader.once(find_classes))[rows]
    opening = [
        Pair(handles, ids),
        Pair(class_handle, kernel_class),
        *(make_number_pair(labels, event_type, columns[name][rows]) for name, event_type in _KERNEL_ATTRIBUTES.items()),
        *_read_graph_ids(reader, columns, rows),
    ]
    if source_names.DEVICE_ACTIVITY in reader.chosen:
        opening.append(make_number_pair(labels, types.QUEUE_DELAY, gpu.compute_queue_delays(reader, rows)))
    result.records.append(make_intervals(place, begin, end, opening, [handles, class_handle]))
    communicates = mark_communication(kernel_class) | nccl
    result.add_states(place, begin, end, np.where(communicates, types.GROUP_COMMUNICATION, types.RUNNING))
    return result


KERNELS = Source(
    source_names.KERNELS,
    "CUDA kernels",
    (KERNEL_TABLE,),
    read_kernels,
    counted_tables=(EventRows(KERNEL, "globalPid", device="deviceId"),),
    noun="kernels",
    needed_by=("gpus", "activity", "kernels", "nccl", "collectives", "waits", "efficiencies", "critical_path"),
    load=LoadCost(states=1, events=7, pairs=24, communications=1),
)


# ---- memory copies and sets ------------------------------------------------------------------------------------------


_MEMORY_KINDS = {
    MEMCPY: {"srcKind": types.MEMORY_SOURCE_KIND, "dstKind": types.MEMORY_DESTINATION_KIND},
    MEMSET: {"memKind": types.MEMORY_DESTINATION_KIND},
    DECOMPRESSION: {},
}
"""Event type of each column with a kind of memory, by table."""
_BYTES = {MEMCPY: "bytes", MEMSET: "bytes", DECOMPRESSION: "sourceBytes"}
_OPTIONAL = ("correlationId", *GRAPH_COLUMNS)
MEMCPY_TABLE = Table(
    MEMCPY,
    (*gpu.COLUMNS, "bytes", "copyKind"),
    {**dict.fromkeys((*_MEMORY_KINDS[MEMCPY], "migrationCause", *_OPTIONAL), NULL), **communication.DEVICES},
)
MEMSET_TABLE = Table(MEMSET, (*gpu.COLUMNS, "bytes"), dict.fromkeys((*_MEMORY_KINDS[MEMSET], *_OPTIONAL), NULL))
DECOMPRESSION_TABLE = Table(DECOMPRESSION, (*gpu.COLUMNS, "sourceBytes"), dict.fromkeys(_OPTIONAL, NULL))

_UNKNOWN_COPY = 17
_COPY_VALUES = np.array([_UNKNOWN_COPY, 5, 4, 7, 8, 9, 10, 11, 3, 12, 13, 14, 15, 16, _UNKNOWN_COPY], np.int64)
"""Value in the trace of each of CUPTI's copy kinds (ENUM_CUDA_MEMCPY_OPER of the export), and of all other kinds."""
_VALUES = {MEMCPY: _UNKNOWN_COPY, MEMSET: 6, DECOMPRESSION: 18}
_UNKNOWN_KIND = 8


def read_memory_operations(reader: ReportReader) -> Result:
    """Return an interval for each copy, set and decompression, with a class if it is communication.

    Bytes are closed too, because presets divide them by the time of the burst.
    """
    result, labels = Result(), reader.labels
    operation, size = labels.handle(types.MEMORY_OPERATION), labels.handle(types.MEMORY_BYTES)
    for table, kinds in _MEMORY_KINDS.items():
        columns = reader.columns(table)
        rows, *shown = gpu.select_operations(reader, result, table)
        sound = result.drop_rows({reasons.NO_BYTES: columns[_BYTES[table]][rows] == NULL})
        rows, place, begin, end = (column[sound] for column in (rows, *shown))
        value = np.full(rows.size, _VALUES[table], np.int64)
        if table == MEMCPY:
            kind = columns["copyKind"][rows]
            value = _COPY_VALUES[np.where((kind >= 0) & (kind < _COPY_VALUES.size), kind, -1)]
        opening = [Pair(operation, value), Pair(size, columns[_BYTES[table]][rows])]
        for name, event_type in kinds.items():
            kind = columns[name][rows]
            value = np.where((kind >= 0) & (kind < _UNKNOWN_KIND), kind + 1, _UNKNOWN_KIND)  # CUPTI counts from 0
            opening.append(Pair(labels.handle(event_type), value, kind != NULL))
        if table == MEMCPY:
            cause = columns["migrationCause"][rows] + 1
            opening.append(Pair(labels.handle(types.MIGRATION_CAUSE), cause, np.isin(cause, list(MIGRATION_CAUSES))))
        opening.append(make_number_pair(labels, types.CORRELATION, columns["correlationId"][rows]))
        opening += _read_graph_ids(reader, columns, rows)
        copy_class = reader.once(gpu.locate).take(table, reader.once(find_classes))[rows]
        for communicates in (False, True):
            at = np.flatnonzero(mark_communication(copy_class) == communicates)
            pairs, closing = select(opening, at), [operation, size]
            if communicates and at.size:
                closing.append(labels.handle(types.KERNEL_CLASS))
                pairs.append(Pair(closing[-1], copy_class[at]))
            result.records.append(make_intervals(place[at], begin[at], end[at], pairs, closing))
        result.add_states(place, begin, end, types.MEMORY_TRANSFER)
    return result


MEMORY_OPERATIONS = Source(
    source_names.MEMORY_OPERATIONS,
    "Memory copies and sets",
    (MEMCPY_TABLE, MEMSET_TABLE, DECOMPRESSION_TABLE, gpu.CALLS, communication.NVTX),
    read_memory_operations,
    counted_tables=tuple(EventRows(table, "globalPid", device="deviceId") for table in _MEMORY_KINDS),
    noun="copies, sets",
    needed_by=("copies",),
    load=LoadCost(states=1, events=7, pairs=15, communications=1),
)


# ---- graphs: launches traced as a whole, and the creation of graphs and nodes on host threads ------------------------


_LAUNCH_IDS = {"graphId": types.GRAPH_ID, "graphExecId": types.GRAPH_EXEC_ID, "correlationId": types.CORRELATION}
GRAPH_TABLE = Table(GRAPH, gpu.COLUMNS, dict.fromkeys(_LAUNCH_IDS, NULL))

_CREATION = ("start", "globalTid", "nameId")
_CREATION_IDS = {
    "graphId": types.GRAPH_ID,
    "graphExecId": types.GRAPH_EXEC_ID,
    "graphNodeId": types.GRAPH_NODE_ID,
    "originalGraphId": types.GRAPH_ORIGINAL_ID,
    "originalGraphNodeId": types.GRAPH_ORIGINAL_ID,
}
# Up to 2023 the table of graphs contained nodes: the ids of graphs came with the table of nodes.
_CREATION_TABLES = (
    Table("CUDA_GRAPH_EVENTS", _CREATION, dict.fromkeys(_CREATION_IDS, NULL)),
    Table("CUDA_GRAPH_NODE_EVENTS", _CREATION, dict.fromkeys(("graphNodeId", "originalGraphNodeId"), NULL)),
)


def read_graphs(reader: ReportReader) -> Result:
    """Return an interval for each launch of a graph, and a point for each created graph, executable graph and node."""
    result, labels = Result(), reader.labels
    columns = reader.columns(GRAPH)
    rows, place, begin, end = gpu.select_operations(reader, result, GRAPH)
    graphs, index = np.unique(columns["graphId"][rows], return_inverse=True)
    names = ["graph" if graph == NULL else f"graph {graph}" for graph in graphs]
    launch = report_reader.make_name_pair(labels, types.GRAPH_LAUNCH, index, names)
    ids = (make_number_pair(labels, event_type, columns[name][rows]) for name, event_type in _LAUNCH_IDS.items())
    result.records.append(make_intervals(place, begin, end, [launch, *ids], [launch.handle]))
    result.add_states(place, begin, end, types.RUNNING)
    for table in _CREATION_TABLES:
        columns = reader.columns(table.name)
        result.read += columns.rows
        time, thread = columns["start"], columns["globalTid"]
        rows = result.drop_rows({reasons.NO_THREAD: thread == NULL, **reasons.find_unsound_points(time)})
        pairs = [report_reader.make_id_pair(reader, types.GRAPH_CREATION, columns["nameId"][rows])]
        for name, event_type in _CREATION_IDS.items():
            if name in columns.numbers:
                pairs.append(make_number_pair(labels, event_type, columns[name][rows]))
        result.records.append(make_events(reader.places.threads(thread[rows], application=True), time[rows], pairs))
    return result


GRAPHS = Source(
    source_names.CUDA_GRAPHS,
    "CUDA graphs",
    (GRAPH_TABLE, *_CREATION_TABLES),
    read_graphs,
    counted_tables=(
        EventRows(GRAPH, "globalPid", device="deviceId"),
        *(EventRows(table.name, "globalTid") for table in _CREATION_TABLES),
    ),
    noun="launches, creations",
    load=LoadCost(events=1.5, pairs=3.5),
)


# ---- lines from launches ---------------------------------------------------------------------------------------------


LAUNCH_TABLES = (gpu.CALLS, KERNEL_TABLE, MEMCPY_TABLE, MEMSET_TABLE, DECOMPRESSION_TABLE, GRAPH_TABLE)
"""The tables of launch calls and of the operations that they launch."""
_TAGS = dict.fromkeys((KERNEL, GRAPH, HOST_FUNCTION), types.TAG_LAUNCH) | dict.fromkeys(_BYTES, types.TAG_COPY)


def draw_launch_lines(reader: ReportReader) -> Result:
    """Return a communication for each operation that a recorded call launched; one per stream for a graph's nodes."""
    operations = reader.once(gpu.locate)
    call = operations.call
    start, device, context, stream = map(operations.stack, ("start", "deviceId", "contextId", "streamId"))
    tag = operations.spread(_TAGS)
    copied = [np.maximum(operations.stack(column), 0) for column in sorted(set(_BYTES.values()))]
    size = np.where(tag == types.TAG_COPY, np.maximum(*copied), 0)
    result = Result(read=start.size)
    rows = result.drop_rows({reasons.NO_OPERATION: operations.place < 0, reasons.NO_CALL: call < 0})
    # All nodes of a graph have the id of its launch, whatever their kind: the first node on each stream gets the line,
    # and its first host function another one.
    rows = rows[np.argsort(start[rows], kind="stable")]
    on_host = operations.spread({HOST_FUNCTION: 1})
    later = mark_duplicates(call[rows], device[rows], context[rows], stream[rows], on_host[rows])
    rows = rows[result.drop_rows({reasons.SAME_LAUNCH: later})]
    recorded = reader.once(gpu.read_recorded_calls)
    for value in np.unique(tag[rows]):
        tagged = rows[tag[rows] == value]
        sender = reader.places.threads(recorded.global_tid[call[tagged]], application=True)
        ends = sender, recorded.begin[call[tagged]], operations.place[tagged], start[tagged]
        result.records.append(make_communications(*ends, size[tagged], int(value)))
    return result


LAUNCH_LINES = Source(
    source_names.LAUNCH_LINES,
    "Lines from launch calls to kernels, copies and graphs",
    LAUNCH_TABLES,
    draw_launch_lines,
    needed_tables=((gpu.CALLS.name,), gpu.TABLES),
)


# ---- host functions --------------------------------------------------------------------------------------------------


HOST_TABLE = Table(HOST_FUNCTION, gpu.COLUMNS, dict.fromkeys(_OPTIONAL, NULL))
CALLBACKS = Table("CUDA_HOST_CALLBACK", ("start", "end"), dict.fromkeys(("globalTid", "correlationId", "nameId"), NULL))


def read_host_functions(reader: ReportReader) -> Result:
    """Return an interval for each host function on its stream, and for each of their calls on the thread of CUDA."""
    result = host_calls.read_calls(reader, {CALLBACKS.name: types.HOST_FUNCTION_CALL})
    columns = reader.columns(HOST_FUNCTION)
    rows, place, begin, end = gpu.select_operations(reader, result, HOST_FUNCTION)
    pair = report_reader.make_id_pair(reader, types.HOST_FUNCTION, _find_function_names(reader, rows))
    correlation = make_number_pair(reader.labels, types.CORRELATION, columns["correlationId"][rows])
    opening = [pair, correlation, *_read_graph_ids(reader, columns, rows)]
    result.records.append(make_intervals(place, begin, end, opening, [pair.handle]))
    return result


def _find_function_names(reader: ReportReader, rows: IntArray) -> IntArray:
    """Return the id of the name of each host function (a row of HOST_TABLE): that of the call with its correlation id.

    All host functions of a graph have the id of its launch: of several calls, the last that started during the
    function counts. NULL if there is none.
    """
    columns, calls = reader.columns(HOST_FUNCTION), reader.columns(CALLBACKS.name)
    correlation = columns["correlationId"][rows]
    process = get_process(np.concatenate([calls["globalTid"], columns["globalPid"][rows]]))
    key = encode_rows(process, np.concatenate([calls["correlationId"], correlation]))[0]
    of_calls, of_functions = np.split(key, [calls.rows])
    call = find_latest(of_calls, calls["start"], of_functions, columns["end"][rows])
    during = (call >= 0) & (pick(calls["start"], call, NULL) >= columns["start"][rows])
    is_only = np.bincount(of_calls, minlength=key.size)[of_functions] == 1
    only = put(np.arange(calls.rows), of_calls, key.size)
    call = np.where(is_only, only[of_functions], np.where(during, call, -1))
    return pick(calls["nameId"], np.where(correlation == NULL, -1, call), NULL)


HOST_FUNCTIONS = Source(
    source_names.HOST_FUNCTIONS,
    "Host functions of CUDA streams",
    (HOST_TABLE, CALLBACKS, gpu.CALLS),
    read_host_functions,
    counted_tables=(EventRows(HOST_FUNCTION, "globalPid", device="deviceId"), EventRows(CALLBACKS.name, "globalTid")),
    noun="functions, their calls",
)
