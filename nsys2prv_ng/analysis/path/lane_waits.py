"""Finds which operations and calls waited for other ranks, for the walk along the critical path."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nsys2prv_ng.analysis.host_activity import MPI_CALL
from nsys2prv_ng.analysis.path import columns as path
from nsys2prv_ng.analysis.path.columns import LOST, NONE, PathCalls, PathOperations
from nsys2prv_ng.analysis.waits.placed_parts import place_parts
from nsys2prv_ng.analysis.waits.waits import Waits
from nsys2prv_ng.arrays.row_keys import find_rows
from nsys2prv_ng.arrays.types import BoolArray, IntArray
from nsys2prv_ng.intervals.device_sweep import COMMUNICATION
from nsys2prv_ng.intervals.step_functions import find_latest
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.operations.parts import OTHER, TO_ROOT


class BesideRecords(NamedTuple):
    """Columns of n operations and m calls that the walk does not read, as in `Lanes`."""

    row: IntArray
    name: IntArray
    kind: IntArray
    launch: IntArray
    call_name: IntArray
    call_kind: IntArray


def add_operation_waits(job: Job, waits: Waits, operations: PathOperations, beside: BesideRecords) -> BoolArray:
    """Set until, culprit and kind of all operations; return whether each culprit is unsure.

    If clocks are too uncertain to tell which rank was last, the one that seems to be last is the culprit.
    """
    begin, row, is_nccl = operations.begin, beside.row, beside.kind == COMMUNICATION
    until, culprit, kind = operations.until, operations.culprit, operations.kind
    until[:], culprit[:], kind[:] = begin, NONE, np.where(is_nccl, path.NOT_SPLIT, path.OPERATION)
    operation = np.flatnonzero(is_nccl)
    operation, known = _match_waits(waits, np.flatnonzero(~waits.is_mpi), operation, row, begin)
    kind[operation[waits.has_parts[known]]] = path.MOVING
    late = waits.is_split[known] & (waits.until[known] > begin[operation])
    known, operation = known[late], operation[late]
    last_row, last_begin = _find_last_parts(job, waits, known)
    last = find_rows([row, begin], [last_row, last_begin])
    until[operation] = waits.until[known]
    culprit[operation] = np.where(last >= 0, last, LOST)
    is_unsure = np.zeros(begin.size, np.bool_)
    is_unsure[operation] = waits.culprit[known] < 0
    return is_unsure


def add_call_waits(job: Job, waits: Waits, calls: PathCalls, kind: IntArray, thread_row: IntArray) -> None:
    """Set until, culprit and culprit_begin of all calls, given their kinds."""
    until, culprit, culprit_begin = calls.until, calls.culprit, calls.culprit_begin
    until[:], culprit[:], culprit_begin[:] = calls.begin, NONE, calls.begin
    known = np.flatnonzero(waits.is_mpi & waits.is_split & (waits.wait > 0))
    if known.size:
        call = np.flatnonzero(kind == MPI_CALL)
        call, known = _match_waits(waits, known, call, thread_row[calls.thread], calls.begin)
        late = waits.until[known] > calls.begin[call]
        known, call = known[late], call[late]
        last_row, last_begin = _find_last_parts(job, waits, known)
        thread_of_row = np.full(job.whole.model.row_count + 1, LOST, np.int64)
        chosen = np.flatnonzero((thread_row >= 0) & (job.new_row[thread_row] >= 0))
        thread_of_row[thread_row[chosen]] = chosen
        until[call], culprit[call], culprit_begin[call] = waits.until[known], thread_of_row[last_row], last_begin


def _find_last_parts(job: Job, waits: Waits, which: IntArray) -> tuple[IntArray, IntArray]:
    """Return row and start (ns) of the part of an operation that ended each wait, even if that is not sure.

    A root waits for the first of the others to send, but cannot continue before the last one has: the path goes there.
    """
    row, begin = waits.culprit[which].copy(), waits.culprit_begin[which].copy()
    operations, table = job.operations, job.operations.table
    kind = np.append(table.kind[operations.leader], OTHER)[waits.operation[which]]
    looked_up = np.flatnonzero((waits.operation[which] >= 0) & ((row < 0) | (kind == TO_ROOT)))
    if looked_up.size:
        parts = place_parts(job, job.operations.part)
        number = np.repeat(np.arange(len(operations)), np.diff(operations.first))
        waits_itself = table.is_root[operations.part] & (table.kind[operations.part] == TO_ROOT)
        last = np.lexsort((parts.begin, ~waits_itself, number))[operations.first[1:] - 1]
        part = last[waits.operation[which][looked_up]]
        row[looked_up], begin[looked_up] = parts.row[part], parts.begin[part]
    return row, begin


def _match_waits(
    waits: Waits, known: IntArray, items: IntArray, row: IntArray, begin: IntArray
) -> tuple[IntArray, IntArray]:
    """Return (operations or calls, their waits): an operation or call may be a piece of a wait that a window has cut.

    `known` and `items`: which waits, and which operations or calls. `row` and `begin` (ns): of all operations or calls.
    """
    latest = find_latest(waits.row[known], waits.begin[known], row[items], begin[items])
    items, wait = items[latest >= 0], known[latest[latest >= 0]]
    same = (waits.end[wait] > begin[items]) | (waits.begin[wait] == begin[items])
    return items[same], wait[same]
