"""Draws lines from the calls that launched kernels, copies and graphs to the operations themselves."""

from __future__ import annotations

import numpy as np

from nsys2prv_ng import source_names
from nsys2prv_ng.arrays.row_keys import mark_duplicates
from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.records.columns import make_communications
from nsys2prv_ng.sources.cuda import cuda_graphs, kernels, memory_operations
from nsys2prv_ng.sources.cuda import launch_calls as calls
from nsys2prv_ng.sources.cuda.device_operations import GRAPH, KERNEL, MEMCPY, MEMSET, TABLES, locate
from nsys2prv_ng.sources.shared.report_reader import ReportReader
from nsys2prv_ng.sources.shared.result import Result
from nsys2prv_ng.sources.shared.source import Source

LAUNCH_TABLES = (
    calls.TABLE,
    kernels.TABLE,
    memory_operations.MEMCPY_TABLE,
    memory_operations.MEMSET_TABLE,
    cuda_graphs.TABLE,
)
"""The tables of launch calls and of the operations that they launch."""
_TAGS = {KERNEL: types.TAG_LAUNCH, MEMCPY: types.TAG_COPY, MEMSET: types.TAG_COPY, GRAPH: types.TAG_LAUNCH}


def read(reader: ReportReader) -> Result:
    """Return a communication for each operation that a recorded call launched; one per stream for a graph's nodes."""
    result = Result()
    launches = reader.once(calls.find_launches)
    operations = [_stack_operations(reader, result, table, call) for table, call in launches.items()]
    if not operations:
        return result
    start, place, call, device, context, stream, size, tag = np.concatenate(operations, axis=1)
    result.drop(calls.NO_CALL, int((call < 0).sum()))
    rows = np.flatnonzero(call >= 0)
    # All nodes of a graph have the id of its launch, whatever their kind: the first node on each stream gets the line.
    rows = rows[np.argsort(start[rows], kind="stable")]
    later = mark_duplicates(call[rows], device[rows], context[rows], stream[rows])
    result.drop("later operation of the same launch and stream", int(later.sum()))
    rows = rows[~later]
    recorded = reader.once(calls.read_recorded_calls)
    for value in np.unique(tag[rows]):
        tagged = rows[tag[rows] == value]
        sender = reader.places.threads(recorded.global_tid[call[tagged]], application=True)
        send = recorded.begin[call[tagged]]
        lines = make_communications(sender, send, place[tagged], start[tagged], size[tagged], int(value))
        result.records.append(lines)
    return result


def _stack_operations(reader: ReportReader, result: Result, table: str, call: IntArray) -> IntArray:
    """Return start, place, call, device, context, stream, bytes and tag of a table's n operations: 8 x n."""
    columns = reader.columns(table)
    place = reader.once(locate)[table].place
    result.read += columns.rows
    rows = np.flatnonzero(place >= 0)
    result.drop("its operation was dropped", columns.rows - rows.size)
    size = np.maximum(columns["bytes"][rows], 0) if table in (MEMCPY, MEMSET) else np.zeros(rows.size, np.int64)
    return np.stack(
        [
            columns["start"][rows],
            place[rows],
            call[rows],
            *(columns[name][rows] for name in ("deviceId", "contextId", "streamId")),
            size,
            np.full(rows.size, _TAGS[table], np.int64),
        ]
    )


SOURCE = Source(
    source_names.LAUNCH_LINES,
    "Lines from launch calls to kernels, copies and graphs",
    LAUNCH_TABLES,
    read,
    needed_tables=((calls.TABLE.name,), TABLES),
)
