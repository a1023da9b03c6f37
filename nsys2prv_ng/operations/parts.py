"""Defines the parts of ranks in collectives and messages, as columns of one report in its own time.

A source fills these tables from the calls that it reads. Nothing here depends on the library that made the calls. The
tables serve to align clocks and to find waits.

A capture often starts after the communicators were made, so that no call in it records which process is rank r. If no
member of a communicator is missing, the unrecorded ranks go to the remaining members in the order of their ranks in the
job, because programs make communicators from ranks in ascending order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field, replace
from typing import Annotated, NamedTuple

import numpy as np

from nsys2prv_ng.arrays.row_keys import find_distinct_rows
from nsys2prv_ng.arrays.types import BoolArray, Index, IntArray, OneFor, find_most_at
from nsys2prv_ng.report.database import NULL
from nsys2prv_ng.value_class import ValueClass

ANY_SIZE = -1
"""Size of an operation that may differ between its ranks."""

SYNCHRONISING, FROM_ROOT, TO_ROOT, OTHER, LOOSE, COPIED = range(6)
"""Which ranks wait in an operation: all for all, all for the root, the root for all, or unknown.

LOOSE operations cannot be matched; their kernels or calls count nevertheless. COPIED ones are not matched either: their
copies move data all the time, as copies wait for nobody."""
STREAM = "nccl stream "
"""Start of the names of streams of NCCL kernels, which stand for communicators if no call records these."""
ORDERED = "ordered "
"""Start of the names of communicators of which only the sequence is known that each rank launches.

