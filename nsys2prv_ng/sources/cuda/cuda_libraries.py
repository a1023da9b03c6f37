"""Reads calls of cuBLAS and cuDNN on host threads."""

from __future__ import annotations

from nsys2prv_ng import source_names
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.report.database import Table
from nsys2prv_ng.sources.cuda.cuda_api import clean_call_name
from nsys2prv_ng.sources.shared.host_calls import read_calls
from nsys2prv_ng.sources.shared.report_reader import ReportReader
from nsys2prv_ng.sources.shared.result import Result
from nsys2prv_ng.sources.shared.source import EventRows, Source

_COLUMNS = ("start", "end", "globalTid", "nameId")
CALLS = {"CUBLAS_EVENTS": types.CUBLAS_CALL, "CUDNN_EVENTS": types.CUDNN_CALL}
"""The event type of the calls in each table."""


def read(reader: ReportReader) -> Result:
    """Return an interval for each call, nested as the calls of its library were."""
    return read_calls(reader, CALLS, clean_name=clean_call_name)


SOURCE = Source(
    source_names.CUDA_LIBRARIES,
    "cuBLAS and cuDNN calls",
    tuple(Table(table, _COLUMNS) for table in CALLS),
    read,
    counted_tables=tuple(EventRows(table, "globalTid") for table in CALLS),
    noun="calls",
    needed_by=(),
)
