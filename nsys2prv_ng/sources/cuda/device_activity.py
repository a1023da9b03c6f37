"""Computes the activity of each GPU as a whole from the kernels, copies, sets and graphs of all streams and processes.

The other chosen sources supply the operations. This source adds their launches, and joins the operations on one GPU
over processes and reports.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from nsys2prv_ng import source_names
from nsys2prv_ng.arrays.pick import pick
from nsys2prv_ng.arrays.row_keys import find_distinct
from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.errors import TranslationError
from nsys2prv_ng.intervals import device_sweep as sweep
from nsys2prv_ng.objects.tree import ObjectTree, group_by_shared_rows
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver.model import LONGEST_TRACE_NS
from nsys2prv_ng.records.columns import Pair, Records, make_events
from nsys2prv_ng.report.metadata import get_process
from nsys2prv_ng.sources.cuda import kernels
from nsys2prv_ng.sources.cuda.device_operations import (
    CALLS,
    GRAPH,
    KERNEL,
    MEMCPY,
    MEMSET,
    find_launches,
    locate,
    read_recorded_calls,
)
from nsys2prv_ng.sources.shared.reasons import NOT_SELECTED, OUTSIDE_TRACE
from nsys2prv_ng.sources.shared.report_reader import ReportReader
from nsys2prv_ng.sources.shared.source import JoinInput, JoinResult, Result, Source

_TYPES = (types.GPU_ACTIVITY, types.KERNELS_RUNNING, types.KERNELS_IN_FLIGHT, types.GPU_IDLE_STRETCH)


_SOURCES = {
    KERNEL: source_names.KERNELS,
    MEMCPY: source_names.MEMORY_OPERATIONS,
    MEMSET: source_names.MEMORY_OPERATIONS,
    GRAPH: source_names.CUDA_GRAPHS,
}
"""The source that shows the operations of each table. Other sources read the tables for other purposes."""
_KINDS = {KERNEL: sweep.COMPUTE, MEMCPY: sweep.MEMORY, MEMSET: sweep.MEMORY, GRAPH: sweep.WHOLE_GRAPH}
"""The kind of the operations of each table. Kernels of NCCL are COMMUNICATION; whole graphs are not known yet."""


class Operations(NamedTuple):
    """n operations, and flights of kernels and graphs: place of the GPU, start, end (ns), kind (of `device_sweep`)."""

    place: IntArray
    begin: IntArray
    end: IntArray
    kind: IntArray


def read(reader: ReportReader) -> Result:
    """Leave the operations of the report for `join`, and return no records.

    A kernel or graph is also in flight from its launch to its end.
    """
    operations = reader.once(locate)
    is_chosen = operations.spread({table: source in reader.chosen for table, source in _SOURCES.items()})
    rows = np.flatnonzero((operations.place >= 0) & (is_chosen > 0))
    result = Result()
    if not rows.size:
        return result
    begin, end, pid, device, name = (
        operations.stack(column)[rows] for column in ("start", "end", "globalPid", "deviceId", "shortName")
    )
    place, kind = reader.place_gpus(get_process(pid), device), operations.spread(_KINDS)[rows]
    index, names = reader.names(name)
    is_nccl = np.array([kernels.is_nccl(name) for name in names], np.bool_)[index]
    kind[is_nccl & (kind == sweep.COMPUTE)] = sweep.COMMUNICATION

    flies = np.flatnonzero(kind != sweep.MEMORY)
    call = reader.once(find_launches)[rows[flies]]
    launched = pick(reader.once(read_recorded_calls).begin, call, np.iinfo(np.int64).max)
    in_flight = np.full(flies.size, sweep.IN_FLIGHT)
    flights = place[flies], np.minimum(launched, begin[flies]), end[flies], in_flight
    result.join_data = np.unique(place)
    result.join_columns = Operations(*map(np.concatenate, zip((place, begin, end, kind), flights, strict=True)))
    for event_type in _TYPES:
        reader.labels.declare(event_type)
    return result


# ---- all reports together --------------------------------------------------------------------------------------------


def join(parts: Sequence[JoinInput], tree: ObjectTree) -> JoinResult:
    """Return an event at each change on each GPU, within the selected time.

    Time without a capture is not idle time, so each captured stretch of time is a separate device in the sweep.
    """
    with_operations = [part for part in parts if part.data is not None]
    groups = group_by_shared_rows([part.rows[part.data] for part in with_operations])
    by_group = [[with_operations[i] for i in group] for group in groups]
    # The NCCL calls of a process may all be captured in a graph, so the other reports count as well.
    compute = partial(_compute_activity, hides_nccl=any(part.metadata.uses_nccl for part in parts))
    return JoinResult(partial_results=(source_names.DEVICE_ACTIVITY, compute, by_group) if by_group else None)


def _compute_activity(parts: Sequence[JoinInput], *, hides_nccl: bool) -> Result:
    """Return the activity of the GPUs that reports share. `hides_nccl`: whether whole graphs may contain NCCL."""
    captured = [_place_on_rows(part) for part in parts]
    devices = [
        _look_up(stretch_of_row, report.place) + report.place * len(captured)
        for report, stretch_of_row in zip(captured, _number_stretches(parts, captured), strict=True)
    ]
    _, begin, end, kind = (np.concatenate(column) for column in zip(*captured, strict=True))
    if not hides_nccl:
        kind = np.where(kind == sweep.WHOLE_GRAPH, sweep.COMPUTE, kind)
    changes = sweep.sweep_devices(np.concatenate(devices), begin, end, kind)
    result = Result(read=changes.device.size)
    # Rows are dropped before the windows add further lines, which do not count as read.
    wanted = parts[0].kept[changes.device // len(captured)]
    result.drop(NOT_SELECTED, int((~wanted).sum()))
    cut = sweep.cut_changes(sweep.DeviceChanges(*(column[wanted] for column in changes)), parts[0].windows)
    result.records = [make_change_records(cut.changes, cut.changes.device // len(captured))]
    result.pieces = cut.more
    result.drop(OUTSIDE_TRACE, cut.outside)
    return result


def _look_up(value_of_key: Mapping[int, int], keys: IntArray) -> IntArray:
    """Return the value of each of n keys."""
    index, distinct = find_distinct(keys)
    return np.array([value_of_key[key] for key in distinct.tolist()], np.int64)[index]


def _place_on_rows(part: JoinInput) -> Operations:
    """Return the operations of a report, with rows of the trace as places, on the common clock."""
    operations = Operations(*part.load_columns())
    kind = operations.kind  # only a crafted shard has other kinds, or ends before begins
    if kind.min(initial=0) < 0 or kind.max(initial=0) > sweep.WHOLE_GRAPH or (operations.begin > operations.end).any():
        raise TranslationError("the operations of a shard are damaged; read its report again")
    begin, end = part.clock(operations.begin), part.clock(operations.end)
    return Operations(part.rows[operations.place], begin, end, operations.kind)


def _find_limits(part: JoinInput, operations: Operations) -> tuple[int, int]:
    """Return the start and end (ns, common clock) of a report, given its operations on the common clock."""
    ran = operations.kind != sweep.IN_FLIGHT
    capture, length = part.metadata.begin, part.metadata.duration
    limits = [int(operations.begin[ran].min()), int(operations.end[ran].max())]
    if 0 < length < LONGEST_TRACE_NS:
        limits += [part.clock.at(capture), part.clock.at(capture + length)]
    return min(limits), max(limits)


def _number_stretches(parts: Sequence[JoinInput], captured: Sequence[Operations]) -> list[dict[int, int]]:
    """Return, for each report, the number of its stretch of captured time on each row.

    Reports of processes that share a GPU are in one stretch if they overlap in time. The capture ranges of one run are
    in several stretches.
    """
    stretches: list[dict[int, int]] = [{} for _ in captured]
    last_of_row: dict[int, tuple[int, int]] = {}  # number of the last stretch, and its end
    limits = list(map(_find_limits, parts, captured))
    for i in sorted(range(len(captured)), key=lambda i: limits[i]):
        first, last = limits[i]
        for row in np.unique(captured[i].place).tolist():
            number, end = last_of_row.get(row, (0, last))
            number += first > end
            last_of_row[row] = number, max(end, last)
            stretches[i][row] = number
    return stretches


def make_change_records(changes: sweep.DeviceChanges, row: IntArray) -> Records:
    """Return a line for each change, with the values that it changes."""
    activity, running, in_flight, idle = (event_type.number for event_type in _TYPES)
    pairs = [
        Pair(idle, changes.idle, changes.idle > 0),
        Pair(activity, changes.activity, changes.differs(1)),
        Pair(running, changes.kernels, changes.differs(2)),
        Pair(in_flight, changes.in_flight, changes.differs(4)),
    ]
    return make_events(row, changes.time, pairs)


SOURCE = Source(
    source_names.DEVICE_ACTIVITY,
    "What GPUs do as a whole",
    (CALLS,),
    read,
    join,
    IntArray,
    accounted_in_join=True,
    needed_tables=((KERNEL, MEMCPY, MEMSET, GRAPH),),
)
