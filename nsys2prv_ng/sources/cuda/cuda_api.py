"""Reads calls of CUDA and of NVIDIA's libraries on host threads, and what these threads waited for.

nsys records neither the thread nor, for CUDA events, the time. The call with the same correlation id supplies both.

The work of a video engine is shown on the thread that made the call; without a call, on the main thread of its process.
Several engines may work for a thread at the same time, so each kind of engine has lanes. No capture of video was
available: its tables follow NVIDIA's documentation of the export.
"""

from __future__ import annotations

import re

import numpy as np

from nsys2prv_ng import source_names
from nsys2prv_ng.arrays import row_keys as keys
from nsys2prv_ng.arrays.types import BoolArray, IntArray, pick
from nsys2prv_ng.intervals.nesting import assign_lanes, measure_depths
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver.load_cost import LoadCost
from nsys2prv_ng.paraver.value_tables import VIDEO_CODEC_UNKNOWN, VIDEO_CODECS, VIDEO_ENGINES
from nsys2prv_ng.records.columns import Pair, make_events, make_intervals
from nsys2prv_ng.report.database import NULL, Columns, Table
from nsys2prv_ng.report.metadata import get_main_thread, get_process
from nsys2prv_ng.sources.cuda import device_operations as gpu
from nsys2prv_ng.sources.shared import host_calls, reasons
from nsys2prv_ng.sources.shared.report_reader import ReportReader, make_number_pair
from nsys2prv_ng.sources.shared.source import EventRows, Result, Source

_COLUMNS = ("start", "end", "globalTid", "nameId")
LIBRARY_CALLS = {"CUBLAS_EVENTS": types.CUBLAS_CALL, "CUDNN_EVENTS": types.CUDNN_CALL}
"""The event type of the calls in the table of each library."""

_VERSION = re.compile(r"_v\d+$")
_SYNCHRONIZING = re.compile(r"cuda(Device|Stream|Event|Thread)Synchronize|cu(Ctx|Stream|Event)Synchronize")
_COPYING = re.compile(r"cu(da)?Memcpy(?!.*Async)")


def _clean_call_name(name: str) -> str:
    """Return the name of a call without the version that nsys appends: cudaLaunchKernel for cudaLaunchKernel_v7000."""
    return _VERSION.sub("", name)


def choose_call_state(name: str) -> int:
    """Return the state of a thread within a call, or -1 if the call implies none.

    The state is synchronization in calls that wait for the device, and memory transfer in copies that return when they
    are done.
    """
    if _SYNCHRONIZING.match(name):
        return types.SYNCHRONIZATION
    return types.MEMORY_TRANSFER if _COPYING.match(name) else -1


def read(reader: ReportReader) -> Result:
    """Return an interval for each call, nested as the calls were, with its callers if nsys took a backtrace."""
    return host_calls.read_calls(
        reader,
        {gpu.RUNTIME: types.CUDA_API},
        clean_name=_clean_call_name,
        read_chains=host_calls.read_cuda_chains,
        choose_state=choose_call_state,
    )


def read_libraries(reader: ReportReader) -> Result:
    """Return an interval for each call of cuBLAS and cuDNN, nested as the calls of its library were."""
    return host_calls.read_calls(reader, LIBRARY_CALLS, clean_name=_clean_call_name)


SOURCE = Source(
    source_names.CUDA_API,
    "CUDA API calls",
    (Table(gpu.RUNTIME, _COLUMNS, {"callchainId": NULL, "correlationId": NULL}), host_calls.CUDA_CALL_CHAINS),
    read,
    counted_tables=(EventRows(gpu.RUNTIME, "globalTid"),),
    noun="calls",
    needed_by=("critical_path",),
    load=LoadCost(events=2, pairs=2),
)
LIBRARIES = Source(
    source_names.CUDA_LIBRARIES,
    "cuBLAS and cuDNN calls",
    tuple(Table(table, _COLUMNS) for table in LIBRARY_CALLS),
    read_libraries,
    counted_tables=tuple(EventRows(table, "globalTid") for table in LIBRARY_CALLS),
    noun="calls",
    needed_by=(),
)


# ---- launches whose kernels the report lacks -------------------------------------------------------------------------


_LAUNCH = re.compile(r"cu(da)?Launch(Cooperative)?Kernel.*")
_CAPTURES = re.compile(r"cu(da)?StreamBeginCapture.*"), re.compile(r"cu(da)?StreamEndCapture.*")