Their operations match if all ranks launch the same, and are no evidence on clocks."""


class Collectives(NamedTuple):
    """The part of each rank of a report in each collective operation: columns of n rows, in any order.

    Times are in ns on the clock of the report. `communicator` and `operation` are indices into the names, which mean
    the same in all reports. If the communicator is unknown (`has_communicator` is False), `communicator` names what is
    known to be separate, and operations are matched by their sequence alone.

    `bytes`: the size, if it is the same on all ranks, else ANY_SIZE. `member`: the rank: a number that is unique within
    the report. `kind`: SYNCHRONISING, FROM_ROOT, TO_ROOT, OTHER, LOOSE or COPIED. `place`: place of the kernel or call
    that carries out the operation, and maybe others as well; -1 if there is none. `sizes`: number of ranks of each
    communicator; 0 if no call records it. `owners`: process id and device (-1 for none) of each member: a process with
    capture ranges in several reports is one rank. If empty, every member is a separate rank. `in_graphs`: whether CUDA
    graphs launched all of the operations. `ids`: an id of each operation that is the same on all ranks of its
    communicator and on each rank only once; NULL (of reports) or None if it was not recorded.
    """

    communicators: list[str]
    operations: list[str]
    communicator: Annotated[IntArray, Index("communicators")]
    operation: Annotated[IntArray, Index("operations")]
    bytes: IntArray
    member: Annotated[IntArray, Index("owners")]
    begin: IntArray
    end: IntArray
    kind: Annotated[IntArray, Index(COPIED + 1)]
    is_root: BoolArray
    has_communicator: BoolArray
    place: Annotated[IntArray, Index("places.all", least=-1)]
    sizes: Annotated[list[int], OneFor("communicators")]
    owners: Sequence[tuple[int, int]] = ()
    in_graphs: bool = False
    ids: IntArray | None = None


class Messages(NamedTuple):
    """Sends and receives of a report's ranks, n rows in any order. Times are in ns on the clock of the report.

    A channel keeps its messages in order: it is a communicator, sender, receiver and tag. `time` is when a send started
    or a receive ended.

    `links`: the two ranks of each channel, named the same for both directions. `is_forward`: whether each channel leads
    from the lower of the two ranks to the higher. `order`: start of the call (ns), which sorts the messages of a
    channel. `handed`: when a send handed over its data, or a receive had the data; NULL (of reports) if unknown.
    `bytes`: NULL if it was not recorded.
    """

    channels: list[str]
    links: Annotated[list[str], OneFor("channels")]
    is_forward: Annotated[BoolArray, OneFor("channels")]
    channel: Annotated[IntArray, Index("channels")]
    is_send: BoolArray
    order: IntArray
    time: IntArray
    handed: IntArray
    bytes: IntArray


class RankMessages(NamedTuple):
    """Sends to and receives from ranks of communicators, in which the rank of the calling process may be unknown.

    Columns of n rows in any order; times are in ns on the clock of the report.

    `handed` and `bytes`: as in `Messages`. `sizes`: number of ranks of each communicator; 0 if no call records it.
    `uses`: distinct (communicator, process, rank of the process in it); the rank is NULL if a call does not record it.
    `job_ranks`: rank of each process in the job, if it is known. `job_size`: number of ranks of the job; 0 if it is not
    recorded. `order`: start of the call (ns), which sorts the messages between two ranks.
    """

    communicators: list[str]
    sizes: Annotated[list[int], OneFor("communicators")]
    uses: list[tuple[int, int, int]]
    job_ranks: dict[int, int]
    job_size: int
    communicator: Annotated[IntArray, Index("communicators")]
    process: IntArray
    peer: IntArray
    is_send: BoolArray
    order: IntArray
    time: IntArray
    handed: IntArray
    bytes: IntArray


class Evidence(ValueClass):
    """The evidence of one report on its clock: tables from one or more sources.

    `has_whole_graphs`: whether CUDA graphs were traced as a whole, which may hide operations.
    """

    collectives: list[Collectives] = field(default_factory=list)
    messages: list[Messages] = field(default_factory=list)
    rank_messages: list[RankMessages] = field(default_factory=list)
    has_whole_graphs: bool = False


def combine_evidence(parts: Iterable[Evidence]) -> Evidence:
    """Return the combined evidence of all sources of one report."""
    whole = Evidence()
    for part in parts:
        whole.collectives += part.collectives
        whole.messages += part.messages
        whole.rank_messages += part.rank_messages
        whole.has_whole_graphs |= part.has_whole_graphs
    return whole


def leave_graphs_unmatched(reports: Sequence[Evidence]) -> list[Evidence]:
    """Return the evidence of all reports; if any of them hides operations in graphs, all operations in graphs are
    LOOSE.

    Their order alone could match them, but their counterparts on some ranks are hidden, and these may have been last.
    """
    if not any(report.has_whole_graphs for report in reports):
        return list(reports)
    return [replace(report, collectives=[_loosen(part) for part in report.collectives]) for report in reports]


def _loosen(part: Collectives) -> Collectives:
    return part._replace(kind=np.full(part.kind.size, LOOSE)) if part.in_graphs else part


def get_kinds(
    kinds: dict[str, int], names: Sequence[str], operation: IntArray, size: IntArray, root: IntArray, rank: IntArray
) -> IntArray:
    """Return the kind of each of n operations by its name (an index into the names).

    It is OTHER for names that `kinds` lacks, and for operations without data, which need not wait. It is also OTHER for
    operations with a root, if the root or the rank of the caller is unknown (NULL).
    """
    kind = np.array([*(kinds.get(name, OTHER) for name in names), OTHER], np.int64)[operation]
    lacks_root = np.isin(kind, (FROM_ROOT, TO_ROOT)) & ((root == NULL) | (rank == NULL))
    return np.where((size == 0) | lacks_root, OTHER, kind)


class Side(NamedTuple):
    """One side of n messages: its kernel or call, and when it arrived."""

    row: IntArray
    begin: IntArray
    end: IntArray
    arrived: IntArray
    poster: IntArray

    @property
    def is_known(self) -> BoolArray:
        """Mark the messages whose call or kernel, in which this side may wait, is known."""
        return np.asarray((self.begin != NULL) & (self.end != NULL), np.bool_)

    def take(self, which: BoolArray) -> Side:
        """Return the messages that a mask selects."""
        return Side._make([column[which] for column in self])


class MessagePairs(NamedTuple):
    """n messages with both sides, on the common clock (ns) and on rows of the trace.

    Each side may wait in a kernel or call, from `begin` to `end`. `arrived` is when the other side no longer had to
    wait for it: the start of a kernel, or of the call that posted a send or receive.

    `send_end`: NULL (of reports) if it was not recorded. `sender`: row of the thread or stream on which the send was
    posted; it may end on another thread.
    """

    send_row: IntArray
    send_arrived: IntArray
    send_begin: IntArray
    send_end: IntArray
    receive_row: IntArray
    receive_arrived: IntArray
    receive_begin: IntArray
    receive_end: IntArray
    bytes: IntArray
    sender: IntArray
    receiver: IntArray

    @property
    def sides(self) -> tuple[Side, Side]:
        """Return the sides that send and that receive."""
        send = Side(self.send_row, self.send_begin, self.send_end, self.send_arrived, self.sender)
        return send, Side(self.receive_row, self.receive_begin, self.receive_end, self.receive_arrived, self.receiver)


# ---- ranks that not every call records -------------------------------------------------------------------------------


class CommunicatorRanks(ValueClass):
    """A communicator: its members (ranks in the job, or tasks), and the member of each known rank.

    `size`: number of ranks; 0 if no call records it. `largest`: largest rank that a call names, as its root or peer.
    `has_unknown`: whether a process that uses it may be any member.
    """

    size: int = 0
    members: set[int] = field(default_factory=set)
    member_of_rank: dict[int, int] = field(default_factory=dict)
    largest: int = -1
    has_unknown: bool = False

    def fill_in_order(self, *, complete: bool) -> None:
        """Give the unknown ranks to the remaining members, in their order.

        Ranks stay unknown if a member is missing. If the number of ranks is unknown, no member is missing if the whole
        job is present (`complete`) and no call names a rank beyond the members.
        """
        left = sorted(self.members - set(self.member_of_rank.values()))
        size = self.size or len(left) + len(self.member_of_rank)
        if self.has_unknown or (not self.size and (not complete or self.largest >= size)):
            return
        unknown = [rank for rank in range(size) if rank not in self.member_of_rank]
        if len(unknown) == len(left):
            self.member_of_rank |= dict(zip(unknown, left, strict=True))

    def find_rank(self, member: int | None) -> int:
        """Return the rank of a member; -1 if it has no known rank, or more than one."""
        ranks = [rank for rank, owner in self.member_of_rank.items() if owner == member]
        return ranks[0] if len(ranks) == 1 else -1


def resolve_ranks(reports: Sequence[Sequence[RankMessages]]) -> list[list[Messages]]:
    """Return the messages of each report by channel, without messages of unknown ranks."""
    tables = [table for report in reports for table in report]
    ranks = {rank for table in tables for rank in table.job_ranks.values()}
    complete = len(ranks) >= max((table.job_size for table in tables), default=0)
    communicators: dict[str, CommunicatorRanks] = {}
    for table in tables:
        _gather(table, communicators)
    for communicator in communicators.values():
        communicator.fill_in_order(complete=complete)
    return [[_resolve(table, communicators) for table in report] for report in reports]


def _gather(table: RankMessages, communicators: dict[str, CommunicatorRanks]) -> None:
    for name, size in zip(table.communicators, table.sizes, strict=True):
        communicator = communicators.setdefault(name, CommunicatorRanks())
        communicator.size = max(communicator.size, size)
    for number, process, rank in table.uses:
        communicator = communicators[table.communicators[number]]
        member = table.job_ranks.get(process)
        if member is None:
            communicator.has_unknown = True
            continue
        communicator.members.add(member)
        if rank != NULL:
            communicator.member_of_rank[rank] = member
    largest = find_most_at(table.peer, table.communicator, len(table.communicators), -1)
    for name, peer in zip(table.communicators, largest.tolist(), strict=True):
        communicators[name].largest = max(communicators[name].largest, peer)


def _resolve(table: RankMessages, communicators: dict[str, CommunicatorRanks]) -> Messages:
    """Return the messages of a table by channel."""
    codes, pairs = find_distinct_rows(table.communicator, table.process)
    ranks = [communicators[table.communicators[c]].find_rank(table.job_ranks.get(p)) for c, p in pairs]
    rank = np.array([*ranks, -1], np.int64)[codes]
    kept = np.flatnonzero((rank >= 0) & (table.peer != rank))
    rank, peer, is_send = rank[kept], table.peer[kept], table.is_send[kept]
    source, target = np.where(is_send, rank, peer), np.where(is_send, peer, rank)
    channel, distinct = find_distinct_rows(table.communicator[kept], source, target)
    names = [(table.communicators[c], int(s), int(t)) for c, s, t in distinct]
    return Messages(
        channels=[f"nccl {name} {s} > {t}" for name, s, t in names],
        links=[f"nccl {name} {min(s, t)} {max(s, t)}" for name, s, t in names],
        is_forward=np.array([s < t for _, s, t in names], np.bool_),
        channel=channel.astype(np.int64),
        is_send=is_send,
        order=table.order[kept],
        time=table.time[kept],
        handed=table.handed[kept],
        bytes=table.bytes[kept],
    )
