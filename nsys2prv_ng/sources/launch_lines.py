"""Lines from the call that launched a kernel or a copy to the operation itself.

A correlation id is unique within a process only, so the key is (process, correlation id) within a report.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver.records import communications
from nsys2prv_ng.report.database import NULL, Table
from nsys2prv_ng.report.metadata import process_of
from nsys2prv_ng.sources import kernels, memory_operations
from nsys2prv_ng.sources.base import IntArray, Reading, Result, Source
from nsys2prv_ng.sources.cuda_api import RUNTIME
from nsys2prv_ng.sources.device_operations import KERNEL, MEMCPY, MEMSET, locate

_CALLS = Table(RUNTIME, ("start", "end", "globalTid", "nameId"), {"correlationId": NULL})


class _Calls(NamedTuple):
    """Begin and thread of the calls that have a correlation id, by (process, correlation id)."""

    key: pd.MultiIndex
    begin: IntArray
    global_tid: IntArray


def _calls(reading: Reading) -> _Calls:
    columns = reading.columns(RUNTIME)
    correlation, tid, begin = columns["correlationId"], columns["globalTid"], columns["start"]
    rows = np.flatnonzero((correlation != NULL) & (tid != NULL) & (begin != NULL))
    rows = rows[np.argsort(begin[rows], kind="stable")]
    key = pd.MultiIndex.from_arrays([process_of(tid[rows]), correlation[rows]])
    # Of calls that share an id the outermost began first.
    first = ~key.duplicated()
    return _Calls(key[first], begin[rows][first], tid[rows][first])


def read(reading: Reading) -> Result:
    """A communication for each operation that a recorded call launched; one for each launch of a graph and stream."""
    result = Result()
    for table, tag in ((KERNEL, types.TAG_LAUNCH), (MEMCPY, types.TAG_COPY), (MEMSET, types.TAG_COPY)):
        if reading.has(table):
            _add(reading, result, table, tag)
    return result


def _add(reading: Reading, result: Result, table: str, tag: int) -> None:
    columns = reading.columns(table)
    place = reading.once(locate)[table].place
    result.read += columns.rows
    rows = np.flatnonzero(place >= 0)
    result.drop("its operation was dropped", columns.rows - rows.size)
    rows = rows[np.argsort(columns["start"][rows], kind="stable")]

    process, correlation = process_of(columns["globalPid"][rows]), columns["correlationId"][rows]
    if reading.has(RUNTIME):
        calls = reading.once(_calls)
        call = calls.key.get_indexer(pd.MultiIndex.from_arrays([process, correlation]))
        call = np.where(correlation == NULL, -1, call)
    else:
        call = np.full(rows.size, -1, np.int64)
    result.drop("no call recorded with its correlation id", int((call < 0).sum()))
    rows, call = rows[call >= 0], call[call >= 0]
    if not rows.size:
        return
    # The nodes of a graph share the id of its launch.
    stream = [call, *(columns[name][rows] for name in ("deviceId", "contextId", "streamId"))]
    later = pd.MultiIndex.from_arrays(stream).duplicated()
    result.drop("later operation of the same launch and stream", int(later.sum()))
    rows, call = rows[~later], call[~later]

    sender = reading.places.threads(calls.global_tid[call], application=True)
    size: IntArray | int = 0 if table == KERNEL else np.maximum(columns["bytes"][rows], 0)
    lines = communications(sender, calls.begin[call], place[rows], columns["start"][rows], size, tag)
    result.records.append(lines)


SOURCE = Source(
    "launch_lines",
    "Lines from launch calls to kernels and copies",
    (_CALLS, kernels.TABLE, memory_operations.MEMCPY_TABLE, memory_operations.MEMSET_TABLE),
    read,
)
