"""Shows what each GPU does as a whole: its activity, and the turns of the contexts that it works for.

The activity is computed from the kernels, copies, sets and graphs of all streams and processes. The other chosen
sources supply these operations. This source adds their launches, and joins the operations on one GPU over processes and
reports.

A context is restored, works, and is saved. (The User Guide pairs the first start with the end that follows. The other
tags describe the switch itself and are not shown.) Contexts have turns across processes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from nsys2prv_ng import source_names
from nsys2prv_ng.arrays.row_keys import encode_rows, find_distinct, find_distinct_rows
from nsys2prv_ng.arrays.types import IntArray, pick
from nsys2prv_ng.errors import TranslationError
from nsys2prv_ng.intervals import device_sweep as sweep
from nsys2prv_ng.intervals.nesting import mark_crossing
from nsys2prv_ng.objects.tree import ObjectTree, group_by_shared_rows
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver.model import LONGEST_TRACE_NS
from nsys2prv_ng.records.columns import Pair, Records, make_events
from nsys2prv_ng.report.database import NULL, Table
from nsys2prv_ng.report.metadata import PID_MASK, get_process
from nsys2prv_ng.sources.cuda import device_operations as gpu
from nsys2prv_ng.sources.cuda.communication import find_classes, mark_communication
from nsys2prv_ng.sources.cuda.device_operations import DECOMPRESSION, GRAPH, KERNEL, MEMCPY, MEMSET
from nsys2prv_ng.sources.shared import reasons
from nsys2prv_ng.sources.shared.report_reader import ReportReader, make_name_pair
from nsys2prv_ng.sources.shared.source import EventRows, JoinInput, JoinResult, Result, Source, pair_switches

_TYPES = (types.GPU_ACTIVITY, types.KERNELS_RUNNING, types.KERNELS_IN_FLIGHT, types.GPU_IDLE_STRETCH)


_SOURCES = {
    KERNEL: source_names.KERNELS,
    MEMCPY: source_names.MEMORY_OPERATIONS,
    MEMSET: source_names.MEMORY_OPERATIONS,
    DECOMPRESSION: source_names.MEMORY_OPERATIONS,
    GRAPH: source_names.CUDA_GRAPHS,
}
"""The source that shows the operations of each table. Other sources read the tables for other purposes."""
_MEMORY = dict.fromkeys((MEMCPY, MEMSET, DECOMPRESSION), sweep.MEMORY)
_KINDS = {KERNEL: sweep.COMPUTE, **_MEMORY, GRAPH: sweep.WHOLE_GRAPH}
"""The kind of the operations of each table, unless they are communication; whole graphs are not known yet."""


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
    operations = reader.once(gpu.locate)
    is_chosen = operations.spread({table: source in reader.chosen for table, source in _SOURCES.items()})
    rows = np.flatnonzero((operations.place >= 0) & (is_chosen > 0))
    result = Result()
    if not rows.size:
        return result
    shown = ("start", "end", "globalPid", "deviceId")
    begin, end, pid, device = (operations.stack(column)[rows] for column in shown)
    place = reader.places.devices(reader.find_gpus(get_process(pid), device))
    kind = operations.spread(_KINDS)[rows]
    kind = sweep.add_communication(kind, mark_communication(reader.once(find_classes)[rows]))

    flies = np.flatnonzero(kind & sweep.MEMORY == 0)
    call = operations.call[rows[flies]]
    launched = pick(reader.once(gpu.read_recorded_calls).begin, call, np.iinfo(np.int64).max)
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
    result.drop(reasons.NOT_SELECTED, int((~wanted).sum()))
    cut = sweep.cut_changes(sweep.DeviceChanges(*(column[wanted] for column in changes)), parts[0].windows)
    result.records = [make_change_records(cut.changes, cut.changes.device // len(captured))]
    result.pieces = cut.more
    result.drop(reasons.OUTSIDE_TRACE, cut.outside)
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
    (gpu.CALLS,),
    read,
    join,
    IntArray,
    accounted_in_join=True,
    needed_tables=(gpu.TABLES,),
)


# ---- contexts --------------------------------------------------------------------------------------------------------


CONTEXT_SWITCHES = Table(
    "GPU_CONTEXT_SWITCH_EVENTS", ("tag", "contextId", "timestamp", "gpuId"), {"globalPid": NULL, "seqNo": 0}
)

# ENUM_GPU_CTX_SWITCH
_SAVE_END, _RESTORE_START = 7, 8


def read_contexts(reader: ReportReader) -> Result:
    """Return an interval for each turn of a context. `read` counts turns."""
    columns = reader.columns(CONTEXT_SWITCHES.name)
    result = Result()
    tag, context, time, device = (columns[name] for name in CONTEXT_SWITCHES.required)
    pid = columns["globalPid"]
    is_limit = np.isin(tag, (_SAVE_END, _RESTORE_START))
    late = is_limit & reasons.is_late(time)
    unknown = is_limit & ((context == NULL) | reasons.lacks_time(time) | (device == NULL))
    rows = result.drop_rows({reasons.AFTER_CAPTURE: late, reasons.NO_CONTEXT: unknown, reasons.SWITCH_STEP: ~is_limit})
    # The sequence numbers of the GPU order events of the same time.
    rows = rows[np.lexsort((columns["seqNo"][rows], time[rows], context[rows], device[rows]))]
    owner, _ = encode_rows(device[rows], context[rows])
    why = reasons.NO_TURN_END, reasons.NO_TURN_START
    shown, end = pair_switches(result, owner, tag[rows] == _RESTORE_START, time[rows], *why)
    shown = rows[shown]
    nested = result.drop_rows({reasons.OVERLAPS_TURN: mark_crossing(device[shown], time[shown], end)})
    shown, end = shown[nested], end[nested]

    codes, contexts = find_distinct_rows(get_process(pid[shown]), context[shown])
    names = [_name_context(reader, *key) for key in contexts]
    pair = make_name_pair(reader.labels, types.GPU_CONTEXT, codes, names)
    result.add_intervals(
        reader.places.devices(device[shown]), time[shown], end, [pair], [reader.labels.handle(types.GPU_CONTEXT)]
    )
    return result


def _name_context(reader: ReportReader, process: int, context: int) -> str:
    """Return the name of a context, with its process if the process is known."""
    if process == get_process(np.int64(NULL)) or process & PID_MASK == 0:
        return f"context {context}"
    return f"{reader.metadata.get_process_name(process)} ({process & PID_MASK}), context {context}"


CONTEXTS = Source(
    source_names.GPU_CONTEXTS,
    "Contexts that GPUs work for",
    (CONTEXT_SWITCHES,),
    read_contexts,
    counted_tables=(EventRows(CONTEXT_SWITCHES.name),),
    noun="switch steps",
)
