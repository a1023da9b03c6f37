"""Draws lines from the calls that launched kernels, copies and graphs to the operations themselves."""

from __future__ import annotations

import numpy as np

from nsys2prv_ng import source_names
from nsys2prv_ng.arrays.row_keys import mark_duplicates
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.records.columns import make_communications
from nsys2prv_ng.sources.cuda import cuda_graphs, kernels, memory_operations
from nsys2prv_ng.sources.cuda.device_operations import (
    CALLS,
    GRAPH,
    KERNEL,
    MEMCPY,
    MEMSET,
    TABLES,
    find_launches,
    locate,
    read_recorded_calls,
)
from nsys2prv_ng.sources.shared.reasons import NO_CALL, NO_OPERATION, SAME_LAUNCH
from nsys2prv_ng.sources.shared.report_reader import ReportReader
from nsys2prv_ng.sources.shared.source import Result, Source

LAUNCH_TABLES = (
    CALLS,
    kernels.TABLE,
    memory_operations.MEMCPY_TABLE,
    memory_operations.MEMSET_TABLE,
    cuda_graphs.TABLE,
)
"""The tables of launch calls and of the operations that they launch."""
_TAGS = {KERNEL: types.TAG_LAUNCH, MEMCPY: types.TAG_COPY, MEMSET: types.TAG_COPY, GRAPH: types.TAG_LAUNCH}


def read(reader: ReportReader) -> Result:
    """Return a communication for each operation that a recorded call launched; one per stream for a graph's nodes."""
    operations, call = reader.once(locate), reader.once(find_launches)
    start, device, context, stream = map(operations.stack, ("start", "deviceId", "contextId", "streamId"))
    tag = operations.spread(_TAGS)
    size = np.where(tag == types.TAG_COPY, np.maximum(operations.stack("bytes"), 0), 0)
    result = Result(read=start.size)
    rows = result.drop_rows({NO_OPERATION: operations.place < 0, NO_CALL: call < 0})
    # All nodes of a graph have the id of its launch, whatever their kind: the first node on each stream gets the line.
    rows = rows[np.argsort(start[rows], kind="stable")]
    later = mark_duplicates(call[rows], device[rows], context[rows], stream[rows])
    rows = rows[result.drop_rows({SAME_LAUNCH: later})]
    recorded = reader.once(read_recorded_calls)
    for value in np.unique(tag[rows]):
        tagged = rows[tag[rows] == value]
        sender = reader.places.threads(recorded.global_tid[call[tagged]], application=True)
        ends = sender, recorded.begin[call[tagged]], operations.place[tagged], start[tagged]
        result.records.append(make_communications(*ends, size[tagged], int(value)))
    return result


SOURCE = Source(
    source_names.LAUNCH_LINES,
    "Lines from launch calls to kernels, copies and graphs",
    LAUNCH_TABLES,
    read,
    needed_tables=((CALLS.name,), TABLES),
)
