"""Splits time in communication into waiting and moving data: who waited for whom, and for how long.

In an operation, a rank waits from its start until the last rank that it needs has started. The rest of its kernel or
call moves data (Scalasca's wait states; MPI.pattern of Scalasca 2.5):

- In a collective of all ranks, everybody waits for the last rank to start.
- From a root, everybody waits for the root. To a root, the root waits for the first of the others to start.
- A receive waits for its send. A send waits for its receive, unless it ended before the receive started.

A wait ends with its kernel or call at the latest. A kernel or call that carries out several operations waits until the
last of them is released. Nothing is split if that would be a guess: not an operation with a member that no report
shows, nor one that did not synchronise (a rank left before another had entered, beyond the uncertainty of their
clocks), nor a wait that is shorter than this uncertainty.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from nsys2prv_ng import source_names
from nsys2prv_ng.analysis.waits import rules
from nsys2prv_ng.analysis.waits.clocks import Parts, get_uncertainty, mark_mpi, place_parts, separate_corrected_gpus
from nsys2prv_ng.analysis.waits.rules import mark_waiting_sends
from nsys2prv_ng.arrays.groups import find_medians
from nsys2prv_ng.arrays.row_keys import find_rows, find_starts
from nsys2prv_ng.arrays.types import BoolArray, FloatArray, IntArray, pick
from nsys2prv_ng.clock.alignment import LEAST_CAUSAL, NONE
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.operations.matching import Operations
from nsys2prv_ng.operations.parts import COPIED, LOOSE, STREAM, Side
from nsys2prv_ng.report.database import NULL


class Waits(NamedTuple):
    """n kernels and calls that carry out operations over ranks, by row (of the whole tree) and start. Times in ns.

    While they are being collected, a row is a part in one operation, of which a kernel or call may have several, in any
    order.

    `until` is when waiting ends and moving starts: begin <= until <= end. `verdict` is SPLIT or why the kernel or call
    is not split: then it is one piece, and `until` is its begin. `culprit` is the row of the rank that released it, and
    `culprit_begin` is when that rank started; NOBODY if several ranks may have been last. `margin` is how much later
    the culprit started than the last of the others; for a message, than the other side. `operation` is the index (in
    `Job.operations`) of the collective that decided, -1 for a message and for a kernel or call that was not matched.
    """

    row: IntArray
    begin: IntArray
    end: IntArray
    until: IntArray
    verdict: IntArray
    culprit: IntArray
    culprit_begin: IntArray
    margin: IntArray
    operation: IntArray
    is_mpi: BoolArray

    @property
    def is_split(self) -> BoolArray:
        return np.asarray(self.verdict == rules.SPLIT, np.bool_)

    @property
    def has_parts(self) -> BoolArray:
        """Mark the kernels and calls whose time is known to be waiting or moving.

        A wait below the uncertainty of the clocks is not split off: its whole kernel or call counts as moving.
        """
        return np.asarray((self.verdict == rules.SPLIT) | (self.verdict == rules.BELOW_UNCERTAINTY), np.bool_)

    @property
    def wait(self) -> IntArray:
        """Time of waiting (ns)."""
        return self.until - self.begin

    def take(self, which: IntArray | BoolArray) -> Waits:
        """Return the kernels and calls that indices or a mask select."""
        return Waits._make([column[which] for column in self])


def find_waits(job: Job) -> Waits:
    """Split the kernels and calls of all operations over ranks; return none if the user turned that off."""
    if not job.finds_waits:
        return Waits._make([np.zeros(0, np.bool_ if name == "is_mpi" else np.int64) for name in Waits._fields])
    of_report, of_row, bounds = separate_corrected_gpus(job, get_uncertainty(job))
    pieces = _join([_split_collectives(job, of_report, bounds), *_split_messages(job, of_row, bounds)])
    pieces = _join([pieces, _list_unmatched(job, pieces)])
    if job.alignment.way == NONE and len(job.reports) > 1:
        pieces = pieces._replace(verdict=np.full(pieces.row.size, rules.NOT_ALIGNED))
    return _unite(pieces)


def _unite(pieces: Waits) -> Waits:
    """Return each kernel or call once: it waits until the last of its operations is released.

    It is split only if all its operations are. If there are several reasons not to, the highest verdict counts. Next to
    a certain wait, a wait below the uncertainty of the clocks adds nothing.
    """
    order = np.lexsort((pieces.culprit, -pieces.culprit_begin, -pieces.until, pieces.end, pieces.begin, pieces.row))
    starts = find_starts(*(column[order] for column in pieces[:3]))
    latest = pieces.take(order[starts])
    verdict = pieces.verdict[order]
    worst = np.maximum.reduceat(verdict, starts) if starts.size else verdict
    waits = latest.until > latest.begin
    worst[(worst == rules.BELOW_UNCERTAINTY) & waits] = rules.SPLIT
    is_split = worst == rules.SPLIT
    return latest._replace(
        until=np.where(is_split, latest.until, latest.begin),
        verdict=worst,
        culprit=np.where(is_split & waits, latest.culprit, rules.NOBODY),
    )


def _join(parts: Sequence[Waits]) -> Waits:
    return Waits._make([np.concatenate(columns) for columns in zip(*parts, strict=True)])


# ---- collectives -----------------------------------------------------------------------------------------------------


def _split_collectives(job: Job, clock_of_report: IntArray, bounds: FloatArray) -> Waits:
    operations, table = job.operations, job.operations.table
    parts = place_parts(job, job.operations.part)._replace(node=clock_of_report[table.report[operations.part]])
    complete = _find_complete(job)
    until, verdict, culprit, margin = rules.split_operations(
        operations.first,
        table.kind[operations.leader].astype(np.int64),
        complete,
        parts,
        table.is_root[operations.part],
        bounds,
    )
    doubtful = _find_doubtful_groups(operations, complete, verdict, parts, bounds)
    count = np.diff(operations.first)
    number = np.repeat(np.arange(len(operations)), count)
    verdict = np.where(doubtful[number] & (verdict != rules.MEMBER_MISSING), rules.NO_COMMUNICATOR, verdict)
    until = np.where(verdict == rules.SPLIT, until, parts.begin)
    culprit = np.where(verdict == rules.SPLIT, culprit, rules.NOBODY)
    has_culprit = culprit != rules.NOBODY
    pieces = Waits(
        *parts[:3],
        until=until,
        verdict=verdict,
        culprit=np.where(has_culprit, pick(parts.row, culprit, rules.NOBODY), rules.NOBODY),
        culprit_begin=np.where(has_culprit, pick(parts.begin, culprit, 0), until),
        margin=np.where(has_culprit, margin, 0),
        operation=number,
        is_mpi=mark_mpi(table, operations.part),
    )
    return pieces.take(parts.row >= 0)


def _list_unmatched(job: Job, pieces: Waits) -> Waits:
    """Return the kernels and calls without a matched operation, each as a piece.

    An operation that is only known to exist (LOOSE) counts if nothing else of its kernel was matched. A communicator of
    one rank has nobody to wait for, and copies wait for nobody.
    """
    operations, table = job.operations, job.operations.table
    is_matched = np.zeros(table.begin.size, np.bool_)
    is_matched[operations.part] = True
    part = np.flatnonzero(~is_matched)
    parts = place_parts(job, part)
    loose = table.kind[part] == LOOSE
    has_piece = find_rows([pieces.row, pieces.begin], [parts.row, parts.begin]) >= 0
    kept = (parts.row >= 0) & ~(loose & has_piece)
    part, parts = part[kept], Parts._make([column[kept] for column in parts])
    alone = np.array([size == 1 for size in table.sizes], np.bool_)[table.communicator[part]]
    alone |= table.kind[part] == COPIED
    return Waits(
        *parts[:3],
        until=parts.begin,
        verdict=np.where(alone, rules.SPLIT, rules.NOT_MATCHED),
        culprit=np.full(part.size, rules.NOBODY),
        culprit_begin=parts.begin,
        margin=np.zeros(part.size, np.int64),
        operation=np.full(part.size, -1),
        is_mpi=mark_mpi(table, part),
    )


def _find_complete(job: Job) -> BoolArray:
    """Mark the operations in which every rank of the communicator has a part.

    If no call records the number of ranks, the ranks that use the communicator in the reports count, provided that all
    ranks are known to use it or not: each rank of the job has a report, and NCCL's calls have payloads in all or none.
    """
    operations, table = job.operations, job.operations.table
    users = np.zeros(len(table.communicators), np.int64)
    if table.member.size:
        pairs = np.unique(table.communicator.astype(np.int64) << 32 | table.rank_of_member[table.member])
        np.add.at(users, pairs >> 32, 1)
    sizes, unknown = np.array(table.sizes, np.int64), np.full(users.size, job.lacks_ranks)
    by_order = np.array([name.startswith(STREAM) for name in table.communicators], np.bool_)
    by_payload = np.zeros(users.size, np.bool_)
    by_payload[table.communicator[table.has_communicator & ~mark_mpi(table, np.arange(table.kind.size))]] = True
    if by_order.any() and by_payload.any():
        unknown |= by_order | by_payload
    expected = np.where(sizes > 0, sizes, np.where(unknown, np.iinfo(np.int64).max, users))
    count = np.diff(operations.first)
    return np.asarray(count == expected[table.communicator[operations.leader]], np.bool_)


def _find_doubtful_groups(
    operations: Operations, complete: BoolArray, verdict: IntArray, parts: Parts, bounds: FloatArray
) -> BoolArray:
    """Mark the operations of groups without payload that may belong to several communicators.

    Kernels of several communicators may follow each other in the same order on all ranks. If they belonged to one,
    nobody would leave an operation before all had entered. Between nodes, this proves nothing if the uncertainty of the
    clocks is larger than half of the median kernel.
    """
    if not len(operations):
        return np.zeros(0, np.bool_)
    first, group = operations.first[:-1], operations.group.astype(np.int64)
    groups = int(group.max()) + 1
    by_order = complete & ~operations.table.has_communicator[operations.leader]
    broken = np.maximum.reduceat(verdict == rules.NOT_SYNCHRONISED, first)
    total, bad = (np.bincount(group[which], minlength=groups) for which in (by_order, by_order & broken))
    doubtful = bad > (1 - LEAST_CAUSAL) * total
    low, high = np.minimum.reduceat(parts.node, first), np.maximum.reduceat(parts.node, first)
    unsure = np.zeros(groups)
    between = by_order & (low != high)
    np.maximum.at(unsure, group[between], np.maximum.reduceat(bounds[parts.node], first)[between])
    shortest = np.minimum.reduceat(parts.end - parts.begin, first)
    found, medians = find_medians(group[by_order], shortest[by_order])
    usual = np.zeros(groups)
    usual[found] = medians
    doubtful |= unsure > usual / 2
    return np.asarray(by_order & doubtful[group], np.bool_)


# ---- messages --------------------------------------------------------------------------------------------------------


def _split_messages(job: Job, clock_of_row: IntArray, bounds: FloatArray) -> list[Waits]:
    pieces = []
    for joined in job.joined:
        for source, pairs in joined.messages.items():
            send, receive = pairs.sides
            is_mpi = source == source_names.MPI
            if is_mpi:
                waits = mark_waiting_sends(pairs, clock_of_row, bounds)
                send = send._replace(begin=np.where(waits, send.begin, NULL))
            pieces.append(_split_side(send, receive, clock_of_row, bounds, is_mpi=is_mpi, may_leave=is_mpi))
            pieces.append(_split_side(receive, send, clock_of_row, bounds, is_mpi=is_mpi, may_leave=False))
    return pieces


def _split_side(
    waiting: Side, other: Side, clock_of_row: IntArray, bounds: FloatArray, *, is_mpi: bool, may_leave: bool
) -> Waits:
    """Split the kernels and calls of one side of messages."""
    known = waiting.is_known
    waiting, other = waiting.take(known), other.take(known)
    wait, verdict = rules.split_side(waiting, other, clock_of_row, bounds, may_leave=may_leave)
    return Waits(
        *waiting[:3],
        until=waiting.begin + wait,
        verdict=verdict,
        culprit=np.where(wait > 0, other.poster, rules.NOBODY),
        culprit_begin=other.arrived,
        margin=np.where(wait > 0, other.arrived - waiting.begin, 0),
        operation=np.full(wait.size, -1, np.int64),
        is_mpi=np.full(wait.size, is_mpi),
    )
