"""What each GPU does as a whole, made of the kernels, copies, sets and graphs of all its streams and processes.

The operations are those of the other sources that are chosen; this one adds their launches, and joins what happens on
one GPU over processes and reports.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from nsys2prv_ng.analysis.device_activity import COMMUNICATION, COMPUTE, IN_FLIGHT, MEMORY, Changes, device_activity
from nsys2prv_ng.analysis.windows import pieces_in_windows
from nsys2prv_ng.objects.tree import ObjectTree
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver.records import Pair, Records, events
from nsys2prv_ng.report.metadata import process_of
from nsys2prv_ng.sources import calls, kernels
from nsys2prv_ng.sources.base import IntArray, Joined, Part, Reading, Result, Source
from nsys2prv_ng.sources.device_operations import GRAPH, KERNEL, locate

NAME = "device_activity"

_TYPES = (types.GPU_ACTIVITY, types.KERNELS_RUNNING, types.KERNELS_IN_FLIGHT, types.GPU_IDLE_STRETCH)


class Operations(NamedTuple):
    """Operations and flights of kernels, of n: place of the GPU, begin and end (ns), kind (as in the analysis)."""

    place: IntArray
    begin: IntArray
    end: IntArray
    kind: IntArray


def read(reading: Reading) -> Result:
    """Leaves the operations of the report for `join`; it has no records of its own."""
    parts = [_operations(reading, table) for table in reading.once(locate)]
    result = Result()
    joined = Operations(*(np.concatenate(column) for column in zip(*parts, strict=True))) if parts else None
    if joined is not None and joined.place.size:
        result.shared = joined
        for event_type in _TYPES:
            reading.labels.declare(event_type)
    return result


def _operations(reading: Reading, table: str) -> Operations:
    columns = reading.columns(table)
    rows = np.flatnonzero(reading.once(locate)[table].place >= 0)
    begin, end = columns["start"][rows], columns["end"][rows]
    process = process_of(columns["globalPid"][rows])
    codes, devices = pd.MultiIndex.from_arrays([process, columns["deviceId"][rows]]).factorize()
    gpus = np.array([reading.metadata.gpu(int(p), int(d)).number for p, d in devices], np.int64)
    place = reading.places.devices(gpus[codes])
    kind = _kinds(reading, table, rows)
    if table not in (KERNEL, GRAPH):
        return Operations(place, begin, end, kind)
    by_id = reading.once(calls.recorded_calls)
    call = by_id.find(process, columns["correlationId"][rows])
    launched = begin.copy()
    launched[call >= 0] = np.minimum(by_id.begin[call[call >= 0]], begin[call >= 0])
    flights = Operations(place, launched, end, np.full(rows.size, IN_FLIGHT, np.int64))
    return Operations(*map(np.concatenate, zip((place, begin, end, kind), flights, strict=True)))


def _kinds(reading: Reading, table: str, rows: IntArray) -> IntArray:
    if table == KERNEL:
        index, names = reading.names(reading.columns(table)["shortName"][rows])
        of_name = [COMMUNICATION if kernels.is_nccl(name) else COMPUTE for name in names]
        return np.array(of_name, np.int64)[index]
    return np.full(rows.size, COMPUTE if table == GRAPH else MEMORY, np.int64)


# ---- all reports together --------------------------------------------------------------------------------------------


def join(parts: Sequence[Part], tree: ObjectTree) -> Joined:
    """An event at each change on each GPU; of the time that the user chose each part by itself."""
    cut = [_in_windows(part) for part in parts if isinstance(part.shared, Operations)]
    if not cut:
        return Joined()
    device, begin, end, kind = (np.concatenate(column) for column in zip(*cut, strict=True))
    changes = device_activity(device, begin, end, kind)
    records = _records(changes, changes.device // len(parts[0].windows))
    return Joined(accounts={NAME: Result(read=len(records), records=[records])})


def _in_windows(part: Part) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """Device, begin, end and kind of a report's operations; each window of a row counts as a device."""
    operations = part.shared
    assert isinstance(operations, Operations)
    begin, end = part.clock(operations.begin), part.clock(operations.end)
    index, window, begin, end = pieces_in_windows(begin, end, part.windows)
    device = part.rows[operations.place[index]] * len(part.windows) + window
    return device, begin, end, operations.kind[index]


def _records(changes: Changes, row: IntArray) -> Records:
    activity, running, in_flight, idle = (event_type.number for event_type in _TYPES)
    pairs = [
        Pair(idle, changes.idle, changes.idle > 0),
        Pair(activity, changes.activity, changes.differs(1)),
        Pair(running, changes.kernels, changes.differs(2)),
        Pair(in_flight, changes.in_flight, changes.differs(4)),
    ]
    return events(row, changes.time, pairs)


SOURCE = Source(NAME, "What GPUs do as a whole", (calls.TABLE,), read, join, derived=True)
