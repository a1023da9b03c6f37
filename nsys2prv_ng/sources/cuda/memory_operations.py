"""Reads memory copies and sets on CUDA streams: direction, bytes, and the kinds of memory copied from and to.

Migrations of unified memory are copies with separate values, on the row of stream 0, which the program cannot use.
"""

from __future__ import annotations

import numpy as np

from nsys2prv_ng import source_names
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver.load_cost import LoadCost
from nsys2prv_ng.paraver.value_tables import MIGRATION_CAUSES
from nsys2prv_ng.records.columns import Pair, make_intervals
from nsys2prv_ng.report.database import NULL, Table
from nsys2prv_ng.sources.cuda.cuda_graphs import GRAPH_COLUMNS, read_graph_ids
from nsys2prv_ng.sources.cuda.device_operations import COLUMNS, MEMCPY, MEMSET, select_operations
from nsys2prv_ng.sources.shared.reasons import NO_BYTES
from nsys2prv_ng.sources.shared.report_reader import ReportReader, make_number_pair
from nsys2prv_ng.sources.shared.source import EventRows, Result, Source

MEMCPY_TABLE = Table(
    MEMCPY,
    (*COLUMNS, "bytes", "copyKind"),
    dict.fromkeys(("srcKind", "dstKind", "migrationCause", "correlationId", *GRAPH_COLUMNS), NULL),
)
MEMSET_TABLE = Table(MEMSET, (*COLUMNS, "bytes"), dict.fromkeys(("memKind", "correlationId", *GRAPH_COLUMNS), NULL))

_KINDS = {
    MEMCPY: {"srcKind": types.MEMORY_SOURCE_KIND, "dstKind": types.MEMORY_DESTINATION_KIND},
    MEMSET: {"memKind": types.MEMORY_DESTINATION_KIND},
}
"""Event type of each column with a kind of memory, by table."""
_UNKNOWN_COPY = 17
_COPY_VALUES = np.array([_UNKNOWN_COPY, 5, 4, 7, 8, 9, 10, 11, 3, 12, 13, 14, 15, 16, _UNKNOWN_COPY], np.int64)
"""Value in the trace of each of CUPTI's copy kinds (ENUM_CUDA_MEMCPY_OPER of the export), and of all other kinds."""
_MEMSET = 6
_UNKNOWN_KIND = 8
_CAUSES = list(MIGRATION_CAUSES)


def read(reader: ReportReader) -> Result:
    """Return an interval for each copy and set. Bytes are closed too, because presets divide them by the time of the
    burst."""
    result = Result()
    for table in (MEMCPY, MEMSET):
        _add_operations(reader, result, table)
    return result


def _add_operations(reader: ReportReader, result: Result, table: str) -> None:
    """Add an interval for each row of a table."""
    columns = reader.columns(table)
    rows, *shown = select_operations(reader, result, table)
    sound = result.drop_rows({NO_BYTES: columns["bytes"][rows] == NULL})
    rows, place, begin, end = (column[sound] for column in (rows, *shown))
    labels = reader.labels
    operation, size = labels.handle(types.MEMORY_OPERATION), labels.handle(types.MEMORY_BYTES)
    value = np.full(rows.size, _MEMSET, np.int64)
    if table == MEMCPY:
        kind = columns["copyKind"][rows]
        value = _COPY_VALUES[np.where((kind >= 0) & (kind < _COPY_VALUES.size), kind, -1)]
    opening = [Pair(operation, value), Pair(size, columns["bytes"][rows])]
    for name, event_type in _KINDS[table].items():
        kind = columns[name][rows]
        value = np.where((kind >= 0) & (kind < _UNKNOWN_KIND), kind + 1, _UNKNOWN_KIND)  # CUPTI counts from 0
        opening.append(Pair(labels.handle(event_type), value, kind != NULL))
    if table == MEMCPY:
        cause = columns["migrationCause"][rows]
        opening.append(Pair(labels.handle(types.MIGRATION_CAUSE), cause + 1, np.isin(cause + 1, _CAUSES)))
    opening.append(make_number_pair(labels, types.CORRELATION, columns["correlationId"][rows]))
    opening += read_graph_ids(reader, columns, rows)

    result.records.append(make_intervals(place, begin, end, opening, [operation, size]))
    result.add_states(place, begin, end, types.MEMORY_TRANSFER)


SOURCE = Source(
    source_names.MEMORY_OPERATIONS,
    "Memory copies and sets",
    (MEMCPY_TABLE, MEMSET_TABLE),
    read,
    counted_tables=tuple(EventRows(table, "globalPid", device="deviceId") for table in (MEMCPY, MEMSET)),
    noun="copies, sets",
    needed_by=("copies",),
    load=LoadCost(states=1, events=7, pairs=15, communications=1),
)
