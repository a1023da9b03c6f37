"""Finds the ranks of processes in communicators if not every call records them.

A capture often starts after the communicators were made, so that no call in it records which process is rank r. If no
member of a communicator is missing, the unrecorded ranks go to the remaining members in the order of their ranks in the
job, because programs make communicators from ranks in ascending order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

import numpy as np

from nsys2prv_ng.arrays.row_keys import find_distinct_rows
from nsys2prv_ng.light_dataclass import dataclass
from nsys2prv_ng.operations.parts import Messages, RankMessages
from nsys2prv_ng.report.database import NULL


@dataclass
class CommunicatorRanks:
    """A communicator: its members (ranks in the job, or tasks), and the member of each known rank."""

    size: int = 0
    """Number of ranks; 0 if no call records it."""
    members: set[int] = field(default_factory=set)
    member_of_rank: dict[int, int] = field(default_factory=dict)
    largest: int = -1
    """Largest rank that a call names, as its root or peer."""
    has_unknown: bool = False
    """Whether a process that uses it may be any member."""

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
    largest = np.full(len(table.communicators), -1)
    np.maximum.at(largest, table.communicator, table.peer)
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
