"""Communicators of MPI: which one a handle of a process means at a time, and which are the same in several processes.

Handles are addresses or small integers of a process and are used again once a communicator is freed. In all processes
the same is (world rank of its root, the root's count of communicators, size); of a copy (MPI_Comm_dup), which nsys
writes without these, it is the communicator that was copied and which of its copies it is: all members make them in
the same order.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from nsys2prv_ng.arrays.row_keys import encode_rows
from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.intervals.as_of import find_latest
from nsys2prv_ng.paraver.labels import Value
from nsys2prv_ng.paraver.model import Communicator
from nsys2prv_ng.report.database import NULL, Columns, Table
from nsys2prv_ng.report.metadata import MOST_RANKS
from nsys2prv_ng.sources.shared.report_reader import ReportReader

COMMUNICATORS = "MPI_COMMUNICATORS"
_NUMBERS = (
    "rank",
    "timestamp",
    "commHandle",
    "parentHandle",
    "localRank",
    "size",
    "groupRoot",
    "groupRootUid",
)
TABLE = Table(COMMUNICATORS, (), dict.fromkeys(_NUMBERS, NULL), text=("members",))

WORLD = "world"
UNKNOWN = "unknown"
"""Key of whatever a handle without a row means."""

MPICH_WORLD = 0x44000000
"""Handle of MPI_COMM_WORLD in MPICH and what derives from it; in Open MPI handles are addresses."""

_NAMED_MEMBERS = 16


@dataclass
class Group:
    """What is known of a communicator: its size, and the world rank of each of its ranks that told."""

    size: int = 0
    copy_of: str = ""
    members: dict[int, int] = field(default_factory=dict)


@dataclass
class Communicators:
    """The communicators of one report: keys, what is known of each, and what handles mean."""

    keys: list[str] = field(default_factory=lambda: [UNKNOWN])
    groups: dict[str, Group] = field(default_factory=dict)
    mpich: set[int] = field(default_factory=set)
    """Processes whose MPI numbers its constants as MPICH does."""
    handles: IntArray = field(default_factory=lambda: np.zeros((4, 0), np.int64))
    """Process, handle, time since when it means this (ns), index into `keys`."""

    def resolve(self, process: IntArray, handle: IntArray, time: IntArray) -> IntArray:
        """Return the index into `keys` of the communicator that each handle of a process meant at a time (ns)."""
        process_columns, known, since, key = self.handles
        codes, _ = encode_rows(np.concatenate([process_columns, process]), np.concatenate([known, handle]))
        row = find_latest(codes[: known.size], since, codes[known.size :], time)
        return np.append(key, 0)[row]


def read_communicators(reader: ReportReader) -> Communicators:
    """The communicators that the processes of a report made."""
    columns = reader.columns(COMMUNICATORS)
    found = Communicators()
    if not columns.rows:
        return found
    process_of_rank: dict[int, list[int]] = {}
    for process, rank in reader.metadata.ranks.items():
        process_of_rank.setdefault(rank, []).append(process)
    members = columns.texts["members"].to_pylist()
    handles: list[tuple[int, int, int, int]] = []
    meaning: dict[tuple[int, int], str] = {}
    copies: dict[tuple[int, str], int] = {}
    index_of = {UNKNOWN: 0}
    for row in np.lexsort((np.arange(columns.rows), columns["timestamp"])).tolist():
        processes = process_of_rank.get(int(columns["rank"][row]), [])
        if len(processes) != 1:
            continue
        process, handle = processes[0], int(columns["commHandle"][row])
        key = _key_of(columns, row, process, meaning, copies)
        meaning[process, handle] = key
        if key == WORLD and handle == MPICH_WORLD:
            found.mpich.add(process)
        # What is not freed before the capture begins is known from its start on.
        since = NULL if key == WORLD else int(columns["timestamp"][row])
        handles.append((process, handle, since, index_of.setdefault(key, len(index_of))))
        if key != UNKNOWN:
            _learn(found.groups, key, columns, row, members[row])
    found.keys = list(index_of)
    found.handles = np.array(handles, np.int64).reshape(-1, 4).T
    return found


def _key_of(
    columns: Columns,
    row: int,
    process: int,
    meaning: Mapping[tuple[int, int], str],
    copies: dict[tuple[int, str], int],
) -> str:
    """Key of a row: that of the world, of a group that has a root, or of a copy of an earlier row's communicator."""
    parent, size, root = (int(columns[name][row]) for name in ("parentHandle", "size", "groupRoot"))
    if root != NULL:
        return f"{root}:{int(columns['groupRootUid'][row])}:{size}"
    if parent in (0, NULL):
        return WORLD if size != NULL else UNKNOWN
    copied = meaning.get((process, parent), UNKNOWN)
    if copied == UNKNOWN:
        return UNKNOWN
    copies[process, copied] = copies.get((process, copied), 0) + 1
    return f"{copied} copy {copies[process, copied]}"