def warn_of_lost_kernels(reader: ReportReader) -> list[str]:
    """Return a warning if the report lacks kernels of launches, provided that kernels and CUDA's calls are read.

    nsys may record the calls of a process without its GPU operations, or lose operations in between or their times, and
    say nothing: the GPU then looks idle. It is no loss if the call added its kernel to a CUDA graph, failed, or is part
    of another launch, nor if the capture ended before the kernel ran. So calls do not count while their process
    captures a stream, nor if they may have been pending at the end: before the last idle time that a later launch
    ended, all must have run, since nothing kept them from it. If a process has no operation at all, all its launches
    count.
    """
    if not {source_names.KERNELS, source_names.CUDA_API} <= reader.chosen:
        return []
    recorded, operations = reader.once(gpu.read_recorded_calls), reader.once(gpu.locate)
    call, start, end = operations.call, operations.stack("start"), operations.stack("end")
    index, names = reader.names(reader.columns(gpu.RUNTIME)["nameId"][recorded.row])
    is_launch, begins, ends = (
        np.array([pattern.fullmatch(name) is not None for name in names], np.bool_)[index]
        for pattern in (_LAUNCH, *_CAPTURES)
    )
    has_operation = np.zeros(recorded.row.size, np.bool_)
    # Another warning counts those whose times are impossible.
    has_times = (start != NULL) & (end >= start) & (end > 0)
    has_operation[call[(call >= 0) & ((operations.place >= 0) | has_times)]] = True
    lost = is_launch & ~has_operation
    if not lost.any():
        return []
    returned = np.maximum(recorded.begin, recorded.end)
    lost[is_launch] &= (
        measure_depths(recorded.global_tid[is_launch], recorded.begin[is_launch], returned[is_launch]) == 1
    )
    lost &= (reader.read(Table(gpu.RUNTIME, (), {"returnValue": 0}))["returnValue"] == 0)[recorded.row]
    owner = get_process(operations.stack("globalPid"))
    for process in np.unique(recorded.process[lost]):
        own = np.flatnonzero(recorded.process == process)
        lost[own] &= ~_mark_capturing(recorded.begin[own], begins[own], returned[own], ends[own])
        ran = np.flatnonzero((owner == process) & (operations.place >= 0))
        if ran.size:
            ran = ran[np.argsort(start[ran], kind="stable")]
            lost[own] &= returned[own] <= _find_last_idle(start[ran], end[ran], pick(recorded.begin, call[ran], NULL))
    if not lost.any():
        return []
    return [
        f"it lacks the kernels of {lost.sum():,} of its {is_launch.sum():,} kernel launches, or their times:"
        " GPUs that seem idle may have worked"
    ]


def _mark_capturing(begin: IntArray, begins: BoolArray, end: IntArray, ends: BoolArray) -> BoolArray:
    """Mark the calls of a process that start while it captures streams.

    `begin` and `end`: times of its n calls (ns), sorted by `begin`. `begins`, `ends`: the calls that begin and end the
    capture of a stream. A capture without a beginning began before all calls, and one without an end lasts.
    """
    before = np.searchsorted(np.sort(end[ends]), begin, "left")
    running = np.cumsum(begins) - before
    return np.asarray(running > min(0, int(running.min(initial=0))), np.bool_)


def _find_last_idle(start: IntArray, end: IntArray, launched: IntArray) -> int:
    """Return when the last idle time of a process begins that a later launch ended (ns); NULL if there is none.

    `start`, `end`, `launched`: times of n operations in the order of their starts; NULL for an unknown launch.
    """
    until = np.maximum.accumulate(end)[:-1]
    idle = until[(start[1:] > until) & (launched[1:] >= until)]
    return int(idle.max(initial=NULL))


# ---- CUDA events and synchronization ---------------------------------------------------------------------------------


_IDS = dict.fromkeys(("globalPid", "correlationId", "deviceId", "contextId", "streamId"), NULL)
WAITS = Table("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", ("start", "end", "syncType"), {**_IDS, "eventId": NULL})
EVENTS = Table("CUPTI_ACTIVITY_KIND_CUDA_EVENT", ("eventId",), _IDS)

_NONE = 0xFFFFFFFF
"""CUPTI's id if there is no stream or no event."""
_EVENT_SYNC, _STREAM_WAIT, _STREAM_SYNC, _CONTEXT_SYNC, _UNKNOWN = 1, 2, 3, 4, 5


