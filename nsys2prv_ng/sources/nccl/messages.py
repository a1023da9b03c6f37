"""What only all reports together tell of NCCL: communicators, whose ranks are which tasks, and messages between ranks.

A communicator has a 64-bit id that all its ranks agree on. Its ranks need not be those of the job: which task is its
rank r is told by the calls that make or end it. Ranks that no such call in the reports tells are given to the members
left over, in the order of tasks, if none of the members is missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.objects.tree import ObjectTree
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver.labels import Value
from nsys2prv_ng.records.columns import make_communications
from nsys2prv_ng.report.database import NULL
from nsys2prv_ng.sources.shared.result import Result
from nsys2prv_ng.sources.shared.source import JoinInput, JoinResult

MESSAGES = "nccl_messages"
_WORLD_SIZES = ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")


def name_rank(communicator: str, rank: int) -> str:
    """Name under which a report registers a rank of a communicator, whose id may be unknown ('')."""
    return f"{communicator} {rank}"


@dataclass(frozen=True)
class NcclJoinData:
    """What one report tells. Communicators are indices into `communicators`; times in ns; NULL for what is not said."""

    communicators: list[str]
    operations: list[str]
    rank_names: dict[str, tuple[str, int]]
    """(communicator, rank) by name."""
    uses: pd.DataFrame
    """communicator, place, rank, ranks, devices, begin: what calls on each thread tell, and when first."""
    messages: pd.DataFrame
    """communicator, caller (place of the thread), peer, receives, bytes, order (time of the call); place, begin, end:
    of the kernel that carries it out, else of the call."""


@dataclass
class _Communicator:
    """A communicator: its number in the trace, the tasks that use it, and the task of each rank that is known."""

    name: str
    number: int = 0
    first: int = 0
    """When it is first used (ns)."""
    size: int | None = None
    tasks: set[int] = field(default_factory=set)
    task_of_rank: dict[int, int] = field(default_factory=dict)
    largest: int = -1
    """Largest rank that a root or peer names."""

    @property
    def ranks(self) -> int:
        """Number of ranks; where no call tells it, as many as use it or are named."""
        return self.size or max(len(self.tasks), len(self.task_of_rank), self.largest + 1)

    def rank_of(self, task: int) -> int:
        """The one rank that a task is; -1 if it is none that is known, or several."""
        ranks = [rank for rank, of_task in self.task_of_rank.items() if of_task == task]
        return ranks[0] if len(ranks) == 1 else -1


def join(parts: Sequence[JoinInput], tree: ObjectTree) -> JoinResult:
    """Numbers of communicators, operations and ranks, and a communication for each send and its receive."""
    found = _communicators(parts, tree)
    joined = JoinResult()
    joined.assigned[types.NCCL_COMMUNICATOR.names] = {
        each.name: Value(each.number, f"comm {each.number} ({each.ranks} rank{'' if each.ranks == 1 else 's'})")
        for each in found.values()
    }
    operations = {name for part in parts for name in _shared(part).operations}
    others = sorted(operations - set(types.NCCL_OPERATIONS))
    numbers = types.NCCL_OPERATIONS | {name: i for i, name in enumerate(others, len(types.NCCL_OPERATIONS) + 1)}
    joined.assigned[types.NCCL_OPERATION.names] = {name: Value(numbers[name], name) for name in operations}
    joined.assigned[types.NCCL_ROOT.names] = _ranks(parts, tree, found)
    joined.accounts[MESSAGES] = _messages(parts, tree, found)
    return joined


def _shared(part: JoinInput) -> NcclJoinData:
    assert isinstance(part.shared, NcclJoinData)
    return part.shared


# ---- communicators ---------------------------------------------------------------------------------------------------


def _communicators(parts: Sequence[JoinInput], tree: ObjectTree) -> dict[str, _Communicator]:
    """All communicators by their ids. Numbers are from 1: by size, largest first, then by tasks, then by first use."""
    found: dict[str, _Communicator] = {}
    for part in parts:
        shared = _shared(part)
        columns = (
            shared.uses[name].tolist() for name in ("communicator", "place", "rank", "ranks", "devices", "begin")
        )
        for communicator, place, rank, ranks, devices, begin in zip(*columns, strict=True):
            name = shared.communicators[communicator]
            used = part.clock.at(begin)
            each = found.setdefault(name, _Communicator(name, first=used))
            task = int(tree.task_of_row[part.rows[place]])
            each.first = min(each.first, used)
            each.tasks.add(task)
            sizes = [size for size in (each.size, ranks, devices) if size is not None and size != NULL]
            each.size = max(sizes, default=None)
            if rank != NULL:
                each.task_of_rank[rank] = task
            if devices != NULL:
                each.task_of_rank |= dict.fromkeys(range(devices), task)
        for name in shared.communicators:
            found.setdefault(name, _Communicator(name))  # of calls that were all dropped
        for name, rank in shared.rank_names.values():
            if name:
                found[name].largest = max(found[name].largest, rank)
    complete = _is_complete(parts, tree)
    ordered = sorted(found.values(), key=lambda c: (-c.ranks, sorted(c.tasks), c.first, c.name))
    for number, each in enumerate(ordered, 1):
        each.number = number
        _fill_in_task_order(each, complete)
    return found


def _is_complete(parts: Sequence[JoinInput], tree: ObjectTree) -> bool:
    """Whether, for all that is known, every rank of the job is in the trace."""
    sizes = [part.metadata.number(name) or 0 for part in parts for name in _WORLD_SIZES]
    return sum(rank is not None for rank in tree.ranks) >= max(sizes, default=0)


def _fill_in_task_order(communicator: _Communicator, complete: bool) -> None:
    """Give the ranks that are not known to the members left over, in the order of tasks, if no member is missing.

    Where no call tells the number of ranks, all are there if all of the job is, and no call names a rank beyond them.
    """
    tasks = sorted(communicator.tasks - set(communicator.task_of_rank.values()))
    size = communicator.size
    if size is None:
        size = len(tasks) + len(communicator.task_of_rank)
        if not complete or communicator.largest >= size:
            return
    ranks = [rank for rank in range(size) if rank not in communicator.task_of_rank]
    if len(ranks) == len(tasks):
        communicator.task_of_rank |= dict(zip(ranks, tasks, strict=True))


def _ranks(parts: Sequence[JoinInput], tree: ObjectTree, found: dict[str, _Communicator]) -> dict[str, Value]:
    """Value of each rank: the number of its task, under the task's name; those without a task follow."""
    names = {name: of_rank for part in parts for name, of_rank in _shared(part).rank_names.items()}
    values: dict[str, Value] = {}
    without = []
    for name, (communicator, rank) in names.items():
        task = found[communicator].task_of_rank.get(rank) if communicator else None
        if task is None:
            without.append((found[communicator].number if communicator else 0, rank, name))
        else:
            values[name] = Value(task + 1, tree.model.tasks[task].name)
    for value, (number, rank, name) in enumerate(sorted(without), len(tree.model.tasks) + 1):
        values[name] = Value(value, f"rank {rank} of {f'comm {number}' if number else 'a communicator'}, task unknown")
    return values


