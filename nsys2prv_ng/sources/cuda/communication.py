"""Decides which operations on streams are communication: those that move data between GPUs, whoever makes them do it.

- *Kernels* are, if their name is of a class in `COMMUNICATION_CLASSES` (kernel_classes.py): NCCL's, and those of other
  libraries.
- *Copies between GPUs* are: peer to peer, and from device to device if the report names two devices.
- *Copies from device to device of NCCL's copy engines* are. NCCL 2.28 and later may move the data of a call by copies
  instead of a kernel (zero-CTA policy; user guide of Nsight Systems 2026.4, "NVIDIA NCCL Trace"). Such a copy was
  launched during a range of a call that moves data, on its thread, and no kernel of NCCL was. A job of one rank and one
  GPU copies its data within this GPU, which is not communication.

The class of such an operation in the trace (KERNEL_CLASS) says so: whatever asks whether an event is communication asks
`COMMUNICATION_CLASSES`, and what only knows the kind of an operation has the bit COMMUNICATION of `device_sweep`.
"""

from __future__ import annotations

import numpy as np

from nsys2prv_ng.arrays.row_keys import find_distinct_rows
from nsys2prv_ng.arrays.types import BoolArray, IntArray
from nsys2prv_ng.intervals.nesting import mark_crossing
from nsys2prv_ng.paraver.families import NCCL_DOMAIN
from nsys2prv_ng.paraver.value_tables import COMMUNICATION_CLASSES
from nsys2prv_ng.report.database import NULL, Columns, Table
from nsys2prv_ng.report.metadata import get_process
from nsys2prv_ng.sources.cuda.device_operations import KERNEL, MEMCPY, locate, read_recorded_calls
from nsys2prv_ng.sources.cuda.kernel_classes import classify_once
from nsys2prv_ng.sources.shared.nccl_names import ADVANCED_CALLS, CALLS, STRUCTURE
from nsys2prv_ng.sources.shared.report_reader import ReportReader, encode_texts, read_texts

NCCL, OTHER = COMMUNICATION_CLASSES
NVTX = Table(
    "NVTX_EVENTS",
    ("start", "eventType"),
    {**dict.fromkeys(("end", "globalTid", "textId"), NULL), "domainId": 0},
    text=("text",),
)
"""What is read of NCCL's ranges here."""
DEVICES = dict.fromkeys(("srcDeviceId", "dstDeviceId"), NULL)
"""Optional columns of copies."""

# ENUM_CUDA_MEMCPY_OPER: arrays and devices among each other; peer to peer; migrations from device to device.
_ON_GPUS = (5, 6, 7, 8, 10, 13)
_PEER_TO_PEER, _MIGRATED = 10, 13
# ENUM_NSYS_EVENT_TYPE
_PUSH_POP = (59, 70)
_DOMAIN_CREATE = 75


def is_nccl(short_name: str) -> bool:
    """Return whether a kernel belongs to NCCL: its short name starts with nccl, as NVIDIA's recipes assume."""
    return short_name.startswith("nccl")


def find_classes(reader: ReportReader) -> IntArray:
    """Return the class of each operation of a report, a number of KERNEL_CLASSES. Call it through `reader.once`.

    It is 0 for graphs, and for copies and sets that are no communication.
    """
    operations = reader.once(locate)
    classes = np.zeros(operations.place.size, np.int64)
    if KERNEL in operations.columns:
        columns = operations.columns[KERNEL]
        index, names = reader.names(columns["demangledName"])
        kernel_classes = classify_once(names)[index]
        kernel_classes[_mark_nccl(reader)] = NCCL
        operations.take(KERNEL, classes)[:] = kernel_classes
    if MEMCPY in operations.columns:
        operations.take(MEMCPY, classes)[:] = _classify_copies(reader, operations.columns[MEMCPY])
    return classes


def mark_communication(classes: IntArray) -> BoolArray:
    """Mark the classes (n numbers of KERNEL_CLASSES) of communication."""
    return np.isin(classes, COMMUNICATION_CLASSES)


def _classify_copies(reader: ReportReader, copies: Columns) -> IntArray:
    """Return the class of each copy that is communication; 0 for the others."""
    kind, source, target = (copies[name] for name in ("copyKind", *DEVICES))
    on_gpus = np.isin(kind, _ON_GPUS)
    is_known = (source != NULL) & (target != NULL)
    between = on_gpus & np.where(is_known, source != target, np.isin(kind, (_PEER_TO_PEER, _MIGRATED)))
    of_nccl = np.zeros(kind.size, np.bool_)
    is_alone = reader.metadata.job_size == 1 and np.unique(copies["deviceId"]).size == 1
    if reader.metadata.uses_nccl and not is_alone and on_gpus.any() and reader.has(NVTX.name):
        of_nccl[on_gpus] = _mark_launched_by_nccl(reader, on_gpus)
    return np.select([of_nccl, between], [NCCL, OTHER], 0)


def _mark_launched_by_nccl(reader: ReportReader, chosen: BoolArray) -> BoolArray:
    """Mark those of the chosen copies (a mask) that a call of NCCL launched which launched no kernel of NCCL."""
    ranges = _read_calls(reader)
    recorded, operations = reader.once(read_recorded_calls), reader.once(locate)
    call = recorded.find_ranges(operations.take(MEMCPY, operations.call)[chosen], *ranges)
    with_kernels = recorded.find_ranges(operations.take(KERNEL, operations.call)[_mark_nccl(reader)], *ranges)
    return np.asarray((call >= 0) & ~np.isin(call, with_kernels), np.bool_)


def _mark_nccl(reader: ReportReader) -> BoolArray:
    """Mark the kernels of NCCL."""
    index, names = reader.names(reader.columns(KERNEL)["shortName"])
    return np.array([is_nccl(name) for name in names], np.bool_)[index]


def _read_calls(reader: ReportReader) -> tuple[IntArray, IntArray, IntArray]:
    """Return thread, start and end (ns) of the ranges in which NCCL launches what moves data, ordered as they nest."""
    columns = reader.columns(NVTX.name)
    rows = np.flatnonzero(np.isin(columns["eventType"], (*_PUSH_POP, _DOMAIN_CREATE)) & (columns["domainId"] != 0))
    index, texts = encode_texts(read_texts(reader, columns, rows, "text", "textId"))
    is_creation = columns["eventType"][rows] == _DOMAIN_CREATE
    domain, _ = find_distinct_rows(get_process(columns["globalTid"][rows]), columns["domainId"][rows])
    named, own, advanced = (
        np.array([*(text in known for text in texts), False], np.bool_)[index]
        for known in ({NCCL_DOMAIN}, {*CALLS, "ncclGroupEnd"}, {*ADVANCED_CALLS, *STRUCTURE})
    )
    in_nccl = np.isin(domain, domain[named & is_creation])
    rows = rows[~is_creation & (own | (advanced & in_nccl))]
    tid, begin, end = (columns[name][rows] for name in ("globalTid", "start", "end"))
    sound = (tid != NULL) & (begin != NULL)
    tid, begin, end = tid[sound], begin[sound], np.where(end == NULL, np.iinfo(np.int64).max, end)[sound]
    nests = ~mark_crossing(tid, begin, end) & (begin <= end)
    tid, begin, end = tid[nests], begin[nests], end[nests]
    order = np.lexsort((-end, begin, tid))
    return tid[order], begin[order], end[order]
