"""Finds the MPI communicator that a handle of a process means at a given time, and identifies communicators across
processes.

Handles are addresses or small integers of a process, and are reused once a communicator is freed. The key that all
processes share is (world rank of the root, the root's count of communicators, size). nsys writes a copy (MPI_Comm_dup)
without these values. The key of a copy is the original communicator and the number of the copy among its copies,
because all members make copies in the same order.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import field

import numpy as np

from nsys2prv_ng.arrays.groups import map_unambiguous
from nsys2prv_ng.arrays.row_keys import encode_rows
from nsys2prv_ng.arrays.types import IntArray, pick
from nsys2prv_ng.intervals.step_functions import find_latest
from nsys2prv_ng.paraver.labels import Value
from nsys2prv_ng.paraver.model import Communicator
from nsys2prv_ng.report.database import NULL, Columns, Table
from nsys2prv_ng.report.metadata import MOST_RANKS
from nsys2prv_ng.sources.shared.report_reader import ReportReader
from nsys2prv_ng.value_class import ValueClass

COMMUNICATORS = "MPI_COMMUNICATORS"
_NUMBERS = ("rank", "timestamp", "commHandle", "parentHandle", "localRank", "size", "groupRoot", "groupRootUid")
TABLE = Table(COMMUNICATORS, (), dict.fromkeys(_NUMBERS, NULL), text=("members",))

WORLD = "world"
UNKNOWN = "unknown"
"""The key for handles without a row."""

MPICH_WORLD = 0x44000000
"""Handle of MPI_COMM_WORLD in MPICH and its derivatives; in Open MPI handles are addresses."""

_NAMED_MEMBERS = 16


class Group(ValueClass):
    """The known facts about a communicator.

    `original`: key of the original communicator; '' if this is not a copy. `members`: world rank of each recorded rank.
    """

    size: int = 0
    original: str = ""
    members: dict[int, int] = field(default_factory=dict)


class Communicators(ValueClass):
    """The communicators of one report: keys, known facts, and the meaning of handles.

    `mpich`: processes whose MPI numbers its constants as MPICH does. `handles`: process, handle, time (ns) from which
    the handle means this communicator, index into `keys`: 4 x n.
    """

    keys: list[str] = field(default_factory=lambda: [UNKNOWN])
    groups: dict[str, Group] = field(default_factory=dict)
    mpich: set[int] = field(default_factory=set)
    handles: IntArray = field(default_factory=lambda: np.zeros((4, 0), np.int64))

    def resolve(self, process: IntArray, handle: IntArray, time: IntArray) -> IntArray:
        """Return the index into `keys` of the communicator that each handle of a process meant at a given time (ns)."""
        process_columns, known, since, key = self.handles
        codes, _ = encode_rows(np.concatenate([process_columns, process]), np.concatenate([known, handle]))
        row = find_latest(codes[: known.size], since, codes[known.size :], time)
        return pick(key, row, 0)


def read_communicators(reader: ReportReader) -> Communicators:
    """Read the communicators that the processes of a report made."""
    columns = reader.columns(COMMUNICATORS)
    communicators = Communicators()
    process_of_rank = map_unambiguous((rank, process) for process, rank in reader.metadata.ranks.items())
    members = columns.texts["members"].to_pylist()
    handles: list[tuple[int, int, int, int]] = []
    meaning: dict[tuple[int, int], str] = {}
    copies: dict[tuple[int, str], int] = {}
    key_index = {UNKNOWN: 0}
    for row in np.lexsort((np.arange(columns.rows), columns["timestamp"])).tolist():
        process, handle = process_of_rank.get(int(columns["rank"][row])), int(columns["commHandle"][row])
        if process is None:
            continue
        key = _make_key(columns, row, process, meaning, copies)
        meaning[process, handle] = key
        if key == WORLD and handle == MPICH_WORLD:
            communicators.mpich.add(process)
        # A communicator that is not freed before the capture starts is known from the start of the capture.
        since = NULL if key == WORLD else int(columns["timestamp"][row])
        handles.append((process, handle, since, key_index.setdefault(key, len(key_index))))
        if key != UNKNOWN:
            _add_member(communicators.groups, key, columns, row, members[row])
    communicators.keys = list(key_index)
    communicators.handles = np.array(handles, np.int64).reshape(-1, 4).T
    return communicators


def _make_key(
    columns: Columns, row: int, process: int, meaning: Mapping[tuple[int, int], str], copies: dict[tuple[int, str], int]
) -> str:
    """Return the key of a row: the world, a group with a root, or a copy of the communicator of an earlier row."""
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


def _add_member(groups: dict[str, Group], key: str, columns: Columns, row: int, members: str | None) -> None:
    """Add the size of a row's communicator, the rank of the row and, if they are listed, the other members."""
    group = groups.setdefault(key, Group())
    rank, local, size = (int(columns[name][row]) for name in ("rank", "localRank", "size"))
    group.original = key.rpartition(" copy ")[0]
    if size < MOST_RANKS:
        group.size = max(group.size, size)
    if 0 <= local < MOST_RANKS:
        group.members[local] = rank
        listed = [int(number) for number in re.findall(r"[0-9]{1,9}", members or "")]
        if len(listed) == size and 0 <= local < size and listed[local] == rank:
            group.members.update(enumerate(listed))


