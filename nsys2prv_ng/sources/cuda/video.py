"""Reads calls of NVIDIA's video encoder, decoder and JPEG libraries on host threads, and the work of GPU engines.

The work of an engine is shown on the thread that made the call; without a call, on the main thread of its process.
Several engines may work for a thread at the same time, so each kind of engine has lanes. No capture was available: the
tables follow NVIDIA's documentation of the export.
"""

from __future__ import annotations

import numpy as np

from nsys2prv_ng import source_names
from nsys2prv_ng.arrays import row_keys as keys
from nsys2prv_ng.arrays.pick import pick
from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.intervals.nesting import assign_lanes
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver.value_tables import VIDEO_CODEC_UNKNOWN, VIDEO_CODECS, VIDEO_ENGINES
from nsys2prv_ng.records.columns import Pair, make_intervals
from nsys2prv_ng.report.database import NULL, Table
from nsys2prv_ng.report.metadata import get_main_thread, get_process
from nsys2prv_ng.sources.shared.host_calls import read_calls, select_sound_intervals
from nsys2prv_ng.sources.shared.reasons import NO_VIDEO_LANE, UNKNOWN_ENGINE
from nsys2prv_ng.sources.shared.report_reader import ReportReader, make_number_pair
from nsys2prv_ng.sources.shared.source import EventRows, Result, Source

_COLUMNS = ("start", "end", "globalTid", "nameId")
CALLS = {
    "NVVIDEO_ENCODER_API": types.VIDEO_ENCODER_CALL,
    "NVVIDEO_DECODER_API": types.VIDEO_DECODER_CALL,
    "NVVIDEO_JPEG_API": types.VIDEO_JPEG_CALL,
}
_ENGINES = (1, 0, 2)
"""The kind of engine that each of these libraries uses."""
_CALL_TABLES = tuple(Table(table, _COLUMNS, {"apiId": NULL}) for table in CALLS)
WORK = Table(
    "GPU_VIDEO_ENGINE_WORKLOAD",
    ("start", "end", "engineType"),
    {"globalPid": NULL, "engineId": NULL, "apiId": NULL, "codecId": NULL},
)
MISSING = Table("GPU_VIDEO_ENGINE_MISSING", ("rangeCount",))


def read(reader: ReportReader) -> Result:
    """Return an interval for each call, nested as the calls of its library were, and each work item of an engine."""
    result = read_calls(reader, CALLS)
    _add_work(reader, result)
    missing = reader.columns(MISSING.name)["rangeCount"]
    if missing.size:
        count = int(missing[missing > 0].sum())
        reader.metadata.warnings.append(f"nsys did not record {count:,} times that a video engine worked")
    return result


def _add_work(reader: ReportReader, result: Result) -> None:
    """Add an interval for each work item of an engine."""
    columns = reader.columns(WORK.name)
    result.read += columns.rows
    known = result.drop_rows({UNKNOWN_ENGINE: ~np.isin(columns["engineType"], list(VIDEO_ENGINES))})
    thread = _find_threads(reader)[known]
    rows = select_sound_intervals(result, columns["start"][known], columns["end"][known], thread)
    thread, rows = thread[rows], known[rows]
    begin, end, kind, engine, codec = (
        columns[name][rows] for name in ("start", "end", "engineType", "engineId", "codecId")
    )
    lane = assign_lanes(keys.encode_rows(thread, kind)[0], begin, end)
    result.drop(NO_VIDEO_LANE, int((lane >= types.VIDEO_LANES).sum()))
    # Work alone does not make its process a task, because nsys records all processes that use the engines.
    place = reader.places.observed_threads(thread)
    value = np.where(np.isin(codec + 1, list(VIDEO_CODECS)), codec + 1, VIDEO_CODEC_UNKNOWN)
    for (work_kind, work_lane), event_type in types.VIDEO_WORK.items():
        on = np.flatnonzero((kind == work_kind) & (lane == work_lane))
        if on.size:
            handle = reader.labels.handle(event_type)
            opening = [Pair(handle, value[on]), make_number_pair(reader.labels, types.VIDEO_ENGINE, engine[on])]
            result.records.append(make_intervals(place[on], begin[on], end[on], opening, [handle]))


def _find_threads(reader: ReportReader) -> IntArray:
    """Return the thread of each work item: the thread of the call with its id, else the main thread of the process."""
    work = reader.columns(WORK.name)
    process = get_process(work["globalPid"])
    caller, api = reader.stack(CALLS, ("globalTid", "apiId")).values()
    kind = np.repeat(_ENGINES, [reader.columns(table).rows for table in CALLS])
    has_id = (caller != NULL) & (api != NULL)
    caller, kind, api = caller[has_id], kind[has_id], api[has_id]
    call = keys.find_rows([get_process(caller), kind, api], [process, work["engineType"], work["apiId"]])
    main = np.where(work["globalPid"] == NULL, NULL, get_main_thread(process))
    return np.where(call >= 0, pick(caller, call, NULL), main)


SOURCE = Source(
    source_names.VIDEO,
    "Video encoding and decoding",
    (*_CALL_TABLES, WORK, MISSING),
    read,
    counted_tables=(*(EventRows(table, "globalTid") for table in CALLS), EventRows(WORK.name)),
    noun="calls, works of engines",
)
