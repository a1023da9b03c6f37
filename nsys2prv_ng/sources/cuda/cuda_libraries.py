"""Reads calls of cuBLAS and cuDNN on host threads."""

from __future__ import annotations

from nsys2prv_ng import source_names
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.report.database import Table
from nsys2prv_ng.sources.cuda.cuda_api import clean_call_name
from nsys2prv_ng.sources.shared.host_calls import add_calls
from nsys2prv_ng.sources.shared.report_reader import ReportReader
from nsys2prv_ng.sources.shared.result import Result
from nsys2prv_ng.sources.shared.source import EventRows, Source

_COLUMNS = ("start", "end", "globalTid", "nameId")
CUBLAS_TABLE = Table("CUBLAS_EVENTS", _COLUMNS)
CUDNN_TABLE = Table("CUDNN_EVENTS", _COLUMNS)


def read(reader: ReportReader) -> Result:
    """Return an interval for each call, nested as the calls of its library were."""
    result = Result()
    add_calls(reader, result, CUBLAS_TABLE.name, types.CUBLAS_CALL, clean_name=clean_call_name)
    add_calls(reader, result, CUDNN_TABLE.name, types.CUDNN_CALL, clean_name=clean_call_name)
    return result


SOURCE = Source(
    source_names.CUDA_LIBRARIES,
    "cuBLAS and cuDNN calls",
    (CUBLAS_TABLE, CUDNN_TABLE),
    read,
    counted_tables=(EventRows(CUBLAS_TABLE.name, "globalTid"), EventRows(CUDNN_TABLE.name, "globalTid")),
    noun="calls",
)
