"""NVTX ranges on the GPU: each range on the streams that it launched work on, first operation to last.

An operation belongs to the ranges that were open on the thread of its call when the call began (the definition of
NVIDIA's nvtx_gpu_proj_trace), so that the kernels of PyTorch's autograd threads belong to those threads' ranges.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nsys2prv_ng.arrays.row_keys import combine_columns, encode_rows, find_distinct
from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.intervals.lanes import assign_lanes, mark_crossing
from nsys2prv_ng.intervals.nesting import find_innermost
from nsys2prv_ng.paraver import families
from nsys2prv_ng.records.columns import Pair, make_intervals
from nsys2prv_ng.sources.cuda import cuda_graphs, kernels, memory_operations
from nsys2prv_ng.sources.cuda import launch_calls as calls
from nsys2prv_ng.sources.cuda.device_operations import TABLES, locate
from nsys2prv_ng.sources.nvtx import events as nvtx_events
from nsys2prv_ng.sources.nvtx.events import PUSH_POP, START_END, NvtxEvents
from nsys2prv_ng.sources.shared.report_reader import ReportReader
from nsys2prv_ng.sources.shared.result import Result
from nsys2prv_ng.sources.shared.source import Source


class _Launched(NamedTuple):
    """Operations whose call was recorded: thread and time of the call, place, begin and end of the operation."""

    global_tid: IntArray
    called: IntArray
    place: IntArray
    begin: IntArray
    end: IntArray


class Projections(NamedTuple):
    """Ranges on streams, of n: row of the range, place of the stream, begin and end there (ns)."""

    row: IntArray
    place: IntArray
    begin: IntArray
    end: IntArray


def read(reader: ReportReader) -> Result:
    """An interval for each range and stream."""
    result = Result()
    if not reader.columns(nvtx_events.NVTX).rows or not reader.columns(calls.TABLE.name).rows:
        return result
    found, launched = reader.once(nvtx_events.read_nvtx_events), _launched(reader)
    for domain in sorted(found.chosen):
        projections = [project(found, rows, launched) for rows in _nesting_sets(found, domain)]
        _add(reader, result, found, domain, projections)
    return result


def _nesting_sets(found: NvtxEvents, domain: str) -> list[IntArray]:
    """Rows of a domain's ranges, in sets that nest on each thread: push/pop, and each lane of start/end ranges."""
    tid, begin = found.columns["globalTid"], found.columns["start"]
    rows = found.select_domain(domain, PUSH_POP)
    sets = [rows[~mark_crossing(tid[rows], begin[rows], found.end(rows))]]
    rows = found.select_domain(domain, START_END)
    lanes = assign_lanes(tid[rows], begin[rows], found.end(rows))
    return sets + [rows[lanes == lane] for lane in np.unique(lanes)]


def _launched(reader: ReportReader) -> _Launched:
    by_call = reader.once(calls.read_recorded_calls)
    parts = []
    for table in TABLES:
        if not reader.has(table):
            continue
        columns, place = reader.columns(table), reader.once(locate)[table].place
        call = reader.once(calls.find_launches)[table]
        rows = np.flatnonzero((place >= 0) & (call >= 0))
        call = call[rows]
        parts.append(
            (by_call.global_tid[call], by_call.begin[call], place[rows], columns["start"][rows], columns["end"][rows])
        )
    list_columns = [np.concatenate([part[i] for part in parts] or [np.zeros(0, np.int64)]) for i in range(5)]
    return _Launched(*list_columns)


