"""Finds the ranks of processes in communicators if not every call records them.

A capture often starts after the communicators were made, so that no call in it records which process is rank r. If no
member of a communicator is missing, the unrecorded ranks go to the remaining members in the order of their ranks in the
job, because programs make communicators from ranks in ascending order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from nsys2prv_ng.arrays.row_keys import find_distinct_rows
from nsys2prv_ng.operations.parts import Messages, RankMessages
from nsys2prv_ng.report.database import NULL


def fill_in_order(
    member_of_rank: dict[int, int], members: set[int], size: int | None, largest: int, *, complete: bool
) -> dict[int, int]:
    """Return the member of each rank; unknown ranks go to the remaining members, in their order.

    Ranks stay unknown if a member is missing. If `size`, the number of ranks, is unknown, no member is missing if the
    whole job is present (`complete`) and no call names a rank (`largest`) beyond the members.
    """
    left = sorted(members - set(member_of_rank.values()))
    if size is None:
        size = len(left) + len(member_of_rank)
        if not complete or largest >= size:
            return member_of_rank
    unknown = [rank for rank in range(size) if rank not in member_of_rank]
    if len(unknown) != len(left):
        return member_of_rank
    return member_of_rank | dict(zip(unknown, left, strict=True))


def find_rank(member_of_rank: dict[int, int], member: int | None) -> int:
    """Return the rank of a member; -1 if it has no known rank, or more than one."""
    ranks = [rank for rank, owner in member_of_rank.items() if owner == member]
    return ranks[0] if len(ranks) == 1 else -1


@dataclass
class _Communicator:
    """A communicator: its members by their ranks in the job, and the member of each known rank."""

    size: int = 0
    members: set[int] = field(default_factory=set)
    member_of_rank: dict[int, int] = field(default_factory=dict)
    largest: int = -1
    has_unknown: bool = False
    """Whether a process with an unknown rank in the job uses it."""


def resolve_ranks(reports: Sequence[Sequence[RankMessages]]) -> list[list[Messages]]:
    """Return the messages of each report by channel, without messages of unknown ranks."""
    tables = [table for report in reports for table in report]
    ranks = {rank for table in tables for rank in table.job_ranks.values()}
    complete = len(ranks) >= max((table.job_size for table in tables), default=0)
    communicators: dict[str, _Communicator] = {}
    for table in tables:
        _gather(table, communicators)
    for communicator in communicators.values():
        if not communicator.has_unknown:
            communicator.member_of_rank = fill_in_order(
                communicator.member_of_rank,
                communicator.members,
                communicator.size or None,
                communicator.largest,
                complete=complete,
            )
    return [[_resolve(table, communicators) for table in report] for report in reports]


def _gather(table: RankMessages, communicators: dict[str, _Communicator]) -> None:
    for name, size in zip(table.communicators, table.sizes, strict=True):
        communicator = communicators.setdefault(name, _Communicator())
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
    largest = pd.Series(table.peer).groupby(table.communicator).max()
    for number, peer in largest.items():
        communicator = communicators[table.communicators[int(str(number))]]
        communicator.largest = max(communicator.largest, int(peer))


def _resolve(table: RankMessages, communicators: dict[str, _Communicator]) -> Messages:
    """Return the messages of a table by channel."""
    codes, pairs = find_distinct_rows(table.communicator, table.process)
    known = [communicators[name].member_of_rank for name in table.communicators]
    ranks = [find_rank(known[c], table.job_ranks.get(p)) for c, p in pairs]
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
