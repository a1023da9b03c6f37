"""Makes the data of one report that NCCL joins over all reports: uses of communicators, and messages."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nsys2prv_ng.arrays.groups import reduce_groups, sort_groups
from nsys2prv_ng.arrays.pick import pick
from nsys2prv_ng.arrays.row_keys import mark_duplicates
from nsys2prv_ng.arrays.types import BoolArray, IntArray
from nsys2prv_ng.light_dataclass import dataclass
from nsys2prv_ng.report.database import NULL
from nsys2prv_ng.sources.nccl.calls import RECEIVING, CallTable, NcclCalls, find_sizes
from nsys2prv_ng.sources.nccl.kernels import CallPairs, NcclKernels
from nsys2prv_ng.sources.nccl.payload_events import RANK_NAMES
from nsys2prv_ng.sources.nccl.purposes import Purposes, find_purposes
from nsys2prv_ng.sources.shared.report_reader import ReportReader
from nsys2prv_ng.sources.shared.source import NO_END


class CommunicatorUses(NamedTuple):
    """n uses of communicators: the distinct values that calls on each thread record, and when first (ns)."""

    communicator: IntArray
    place: IntArray
    rank: IntArray
    devices: IntArray
    begin: IntArray


class MessageEnds(NamedTuple):
    """n sends and receives. Times in ns.

    In a report, `communicator` is an index, and `caller` and `place` are places; in the trace, a number and rows.
    """

    communicator: IntArray
    caller: IntArray
    """The thread."""
    peer: IntArray
    id: IntArray
    """Id of the message, which its send and its receive share."""
    receives: BoolArray
    bytes: IntArray
    order: IntArray
    """Start of the call."""
    has_kernel: BoolArray
    """Whether the kernel that carries out the message is known. If so, the following are of it, else of the call."""
    place: IntArray
    begin: IntArray
    end: IntArray

    def take(self, which: IntArray) -> MessageEnds:
        """Return the ends at these indices."""
        return MessageEnds._make(column[which] for column in self)


@dataclass(frozen=True)
class NcclJoinData:
    """The data of one report for `join`.

    Communicators are indices into `communicators`, times are in ns, and NULL stands for an unrecorded value.
    """

    communicators: list[str]
    sizes: list[int]
    """Number of ranks of each communicator; 0 if no call records it."""
    operations: list[str]
    rank_names: list[str]
    """Names of communicator ranks in the space RANK_NAMES."""
    uses: CommunicatorUses
    messages: MessageEnds
    purposes: Purposes


def make_join_data(
    reader: ReportReader, calls: NcclCalls, table: CallTable, kernels: NcclKernels, pairs: CallPairs
) -> NcclJoinData:
    """Make the data of one report from its table of calls."""
    communicators = calls.payload.communicators
    return NcclJoinData(
        communicators,
        find_sizes(table, len(communicators)),
        calls.payload.operations,
        list(reader.labels.names.get(RANK_NAMES, {})),
        _find_uses(table),
        _collect_messages(table, kernels, pairs),
        find_purposes(reader, calls, table),
    )


def _find_uses(table: CallTable) -> CommunicatorUses:
    rows = np.flatnonzero(table.communicator >= 0)
    keys = [column[rows] for column in (table.communicator, table.place, table.rank, table.devices)]
    order, starts = sort_groups(keys)
    begin = reduce_groups(table.begin[rows], order, starts, "min")
    communicator, place, rank, devices = (key[order[starts]] for key in keys)
    return CommunicatorUses(communicator, place, rank, devices, begin)


def _collect_messages(table: CallTable, kernels: NcclKernels, pairs: CallPairs) -> MessageEnds:
    """Return the messages. They are drawn from and to their kernels; if a message has several, the first."""
    by_begin = np.argsort(kernels.begin[pairs.kernel], kind="stable")
    by_begin = by_begin[~mark_duplicates(pairs.call[by_begin])]
    kernel_of_call = np.full(table.begin.size, -1, np.int64)
    kernel_of_call[pairs.call[by_begin]] = pairs.kernel[by_begin]
    has_route = (table.peer != NULL) | (table.id != NULL)
    rows = np.flatnonzero(table.is_message & has_route & (table.communicator >= 0))
    kernel, order = kernel_of_call[rows], table.begin[rows]
    has_kernel = kernel >= 0
    end = np.where(table.end[rows] == NO_END, order, table.end[rows])
    of_kernel = (pick(column, kernel, -1) for column in (kernels.place, kernels.begin, kernels.end))
    place, begin, end = map(np.where, [has_kernel] * 3, of_kernel, (table.place[rows], order, end))
    return MessageEnds(
        communicator=table.communicator[rows],
        caller=table.place[rows],
        peer=table.peer[rows],
        id=table.id[rows],
        receives=table.direction[rows] == RECEIVING,
        bytes=table.bytes[rows],
        order=order,
        has_kernel=has_kernel,
        place=place,
        begin=begin,
        end=end,
    )