# ---- all reports together ----------------------------------------------------------------------------------------


class AllCommunicators:
    """The communicators of all reports, numbered from 1: first the world, then the others by root, count and size."""

    def __init__(self, reports: Iterable[Communicators]) -> None:
        self.groups: dict[str, Group] = {}
        for report in reports:
            for key, group in report.groups.items():
                known = self.groups.setdefault(key, Group(original=group.original))
                known.size = max(known.size, group.size)
                known.members.update(group.members)
        self.keys = sorted(self.groups, key=lambda key: (key != WORLD, [*map(int, re.findall(r"\d+", key))], key))
        self.number = {key: number for number, key in enumerate(self.keys, 1)}
        for key in self.keys:
            group = self.groups[key]
            if key == WORLD:
                group.members = {rank: rank for rank in range(group.size)}
            original = self.groups.get(group.original)
            if original is not None:  # keys of copies sort after the key of their original
                group.size, group.members = original.size, original.members

    def get_group(self, key: str) -> Group:
        """Return the known facts about a communicator; none about one without a row."""
        return self.groups.get(key) or Group()

    def get_world_rank(self, key: str, local: int) -> int | None:
        """Return the rank in MPI_COMM_WORLD of a rank of a communicator; None if it is unknown."""
        return self.get_group(key).members.get(local)

    def find_rank(self, key: str, world: int | None) -> int:
        """Return the rank in a communicator of a rank of MPI_COMM_WORLD; NULL if it is unknown."""
        return next((local for local, member in self.get_group(key).members.items() if member == world), NULL)

    def make_values(self) -> dict[str, Value]:
        """Return the value and label of each communicator by its key, and also for unknown communicators."""
        values = {key: Value(number, self._make_label(key)) for key, number in self.number.items()}
        return values | {UNKNOWN: Value(len(values) + 1, "unknown communicator")}

    def _make_label(self, key: str) -> str:
        if key == WORLD:
            return "MPI_COMM_WORLD"
        group, number = self.groups[key], self.number[key]
        if group.original:
            original = "MPI_COMM_WORLD" if group.original == WORLD else f"communicator {self.number[group.original]}"
            return f"communicator {number}: copy of {original}"
        shown = [str(group.members.get(local, "?")) for local in range(min(group.size, _NAMED_MEMBERS))]
        more = f" and {group.size - _NAMED_MEMBERS} more" if group.size > _NAMED_MEMBERS else ""
        return f"communicator {number}: ranks {' '.join(shown)}{more}"

    def make_header(self, task_of_rank: Mapping[int, int]) -> list[Communicator]:
        """Return lines of the header: the tasks of the trace (from 1) in the order of the communicator's ranks."""
        members = {key: sorted(self.groups[key].members.items()) for key in self.keys}
        tasks = {key: [task_of_rank[rank] + 1 for _, rank in of if rank in task_of_rank] for key, of in members.items()}
        return [Communicator(self.number[key], tuple(known)) for key, known in tasks.items() if known]
