"""Projects NVTX ranges to the streams that they launched work on, from the first operation to the last.

An operation belongs to the ranges that were open on the thread of its call when the call started (the definition of
NVIDIA's nvtx_gpu_proj_trace). So the kernels of PyTorch's autograd threads belong to ranges on these threads.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nsys2prv_ng import source_names
from nsys2prv_ng.arrays.row_keys import combine_columns, encode_rows, find_distinct, sort_nested
from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.intervals.nesting import find_innermost, mark_crossing
from nsys2prv_ng.paraver import families
from nsys2prv_ng.records.columns import Pair, make_intervals
from nsys2prv_ng.sources.cuda.device_operations import CALLS, TABLES, find_launches, locate, read_recorded_calls
from nsys2prv_ng.sources.cuda.launch_lines import LAUNCH_TABLES
from nsys2prv_ng.sources.nvtx import events as nvtx_events
from nsys2prv_ng.sources.nvtx.events import NvtxEvents
from nsys2prv_ng.sources.shared.reasons import NO_GPU_RANGE_LANE
from nsys2prv_ng.sources.shared.report_reader import ReportReader
from nsys2prv_ng.sources.shared.source import Result, Source


class LaunchedOperations(NamedTuple):
    """n operations with a recorded call: place, start and end of the operation. Times in ns."""

    global_tid: IntArray
    """The thread of the call."""
    called: IntArray
    """The start of the call."""
    place: IntArray
    begin: IntArray
    end: IntArray


class Projections(NamedTuple):
    """n ranges on streams: row of the range, place of the stream, start and end there (ns)."""

    row: IntArray
    place: IntArray
    begin: IntArray
    end: IntArray


def read(reader: ReportReader) -> Result:
    """Return an interval for each range and stream."""
    result = Result()
    if not reader.columns(nvtx_events.NVTX).rows or not reader.columns(CALLS.name).rows:
        return result
    events, launched = reader.once(nvtx_events.read_nvtx_events), find_launched(reader)
    for domain in sorted(events.selected):
        projections = [project(events, rows, launched) for rows in events.find_nesting_sets(domain)]
        _write(reader, result, events, domain, projections)
    return result


def find_launched(reader: ReportReader) -> LaunchedOperations:
    """Find the operations with a place and a recorded call."""
    recorded, operations = reader.once(read_recorded_calls), reader.once(locate)
    call = reader.once(find_launches)
    rows = np.flatnonzero((operations.place >= 0) & (call >= 0))
    columns = (operations.place, operations.stack("start"), operations.stack("end"))
    caller = recorded.global_tid[call[rows]], recorded.begin[call[rows]]
    return LaunchedOperations(*caller, *(column[rows] for column in columns))


def project(events: NvtxEvents, rows: IntArray, launched: LaunchedOperations) -> Projections:
    """Return the ranges `rows`, which nest on their threads, on each stream that they, or ranges within, used."""
    tid, begin = events.columns["globalTid"], events.columns["start"]
    rows = rows[sort_nested(tid[rows], begin[rows], events.ends[rows])]
    order = np.lexsort((launched.called, launched.global_tid))
    innermost, parent, depth = find_innermost(
        tid[rows], begin[rows], events.ends[rows], launched.global_tid[order], launched.called[order]
    )
    parts = np.stack([innermost, *(column[order] for column in (launched.place, launched.begin, launched.end))])
    parts = parts[:, innermost >= 0]
    # From the deepest ranges outwards, each range passes its limits to the range around it: one step for each operation
    # and level.
    levels = [parts[:, :0]]
    for level in range(int(depth.max(initial=0)), -1, -1):
        here = depth[parts[0]] == level
        limits = _find_limits(parts[:, here])
        levels.append(limits)
        outer = np.concatenate([parent[limits[:1]], limits[1:]])
        parts = np.concatenate([parts[:, ~here], outer[:, outer[0] >= 0]], axis=1)
    every = np.concatenate(levels, axis=1)
    index, place, first, last = every[:, np.lexsort((every[1], every[0]))]
    return Projections(rows[index], place, first, last)


def _find_limits(parts: IntArray) -> IntArray:
    """Return range, place, first start and last end for each range and place among parts of ranges, 4 x n."""
    codes, first = encode_rows(parts[0], parts[1])
    limits = parts[:, first]
    np.minimum.at(limits[2], codes, parts[2])
    np.maximum.at(limits[3], codes, parts[3])
    return limits


def _write(reader: ReportReader, result: Result, events: NvtxEvents, domain: str, projected: list[Projections]) -> None:
    """Add intervals on lanes. Ranges of one host thread and set share a lane if they nest on the stream."""
    row, place, begin, end = (np.concatenate(columns) for columns in zip(*projected, strict=True))
    nesting_set = np.repeat(np.arange(len(projected)), [projections.row.size for projections in projected])
    result.read += row.size
    family, _ = find_distinct(combine_columns(nesting_set, events.columns["globalTid"][row]))
    lane = _number_lanes(place, family, _find_levels(place, family, begin, end))
    beyond = lane >= families.NVTX_GPU_LANES
    result.drop(NO_GPU_RANGE_LANE, int(beyond.sum()))
    labels = reader.labels
    for value in np.unique(lane[~beyond]):
        here = lane == value
        event_type = families.make_nvtx_on_gpu(domain, int(value))
        handle = labels.handle(event_type)
        name = Pair(handle, events.texts.name_ids(labels, event_type.names, row[here]))
        opening = [name, *events.texts.make_number_pairs(labels, domain, row[here])]
        result.records.append(make_intervals(place[here], begin[here], end[here], opening, [handle]))


def _find_levels(place: IntArray, family: IntArray, begin: IntArray, end: IntArray) -> IntArray:
    """Return the level of each interval. Intervals of one place, family and level nest; most are on level 0."""
    level = np.zeros(place.size, np.int64)
    group, _ = encode_rows(place, family)
    left = np.arange(place.size)
    while left.size:
        left = left[mark_crossing(group[left], begin[left], end[left])]
        level[left] += 1
    return level


def _number_lanes(place: IntArray, family: IntArray, level: IntArray) -> IntArray:
    """Return the dense number of each combination of family and level within its place."""
    index, kinds = find_distinct(combine_columns(place, family, level))
    kind_place = np.empty(kinds.size, np.int64)
    kind_place[index] = place
    lane = np.arange(kinds.size) - np.searchsorted(kind_place, kind_place)
    return lane[index]


SOURCE = Source(
    source_names.NVTX_ON_GPU,
    "NVTX ranges on the streams that they launched work on",
    (nvtx_events.TABLE, *LAUNCH_TABLES),
    read,
    needed_tables=((nvtx_events.NVTX,), (CALLS.name,), TABLES),
)
