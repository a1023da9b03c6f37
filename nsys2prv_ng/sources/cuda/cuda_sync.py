"""CUDA events and synchronization on host threads: what was recorded, what was waited for.

nsys knows neither the thread nor (of events) the time of these: both are those of the call, found by correlation id.
"""

from __future__ import annotations

import numpy as np

from nsys2prv_ng.arrays.types import BoolArray, IntArray
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.records.columns import Pair, make_events, make_intervals
from nsys2prv_ng.report.database import NULL, Columns, Table
from nsys2prv_ng.report.metadata import get_process
from nsys2prv_ng.sources.cuda import cuda_contexts as contexts
from nsys2prv_ng.sources.cuda import launch_calls as calls
from nsys2prv_ng.sources.shared.host_calls import select_sound_calls
from nsys2prv_ng.sources.shared.reasons import NO_PROCESS
from nsys2prv_ng.sources.shared.report_reader import ReportReader
from nsys2prv_ng.sources.shared.result import Result
from nsys2prv_ng.sources.shared.source import EventRows, Source

SYNCHRONIZATION = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
EVENT = "CUPTI_ACTIVITY_KIND_CUDA_EVENT"
_IDS = dict.fromkeys(("globalPid", "correlationId", "deviceId", "contextId", "streamId", "eventId"), NULL)
SYNCHRONIZATION_TABLE = Table(SYNCHRONIZATION, ("start", "end", "syncType"), _IDS)
EVENT_TABLE = Table(EVENT, ("eventId",), {name: default for name, default in _IDS.items() if name != "eventId"})

_NONE = 0xFFFFFFFF
"""CUPTI's id of no stream, no event."""
_EVENT_SYNC, _STREAM_WAIT, _STREAM_SYNC, _CONTEXT_SYNC, _UNKNOWN = 1, 2, 3, 4, 5


def read(reader: ReportReader) -> Result:
    """An interval for each synchronization, within its call; a point for each event that was recorded, at its call."""
    result = Result()
    _add_synchronizations(reader, result)
    _add_events(reader, result)
    return result


def find_sync_kinds(sync_type: IntArray, event: IntArray, stream: IntArray) -> IntArray:
    """Values of the synchronization type for CUPTI's.

    Exports of some versions (schema 3.13, 3.20) say that a synchronization of a stream or a context concerns an event,
    but name none: the stream, or its absence, tells them.
    """
    has_event, has_stream = _is_id(event), _is_id(stream)
    known = np.isin(sync_type, (_EVENT_SYNC, _STREAM_WAIT, _STREAM_SYNC, _CONTEXT_SYNC))
    eventless = np.isin(sync_type, (_EVENT_SYNC, _STREAM_WAIT)) & ~has_event
    without = np.where(has_stream, _STREAM_SYNC, _CONTEXT_SYNC)
    return np.where(eventless, without, np.where(known, sync_type, _UNKNOWN)).astype(np.int64)


def _is_id(value: IntArray) -> BoolArray:
    present: BoolArray = (value != NULL) & (value != _NONE)
    return present


def _add_synchronizations(reader: ReportReader, result: Result) -> None:
    columns = reader.columns(SYNCHRONIZATION)
    result.read += columns.rows
    rows, thread, _ = _find_calls(reader, result, columns)
    begin, end = columns["start"][rows], columns["end"][rows]
    sound = select_sound_calls(result, begin, end, thread)
    if not sound.size:
        return
    rows, thread, begin, end = rows[sound], thread[sound], begin[sound], end[sound]
    stream = columns["streamId"][rows]
    kind = find_sync_kinds(columns["syncType"][rows], columns["eventId"][rows], stream)
    handle = reader.labels.handle(types.CUDA_SYNCHRONIZATION)
    waited_for = (kind == _STREAM_SYNC) & _is_id(stream)
    pairs = [
        Pair(handle, kind),
        Pair(reader.labels.handle(types.CUDA_STREAM_WAITED_FOR), stream, waited_for),
        *_make_id_pairs(reader, columns, rows, ~waited_for),
    ]
    place = reader.places.threads(thread, application=True)
    result.records.append(make_intervals(place, begin, end, pairs, [handle]))


def _add_events(reader: ReportReader, result: Result) -> None:
    columns = reader.columns(EVENT)
    result.read += columns.rows
    rows, thread, time = _find_calls(reader, result, columns)
    if not rows.size:
        return
    pairs = [
        Pair(reader.labels.handle(types.CUDA_EVENT_RECORD), 1),
        *_make_id_pairs(reader, columns, rows, np.ones(rows.size, np.bool_)),
    ]
    place = reader.places.threads(thread, application=True)
    result.records.append(make_events(place, time, pairs))


def _find_calls(reader: ReportReader, result: Result, columns: Columns) -> tuple[IntArray, IntArray, IntArray]:
    """Rows whose call was recorded, and its thread and begin (ns); the others are counted as dropped."""
    process = columns["globalPid"]
    no_process = process == NULL
    result.drop(NO_PROCESS, int(no_process.sum()))
    by_id = reader.once(calls.read_recorded_calls)
    call = by_id.find(get_process(process), columns["correlationId"])
    result.drop(calls.NO_CALL, int((~no_process & (call < 0)).sum()))
    rows = np.flatnonzero(~no_process & (call >= 0))
    return rows, by_id.global_tid[call[rows]], by_id.begin[call[rows]]


def _make_id_pairs(reader: ReportReader, columns: Columns, rows: IntArray, with_stream: BoolArray) -> list[Pair]:
    """Event, device, stream and context, where there is one."""
    stream = columns["streamId"][rows]
    context = columns["contextId"][rows]
    process = get_process(columns["globalPid"][rows])
    device = contexts.find_devices(reader, process, context, columns["deviceId"][rows])
    found = (
        (types.CUDA_EVENT_ID, columns["eventId"][rows], _is_id(columns["eventId"][rows])),
        (types.CUDA_DEVICE_ID, device, _is_id(device)),
        (types.CUDA_STREAM_ID, stream, _is_id(stream) & with_stream),
        (types.CUDA_CONTEXT_ID, context, _is_id(context)),
    )
    return [Pair(reader.labels.handle(event_type), value, present) for event_type, value, present in found]


SOURCE = Source(
    "cuda_sync",
    "CUDA events and synchronization",
    (SYNCHRONIZATION_TABLE, EVENT_TABLE, contexts.TABLE, calls.TABLE),
    read,
    rows=(EventRows(SYNCHRONIZATION), EventRows(EVENT)),  # tasks are those of their calls
    row="waits, events",
)
