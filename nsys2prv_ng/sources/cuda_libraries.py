"""Calls of cuBLAS and cuDNN on host threads."""

from __future__ import annotations

from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver.event_type import EventType
from nsys2prv_ng.paraver.records import Pair, intervals
from nsys2prv_ng.report.database import Table
from nsys2prv_ng.sources.base import EventRows, Reading, Result, Source
from nsys2prv_ng.sources.cuda_api import call_name
from nsys2prv_ng.sources.host_calls import sound_calls

_COLUMNS = ("start", "end", "globalTid", "nameId")
CUBLAS_TABLE = Table("CUBLAS_EVENTS", _COLUMNS)
CUDNN_TABLE = Table("CUDNN_EVENTS", _COLUMNS)


def read(reading: Reading) -> Result:
    """An interval for each call, nested as the calls of its library were."""
    result = Result()
    _add(reading, result, CUBLAS_TABLE.name, types.CUBLAS_CALL)
    _add(reading, result, CUDNN_TABLE.name, types.CUDNN_CALL)
    return result


def _add(reading: Reading, result: Result, table: str, event_type: EventType) -> None:
    columns = reading.columns(table)
    result.read += columns.rows
    rows = sound_calls(result, columns["start"], columns["end"], columns["globalTid"])
    if not rows.size:
        return
    place = reading.places.threads(columns["globalTid"][rows], application=True)
    index, names = reading.names(columns["nameId"][rows])
    handle = reading.labels.handle(event_type)
    ids = reading.labels.name_ids(event_type.names, [call_name(name) for name in names])[index]
    result.records.append(intervals(place, columns["start"][rows], columns["end"][rows], [Pair(handle, ids)], [handle]))


SOURCE = Source(
    "cuda_libraries",
    "cuBLAS and cuDNN calls",
    (CUBLAS_TABLE, CUDNN_TABLE),
    read,
    rows=(EventRows(CUBLAS_TABLE.name, "globalTid"), EventRows(CUDNN_TABLE.name, "globalTid")),
    row="calls",
)
