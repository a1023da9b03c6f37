"""The parts of ranks in operations over ranks: collectives and messages, as columns of one report in its own time.

A source fills these tables from the calls that it knows; nothing here depends on the library that made them. Clocks are
aligned by them, and waits are found in them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from nsys2prv_ng.arrays.types import BoolArray, IntArray

ANY_SIZE = -1
"""Size of an operation that may differ between its ranks."""

SYNCHRONISING, FROM_ROOT, TO_ROOT, OTHER, LOOSE = range(5)
"""Which ranks wait in an operation: all for all, all for the root, the root for all, or unknown.

LOOSE: nothing is known by which the operation could be matched; its kernel or call counts nevertheless."""


class Collectives(NamedTuple):
    """The part of each rank of a report in each collective operation: columns of n rows, in any order.

    Times in ns on the clock of the report. `communicator` and `operation` are indices into the names, which mean the
    same in all reports. Where the communicator is not known (`has_communicator` unset), `communicator` names what is
    known to be apart, and operations are matched by their sequence alone.
    """

    communicators: list[str]
    operations: list[str]
    communicator: IntArray
    operation: IntArray
    bytes: IntArray
    """Size that is the same on all ranks, or ANY_SIZE."""
    member: IntArray
    """The rank: a number that is unique within the report."""
    begin: IntArray
    end: IntArray
    kind: IntArray
    """SYNCHRONISING, FROM_ROOT, TO_ROOT, OTHER or LOOSE."""
    is_root: BoolArray
    has_communicator: BoolArray
    place: IntArray
    """Place of the kernel or call that carries the operation out, -1 if it has none. It may carry out several."""
    sizes: list[int]
    """Number of ranks of each communicator; 0 where no call records it."""
    owners: Sequence[tuple[int, int]] = ()
    """Process id and device (-1 for none) of each member: a process with capture ranges in several reports is one rank.
    Without them every member is a rank of its own."""
    in_graphs: bool = False
    """Whether CUDA graphs launched all of them."""


class Messages(NamedTuple):
    """Sends and receives of a report's ranks, n rows in any order. Times in ns on the clock of the report.

    A channel is what keeps its messages in order: communicator, sender, receiver and tag. `time` is when a send began
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
    """Time (ns) by which the messages of a channel are in order: when the call began."""
    time: IntArray
    handed: IntArray
    """When a send handed its data over or a receive had it, as well as that is known; NULL (of reports) if not."""
    bytes: IntArray
    """NULL where it was not recorded."""


class RankMessages(NamedTuple):
    """Sends and receives of a report's processes to ranks of communicators, in which their own rank may be unknown.

    Columns of n rows in any order, times in ns on the clock of the report.
    """

    communicators: list[str]
    sizes: list[int]
    """Number of ranks of each communicator; 0 where no call records it."""
    uses: list[tuple[int, int, int]]
    """Distinct communicators, processes and ranks of these in them (NULL where a call does not record it)."""
    job_ranks: dict[int, int]
    """Rank of each process in the job, where it is known."""
    job_size: int
    """Number of ranks of the job; 0 where it is not recorded."""
    communicator: IntArray
    process: IntArray
    peer: IntArray
    is_send: BoolArray
    order: IntArray
    """Time (ns) by which the messages between two ranks are in order: when the call began."""
    time: IntArray
    """As in `Messages`."""
    handed: IntArray
    bytes: IntArray


@dataclass
class Evidence:
    """The evidence of one report about its clock: tables of one or several sources."""

    collectives: list[Collectives] = field(default_factory=list)
    messages: list[Messages] = field(default_factory=list)
    rank_messages: list[RankMessages] = field(default_factory=list)
    has_whole_graphs: bool = False
    """Whether CUDA graphs were traced as a whole, which may hide operations."""


def combine_evidence(parts: Iterable[Evidence]) -> Evidence:
    """Return the evidence of several sources of one report."""
    whole = Evidence()
    for part in parts:
        whole.collectives += part.collectives
        whole.messages += part.messages
        whole.rank_messages += part.rank_messages
        whole.has_whole_graphs |= part.has_whole_graphs
    return whole


def leave_graphs_unmatched(reports: Sequence[Evidence]) -> list[Evidence]:
    """Return the evidence of all reports; if any of them hides operations in graphs, those in graphs are LOOSE.

    They are known by their order alone. The counterparts on some ranks are hidden, and these may have been last.
    """
    if not any(own.has_whole_graphs for own in reports):
        return list(reports)
    return [replace(own, collectives=[_loosen(part) for part in own.collectives]) for own in reports]


def _loosen(part: Collectives) -> Collectives:
    return part._replace(kind=np.full(part.kind.size, LOOSE)) if part.in_graphs else part


def get_kinds(operations: Sequence[str], kinds: dict[str, int]) -> IntArray:
    """Return the kind of each operation by its name; OTHER for names without one."""
    return np.array([kinds.get(name, OTHER) for name in operations], np.int64)


class MessagePairs(NamedTuple):
    """n messages with both their ends, on the common clock (ns) and on rows of the trace.

    Each side has the kernel or call in which it may wait, from `begin` to `end`, and `arrived`, when the other side no
    longer had to wait for it: the begin of a kernel, or of the call that posted a send or receive.
    """

    send_row: IntArray
    send_arrived: IntArray
    send_begin: IntArray
    send_end: IntArray
    """NULL (of reports) where it was not recorded."""
    receive_row: IntArray
    receive_arrived: IntArray
    receive_begin: IntArray
    receive_end: IntArray
    bytes: IntArray
    sender: IntArray
    """Row of the thread or stream on which the send was posted; it may end on another thread."""
    receiver: IntArray
