"""Splits time in communication into waiting and moving: who waited for whom, and for how long.

A rank waits in an operation from its own begin until the last rank that it needs has begun; the rest of its kernel or
call moves data (Scalasca's wait states; MPI.pattern of Scalasca 2.5):

- in a collective of all ranks, everybody waits for the last to begin;
- from a root, everybody waits for the root; to a root, the root waits for the first of the others to begin;
- a receive waits for its send, and a send for its receive if it did not end before that began.

A wait ends with its own kernel or call at the latest. A kernel or call that carries out several operations waits until
the last of them is released. Nothing is split where that would be a guess: an operation with a member that no report
shows, one that did not synchronise (a rank left before another had entered, beyond the uncertainty of their clocks),
and a wait that is shorter than this uncertainty.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from nsys2prv_ng.arrays.types import BoolArray, FloatArray, IntArray
from nsys2prv_ng.clock.alignment import NONE
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.operations.parts import FROM_ROOT, OTHER, SYNCHRONISING, TO_ROOT, MessagePairs
from nsys2prv_ng.report.database import NULL
from nsys2prv_ng.runtime.jit import compiled

SAME_CLOCK_NS = 0
"""Uncertainty (ns) of times on one node: one clock. In 4,000 collectives of real reports no rank left too early."""

SPLIT, MEMBER_MISSING, NOT_SYNCHRONISED, BELOW_UNCERTAINTY, UNKNOWN_ROLES, NO_COMMUNICATOR, NOT_MATCHED, NOT_ALIGNED = (
    range(8)
)
REASONS = {
    MEMBER_MISSING: "no report shows what a member of the operation did",
    NOT_SYNCHRONISED: "the operation did not synchronise its ranks",
    BELOW_UNCERTAINTY: "wait below the uncertainty of the clocks: all counts as moving",
    UNKNOWN_ROLES: "root or kind of the operation is not recorded",
    NO_COMMUNICATOR: "communicators cannot be told apart without payload",
    NOT_MATCHED: "no report shows its counterpart",
    NOT_ALIGNED: "the clocks of the reports are not aligned",
}
"""Why kernels and calls are not split."""

NOBODY = -1
_LEAST_CAUSAL = 0.99
"""Part of the operations of a group without payload that must have synchronised, so that it may be one communicator."""


class Parts(NamedTuple):
    """Parts of ranks in operations, in columns of n: row of the whole tree, node, times (ns, common clock)."""

    row: IntArray
    node: IntArray
    begin: IntArray
    end: IntArray


class Waits(NamedTuple):
    """n kernels and calls that carry out operations over ranks, by row of the whole tree and begin. Times in ns.

    `until` is when waiting ends and moving begins: begin <= until <= end. `verdict` is SPLIT or why there is none: then
    `until` is the begin, and the kernel or call is one piece. `culprit` is the row of the rank that
    released it and `culprit_begin` when that had begun; NOBODY where several may have been last. `operation` is the
    index of the collective (of `Job.operations`) that decided, -1 for a message.
    """

    row: IntArray
    begin: IntArray
    end: IntArray
    until: IntArray
    verdict: IntArray
    culprit: IntArray
    culprit_begin: IntArray
    margin: IntArray
    """By how much the culprit began later than the last of the others; for a message, than the other side."""
    operation: IntArray
    is_mpi: BoolArray

    @property
    def is_split(self) -> BoolArray:
        return np.asarray(self.verdict == SPLIT, np.bool_)

    @property
    def has_parts(self) -> BoolArray:
        """Mark the kernels and calls whose time is known to be waiting or moving.

        A wait below the uncertainty of the clocks is not split off: all of its kernel or call counts as moving.
        """
        return np.asarray((self.verdict == SPLIT) | (self.verdict == BELOW_UNCERTAINTY), np.bool_)

    @property
    def wait(self) -> IntArray:
        """Time of waiting (ns)."""
        return self.until - self.begin


@dataclass(frozen=True)
class Uncertainty:
    """What the clocks of two nodes may be apart (ns): the sum of their bounds; infinite where one is not known."""

    bounds: FloatArray

    def between(self, one: IntArray, other: IntArray) -> FloatArray:
        apart = self.bounds[one] + self.bounds[other]
        return np.where(one == other, float(SAME_CLOCK_NS), apart)


def get_uncertainty(job: Job) -> Uncertainty:
    """Return the uncertainty of the nodes of a job; the reference node of a fit is exact."""
    bounds = [
        0.0 if clock.bound is None and clock.model and clock.name == clock.reference else clock.bound
        for clock in job.alignment.nodes
    ]
    return Uncertainty(np.array([np.inf if bound is None else bound for bound in bounds], np.float64))


def find_waits(job: Job) -> Waits:
    """Split the kernels and calls of all operations over ranks."""
    uncertainty = get_uncertainty(job)
    parts = [_split_collectives(job, uncertainty), *_split_messages(job, uncertainty)]
    pieces = _Pieces._make([np.concatenate(columns) for columns in zip(*parts, strict=True)])
    if job.alignment.way == NONE and len(job.reports) > 1:
        pieces = pieces._replace(verdict=np.full(pieces.row.size, NOT_ALIGNED))
    return _unite(pieces)


class _Pieces(NamedTuple):
    """Parts of operations with the verdict on each; a kernel or call may have several. Columns as in `Waits`."""

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


def _unite(pieces: _Pieces) -> Waits:
    """Return each kernel or call once: it waits until the last of its operations is released.

    It is split only if all its operations are; of several reasons, the first in the order of the constants counts.
    """
    order = np.lexsort((-pieces.until, pieces.end, pieces.begin, pieces.row))
    row, begin, end = (column[order] for column in pieces[:3])
    new = np.ones(order.size, np.bool_)
    new[1:] = (row[1:] != row[:-1]) | (begin[1:] != begin[:-1]) | (end[1:] != end[:-1])
    starts = np.flatnonzero(new)
    latest = order[starts]
    verdict = pieces.verdict[order]
    worst = np.maximum.reduceat(verdict, starts) if starts.size else verdict
    until = np.where(worst == SPLIT, pieces.until[latest], pieces.begin[latest])
    culprit = np.where(worst == SPLIT, pieces.culprit[latest], NOBODY)
    kept = (pieces.culprit_begin[latest], pieces.margin[latest], pieces.operation[latest], pieces.is_mpi[latest])
    return Waits(row[starts], begin[starts], end[starts], until, worst, culprit, *kept)


# ---- collectives -----------------------------------------------------------------------------------------------------


def place_collectives(job: Job) -> Parts:
    """Return the parts of all operations of a job, in the order of `Operations.part`."""
    operations, table = job.operations, job.operations.table
    part = operations.part
    report, place = table.report[part], table.place[part].astype(np.int64)
    row, node = np.full(part.size, -1, np.int64), np.zeros(part.size, np.int64)
    begin, end = np.zeros(part.size, np.int64), np.zeros(part.size, np.int64)
    for index, records in enumerate(job.reports):
        here = np.flatnonzero(report == index)
        rows = job.whole.rows[index]
        placed = (place[here] >= 0) & (place[here] < rows.size)
        row[here] = np.where(placed, np.append(rows, -1)[np.where(placed, place[here], -1)], -1)
        node[here] = records.node
        offset = job.offsets[index]
        begin[here] = records.clock(table.begin[part[here]] - offset)
        end[here] = records.clock(table.end[part[here]] - offset)
    return Parts(row, node, begin, end)


def _split_collectives(job: Job, uncertainty: Uncertainty) -> _Pieces:
    operations, table = job.operations, job.operations.table
    parts = place_collectives(job)
    leader = operations.leader
    kind, is_known = table.kind[leader].astype(np.int64), table.has_communicator[leader]
    complete = _find_complete(job)
    until, verdict, culprit, margin = _split(
        operations.first,
        kind,
        complete,
        parts.node,
        parts.begin,
        parts.end,
        table.is_root[operations.part],
        uncertainty.bounds,
        SAME_CLOCK_NS,
    )
    doubtful = _find_doubtful_groups(
        operations.first, operations.group.astype(np.int64), is_known & complete, complete, verdict
    )
    count = np.diff(operations.first)
    number = np.repeat(np.arange(len(operations)), count)
    verdict = np.where(doubtful[number] & (verdict != MEMBER_MISSING), NO_COMMUNICATOR, verdict)
    until = np.where(verdict == SPLIT, until, parts.begin)
    has_culprit = (culprit >= 0) & (verdict == SPLIT)
    at = np.where(has_culprit, culprit, 0)
    is_mpi = np.array([name.startswith("mpi ") for name in table.communicators] or [False], np.bool_)
    pieces = _Pieces(
        parts.row,
        parts.begin,
        parts.end,
        until,
        verdict,
        np.where(has_culprit, parts.row[at] if at.size else at, NOBODY),
        parts.begin[at] if at.size else at,
        margin,
        number,
        is_mpi[table.communicator[operations.part]] if at.size else np.zeros(0, np.bool_),
    )
    return _take(pieces, parts.row >= 0)


def _take(pieces: _Pieces, which: BoolArray) -> _Pieces:
    return _Pieces._make([column[which] for column in pieces])


def _find_complete(job: Job) -> BoolArray:
    """Mark the operations in which every rank of the communicator has a part.

    Where no call records the number of ranks, they are those that use the communicator in the reports, if no rank of
    the job lacks a report.
    """
    operations, table = job.operations, job.operations.table
    users = np.zeros(len(table.communicators), np.int64)
    if table.member.size:
        pairs = np.unique(table.communicator.astype(np.int64) << 32 | table.member)
        np.add.at(users, pairs >> 32, 1)
    sizes = np.array(table.sizes, np.int64)
    expected = np.where(sizes > 0, sizes, users if not job.lacks_ranks else np.iinfo(np.int64).max)
    count = np.diff(operations.first)
    return np.asarray(count == expected[table.communicator[operations.leader]], np.bool_)


def _find_doubtful_groups(
    first: IntArray, group: IntArray, is_known: BoolArray, complete: BoolArray, verdict: IntArray
) -> BoolArray:
    """Mark the operations of groups without payload that do not behave like one communicator's.

    Kernels of several communicators may follow each other in the same order on all ranks. If they were of one, nobody
    would leave an operation before all had entered.
    """
    if not group.size:
        return np.zeros(0, np.bool_)
    by_order = complete & ~is_known
    broken = np.maximum.reduceat(verdict == NOT_SYNCHRONISED, first[:-1])
    groups = int(group.max()) + 1
    total = np.bincount(group[by_order], minlength=groups)
    bad = np.bincount(group[by_order & broken], minlength=groups)
    return np.asarray(by_order & ((bad > (1 - _LEAST_CAUSAL) * total)[group]), np.bool_)


@compiled
def _split(
    first: IntArray,
    kind: IntArray,
    complete: BoolArray,
    node: IntArray,
    begin: IntArray,
    end: IntArray,
    is_root: BoolArray,
    bounds: FloatArray,
    same_clock: float,
) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """Return until, verdict, culprit (index of its part or -1) and margin (ns) of each part."""
    n = begin.size
    until, verdict = begin.copy(), np.zeros(n, np.int64)
    culprit, margin = np.full(n, -1, np.int64), np.zeros(n, np.int64)
    for i in range(first.size - 1):
        low, high = first[i], first[i + 1]
        if not complete[i]:
            verdict[low:high] = MEMBER_MISSING
            continue
        roots, root = 0, -1
        for k in range(low, high):
            if is_root[k]:
                roots, root = roots + 1, k
        if kind[i] == OTHER or (kind[i] != SYNCHRONISING and roots != 1):
            verdict[low:high] = UNKNOWN_ROLES
            continue
        # Who releases the others, and who of them waits for that.
        release = -1
        for k in range(low, high):
            if (kind[i] == SYNCHRONISING and (release < 0 or begin[k] > begin[release])) or (
                kind[i] == TO_ROOT and k != root and (release < 0 or begin[k] < begin[release])
            ):
                release = k
        if kind[i] == FROM_ROOT:
            release = root
        if release < 0:
            verdict[low:high] = UNKNOWN_ROLES
            continue
        is_last, lead, synchronised = True, np.int64(-1), True
        for k in range(low, high):
            waits = k != release and (kind[i] != TO_ROOT or k == root)
            if not waits:
                continue
            apart = same_clock if node[k] == node[release] else bounds[node[k]] + bounds[node[release]]
            if end[k] < begin[release] - apart:
                synchronised = False
            ahead = begin[release] - begin[k]
            if kind[i] == SYNCHRONISING:
                is_last = is_last and ahead > apart
                lead = ahead if lead < 0 else min(lead, ahead)
            else:
                lead = max(lead, ahead)
        if not synchronised:
            verdict[low:high] = NOT_SYNCHRONISED
            continue
        for k in range(low, high):
            if k == release or (kind[i] == TO_ROOT and k != root):
                continue
            wait = min(begin[release], end[k]) - begin[k]
            apart = same_clock if node[k] == node[release] else bounds[node[k]] + bounds[node[release]]
            if abs(begin[release] - begin[k]) <= apart:
                # On one clock this is the end of a tie: nobody waited. Between clocks it may have been either of them.
                verdict[k] = SPLIT if node[k] == node[release] else BELOW_UNCERTAINTY
                continue
            if wait > 0:
                until[k] = begin[k] + wait
                if is_last:
                    culprit[k] = release
                    margin[k] = lead
    return until, verdict, culprit, margin


# ---- messages --------------------------------------------------------------------------------------------------------


def _split_messages(job: Job, uncertainty: Uncertainty) -> list[_Pieces]:
    node_of_row = np.array([task.node for task in job.whole.model.tasks], np.int64)[job.whole.task_of_row]
    pieces = []
    for joined in job.joined:
        for source, pairs in joined.messages.items():
            for side in (_get_receivers(pairs), _get_senders(pairs)):
                pieces.append(_split_side(*side, node_of_row, uncertainty, is_mpi=source == "mpi"))
    return pieces


class _Side(NamedTuple):
    """One side of n messages: its kernel or call, and when it arrived."""

    row: IntArray
    begin: IntArray
    end: IntArray
    arrived: IntArray
    poster: IntArray


def _get_receivers(pairs: MessagePairs) -> tuple[_Side, _Side]:
    send = _Side(pairs.send_row, pairs.send_begin, pairs.send_end, pairs.send_arrived, pairs.sender)
    receive = _Side(pairs.receive_row, pairs.receive_begin, pairs.receive_end, pairs.receive_arrived, pairs.receiver)
    return receive, send


def _get_senders(pairs: MessagePairs) -> tuple[_Side, _Side]:
    receive, send = _get_receivers(pairs)
    return send, receive


def _split_side(
    waiting: _Side, other: _Side, node_of_row: IntArray, uncertainty: Uncertainty, *, is_mpi: bool
) -> _Pieces:
    """Split the kernels and calls of one side, which waits for the other side to arrive."""
    known = (waiting.end != NULL) & (waiting.begin != NULL)
    waiting, other = (_Side(*(column[known] for column in side)) for side in (waiting, other))
    apart = uncertainty.between(node_of_row[waiting.row], node_of_row[other.poster])
    ahead = other.arrived - waiting.begin
    wait = np.clip(np.minimum(other.arrived, waiting.end) - waiting.begin, 0, None)
    verdict = np.full(ahead.size, SPLIT, np.int64)
    crosses = node_of_row[waiting.row] != node_of_row[other.poster]
    verdict[(np.abs(ahead) <= apart) & crosses] = BELOW_UNCERTAINTY
    # A side that ended before the other began was not waiting: a buffered send of MPI, or kernels of other messages.
    left = waiting.end < other.arrived - apart
    wait[left] = 0
    if not is_mpi:
        verdict[left] = NOT_SYNCHRONISED
    wait[(verdict != SPLIT) | (ahead <= apart)] = 0
    waits = wait > 0
    return _Pieces(
        row=waiting.row,
        begin=waiting.begin,
        end=waiting.end,
        until=waiting.begin + wait,
        verdict=verdict,
        culprit=np.where(waits, other.poster, NOBODY),
        culprit_begin=other.arrived,
        margin=np.where(waits, ahead, 0),
        operation=np.full(ahead.size, -1, np.int64),
        is_mpi=np.full(ahead.size, is_mpi),
    )
