"""Reads CUDA events and synchronization on host threads: which events were recorded, and what threads waited for.

nsys records neither the thread nor, for events, the time. The call with the same correlation id supplies both.
"""

from __future__ import annotations

import numpy as np

from nsys2prv_ng import source_names
from nsys2prv_ng.arrays.types import BoolArray, IntArray
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver.load_cost import LoadCost
from nsys2prv_ng.records.columns import Pair, make_events, make_intervals
from nsys2prv_ng.report.database import NULL, Columns, Table
from nsys2prv_ng.report.metadata import get_process
from nsys2prv_ng.sources.cuda.device_operations import CALLS, CONTEXTS, find_devices, read_recorded_calls
from nsys2prv_ng.sources.shared.host_calls import select_sound_calls
from nsys2prv_ng.sources.shared.reasons import NO_CALL, NO_PROCESS
from nsys2prv_ng.sources.shared.report_reader import ReportReader
from nsys2prv_ng.sources.shared.source import EventRows, Result, Source

SYNCHRONIZATION = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
EVENT = "CUPTI_ACTIVITY_KIND_CUDA_EVENT"
_IDS = dict.fromkeys(("globalPid", "correlationId", "deviceId", "contextId", "streamId", "eventId"), NULL)
SYNCHRONIZATION_TABLE = Table(SYNCHRONIZATION, ("start", "end", "syncType"), _IDS)
EVENT_TABLE = Table(EVENT, ("eventId",), {name: default for name, default in _IDS.items() if name != "eventId"})

_NONE = 0xFFFFFFFF
"""CUPTI's id if there is no stream or no event."""
_EVENT_SYNC, _STREAM_WAIT, _STREAM_SYNC, _CONTEXT_SYNC, _UNKNOWN = 1, 2, 3, 4, 5


def read(reader: ReportReader) -> Result:
    """Return an interval for each synchronization, within its call, and a point for each event, at its call."""
    result = Result()
    _add_synchronizations(reader, result)
    _add_events(reader, result)
    return result


def find_sync_kinds(sync_type: IntArray, event: IntArray, stream: IntArray) -> IntArray:
    """Return the values of the synchronization type for CUPTI's types.

    Exports of some versions (schema 3.13, 3.20) mark stream or context synchronizations as event synchronizations, but
    without the id of an event. Then the presence of a stream decides.
    """
    has_event, has_stream = _is_id(event), _is_id(stream)
    known = np.isin(sync_type, (_EVENT_SYNC, _STREAM_WAIT, _STREAM_SYNC, _CONTEXT_SYNC))
    has_no_event = np.isin(sync_type, (_EVENT_SYNC, _STREAM_WAIT)) & ~has_event
    corrected = np.where(has_stream, _STREAM_SYNC, _CONTEXT_SYNC)
    return np.where(has_no_event, corrected, np.where(known, sync_type, _UNKNOWN)).astype(np.int64)


def _is_id(value: IntArray) -> BoolArray:
    """Return a mask of the values that are ids."""
    present: BoolArray = (value != NULL) & (value != _NONE)
    return present


def _add_synchronizations(reader: ReportReader, result: Result) -> None:
    """Add an interval for each synchronization, with what it waits for."""
    columns = reader.columns(SYNCHRONIZATION)
    result.read += columns.rows
    rows, thread, _ = _find_calls(reader, result, columns)
    begin, end = columns["start"][rows], columns["end"][rows]
    sound = select_sound_calls(result, begin, end, thread)
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
    """Add a point for each event that a call recorded."""
    columns = reader.columns(EVENT)
    result.read += columns.rows
    rows, thread, time = _find_calls(reader, result, columns)
    pairs = [Pair(reader.labels.handle(types.CUDA_EVENT_RECORD), 1), *_make_id_pairs(reader, columns, rows, True)]
    place = reader.places.threads(thread, application=True)
    result.records.append(make_events(place, time, pairs))


def _find_calls(reader: ReportReader, result: Result, columns: Columns) -> tuple[IntArray, IntArray, IntArray]:
    """Return (rows with a recorded call, threads of the calls, starts of the calls in ns); drop the other rows."""
    process = columns["globalPid"]
    recorded = reader.once(read_recorded_calls)
    call = recorded.find(get_process(process), columns["correlationId"])
    rows = result.drop_rows({NO_PROCESS: process == NULL, NO_CALL: call < 0})
    return rows, recorded.global_tid[call[rows]], recorded.begin[call[rows]]


def _make_id_pairs(reader: ReportReader, columns: Columns, rows: IntArray, with_stream: BoolArray | bool) -> list[Pair]:
    """Return the ids of event, device, stream and context of the rows that have them."""
    stream = columns["streamId"][rows]
    context = columns["contextId"][rows]
    process = get_process(columns["globalPid"][rows])
    device = find_devices(reader, process, context, columns["deviceId"][rows])
    ids = (
        (types.CUDA_EVENT_ID, columns["eventId"][rows], _is_id(columns["eventId"][rows])),
        (types.CUDA_DEVICE_ID, device, _is_id(device)),
        (types.CUDA_STREAM_ID, stream, _is_id(stream) & with_stream),
        (types.CUDA_CONTEXT_ID, context, _is_id(context)),
    )
    return [Pair(reader.labels.handle(event_type), value, present) for event_type, value, present in ids]


SOURCE = Source(
    source_names.CUDA_SYNC,
    "CUDA events and synchronization",
    (SYNCHRONIZATION_TABLE, EVENT_TABLE, CONTEXTS, CALLS),
    read,
    counted_tables=(EventRows(SYNCHRONIZATION), EventRows(EVENT)),  # their calls make the tasks
    noun="waits, events",
    load=LoadCost(events=1.6, pairs=5.2),
)
