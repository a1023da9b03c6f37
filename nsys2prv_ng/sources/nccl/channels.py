"""Shows operations on GPUs and the proxies of an advanced NCCL trace, on rows of the node.

Channels run at the same time, and so do the steps of a proxy, so their ranges overlap on the thread that reports them.
The documentation does not name the field with the channel, so a row is a lane: each range takes the first free one.
"""

from __future__ import annotations

import numpy as np

from nsys2prv_ng.arrays.row_keys import find_distinct_rows
from nsys2prv_ng.arrays.types import BoolArray
from nsys2prv_ng.intervals.lanes import assign_lanes
from nsys2prv_ng.objects.places import NodePart
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver.event_type import EventType
from nsys2prv_ng.records.columns import Pair
from nsys2prv_ng.report.database import NULL
from nsys2prv_ng.report.metadata import PID_MASK, get_process
from nsys2prv_ng.sources.nccl.advanced_trace import AdvancedTrace
from nsys2prv_ng.sources.nvtx.events import NVTX, read_nvtx_events
from nsys2prv_ng.sources.shared.report_reader import ReportReader
from nsys2prv_ng.sources.shared.result import NO_END, Result


def write_channels(reader: ReportReader, result: Result, trace: AdvancedTrace) -> None:
    """Add an interval for each operation on a GPU, and for each range of a proxy."""
    _write(reader, result, trace, ~trace.is_proxy, types.NCCL_CHANNEL, "NCCL GPU")
    _write(reader, result, trace, trace.is_proxy, types.NCCL_PROXY, "NCCL proxy")


def _write(
    reader: ReportReader, result: Result, trace: AdvancedTrace, chosen: BoolArray, event_type: EventType, title: str
) -> None:
    """Add intervals of one type, on rows with this title for each process and lane."""
    rows = trace.elsewhere[chosen]
    if not rows.size:
        return
    columns, texts = reader.columns(NVTX), reader.once(read_nvtx_events).texts
    process, begin, end = get_process(columns["globalTid"][rows]), columns["start"][rows], columns["end"][rows]
    end = np.where(end == NULL, NO_END, end)
    lane = assign_lanes(process, begin, end)
    index, keys = find_distinct_rows(process, lane)
    parts = [
        NodePart(f"{title} of process {key & PID_MASK}", (key,), number, f" lane {number + 1}", is_local=True)
        for key, number in keys
    ]
    value = texts.name_ids(reader.labels, event_type.names, rows)
    handle = reader.labels.handle(event_type)
    result.read += rows.size
    result.add_intervals(reader.places.node_parts(parts)[index], begin, end, [Pair(handle, value)], [handle])
