"""Defines the parts of ranks in collectives and messages, as columns of one report in its own time.

A source fills these tables from the calls that it reads. Nothing here depends on the library that made the calls. The
tables serve to align clocks and to find waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field, replace
from typing import NamedTuple

import numpy as np

from nsys2prv_ng.arrays.types import BoolArray, IntArray
from nsys2prv_ng.light_dataclass import dataclass
from nsys2prv_ng.report.database import NULL

ANY_SIZE = -1
"""Size of an operation that may differ between its ranks."""

SYNCHRONISING, FROM_ROOT, TO_ROOT, OTHER, LOOSE = range(5)
"""Which ranks wait in an operation: all for all, all for the root, the root for all, or unknown.

LOOSE operations cannot be matched; their kernels or calls count nevertheless."""


class Collectives(NamedTuple):
    """The part of each rank of a report in each collective operation: columns of n rows, in any order.

    Times are in ns on the clock of the report. `communicator` and `operation` are indices into the names, which mean
    the same in all reports. If the communicator is unknown (`has_communicator` is False), `communicator` names what is
    known to be separate, and operations are matched by their sequence alone.
    """

    communicators: list[str]
    operations: list[str]
    communicator: IntArray
    operation: IntArray
    bytes: IntArray
    """The size, if it is the same on all ranks, else ANY_SIZE."""
    member: IntArray
    """The rank: a number that is unique within the report."""
    begin: IntArray
    end: IntArray
    kind: IntArray
    """SYNCHRONISING, FROM_ROOT, TO_ROOT, OTHER or LOOSE."""
    is_root: BoolArray
    has_communicator: BoolArray
    place: IntArray
    """Place of the kernel or call that carries out the operation, and maybe others as well; -1 if there is none."""
    sizes: list[int]
    """Number of ranks of each communicator; 0 if no call records it."""
    owners: Sequence[tuple[int, int]] = ()
    """Process id and device (-1 for none) of each member: a process with capture ranges in several reports is one rank.
    If empty, every member is a separate rank."""
    in_graphs: bool = False
    """Whether CUDA graphs launched all of the operations."""
    ids: IntArray | None = None
    """An id of each operation that is the same on all ranks of its communicator and on each rank only once; NULL (of
    reports) or None if it was not recorded."""


class Messages(NamedTuple):
    """Sends and receives of a report's ranks, n rows in any order. Times are in ns on the clock of the report.

    A channel keeps its messages in order: it is a communicator, sender, receiver and tag. `time` is when a send started
    or a receive ended.
    """

    channels: list[str]
    links: list[str]
    """The two ranks of each channel, named the same for both directions."""
    is_forward: BoolArray
    """Whether each channel leads from the lower of the two ranks to the higher."""
    channel: IntArray
    is_send: BoolArray
    order: IntArray
    """Start of the call (ns), which sorts the messages of a channel."""
    time: IntArray
    handed: IntArray
    """When a send handed over its data, or a receive had the data; NULL (of reports) if unknown."""
    bytes: IntArray
    """NULL if it was not recorded."""


class RankMessages(NamedTuple):
    """Sends to and receives from ranks of communicators, in which the rank of the calling process may be unknown.

    Columns of n rows in any order; times are in ns on the clock of the report.
    """

    communicators: list[str]
    sizes: list[int]
    """Number of ranks of each communicator; 0 if no call records it."""
    uses: list[tuple[int, int, int]]
    """Distinct (communicator, process, rank of the process in it); the rank is NULL if a call does not record it."""
    job_ranks: dict[int, int]
    """Rank of each process in the job, if it is known."""
    job_size: int
    """Number of ranks of the job; 0 if it is not recorded."""
    communicator: IntArray
    process: IntArray
    peer: IntArray
    is_send: BoolArray
    order: IntArray
    """Start of the call (ns), which sorts the messages between two ranks."""
    time: IntArray
    """As in `Messages`."""
    handed: IntArray
    bytes: IntArray


@dataclass
class Evidence:
    """The evidence of one report on its clock: tables from one or more sources."""

    collectives: list[Collectives] = field(default_factory=list)
    messages: list[Messages] = field(default_factory=list)
    rank_messages: list[RankMessages] = field(default_factory=list)
    has_whole_graphs: bool = False
    """Whether CUDA graphs were traced as a whole, which may hide operations."""


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


class MessagePairs(NamedTuple):
    """n messages with both sides, on the common clock (ns) and on rows of the trace.

    Each side may wait in a kernel or call, from `begin` to `end`. `arrived` is when the other side no longer had to
    wait for it: the start of a kernel, or of the call that posted a send or receive.
    """

    send_row: IntArray
    send_arrived: IntArray
    send_begin: IntArray
    send_end: IntArray
    """NULL (of reports) if it was not recorded."""
    receive_row: IntArray
    receive_arrived: IntArray
    receive_begin: IntArray
    receive_end: IntArray
    bytes: IntArray
    sender: IntArray
    """Row of the thread or stream on which the send was posted; it may end on another thread."""
    receiver: IntArray