def read_synchronization(reader: ReportReader) -> Result:
    """Return an interval for each synchronization, within its call, and a point for each event, at its call."""
    columns, labels = reader.columns(WAITS.name), reader.labels
    result = Result(read=columns.rows)
    rows, thread, _ = _find_calls(reader, result, columns)
    begin, end = columns["start"][rows], columns["end"][rows]
    sound = host_calls.select_sound_calls(result, begin, end, thread)
    rows, thread, begin, end = rows[sound], thread[sound], begin[sound], end[sound]
    stream = columns["streamId"][rows]
    kind = _find_sync_kinds(columns["syncType"][rows], columns["eventId"][rows], stream)
    handle = labels.handle(types.CUDA_SYNCHRONIZATION)
    waited_for = (kind == _STREAM_SYNC) & _is_id(stream)
    pairs = [
        Pair(handle, kind),
        Pair(labels.handle(types.CUDA_STREAM_WAITED_FOR), stream, waited_for),
        *_make_id_pairs(reader, columns, rows, ~waited_for),
    ]
    place = reader.places.threads(thread, application=True)
    result.records.append(make_intervals(place, begin, end, pairs, [handle]))

    columns = reader.columns(EVENTS.name)
    result.read += columns.rows
    rows, thread, time = _find_calls(reader, result, columns)
    pairs = [Pair(labels.handle(types.CUDA_EVENT_RECORD), 1), *_make_id_pairs(reader, columns, rows, True)]
    result.records.append(make_events(reader.places.threads(thread, application=True), time, pairs))
    return result


def _find_sync_kinds(sync_type: IntArray, event: IntArray, stream: IntArray) -> IntArray:
    """Return the values of the synchronization type for CUPTI's types.

    Exports of some versions (schema 3.13, 3.20) mark stream or context synchronizations as event synchronizations, but
    without the id of an event. Then the presence of a stream decides.
    """
    known = np.isin(sync_type, (_EVENT_SYNC, _STREAM_WAIT, _STREAM_SYNC, _CONTEXT_SYNC))
    has_no_event = np.isin(sync_type, (_EVENT_SYNC, _STREAM_WAIT)) & ~_is_id(event)
    corrected = np.where(_is_id(stream), _STREAM_SYNC, _CONTEXT_SYNC)
    return np.where(has_no_event, corrected, np.where(known, sync_type, _UNKNOWN)).astype(np.int64)


def _is_id(value: IntArray) -> BoolArray:
    """Return a mask of the values that are ids."""
    return np.asarray((value != NULL) & (value != _NONE), np.bool_)


def _find_calls(reader: ReportReader, result: Result, columns: Columns) -> tuple[IntArray, IntArray, IntArray]:
    """Return (rows with a recorded call, threads of the calls, starts of the calls in ns); drop the other rows."""
    process = columns["globalPid"]
    recorded = reader.once(gpu.read_recorded_calls)
    call = recorded.find(get_process(process), columns["correlationId"])
    rows = result.drop_rows({reasons.NO_PROCESS: process == NULL, reasons.NO_CALL: call < 0})
    return rows, recorded.global_tid[call[rows]], recorded.begin[call[rows]]


def _make_id_pairs(reader: ReportReader, columns: Columns, rows: IntArray, with_stream: BoolArray | bool) -> list[Pair]:
    """Return the ids of event, device, stream and context of the rows that have them."""
    event, stream, context, pid, device = (
        columns[name][rows] for name in ("eventId", "streamId", "contextId", "globalPid", "deviceId")
    )
    device = gpu.find_devices(reader, get_process(pid), context, device)
    ids = (
        (types.CUDA_EVENT_ID, event, _is_id(event)),
        (types.CUDA_DEVICE_ID, device, _is_id(device)),
        (types.CUDA_STREAM_ID, stream, _is_id(stream) & with_stream),
        (types.CUDA_CONTEXT_ID, context, _is_id(context)),
    )
    return [Pair(reader.labels.handle(event_type), value, present) for event_type, value, present in ids]


SYNCHRONIZATION = Source(
    source_names.CUDA_SYNC,
    "CUDA events and synchronization",
    (WAITS, EVENTS, gpu.CONTEXTS, gpu.CALLS),
    read_synchronization,
    counted_tables=(EventRows(WAITS.name), EventRows(EVENTS.name)),  # their calls make the tasks
    noun="waits, events",
    load=LoadCost(events=1.6, pairs=5.2),
)