def _learn(groups: dict[str, Group], key: str, columns: Columns, row: int, members: str | None) -> None:
    """Add what a row says of its communicator."""
    group = groups.setdefault(key, Group())
    rank, local, size = (int(columns[name][row]) for name in ("rank", "localRank", "size"))
    group.copy_of = key.rpartition(" copy ")[0]
    if size < MOST_RANKS:
        group.size = max(group.size, size)
    if 0 <= local < MOST_RANKS:
        group.members[local] = rank
        listed = [int(number) for number in re.findall(r"[0-9]{1,9}", members or "")]
        if len(listed) == size and 0 <= local < size and listed[local] == rank:
            group.members.update(enumerate(listed))


# ---- all reports together ----------------------------------------------------------------------------------------


class AllCommunicators:
    """The communicators of all reports, numbered from 1: the world first, the others by root, count and size."""

    def __init__(self, reports: Iterable[Communicators]) -> None:
        self.groups: dict[str, Group] = {}
        for report in reports:
            for key, group in report.groups.items():
                known = self.groups.setdefault(key, Group(copy_of=group.copy_of))
                known.size = max(known.size, group.size)
                known.members.update(group.members)
        self.keys = sorted(self.groups, key=lambda key: (key != WORLD, _numbers(key), key))
        self.number = {key: number for number, key in enumerate(self.keys, 1)}
        for key in self.keys:
            group = self.groups[key]
            if key == WORLD:
                group.members = {rank: rank for rank in range(group.size)}
            original = self.groups.get(group.copy_of)
            if original is not None:  # The keys of copies follow that of their original.
                group.size, group.members = original.size, original.members

    def world_rank(self, key: str, local: int) -> int | None:
        """Rank in MPI_COMM_WORLD of a rank of a communicator, where it is known."""
        group = self.groups.get(key)
        return None if group is None else group.members.get(local)

    def values(self) -> dict[str, Value]:
        """Value and label of each communicator by its key, and of an unknown one."""
        values = {key: Value(number, self._label(key)) for key, number in self.number.items()}
        return values | {UNKNOWN: Value(len(values) + 1, "unknown communicator")}

    def _label(self, key: str) -> str:
        if key == WORLD:
            return "MPI_COMM_WORLD"
        group, number = self.groups[key], self.number[key]
        if group.copy_of:
            original = "MPI_COMM_WORLD" if group.copy_of == WORLD else f"communicator {self.number[group.copy_of]}"
            return f"communicator {number}: copy of {original}"
        shown = [str(group.members.get(local, "?")) for local in range(min(group.size, _NAMED_MEMBERS))]
        more = f" and {group.size - _NAMED_MEMBERS} more" if group.size > _NAMED_MEMBERS else ""
        return f"communicator {number}: ranks {' '.join(shown)}{more}"

    def header(self, task_of_rank: Mapping[int, int]) -> list[Communicator]:
        """Lines of the header: the tasks (from 1, in the order of ranks of the communicator) that are in the trace."""
        lines = []
        for key in self.keys:
            members = self.groups[key].members
            tasks = [task_of_rank[rank] + 1 for _, rank in sorted(members.items()) if rank in task_of_rank]
            if tasks:
                lines.append(Communicator(self.number[key], tuple(tasks)))
        return lines


def _numbers(key: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", key)]
