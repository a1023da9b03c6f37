"""Reads events of the OpenACC runtime on host threads: launches of compute constructs, data clauses, and the rest.

Each of CUPTI's three kinds of activity has a separate type, with the numbers of nsys2prv, so that a launch within a
data region and the region are both visible. The source line and function last as long as the event. No capture was
available: the tables follow real exports without events, and NVIDIA's documentation of the export.
"""

from __future__ import annotations

import numpy as np

from nsys2prv_ng import source_names
from nsys2prv_ng.arrays.row_keys import find_distinct_rows
from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver.value_tables import OPENACC_KINDS, OPENACC_UNKNOWN
from nsys2prv_ng.records.columns import Pair, make_intervals
from nsys2prv_ng.report.database import NULL, Columns, Table
from nsys2prv_ng.sources.shared.host_calls import select_sound_calls
from nsys2prv_ng.sources.shared.report_reader import ReportReader, make_id_pair, make_name_pair, make_number_pair
from nsys2prv_ng.sources.shared.source import EventRows, Result, Source

_REQUIRED = ("start", "end", "globalTid", "eventKind")
_OPTIONAL = {"srcFile": NULL, "lineNo": 0, "funcName": NULL}
OTHER = Table("CUPTI_ACTIVITY_KIND_OPENACC_OTHER", _REQUIRED, _OPTIONAL)
DATA = Table("CUPTI_ACTIVITY_KIND_OPENACC_DATA", _REQUIRED, {**_OPTIONAL, "bytes": NULL, "varName": NULL})
LAUNCH = Table(
    "CUPTI_ACTIVITY_KIND_OPENACC_LAUNCH",
    _REQUIRED,
    {**_OPTIONAL, "numGangs": NULL, "numWorkers": NULL, "vectorLength": NULL, "kernelName": NULL},
)
TABLES = (OTHER, DATA, LAUNCH)

# CUpti_OpenAccEventKind: wait and implicit wait.
_WAITS = (7, 8)


def read(reader: ReportReader) -> Result:
    """Return an interval for each event, nested as the events of its kind of activity were."""
    result = Result()
    for i, table in enumerate(TABLES):
        columns = reader.columns(table.name)
        result.read += columns.rows
        rows = select_sound_calls(result, columns["start"], columns["end"], columns["globalTid"])
        _add_events(reader, result, columns, rows, i)
    return result


def _add_events(reader: ReportReader, result: Result, columns: Columns, rows: IntArray, i: int) -> None:
    """Add records and states for rows of the i-th table."""
    labels = reader.labels
    begin, end = columns["start"][rows], columns["end"][rows]
    place = reader.places.threads(columns["globalTid"][rows], application=True)
    kind = columns["eventKind"][rows]
    call = labels.handle(types.OPENACC[i])
    opening = [Pair(call, np.where(np.isin(kind, list(OPENACC_KINDS)), kind, OPENACC_UNKNOWN))]
    for event_type, (index, names), known in (
        (types.OPENACC_SOURCE[i], _name_source_lines(reader, columns, rows), columns["srcFile"][rows] != NULL),
        (types.OPENACC_FUNCTION[i], reader.names(columns["funcName"][rows]), columns["funcName"][rows] != NULL),
    ):
        if known.any():
            # An event without a name still gets a value, which hides the name of an outer event.
            opening.append(make_name_pair(labels, event_type, index, names))
    closing: list[int | IntArray] = [pair.handle for pair in opening]
    if TABLES[i] is DATA:
        size, name = columns["bytes"][rows], columns["varName"][rows]
        size_handle = labels.handle(types.OPENACC_BYTES)
        opening.append(Pair(size_handle, np.where(size == NULL, 0, size)))
        closing.append(size_handle)
        opening.append(make_id_pair(reader, types.OPENACC_VARIABLE, name, name != NULL))
    elif TABLES[i] is LAUNCH:
        for column, event_type in types.OPENACC_SIZES.items():
            opening.append(make_number_pair(labels, event_type, columns[column][rows]))
        name = columns["kernelName"][rows]
        opening.append(make_id_pair(reader, types.OPENACC_KERNEL, name, name != NULL))
    result.records.append(make_intervals(place, begin, end, opening, closing))
    result.add_states(place, begin, end, np.where(np.isin(kind, _WAITS), types.SYNCHRONIZATION, -1))


def _name_source_lines(reader: ReportReader, columns: Columns, rows: IntArray) -> tuple[IntArray, list[str]]:
    """Return (index of each row, names `file:line`), without the folders, which may differ between ranks."""
    codes, pairs = find_distinct_rows(columns["srcFile"][rows], columns["lineNo"][rows])
    files = reader.strings(np.array([file for file, _ in pairs], np.int64))
    lines = ["" if file == NULL else f":{line}" for file, line in pairs]
    return codes, [file.rpartition("/")[2] + line for file, line in zip(files, lines, strict=True)]


SOURCE = Source(
    source_names.OPENACC,
    "OpenACC",
    TABLES,
    read,
    counted_tables=tuple(EventRows(table.name, "globalTid") for table in TABLES),
    noun="events",
    needed_by=(),
)