def project(found: NvtxEvents, rows: IntArray, launched: _Launched) -> Projections:
    """The ranges `rows`, which nest on their threads, on each stream that they or ranges within launched work on."""
    tid, begin = found.columns["globalTid"], found.columns["start"]
    rows = rows[np.lexsort((-found.end(rows), begin[rows], tid[rows]))]
    order = np.lexsort((launched.called, launched.global_tid))
    innermost, parent, depth = find_innermost(
        tid[rows], begin[rows], found.end(rows), launched.global_tid[order], launched.called[order]
    )
    open_ = np.stack([innermost, *(column[order] for column in (launched.place, launched.begin, launched.end))])
    open_ = open_[:, innermost >= 0]
    # From the deepest ranges outwards each hands its limits to the one around it: every operation once for each level.
    levels = [open_[:, :0]]
    for level in range(int(depth.max(initial=0)), -1, -1):
        here = depth[open_[0]] == level
        limits = _limits(open_[:, here])
        levels.append(limits)
        outer = np.concatenate([parent[limits[:1]], limits[1:]])
        open_ = np.concatenate([open_[:, ~here], outer[:, outer[0] >= 0]], axis=1)
    every = np.concatenate(levels, axis=1)
    index, place, first, last = every[:, np.lexsort((every[1], every[0]))]
    return Projections(rows[index], place, first, last)


def _limits(parts: IntArray) -> IntArray:
    """Range, place, first begin and last end of each range and place among parts of ranges, 4 x n."""
    codes, first = encode_rows(parts[0], parts[1])
    limits = parts[:, first]
    np.minimum.at(limits[2], codes, parts[2])
    np.maximum.at(limits[3], codes, parts[3])
    return limits


def _add(reader: ReportReader, result: Result, found: NvtxEvents, domain: str, projected: list[Projections]) -> None:
    """Intervals on lanes: those of one host thread and set share a lane as long as they nest on the stream."""
    row, place, begin, end = (np.concatenate(columns) for columns in zip(*projected, strict=True))
    of_set = np.repeat(np.arange(len(projected)), [each.row.size for each in projected])
    result.read += row.size
    family, _ = find_distinct(combine_columns(of_set, found.columns["globalTid"][row]))
    lane = _lanes(place, family, _levels(place, family, begin, end))
    beyond = lane >= families.NVTX_GPU_LANES
    result.drop(f"more than {families.NVTX_GPU_LANES} lanes needed on its stream", int(beyond.sum()))
    labels = reader.labels
    for value in np.unique(lane[~beyond]):
        here = lane == value
        event_type = families.make_nvtx_on_gpu(domain, int(value))
        handle = labels.handle(event_type)
        opening = [Pair(handle, found.texts.name_ids(labels, event_type.names, row[here]))]
        text = found.texts.index[row[here]]
        has_number = found.texts.has_number[text]
        if has_number.any():
            number = labels.handle(families.make_nvtx_number(domain))
            opening.append(Pair(number, found.texts.number[text], has_number))
        result.records.append(make_intervals(place[here], begin[here], end[here], opening, [handle]))


def _levels(place: IntArray, family: IntArray, begin: IntArray, end: IntArray) -> IntArray:
    """Level of each interval, such that those of one place, family and level nest. Mostly all are on level 0."""
    level = np.zeros(place.size, np.int64)
    group, _ = encode_rows(place, family)
    left = np.arange(place.size)
    while left.size:
        left = left[mark_crossing(group[left], begin[left], end[left])]
        level[left] += 1
    return level


def _lanes(place: IntArray, family: IntArray, level: IntArray) -> IntArray:
    """Dense number, within its place, of each combination of family and level."""
    index, kinds = find_distinct(combine_columns(place, family, level))
    place_of = np.empty(kinds.size, np.int64)
    place_of[index] = place
    lane = np.arange(kinds.size) - np.searchsorted(place_of, place_of)
    return lane[index]


SOURCE = Source(
    "nvtx_on_gpu",
    "NVTX ranges on the streams that they launched work on",
    (
        nvtx_events.TABLE,
        calls.TABLE,
        kernels.TABLE,
        memory_operations.MEMCPY_TABLE,
        memory_operations.MEMSET_TABLE,
        cuda_graphs.TABLE,
    ),
    read,
    made_of=((nvtx_events.NVTX,), (calls.TABLE.name,), TABLES),
)
