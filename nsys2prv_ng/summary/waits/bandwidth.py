"""Measures the bandwidth of NCCL collectives, by the time in which they move data.

The rates are defined as in nccl-tests (doc/PERFORMANCE.md): the algorithm bandwidth is size / time, and the bus
bandwidth takes into account how often each byte must cross a link. The size of an all-gather, a reduce-scatter and an
all-to-all is the sum over all ranks, while NCCL records the size of one rank. An operation moves data from the start of
its last rank: its time is the longest moving part of any of its kernels.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from nsys2prv_ng.analysis.waits.clocks import Parts
from nsys2prv_ng.analysis.waits.waits import Waits
from nsys2prv_ng.arrays.groups import sum_table
from nsys2prv_ng.arrays.row_keys import encode_rows, find_rows
from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.intervals.windows import mark_inside
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.summary.waits.numbers import Bandwidth

_ALL_TO_ALL = "ncclAllGather", "ncclReduceScatter", "ncclAlltoAll"
"""Functions whose calls record the size of one rank only."""
_TO_OR_FROM_ROOT = "ncclBroadcast", "ncclBcast", "ncclReduce"


def measure_bandwidth(job: Job, waits: Waits, parts: Parts, shown: IntArray) -> list[Bandwidth]:
    """Return the bandwidth of collectives by function, communicator and size, most bytes first.

    An operation counts if all its kernels count and are in the chosen time, are split, and carry out no other
    operation. `parts`: the parts of all operations of the job. `shown`: the kernels that count, as indices in `waits`.
    """
    operations, table = job.operations, job.operations.table
    if not len(operations):
        return []
    at = find_rows([waits.row, waits.begin, waits.end], [parts.row, parts.begin, parts.end])
    code, _ = encode_rows(parts.row, parts.begin, parts.end)
    is_chosen = (np.append(job.new_row, -1)[parts.row] >= 0) & mark_inside(parts.begin, parts.end, job.scope.windows)
    usable = np.isin(at, shown) & (np.bincount(code)[code] == 1) & is_chosen
    moving = np.zeros(at.size, np.int64)
    usable[usable] = waits.is_split[at[usable]] & ~waits.is_mpi[at[usable]]
    moving[usable] = (waits.end - waits.until)[at[usable]]

    starts, leader = operations.first[:-1], operations.leader
    ns, size, ranks = np.maximum.reduceat(moving, starts), table.bytes[leader], np.diff(operations.first)
    chosen = np.flatnonzero(np.logical_and.reduceat(usable, starts) & (size > 0) & (ns > 0))
    rows = {
        "function": table.name[leader[chosen]],
        "communicator": table.communicator[leader[chosen]],
        "ranks": ranks[chosen],
        "bytes": size[chosen],
        "count": np.ones(chosen.size, np.int64),
        "ns": ns[chosen],
    }
    sums = sum_table(rows, ["function", "communicator", "ranks", "bytes"])
    names = {c.id: (c.axis, c.label) for part in job.joined for c in part.nccl_communicators}
    rated = [
        rate(table.names[function], table.communicators[communicator], *row)
        for function, communicator, *row in zip(*(column.tolist() for column in sums.values()), strict=True)
    ]
    known = []
    for each in filter(None, rated):
        name, label = names.get(each.communicator, ("", ""))
        known.append(replace(each, communicator_name=name, communicator_label=label))
    return sorted(known, key=lambda b: (-b.bytes * b.count, b.function, b.communicator, b.bytes))


def rate(function: str, communicator: str, ranks: int, size: int, count: int, ns: int) -> Bandwidth | None:
    """Return the bandwidth of operations with these sums; None for a function without a defined bandwidth."""
    moved, factor = size, (ranks - 1) / ranks
    if function == "ncclAllReduce":
        factor *= 2
    elif function in _ALL_TO_ALL:
        moved *= ranks
    elif function in _TO_OR_FROM_ROOT:
        factor = 1.0
    else:
        return None
    algorithm = moved * count / ns * 1e9
    return Bandwidth(
        function=function.removeprefix("nccl"),
        communicator=communicator.removeprefix("nccl "),
        ranks=ranks,
        bytes=size,
        count=count,
        ns=ns,
        algorithm_bytes_per_s=round(algorithm),
        bus_bytes_per_s=round(algorithm * factor),
    )
