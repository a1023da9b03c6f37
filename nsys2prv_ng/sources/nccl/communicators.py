"""Finds the communicators of all reports: their numbers, members and what they are for.

All ranks of a communicator use the same 64-bit id. Its ranks may differ from the ranks of the job: the calls that
create or end it record which task is its rank r. If the reports contain no such call for some ranks, these ranks go to
the remaining members, in the order of tasks, provided that no member is missing.

Communicators are named by what they are for: data, sharded data, tensor, pipeline or expert parallelism. One gets such
a name only if its calls and its members agree:

- The calls of all its members have one purpose (`purposes.py`), and all members are in the reports.
- Its members differ in one coordinate of a grid of ranks: they are equally far apart, and all communicators of its size
  and purpose are shifted copies of it that share no rank and together have all ranks. Members of a tensor communicator
  are consecutive. Stages are chains: the ranks that exchange messages form such sets, in one communicator or several.
- No communicator with another purpose along which ranks hold different data has the same members.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from itertools import pairwise

from nsys2prv_ng.arrays.row_keys import find_distinct_rows
from nsys2prv_ng.objects.tree import ObjectTree
from nsys2prv_ng.operations.parts import CommunicatorRanks
from nsys2prv_ng.report.database import NULL
from nsys2prv_ng.sources.nccl.payload_events import NcclJoinData
from nsys2prv_ng.sources.nccl.purposes import ACTIVATIONS, EXPERTS, GRADIENTS, HIDDEN, NO_PURPOSE, SHARDS, STAGES
from nsys2prv_ng.sources.shared.report_reader import parse_rank
from nsys2prv_ng.sources.shared.source import JoinInput
from nsys2prv_ng.value_class import ValueClass

Reports = Sequence[tuple[JoinInput, NcclJoinData]]


class Communicator(CommunicatorRanks):
    """A communicator: its number in the trace, the tasks that use it, and the task of each known rank.

    `first`: time of its first use (ns). `axis`: what it is for: a name of `AXES`; empty if that is not known. `label`:
    its number, axis and members in words.
    """

    name: str = ""
    number: int = 0
    first: int = 0
    axis: str = ""
    label: str = ""

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
    # Every rank of the job is in the trace, as far as the reports record the size of the job.
    largest_job = max((part.metadata.job_size for part, _ in reports), default=0)
    complete = sum(rank is not None for rank in tree.ranks) >= largest_job
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


# ---- names by what communicators are for -----------------------------------------------------------------------------

AXES = {GRADIENTS: "data", SHARDS: "sharded data", ACTIVATIONS: "tensor", STAGES: "pipeline", EXPERTS: "expert"}
_CONTRARY = {ACTIVATIONS: {GRADIENTS, SHARDS}, GRADIENTS: {ACTIVATIONS}, SHARDS: {ACTIVATIONS}}
"""The purposes that no communicator with the same members may have, by purpose."""
_SHORTEST_RING = 4
"""Fewest stages that may form a ring, as interleaved ones do: rings of three are all-to-all exchanges as well."""
_MOST_LISTED = 4


class Usage(ValueClass):
    """A communicator: its members (ranks of the job), and what each of them does on it.

    `purposes`: the purposes of the calls, over all members. `is_complete`: whether all members are known. `routes`:
    pairs of members with messages: sender and receiver.
    """

    members: frozenset[int]
    purposes: frozenset[int]
    is_complete: bool = True
    routes: frozenset[tuple[int, int]] = frozenset()

    @property
    def purpose(self) -> int:
        """The only purpose; NO_PURPOSE if the members differ. Hidden calls may be activations."""
        shown = self.purposes - {HIDDEN} if ACTIVATIONS in self.purposes else self.purposes
        return next(iter(shown)) if len(shown) == 1 and self.is_complete else NO_PURPOSE


def name_axes(communicators: Sequence[Usage]) -> list[str]:
    """Return the name of each communicator; empty if members and calls do not agree on one."""
    ranks = frozenset(rank for communicator in communicators for rank in communicator.members)
    purposes = [communicator.purpose if len(communicator.members) > 1 else NO_PURPOSE for communicator in communicators]
    stages = [c for c, purpose in zip(communicators, purposes, strict=True) if purpose == STAGES]
    has_chains = _are_chains({route for c in stages for route in c.routes}, ranks)
    users: dict[frozenset[int], set[int]] = {}
    families: dict[tuple[int, int], set[frozenset[int]]] = {}
    for communicator, purpose in zip(communicators, purposes, strict=True):
        users.setdefault(communicator.members, set()).add(purpose)
        families.setdefault((purpose, len(communicator.members)), set()).add(communicator.members)
    names = []
    for communicator, purpose in zip(communicators, purposes, strict=True):
        members, family = communicator.members, families[purpose, len(communicator.members)]
        if purpose == STAGES:
            agrees = has_chains
        else:
            agrees = _form_grid(family, ranks) and not users[members] & _CONTRARY.get(purpose, set())
        if purpose == ACTIVATIONS:
            agrees &= max(members) - min(members) == len(members) - 1
        if purpose == EXPERTS:
            agrees &= len(communicator.routes - {(r, r) for r in members}) == len(members) * (len(members) - 1)
        names.append(AXES.get(purpose, "") if agrees else "")
    return names


def _form_grid(sets: Collection[frozenset[int]], ranks: frozenset[int]) -> bool:
    """Return whether sets are shifted copies of equally spaced ranks that have each of the ranks once."""
    shapes = {tuple(rank - min(members) for rank in sorted(members)) for members in sets}
    spaced = all(len({b - a for a, b in pairwise(shape)}) == 1 for shape in shapes)
    counts = Counter(rank for members in sets for rank in members)
    return len(shapes) == 1 and spaced and counts.keys() == ranks and set(counts.values()) == {1}


def _are_chains(routes: Collection[tuple[int, int]], ranks: frozenset[int]) -> bool:
    """Return whether messages go both ways along chains (or rings) of ranks that form a grid."""
    neighbours: dict[int, set[int]] = {}
    for sender, receiver in routes:
        if sender == receiver or (receiver, sender) not in routes:
            return False
        neighbours.setdefault(sender, set()).add(receiver)
    left = set(neighbours)
    chains: list[frozenset[int]] = []
    while left:
        chain, todo = set[int](), [min(left)]
        while todo:
            rank = todo.pop()
            if rank not in chain:
                chain.add(rank)
                todo += neighbours[rank]
        left -= chain
        chains.append(frozenset(chain))
    for members in chains:
        ordered = sorted(members)
        degrees = [len(neighbours[rank]) for rank in ordered]
        steps = set(pairwise(ordered))
        is_ring = len(members) >= _SHORTEST_RING and set(degrees) == {2}
        if not is_ring and sorted(degrees) != [1, 1, *[2] * (len(members) - 2)]:
            return False
        if not steps <= set(routes):
            return False
    return _form_grid(chains, ranks)


def format_members(ranks: Iterable[int | None], count: int) -> str:
    """Return the members of a communicator in words: their ranks if all `count` are known, or their number."""
    known = sorted(rank for rank in set(ranks) if rank is not None)
    if len(known) != count or not known:
        return f"{count} rank{'' if count == 1 else 's'}"
    if count == 1:
        return f"rank {known[0]}"
    steps = {b - a for a, b in pairwise(known)}
    if steps == {1} and count > 2:
        return f"ranks {known[0]}-{known[-1]}"
    if count > _MOST_LISTED:
        shown = f"{known[0]}, {known[1]}, .., {known[-1]}"
        return f"ranks {shown}" if len(steps) == 1 else f"{count} ranks from {known[0]} to {known[-1]}"
    return f"ranks {', '.join(map(str, known))}"
