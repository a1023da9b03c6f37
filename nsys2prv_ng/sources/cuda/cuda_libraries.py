"""Calls of cuBLAS and cuDNN on host threads."""

from __future__ import annotations

from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.report.database import Table
from nsys2prv_ng.sources.cuda.cuda_api import call_name
from nsys2prv_ng.sources.shared.host_calls import add_calls
from nsys2prv_ng.sources.shared.source import EventRows, Reading, Result, Source

_COLUMNS = ("start", "end", "globalTid", "nameId")
CUBLAS_TABLE = Table("CUBLAS_EVENTS", _COLUMNS)
CUDNN_TABLE = Table("CUDNN_EVENTS", _COLUMNS)


def read(reading: Reading) -> Result:
    """An interval for each call, nested as the calls of its library were."""
    result = Result()
    add_calls(reading, result, CUBLAS_TABLE.name, types.CUBLAS_CALL, call_name)
    add_calls(reading, result, CUDNN_TABLE.name, types.CUDNN_CALL, call_name)
    return result


SOURCE = Source(
    "cuda_libraries",
    "cuBLAS and cuDNN calls",
    (CUBLAS_TABLE, CUDNN_TABLE),
    read,
    rows=(EventRows(CUBLAS_TABLE.name, "globalTid"), EventRows(CUDNN_TABLE.name, "globalTid")),
    row="calls",
)
