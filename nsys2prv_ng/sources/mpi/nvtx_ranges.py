"""Finds the MPI calls of reports before nsys 2023.4: ranges of the NVTX domain "MPI", with only a name and times."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from nsys2prv_ng.arrays.row_keys import find_rows
from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.report.database import NULL, Columns, Table
from nsys2prv_ng.report.metadata import get_process
from nsys2prv_ng.sources.shared.report_reader import ReportReader, encode_texts, read_texts

NVTX = "NVTX_EVENTS"
TABLE = Table(
    NVTX, ("start", "eventType"), {"end": NULL, "globalTid": NULL, "textId": NULL, "domainId": 0}, text=("text",)
)
EVENT_TABLES = ("MPI_P2P_EVENTS", "MPI_COLLECTIVES_EVENTS", "MPI_START_WAIT_EVENTS", "MPI_OTHER_EVENTS")

_PUSH_POP = 59
_DOMAIN_CREATE = 75
_DOMAIN = "MPI"
_PREFIX = "MPI_"
NAMES = re.compile(_PREFIX + ".*")
"""The names of the ranges that are calls."""


class MpiRanges(NamedTuple):
    """Rows of NVTX_EVENTS that are MPI calls.

    `name_index`: index into the names.
    """

    rows: IntArray
    name_index: IntArray
    names: list[str]


def find_mpi_ranges(reader: ReportReader) -> MpiRanges:
    """Find the MPI calls among a report's ranges. There are none if the report has separate tables of calls."""
    none = MpiRanges(np.zeros(0, np.int64), np.zeros(0, np.int64), [])
    columns = reader.columns(NVTX)
    if not columns.rows or any(reader.columns(table).rows for table in EVENT_TABLES):
        return none
    kind, process, domain = columns["eventType"], get_process(columns["globalTid"]), columns["domainId"]
    created = np.flatnonzero(kind == _DOMAIN_CREATE)
    index, names = _read_names(reader, columns, created)
    created = created[np.array([*(name == _DOMAIN for name in names), False], np.bool_)[index]]
    if not created.size:
        return none
    ranges = np.flatnonzero((kind == _PUSH_POP) & np.isin(domain, domain[created]))
    of_domain = find_rows([process[created], domain[created]], [process[ranges], domain[ranges]])
    ranges = ranges[of_domain >= 0]
    index, names = _read_names(reader, columns, ranges)
    is_call = np.array([*(name.startswith(_PREFIX) for name in names), False], np.bool_)[index]
    return MpiRanges(ranges[is_call], index[is_call], names)


def _read_names(reader: ReportReader, columns: Columns, rows: IntArray) -> tuple[IntArray, list[str]]:
    """Return (index into the names for each row, -1 for none; distinct names)."""
    return encode_texts(read_texts(reader, columns, rows, "text", "textId"))
