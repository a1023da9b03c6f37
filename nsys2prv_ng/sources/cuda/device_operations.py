"""Places the operations of all tables on CUDA streams. One that overlaps an earlier operation is on a second row."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nsys2prv_ng.arrays.row_keys import encode_rows
from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.intervals.lanes import assign_lanes
from nsys2prv_ng.report.database import NULL
from nsys2prv_ng.report.metadata import get_process
from nsys2prv_ng.sources.shared.reasons import find_unsound_times
from nsys2prv_ng.sources.shared.report_reader import ReportReader
from nsys2prv_ng.sources.shared.result import Result

KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
MEMCPY = "CUPTI_ACTIVITY_KIND_MEMCPY"
MEMSET = "CUPTI_ACTIVITY_KIND_MEMSET"
GRAPH = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
TABLES = (KERNEL, MEMCPY, MEMSET, GRAPH)

COLUMNS = ("start", "end", "globalPid", "deviceId", "contextId", "streamId")
"""Columns that every table of device operations has."""


class DeviceOperations(NamedTuple):
    """Rows of a table of device operations: place of each (-1 if dropped), and number of dropped rows by reason."""

    place: IntArray
    dropped: dict[str, int]


class SoundOperations(NamedTuple):
    """n operations that can be shown: row of the table, place, start and end (ns)."""

    row: IntArray
    place: IntArray
    begin: IntArray
    end: IntArray


def select_operations(reader: ReportReader, result: Result, table: str) -> SoundOperations:
    """Count the rows of a table, and return the rows that can be shown."""
    columns, located = reader.columns(table), reader.once(locate)[table]
    result.read += columns.rows
    for reason, count in located.dropped.items():
        result.drop(reason, count)
    rows = np.flatnonzero(located.place >= 0)
    return SoundOperations(rows, located.place[rows], columns["start"][rows], columns["end"][rows])


def locate(reader: ReportReader) -> dict[str, DeviceOperations]:
    """Return the places of the operations by table. Call it through `reader.once`.

    All tables share the lanes of a stream, so that operations on a row never overlap.
    """
    tables = [table for table in TABLES if reader.has(table)]
    columns = [reader.columns(table) for table in tables]
    start, end, pid, device, context, stream = (
        np.concatenate([part[name] for part in columns]) if columns else np.zeros(0, np.int64) for name in COLUMNS
    )
    no_stream = (pid == NULL) | (device == NULL) | (context == NULL) | (stream == NULL)
    reasons = {"no process, device, context or stream": no_stream}
    reasons |= {reason: mask & ~no_stream for reason, mask in find_unsound_times(start, end).items()}
    sound = np.flatnonzero(~np.logical_or.reduce(list(reasons.values())))

    process = get_process(pid[sound])
    key = (process, device[sound], context[sound], stream[sound])
    group, _ = encode_rows(*key)
    lane = assign_lanes(group, start[sound], end[sound])
    place = np.full(start.size, -1, np.int64)
    place[sound] = reader.places.streams(*key, lane)

    located = {}
    low = 0
    for table, table_columns in zip(tables, columns, strict=True):
        part = slice(low, low + table_columns.rows)
        dropped = {reason: int(mask[part].sum()) for reason, mask in reasons.items() if mask[part].any()}
        located[table] = DeviceOperations(place[part], dropped)
        low += table_columns.rows
    return located
