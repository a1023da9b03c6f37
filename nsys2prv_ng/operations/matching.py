"""Matches the parts of one operation over all reports: the k-th collective of a communicator on each of its ranks.

If reports record an id for each operation of a communicator, equal ids match instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nsys2prv_ng.arrays.row_keys import find_starts
from nsys2prv_ng.arrays.types import BoolArray, IntArray
from nsys2prv_ng.operations import lag as lags
from nsys2prv_ng.operations.parts import ANY_SIZE, COPIED, LOOSE, ORDERED, Collectives
from nsys2prv_ng.operations.stretches import find_agreeing, find_lags
from nsys2prv_ng.report.database import NULL

_MOST = np.iinfo(np.int64).max
_MOST_SOURCES = 16
"""Most tables of collectives of one report."""


_KINDS = (
    *(np.int32, np.int32, np.int64, np.int32, np.int32, np.int32, np.int32),
    *(np.int64, np.int64, np.int8, np.bool_, np.bool_),
)
"""Types of the columns of a PartTable, in their order."""


class PartTable(NamedTuple):
    """n parts of ranks in collectives, from all reports, with names that all reports share.

    There can be tens of millions. Times are ns of uncorrected UTC.

    `source`: index of the report * 16 + number of the table in the report. `place`: place in the report of the kernel
    or call that carries out the operation; -1 if there is none. `member`: number of the rank in its table, counted over
    all reports and tables. `sizes`: number of ranks of each communicator; 0 if no report records it. `rank_of_member`:
    number of the process (and device) of each member; its capture ranges in several reports share the number. `ids`:
    the id that an operation has on all ranks of its communicator; NULL (of reports) if it is unknown, None if no report
    records ids.
    """

    communicators: list[str]
    names: list[str]
    communicator: npt.NDArray[np.int32]
    name: npt.NDArray[np.int32]
    bytes: IntArray
    source: npt.NDArray[np.int32]
    place: npt.NDArray[np.int32]
    member: npt.NDArray[np.int32]
    domain: npt.NDArray[np.int32]
    begin: IntArray
    end: IntArray
    kind: npt.NDArray[np.int8]
    is_root: BoolArray
    has_communicator: BoolArray
    sizes: list[int]
    rank_of_member: IntArray
    ids: IntArray | None = None

    def mark_ordered(self, part: IntArray) -> BoolArray:
        """Mark the parts in communicators of which only the sequence of operations is known."""
        is_ordered = np.array([name.startswith(ORDERED) for name in self.communicators], np.bool_)
        return np.asarray(is_ordered[self.communicator[part]], np.bool_)

    @property
    def report(self) -> npt.NDArray[np.int32]:
        """Index of the report of each part."""
        return self.source // np.int32(_MOST_SOURCES)


class Operations(NamedTuple):
    """n operations with parts of two or more ranks: parts part[first[i]] .. part[first[i + 1] - 1] of `table`.

    `group` numbers sets of ranks of one communicator that agree in their operations. Operations are sorted by group,
    and within it in the order in which ranks started them. `members` is the number of ranks in the group of each
    operation.
    """

    table: PartTable
    first: IntArray
    group: npt.NDArray[np.int32]
    members: npt.NDArray[np.int32]
    part: IntArray

    def __len__(self) -> int:
        return self.first.size - 1

    @property
    def leader(self) -> IntArray:
        """The first part of each operation. It shows everything in which all parts of an operation agree."""
        return self.part[self.first[:-1]]


def match_collectives(reports: Sequence[tuple[Sequence[Collectives], int, int]]) -> Operations:
    """Match the collectives of all reports.

    `reports`: the tables of each report, the domain of its clock, and the offset (ns) of its times to UTC.
    """
    table = make_part_table(reports)
    # Sorted by communicator, rank and time: each rank's parts in a communicator are one sequence.
    order = np.lexsort((table.end, table.begin, table.member, table.communicator))
    order = order[~np.isin(table.kind[order], (LOOSE, COPIED))]
    communicator, member = table.communicator[order], table.member[order]
    starts = find_starts(communicator, member)
    sequences = [
        lags.Sequence(table.name[rows].astype(np.int64), table.bytes[rows], table.end[rows])
        for rows in np.split(order, starts)[1:]
    ]
    taken: list[IntArray] = []
    numbers: list[IntArray] = []
    groups: list[tuple[int, int]] = []  # ranks and parts
    owner = communicator[starts] if starts.size else communicator
    ranks = table.rank_of_member[member[starts]]
    for low, high in pairwise([*find_starts(owner).tolist(), owner.size]):
        parts = order[starts[low] : starts[high] if high < starts.size else order.size]
        if table.ids is not None and (table.ids[parts] != NULL).all():
            taken.append(parts)
            numbers.append(_number_ids(table.ids[parts], table.begin[parts]))
            groups.append((np.unique(ranks[low:high]).size, parts.size))
            continue
        is_ordered = table.communicators[int(owner[low])].startswith(ORDERED)
        group = _group_equal if is_ordered else _group_ranks
        for lag_of_rank in group(sequences[low:high], ranks[low:high]):
            count = 0
            reference = sequences[low + next(iter(lag_of_rank))]
            for rank, stretches in lag_of_rank.items():
                part, number = _number_parts(reference, sequences[low + rank], stretches)
                taken.append(order[starts[low + rank] + part])
                numbers.append(number)
                count += part.size
            groups.append((len(lag_of_rank), count))
    return _assemble(table, taken, numbers, groups)


def make_part_table(reports: Sequence[tuple[Sequence[Collectives], int, int]]) -> PartTable:
    """Return the parts of all reports in one table."""
    communicators: dict[str, int] = {}
    names: dict[str, int] = {}
    columns: list[tuple[npt.NDArray[np.generic], ...]] = [tuple(np.zeros(0, kind) for kind in _KINDS)]
    sizes: dict[int, int] = {}
    members = 0
    for report, (tables, domain, offset) in enumerate(reports):
        for source, rows in enumerate(tables):
            communicator = [communicators.setdefault(name, len(communicators)) for name in rows.communicators]
            name = [names.setdefault(text, len(names)) for text in rows.operations]
            n = rows.begin.size
            columns.append(
                (
                    np.array(communicator, np.int32)[rows.communicator],
                    np.array(name, np.int32)[rows.operation],
                    rows.bytes,
                    np.full(n, report * _MOST_SOURCES + source, np.int32),
                    rows.place.astype(np.int32),
                    (rows.member + members).astype(np.int32),
                    np.full(n, domain, np.int32),
                    rows.begin + offset,
                    rows.end + offset,
                    rows.kind.astype(np.int8),
                    rows.is_root,
                    rows.has_communicator,
                )
            )
            for number, size in zip(communicator, rows.sizes, strict=True):
                sizes[number] = max(sizes.get(number, 0), size)
            members += int(rows.member.max(initial=-1)) + 1
    joined = (np.concatenate(parts) for parts in zip(*columns, strict=True))
    known = [sizes[number] for number in range(len(communicators))]
    numbers = _number_ranks(reports)
    all_rows = [rows for tables, _, _ in reports for rows in tables]
    ids = None
    if any(rows.ids is not None for rows in all_rows):
        ids = np.concatenate([np.full(rows.begin.size, NULL) if rows.ids is None else rows.ids for rows in all_rows])
    return PartTable(list(communicators), list(names), *joined, sizes=known, rank_of_member=numbers, ids=ids)  # type: ignore[arg-type, misc]


class _Rank(NamedTuple):
    """The parts of a process in reports: index of the report, first and last time (ns)."""

    number: int
    parts: list[tuple[int, int, int]]

    def may_have(self, report: int, first: int, last: int) -> bool:
        """Return whether a part may belong to this rank: it is in the same report, or overlaps no other part in
        time."""
        return any(part[0] == report for part in self.parts) or all(last < b or e < first for _, b, e in self.parts)


def _number_ranks(reports: Sequence[tuple[Sequence[Collectives], int, int]]) -> IntArray:
    """Return the number of the rank of each member of all tables.

    Parts of a process in several reports are one rank if they do not overlap in time.
    """
    numbers: list[int] = []
    ranks_of_process: dict[tuple[int, int, int], list[_Rank]] = {}  # by domain, process and device
    count = 0
    for report, (tables, domain, offset) in enumerate(reports):
        for rows in tables:
            members = int(rows.member.max(initial=-1)) + 1
            first, last = np.full(members, np.iinfo(np.int64).max), np.full(members, np.iinfo(np.int64).min)
            np.minimum.at(first, rows.member, rows.begin + offset)
            np.maximum.at(last, rows.member, rows.end + offset)
            for member in range(members):
                known = ranks_of_process.setdefault((domain, *rows.owners[member]), []) if rows.owners else []
                part = (report, int(first[member]), int(last[member]))
                rank = next((rank for rank in known if rank.may_have(*part)), None)
                if rank is None:
                    rank = _Rank(count, [])
                    known.append(rank)
                    count += 1
                rank.parts.append(part)
                numbers.append(rank.number)
    return np.array(numbers, np.int64)


def _group_ranks(sequences: Sequence[lags.Sequence], ranks: IntArray) -> list[dict[int, list[lags.Lag]]]:
    """Return groups of sequences of a communicator that agree, with the lags of each against the first of its group.

    The longest remaining sequence is compared with the others. If a rank has several sequences (capture ranges), the
    nearest in time joins the group.
    """
    left = sorted(range(len(sequences)), key=lambda i: (-sequences[i].end.size, i))
    groups = []
    while left:
        reference, *others = left
        nearest: dict[int, tuple[int, int, list[lags.Lag]]] = {}
        unlike: set[tuple[bytes, bytes]] = set()
        for other in others:
            content = sequences[other].operation.tobytes(), sequences[other].size.tobytes()
            # Ranks of another pipeline stage are alike: comparing one of them is enough.
            if ranks[other] == ranks[reference] or content in unlike:
                continue
            stretches = find_lags(sequences[reference], sequences[other])
            if not stretches and lags.overlap_in_time(sequences[reference], sequences[other]):
                unlike.add(content)
            if stretches:
                lag = stretches[len(stretches) // 2]
                middle = (lag.first + lag.last) // 2  # the time between both ends of the operation there
                distance = abs(int(sequences[reference].end[middle]) - int(sequences[other].end[middle - lag.lag]))
                rank = int(ranks[other])
                if rank not in nearest or distance < nearest[rank][0]:
                    nearest[rank] = distance, other, stretches
        lag_of_rank = {reference: [lags.Lag(0, 0, sequences[reference].end.size)]}
        lag_of_rank |= {other: stretches for _, other, stretches in nearest.values()}
        left = [i for i in left if i not in lag_of_rank]
        if len(lag_of_rank) > 1:
            groups.append(lag_of_rank)
    return groups


def _group_equal(sequences: Sequence[lags.Sequence], ranks: IntArray) -> list[dict[int, list[lags.Lag]]]:
    """Return all sequences of a communicator as one group without lags if they are equal, one for each rank."""
    first, *others = sequences
    is_equal = all(np.array_equal(first.operation, other.operation) for other in others)
    if not others or not is_equal or np.unique(ranks).size < ranks.size:
        return []
    return [{rank: [lags.Lag(0, 0, first.end.size)] for rank in range(len(sequences))}]


def _number_ids(ids: IntArray, begin: IntArray) -> IntArray:
    """Return a number for each of n parts that is the same for equal ids; ids are numbered by their first starts."""
    _, index = np.unique(ids, return_inverse=True)
    first = np.full(int(index.max(initial=-1)) + 1, _MOST)
    np.minimum.at(first, index, begin)
    return np.argsort(np.argsort(first, kind="stable"), kind="stable")[index]


def _number_parts(
    reference: lags.Sequence, sequence: lags.Sequence, stretches: Sequence[lags.Lag]
) -> tuple[IntArray, IntArray]:
    """Return (indices in the sequence of a rank, number of the operation of each).

    If operations were lost, return only those that agree. Otherwise return the whole sequence, because other ranks may
    share operations that the reference lacks.
    """
    lag, n, size = stretches[0], reference.end.size, sequence.end.size
    if len(stretches) == 1 and lag.last - lag.first == min(n, lag.lag + size) - max(0, lag.lag):
        return np.arange(size), np.arange(lag.lag, lag.lag + size)
    numbers = [lag.first + find_agreeing(reference, sequence, lag) for lag in stretches]
    parts = [number - lag.lag for number, lag in zip(numbers, stretches, strict=True)]
    return np.concatenate(parts), np.concatenate(numbers)


def _assemble(
    table: PartTable, taken: Sequence[IntArray], numbers: Sequence[IntArray], groups: Sequence[tuple[int, int]]
) -> Operations:
    """Return the operations of numbered parts, without operations that have a single part."""
    part = np.concatenate([*taken, np.zeros(0, np.int64)])
    number = np.concatenate([*numbers, np.zeros(0, np.int64)])
    counts = np.array([count for _, count in groups], np.int64)
    group = np.repeat(np.arange(len(groups), dtype=np.int32), counts)
    order = np.lexsort((table.domain[part], number, group))
    part, number, group = part[order], number[order], group[order]
    starts = find_starts(group, number)
    count = np.diff(np.append(starts, part.size))
    several = (count > 1) & ~_differ(table, part, starts)
    members = np.array([ranks for ranks, _ in groups], np.int32)
    return Operations(
        table=table,
        first=np.concatenate([[0], np.cumsum(count[several])]).astype(np.int64),
        group=group[starts][several],
        members=members[group[starts][several]] if members.size else np.zeros(0, np.int32),
        part=part[np.repeat(several, count)] if part.size else part,
    )


def _differ(table: PartTable, part: IntArray, starts: IntArray) -> BoolArray:
    """Mark the operations whose parts differ in kind or size, because ranks lost different operations."""
    if not starts.size:
        return np.zeros(0, np.bool_)
    size, known = table.bytes[part], table.bytes[part] != ANY_SIZE
    low = np.minimum.reduceat(np.where(known, size, _MOST), starts)
    high = np.maximum.reduceat(np.where(known, size, -_MOST), starts)
    names = table.name[part]
    return np.asarray((low < high) | (np.minimum.reduceat(names, starts) != np.maximum.reduceat(names, starts)))
