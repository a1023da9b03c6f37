"""Reads page faults of unified memory: GPU faults by access on the GPU, CPU faults by function on the process.

GPU faults come in groups that overlap in time, so each group is a point at its start, with its duration. For a CPU
fault the report contains the process but not the thread, so it is shown on the main thread. The migrations that follow
are copies.
"""

from __future__ import annotations

import numpy as np

from nsys2prv_ng import source_names
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver.value_tables import ACCESSES
from nsys2prv_ng.records.columns import Pair, make_events
from nsys2prv_ng.report.database import NULL, Table
from nsys2prv_ng.report.metadata import get_main_thread, get_process
from nsys2prv_ng.sources.shared.reasons import NO_PROCESS, NO_PROCESS_OR_DEVICE, NO_TIME, find_unsound_times, lacks_time
from nsys2prv_ng.sources.shared.report_reader import ReportReader, make_id_pair, make_number_pair
from nsys2prv_ng.sources.shared.source import EventRows, Result, Source

GPU_FAULTS = Table(
    "CUDA_UM_GPU_PAGE_FAULT_EVENTS",
    ("start", "end", "globalPid", "deviceId"),
    {"address": NULL, "numberOfPageFaults": NULL, "faultAccessType": 0},
)
CPU_FAULTS = Table(
    "CUDA_UM_CPU_PAGE_FAULT_EVENTS", ("start", "globalPid"), {"address": NULL, "CpuInstruction": NULL, "module": NULL}
)


def read(reader: ReportReader) -> Result:
    """Return a point for each CPU fault and each group of GPU faults."""
    result = Result()
    _add_gpu_faults(reader, result)
    _add_cpu_faults(reader, result)
    return result


def _add_gpu_faults(reader: ReportReader, result: Result) -> None:
    """Add a point for each group of GPU faults, on the row of the GPU."""
    columns = reader.columns(GPU_FAULTS.name)
    result.read += columns.rows
    begin, end, pid, device = (columns[name] for name in GPU_FAULTS.required)
    no_device = (pid == NULL) | (device == NULL)
    rows = result.drop_rows({NO_PROCESS_OR_DEVICE: no_device, **find_unsound_times(begin, end)})
    labels = reader.labels
    access, faults, address = (columns[name][rows] for name in ("faultAccessType", "numberOfPageFaults", "address"))
    value = np.where(np.isin(access + 1, list(ACCESSES)), access + 1, 1)
    pairs = [
        Pair(labels.handle(types.GPU_PAGE_FAULT), value),
        make_number_pair(labels, types.GPU_PAGE_FAULTS, faults),
        Pair(labels.handle(types.GPU_PAGE_FAULT_TIME), end[rows] - begin[rows]),
        make_number_pair(labels, types.GPU_PAGE_FAULT_ADDRESS, address),
    ]
    result.records.append(make_events(reader.place_gpus(get_process(pid[rows]), device[rows]), begin[rows], pairs))


def _add_cpu_faults(reader: ReportReader, result: Result) -> None:
    """Add a point for each CPU fault, on the main thread of the process."""
    columns = reader.columns(CPU_FAULTS.name)
    result.read += columns.rows
    begin, pid = columns["start"], columns["globalPid"]
    rows = result.drop_rows({NO_PROCESS: pid == NULL, NO_TIME: lacks_time(begin)})
    process = get_process(pid[rows])
    place = reader.places.threads(get_main_thread(process), application=True)
    # `CpuInstruction` is the id of the function's name. If it is missing, the module may be known.
    function, module, address = (columns[name][rows] for name in ("CpuInstruction", "module", "address"))
    pairs = [
        make_id_pair(reader, types.CPU_PAGE_FAULT, np.where(function == NULL, module, function)),
        make_number_pair(reader.labels, types.CPU_PAGE_FAULT_ADDRESS, address),
    ]
    result.records.append(make_events(place, begin[rows], pairs))


SOURCE = Source(
    source_names.UNIFIED_MEMORY,
    "Page faults of unified memory",
    (GPU_FAULTS, CPU_FAULTS),
    read,
    counted_tables=(EventRows(GPU_FAULTS.name), EventRows(CPU_FAULTS.name, "globalPid")),
    noun="faults",
    needed_by=(),
)
