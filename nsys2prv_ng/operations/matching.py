"""Finds the parts of all reports that are one operation: the k-th collective of a communicator on each of its ranks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nsys2prv_ng.arrays.types import BoolArray, IntArray
from nsys2prv_ng.operations import lag as lags
from nsys2prv_ng.operations.parts import Collectives

_MOST_SOURCES = 16
"""Most tables of collectives of one report."""


class PartTable(NamedTuple):
    """n parts of ranks in collectives, of all reports, with names that are the same for all of them.

    There can be tens of millions. Times are ns on a UTC that is not corrected yet.
    """

    communicators: list[str]
    names: list[str]
    communicator: npt.NDArray[np.int32]
    name: npt.NDArray[np.int32]
    bytes: IntArray
    source: npt.NDArray[np.int32]
    """Index of the report * 16 + number of the table in the report."""
    place: npt.NDArray[np.int32]
    """Place in the report of the kernel or call that carries the operation out; -1 if it has none."""
    member: npt.NDArray[np.int32]
    """Number of the rank, over all reports and tables."""
    domain: npt.NDArray[np.int32]
    begin: IntArray
    end: IntArray
    kind: npt.NDArray[np.int8]
    is_root: BoolArray
    has_communicator: BoolArray
    sizes: list[int]
    """Number of ranks of each communicator, as far as any report records it; else 0."""

    @property
    def report(self) -> npt.NDArray[np.int32]:
        """Index of the report of each part."""
        return self.source // np.int32(_MOST_SOURCES)


class Operations(NamedTuple):
    """n operations that have parts of two ranks or more: parts part[first[i]] .. part[first[i + 1] - 1] of `table`.

    `group` numbers the ranks of one communicator that agree in their operations; operations are ordered by group, and
    in it as the ranks began them. `members` is the number of ranks in the group of each operation.
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
        """The first part of each operation: what all parts of an operation agree in can be read there."""
        return self.part[self.first[:-1]]


def match_collectives(reports: Sequence[tuple[Sequence[Collectives], int, int]]) -> Operations:
    """Match the collectives of all reports.

    `reports`: the tables of each report, the domain of its clock, and the offset (ns) of its times to UTC.
    """
    table = make_part_table(reports)
    # Sorted by communicator, rank and time: each rank's parts in a communicator are one sequence.
    order = np.lexsort((table.end, table.begin, table.member, table.communicator))
    communicator, member = table.communicator[order], table.member[order]
    starts = _find_starts(communicator, member)
    limits = np.append(starts, order.size)
    sequences = [_make_sequence(table, order[low:high]) for low, high in pairwise(limits.tolist())]
    taken: list[IntArray] = []
    numbers: list[IntArray] = []
    groups: list[tuple[int, int]] = []  # ranks and parts
    owner = communicator[starts] if starts.size else communicator
    for low, high in _find_runs(owner):
        for lag_of_rank in _group_ranks(sequences[low:high]):
            count = 0
            for rank, lag in lag_of_rank.items():
                part, number = _number_parts(sequences, low, rank, lag, lag_of_rank)
                taken.append(order[limits[low + rank] + part])
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
    return PartTable(list(communicators), list(names), *joined, sizes=known)  # type: ignore[arg-type, misc]


_KINDS = (
    *(np.int32, np.int32, np.int64, np.int32, np.int32, np.int32, np.int32),
    *(np.int64, np.int64, np.int8, np.bool_, np.bool_),
)


def _find_starts(*columns: npt.NDArray[np.int32]) -> IntArray:
    """Return where a row differs from the one before in any column."""
    new = np.ones(columns[0].size, np.bool_)
    new[1:] = np.logical_or.reduce([column[1:] != column[:-1] for column in columns])
    return np.flatnonzero(new)


def _find_runs(values: npt.NDArray[np.int32]) -> list[tuple[int, int]]:
    """Return (first, last + 1) of each run of equal values."""
    return list(pairwise([*_find_starts(values).tolist(), values.size]))


def _make_sequence(table: PartTable, rows: IntArray) -> lags.Sequence:
    return lags.Sequence(table.name[rows].astype(np.int64), table.bytes[rows], table.end[rows])


def _group_ranks(sequences: Sequence[lags.Sequence]) -> list[dict[int, lags.Lag]]:
    """Return groups of ranks of a communicator that agree, with the lag of each against the first of its group.

    The others are compared with the longest sequence that is left.
    """
    left = sorted(range(len(sequences)), key=lambda i: (-sequences[i].end.size, i))
    groups = []
    while left:
        reference, *others = left
        lag_of_rank = {reference: lags.Lag(0, 0, sequences[reference].end.size)}
        for other in others:
            lag = lags.find_lag(sequences[reference], sequences[other])
            if lag is not None:
                lag_of_rank[other] = lag
        left = [i for i in left if i not in lag_of_rank]
        if len(lag_of_rank) > 1:
            groups.append(lag_of_rank)
    return groups


def _number_parts(
    sequences: Sequence[lags.Sequence], low: int, rank: int, lag: lags.Lag, lag_of_rank: dict[int, lags.Lag]
) -> tuple[IntArray, IntArray]:
    """Return (indices in the rank's sequence, number of the operation of each).

    Only the run if it is one; otherwise all of the sequence, since others may share what the reference lacks.
    """
    size = sequences[low + rank].end.size
    number = np.arange(lag.lag, lag.lag + size, dtype=np.int64)
    reference = sequences[low + next(iter(lag_of_rank))]
    overlap = min(reference.end.size, lag.lag + size) - max(0, lag.lag)
    is_run = lag.last - lag.first < overlap
    part = np.flatnonzero((number >= lag.first) & (number < lag.last)) if is_run else np.arange(size)
    return part, number[part]


def _assemble(
    table: PartTable, taken: Sequence[IntArray], numbers: Sequence[IntArray], groups: Sequence[tuple[int, int]]
) -> Operations:
    """Return the operations of numbered parts, without those that have a single part."""
    part = np.concatenate([*taken, np.zeros(0, np.int64)])
    number = np.concatenate([*numbers, np.zeros(0, np.int64)])
    counts = np.array([count for _, count in groups], np.int64)
    group = np.repeat(np.arange(len(groups), dtype=np.int32), counts)
    order = np.lexsort((table.domain[part], number, group))
    part, number, group = part[order], number[order], group[order]
    starts = np.zeros(0, np.int64)
    if part.size:
        new = np.ones(part.size, np.bool_)
        new[1:] = (group[1:] != group[:-1]) | (number[1:] != number[:-1])
        starts = np.flatnonzero(new)
    count = np.diff(np.append(starts, part.size))
    several = count > 1
    members = np.array([ranks for ranks, _ in groups], np.int32)
    return Operations(
        table=table,
        first=np.concatenate([[0], np.cumsum(count[several])]).astype(np.int64),
        group=group[starts][several],
        members=members[group[starts][several]] if members.size else np.zeros(0, np.int32),
        part=part[np.repeat(several, count)] if part.size else part,
    )
