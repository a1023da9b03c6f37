"""Reads CUDA kernels: name, class and launch attributes. NCCL kernels have a separate event type."""

from __future__ import annotations

import numpy as np

from nsys2prv_ng import source_names
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver.load_cost import LoadCost
from nsys2prv_ng.records.columns import Pair, make_intervals
from nsys2prv_ng.report.database import NULL, Table
from nsys2prv_ng.sources.cuda.cuda_graphs import GRAPH_COLUMNS, read_graph_ids
from nsys2prv_ng.sources.cuda.device_operations import COLUMNS, KERNEL, compute_queue_delays, select_operations
from nsys2prv_ng.sources.cuda.kernel_classes import classify_once
from nsys2prv_ng.sources.shared.report_reader import ReportReader, make_number_pair, register_used
from nsys2prv_ng.sources.shared.source import EventRows, Result, Source

_ATTRIBUTES = {
    "gridX": types.GRID[0],
    "gridY": types.GRID[1],
    "gridZ": types.GRID[2],
    "blockX": types.BLOCK[0],
    "blockY": types.BLOCK[1],
    "blockZ": types.BLOCK[2],
    "staticSharedMemory": types.STATIC_SHARED_MEMORY,
    "dynamicSharedMemory": types.DYNAMIC_SHARED_MEMORY,
    "localMemoryPerThread": types.LOCAL_MEMORY,
    "registersPerThread": types.REGISTERS,
    "correlationId": types.CORRELATION,
}

TABLE = Table(KERNEL, (*COLUMNS, "shortName", "demangledName"), dict.fromkeys((*_ATTRIBUTES, *GRAPH_COLUMNS), NULL))


def is_nccl(short_name: str) -> bool:
    """Return whether a kernel belongs to NCCL: its short name starts with nccl, as NVIDIA's recipes assume."""
    return short_name.startswith("nccl")


def read(reader: ReportReader) -> Result:
    """Return an interval for each kernel, with its attributes at its start only."""
    columns = reader.columns(KERNEL)
    result = Result()
    rows, place, begin, end = select_operations(reader, result, KERNEL)
    labels = reader.labels
    short_index, short = reader.names(columns["shortName"][rows])
    demangled_index, demangled = reader.names(columns["demangledName"][rows])
    nccl = np.array([is_nccl(name) for name in short], np.bool_)[short_index]
    handles = np.where(nccl, labels.handle(types.NCCL_KERNEL), labels.handle(types.KERNEL))
    index, names = (demangled_index, demangled) if reader.options.demangled_names else (short_index, short)
    ids = np.zeros(rows.size, np.int64)
    for space, mask in ((types.KERNEL.names, ~nccl), (types.NCCL_KERNEL.names, nccl)):
        ids[mask] = register_used(labels, space, names, index[mask])
    class_handle = labels.handle(types.KERNEL_CLASS)

    opening = [
        Pair(handles, ids),
        Pair(class_handle, classify_once(demangled)[demangled_index]),
        *(make_number_pair(labels, event_type, columns[name][rows]) for name, event_type in _ATTRIBUTES.items()),
        *read_graph_ids(reader, columns, rows),
    ]
    if source_names.DEVICE_ACTIVITY in reader.chosen:
        opening.append(make_number_pair(labels, types.QUEUE_DELAY, compute_queue_delays(reader, rows)))
    result.records.append(make_intervals(place, begin, end, opening, [handles, class_handle]))
    state = np.where(nccl, types.GROUP_COMMUNICATION, types.RUNNING)
    result.add_states(place, begin, end, state)
    return result


SOURCE = Source(
    source_names.KERNELS,
    "CUDA kernels",
    (TABLE,),
    read,
    counted_tables=(EventRows(KERNEL, "globalPid", device="deviceId"),),
    noun="kernels",
    needed_by=("gpus", "activity", "kernels", "nccl", "collectives", "waits", "efficiencies", "critical_path"),
    load=LoadCost(states=1, events=7, pairs=24, communications=1),
)
