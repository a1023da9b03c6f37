"""Places the parts of ranks in operations: rows, nodes, and times on the common clock."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nsys2prv_ng.arrays.types import BoolArray, IntArray
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.operations.matching import PartTable


class Parts(NamedTuple):
    """n parts of ranks in operations, in columns: row of the whole tree, times (ns, on the common clock), node."""

    row: IntArray
    begin: IntArray
    end: IntArray
    node: IntArray


def place_parts(job: Job, part: IntArray) -> Parts:
    """Return row (-1 without one), node and times of the parts of the table with these indices."""
    table = job.operations.table
    report, place = table.report[part], table.place[part].astype(np.int64)
    row, node = np.full(part.size, -1, np.int64), np.zeros(part.size, np.int64)
    begin, end = np.zeros(part.size, np.int64), np.zeros(part.size, np.int64)
    by_report = np.argsort(report, kind="stable")
    limits = np.searchsorted(report[by_report], np.arange(len(job.reports) + 1))
    for index, records in enumerate(job.reports):
        here = by_report[limits[index] : limits[index + 1]]
        rows = job.whole.rows[index]
        placed = (place[here] >= 0) & (place[here] < rows.size)
        row[here] = np.where(placed, np.append(rows, -1)[np.where(placed, place[here], -1)], -1)
        node[here] = records.node
        offset = job.offsets[index]
        begin[here] = records.clock(table.begin[part[here]] - offset)
        end[here] = records.clock(table.end[part[here]] - offset)
    return Parts(row, begin, end, node)


def mark_mpi(table: PartTable, part: IntArray) -> BoolArray:
    """Mark the parts that MPI calls carry out."""
    is_mpi = np.array([name.startswith("mpi ") for name in table.communicators], np.bool_)
    return np.asarray(is_mpi[table.communicator[part]], np.bool_)
