"""Finds the communicators of all reports: their numbers, members and what they are for.

All ranks of a communicator use the same 64-bit id. Its ranks may differ from the ranks of the job: the calls that
create or end it record which task is its rank r. If the reports contain no such call for some ranks, these ranks go to
the remaining members, in the order of tasks, provided that no member is missing.
"""

from __future__ import annotations

from collections.abc import Sequence

from nsys2prv_ng.arrays.row_keys import find_distinct_rows
from nsys2prv_ng.light_dataclass import dataclass
from nsys2prv_ng.objects.tree import ObjectTree
from nsys2prv_ng.operations.ranks import CommunicatorRanks
from nsys2prv_ng.report.database import NULL
from nsys2prv_ng.sources.nccl.axes import Usage, format_members, name_axes
from nsys2prv_ng.sources.nccl.join_data import NcclJoinData
from nsys2prv_ng.sources.shared.pairs import parse_rank
from nsys2prv_ng.sources.shared.source import JoinInput

Reports = Sequence[tuple[JoinInput, NcclJoinData]]


@dataclass
class Communicator(CommunicatorRanks):
    """A communicator: its number in the trace, the tasks that use it, and the task of each known rank."""

    name: str = ""
    number: int = 0
    first: int = 0
    """Time of its first use (ns)."""
    axis: str = ""
    """What it is for: a name of `axes.AXES`; empty if that is not known."""
    label: str = ""
    """Its number, axis and members in words."""

    @property
    def ranks(self) -> int:
        """Number of ranks; if no call records it, the ranks that use the communicator or are peers in calls."""
        return self.size or max(len(self.members), len(self.member_of_rank), self.largest + 1)


def find_communicators(reports: Reports, tree: ObjectTree) -> dict[str, Communicator]:
    """Return all communicators by id, numbered from 1: the largest first, then by tasks, then by first use."""
    communicators: dict[str, Communicator] = {}
    for part, data in reports:
        for index, place, rank, devices, begin in zip(*(column.tolist() for column in data.uses), strict=True):
            name = data.communicators[index]
            used = part.clock.at(begin)
            communicator = communicators.setdefault(name, Communicator(name=name, first=used))
            task = int(tree.task_of_row[part.rows[place]])
            communicator.first = min(communicator.first, used)
            communicator.members.add(task)
            if rank != NULL:
                communicator.member_of_rank[rank] = task
            if devices != NULL:
                communicator.member_of_rank |= dict.fromkeys(range(devices), task)
        for name, size in zip(data.communicators, data.sizes, strict=True):
            # If its calls were all dropped, it is new here.
            communicator = communicators.setdefault(name, Communicator(name=name))
            communicator.size = max(communicator.size, size)
        for name, rank in map(parse_rank, data.rank_names):
            if name:
                communicators[name].largest = max(communicators[name].largest, rank)
    complete = _is_complete(reports, tree)
    ordered = sorted(communicators.values(), key=lambda c: (-c.ranks, sorted(c.members), c.first, c.name))
    for number, communicator in enumerate(ordered, 1):
        communicator.number = number
        communicator.fill_in_order(complete=complete)
    for communicator, axis in zip(ordered, _name_axes(reports, tree, ordered, complete=complete), strict=True):
        communicator.axis = axis
        communicator.label = _label(communicator, tree)
    return communicators


def _name_axes(
    reports: Reports, tree: ObjectTree, communicators: Sequence[Communicator], *, complete: bool
) -> list[str]:
    """Return the name of what each communicator is for; empty where calls and members do not agree on one."""
    purposes: dict[str, set[int]] = {}
    routes: dict[str, set[tuple[int | None, int | None]]] = {}
    of_name = {communicator.name: communicator for communicator in communicators}
    for part, data in reports:
        for index, _, purpose in zip(*(column.tolist() for column in data.purposes), strict=True):
            purposes.setdefault(data.communicators[index], set()).add(purpose)
        ends = data.messages
        _, sends = find_distinct_rows(*(c[~ends.receives] for c in (ends.communicator, ends.caller, ends.peer)))
        for index, caller, peer in sends:
            communicator = of_name[data.communicators[index]]
            receiver = communicator.member_of_rank.get(peer)
            sender = tree.ranks[tree.task_of_row[part.rows[caller]]]
            route = (sender, None if receiver is None else tree.ranks[receiver])
            routes.setdefault(communicator.name, set()).add(route)
    usages = []
    for communicator in communicators:
        ranks = {tree.ranks[task] for task in communicator.members}
        pairs = routes.get(communicator.name, set())
        known = complete and None not in ranks and not any(None in pair for pair in pairs)
        usages.append(
            Usage(
                frozenset(rank for rank in ranks if rank is not None),
                frozenset(purposes.get(communicator.name, ())),
                known and len(ranks) == communicator.ranks,
                frozenset((a, b) for a, b in pairs if a is not None and b is not None),
            )
        )
    return name_axes(usages)


def _label(communicator: Communicator, tree: ObjectTree) -> str:
    """Return the number of a communicator, what it is for, and its members."""
    members = format_members((tree.ranks[task] for task in communicator.members), communicator.ranks)
    return f"communicator {communicator.number}{f', {communicator.axis}' if communicator.axis else ''} ({members})"


def _is_complete(reports: Reports, tree: ObjectTree) -> bool:
    """Return whether every rank of the job is in the trace, as far as the reports record the size of the job."""
    sizes = [part.metadata.job_size for part, _ in reports]
    return sum(rank is not None for rank in tree.ranks) >= max(sizes, default=0)