# ---- messages --------------------------------------------------------------------------------------------------------


def _messages(parts: Sequence[JoinInput], tree: ObjectTree, found: dict[str, _Communicator]) -> Result:
    """A communication for the n-th send of a rank to another and the other's n-th receive from it."""
    calls = _all_messages(parts, tree, found)
    result = Result()
    several = calls["rank"] < 0
    known = calls[~several].sort_values("order", kind="stable")
    receives = known["receives"].to_numpy(np.bool_)
    known["source"] = np.where(receives, known["peer"], known["rank"])
    known["target"] = np.where(receives, known["rank"], known["peer"])
    route = ["communicator", "source", "target"]
    known["number"] = known.groupby([*route, "receives"]).cumcount()
    sends, receipts = known[~receives], known[receives]
    pairs = sends.merge(receipts, on=[*route, "number"], suffixes=("", "_received"))

    # A message is read once, whether one of its ends is in the reports or both.
    result.read = len(calls) - len(pairs)
    result.drop("rank of its process in the communicator is not known", int(several.sum()))
    for ends, reason in ((sends, "send without its receive"), (receipts, "receive without its send")):
        peer_known = ends["peer_known"].to_numpy(np.bool_)
        unpaired = ~pd.MultiIndex.from_frame(ends[[*route, "number"]]).isin(
            pd.MultiIndex.from_frame(pairs[[*route, "number"]])
        )
        result.drop("rank of its peer is no known task", int((unpaired & ~peer_known).sum()))
        result.drop(f"{reason} in the reports", int((unpaired & peer_known).sum()))
    if len(pairs):
        column = {name: pairs[name].to_numpy(np.int64) for name in pairs.columns}
        size: IntArray = np.where(column["bytes"] == NULL, column["bytes_received"], column["bytes"])
        line = (column["row"], column["begin"], column["row_received"], column["end_received"])
        result.records.append(make_communications(*line, np.maximum(size, 0), types.TAG_NCCL))
    return result


def _all_messages(parts: Sequence[JoinInput], tree: ObjectTree, found: dict[str, _Communicator]) -> pd.DataFrame:
    """Sends and receives of all reports, on the common clock, with rows of the trace and numbers of communicators.

    `rank` is that of the caller in the communicator, or -1; `peer_known` whether the peer's task is known.
    """
    columns = ("communicator", "peer", "receives", "bytes", "order", "begin", "end", "row", "rank", "peer_known")
    tables = [pd.DataFrame({name: np.zeros(0, np.int64) for name in columns})]
    for part in parts:
        shared = _shared(part)
        table = shared.messages.copy()
        if not len(table):
            continue
        for name in ("order", "begin", "end"):
            table[name] = part.clock(table[name].to_numpy(np.int64))
        table["row"] = part.rows[table["place"].to_numpy(np.int64)]
        table["task"] = tree.task_of_row[part.rows[table["caller"].to_numpy(np.int64)]]
        of_communicator = [found[name] for name in shared.communicators]
        callers, caller = _distinct(table, "communicator", "task")
        table["rank"] = np.array([of_communicator[c].rank_of(task) for c, task in callers], np.int64)[caller]
        peers, peer = _distinct(table, "communicator", "peer")
        known = [rank in of_communicator[c].task_of_rank for c, rank in peers]
        table["peer_known"] = np.array(known, np.int64)[peer]
        number = np.array([each.number for each in of_communicator], np.int64)
        table["communicator"] = number[table["communicator"].to_numpy(np.int64)]
        tables.append(table[list(columns)])
    messages: pd.DataFrame = pd.concat(tables, ignore_index=True).astype(np.int64)
    return messages


def _distinct(table: pd.DataFrame, *names: str) -> tuple[list[tuple[int, int]], IntArray]:
    """(distinct pairs of two columns, index of each row's pair)."""
    codes, pairs = pd.MultiIndex.from_frame(table[list(names)]).factorize()
    return [(int(a), int(b)) for a, b in pairs], codes