# ---- video encoder, decoder and JPEG ---------------------------------------------------------------------------------


VIDEO_CALLS = {
    "NVVIDEO_ENCODER_API": types.VIDEO_ENCODER_CALL,
    "NVVIDEO_DECODER_API": types.VIDEO_DECODER_CALL,
    "NVVIDEO_JPEG_API": types.VIDEO_JPEG_CALL,
}
_ENGINES_OF_CALLS = (1, 0, 2)
"""The kind of engine that each of these libraries uses."""
WORK = Table(
    "GPU_VIDEO_ENGINE_WORKLOAD",
    ("start", "end", "engineType"),
    {"globalPid": NULL, "engineId": NULL, "apiId": NULL, "codecId": NULL},
)
MISSING_WORK = Table("GPU_VIDEO_ENGINE_MISSING", ("rangeCount",))


def read_video(reader: ReportReader) -> Result:
    """Return an interval for each call, nested as the calls of its library were, and each work item of an engine."""
    result = host_calls.read_calls(reader, VIDEO_CALLS)
    _add_work(reader, result)
    missing = reader.columns(MISSING_WORK.name)["rangeCount"]
    if missing.size:
        count = int(missing[missing > 0].sum())
        reader.metadata.warnings.append(f"nsys did not record {count:,} times that a video engine worked")
    return result


def _add_work(reader: ReportReader, result: Result) -> None:
    """Add an interval for each work item of an engine."""
    columns = reader.columns(WORK.name)
    result.read += columns.rows
    known = result.drop_rows({reasons.UNKNOWN_ENGINE: ~np.isin(columns["engineType"], list(VIDEO_ENGINES))})
    thread = _find_threads_of_work(reader)[known]
    rows = host_calls.select_sound_intervals(result, columns["start"][known], columns["end"][known], thread)
    thread, rows = thread[rows], known[rows]
    names = ("start", "end", "engineType", "engineId", "codecId")
    begin, end, kind, engine, codec = (columns[name][rows] for name in names)
    lane = assign_lanes(keys.encode_rows(thread, kind)[0], begin, end)
    result.drop(reasons.NO_VIDEO_LANE, int((lane >= types.VIDEO_LANES).sum()))
    # Work alone does not make its process a task, because nsys records all processes that use the engines.
    place = reader.places.observed_threads(thread)
    value = np.where(np.isin(codec + 1, list(VIDEO_CODECS)), codec + 1, VIDEO_CODEC_UNKNOWN)
    for (work_kind, work_lane), event_type in types.VIDEO_WORK.items():
        on = np.flatnonzero((kind == work_kind) & (lane == work_lane))
        if on.size:
            handle = reader.labels.handle(event_type)
            opening = [Pair(handle, value[on]), make_number_pair(reader.labels, types.VIDEO_ENGINE, engine[on])]
            result.records.append(make_intervals(place[on], begin[on], end[on], opening, [handle]))


def _find_threads_of_work(reader: ReportReader) -> IntArray:
    """Return the thread of each work item: the thread of the call with its id, else the main thread of the process."""
    work = reader.columns(WORK.name)
    process = get_process(work["globalPid"])
    caller, api = reader.stack(VIDEO_CALLS, ("globalTid", "apiId")).values()
    kind = np.repeat(_ENGINES_OF_CALLS, [reader.columns(table).rows for table in VIDEO_CALLS])
    has_id = (caller != NULL) & (api != NULL)
    caller, kind, api = caller[has_id], kind[has_id], api[has_id]
    call = keys.find_rows([get_process(caller), kind, api], [process, work["engineType"], work["apiId"]])
    main = np.where(work["globalPid"] == NULL, NULL, get_main_thread(process))
    return np.where(call >= 0, pick(caller, call, NULL), main)


VIDEO = Source(
    source_names.VIDEO,
    "Video encoding and decoding",
    (*(Table(table, _COLUMNS, {"apiId": NULL}) for table in VIDEO_CALLS), WORK, MISSING_WORK),
    read_video,
    counted_tables=(*(EventRows(table, "globalTid") for table in VIDEO_CALLS), EventRows(WORK.name)),
    noun="calls, works of engines",
)
