"""Turns payloads of NCCL calls and kernels into events and lines, and into the data that is joined over all reports.

An owner is a call or a kernel. Communicators, operations and ranks are registered by name here. Their values depend on
all reports, so `nccl.join` assigns them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, NamedTuple

import numpy as np

from nsys2prv_ng.arrays.groups import reduce_groups, sort_groups
from nsys2prv_ng.arrays.row_keys import find_distinct_rows, mark_duplicates, sort_rows, take_groups
from nsys2prv_ng.arrays.types import BoolArray, Index, IntArray, PlaceColumn, pick, put
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver.event_type import EventType
from nsys2prv_ng.paraver.labels import Labels
from nsys2prv_ng.records.columns import Pair, make_events
from nsys2prv_ng.report.database import NULL
from nsys2prv_ng.sources.nccl.calls import COLLECTIVE, RECEIVING, SENDING, CallTable, NcclCalls, find_sizes
from nsys2prv_ng.sources.nccl.kernels import CallPairs, NcclKernels
from nsys2prv_ng.sources.nccl.payload import Payloads
from nsys2prv_ng.sources.nccl.purposes import Purposes, find_purposes
from nsys2prv_ng.sources.shared.report_reader import ReportReader, register_ranks
from nsys2prv_ng.sources.shared.source import NO_END, Result
from nsys2prv_ng.value_class import ValueClass

_TYPES = (
    *(types.NCCL_COMMUNICATOR, types.NCCL_BYTES, types.NCCL_OPERATION, types.NCCL_ROOT, types.NCCL_SEND_PEER),
    *(types.NCCL_SEND_BYTES, types.NCCL_RECEIVE_PEER, types.NCCL_RECEIVE_BYTES, types.NCCL_SEQUENCE, types.NCCL_CALLS),
)
"""The event types, in their order on a line."""
_POSITION = {event_type: i for i, event_type in enumerate(_TYPES)}
_SUMMED = [_POSITION[t] for t in (types.NCCL_BYTES, types.NCCL_SEND_BYTES, types.NCCL_RECEIVE_BYTES)]
RANK_NAMES = types.NCCL_ROOT.names
"""Name space of communicator ranks: roots and peers."""


class Events(NamedTuple):
    """n events, each of a call or a kernel (its index).

    `type`: position in _TYPES.
    """

    owner: IntArray
    type: IntArray
    value: IntArray

    def take(self, which: BoolArray | IntArray) -> Events:
        """Return the chosen events."""
        return Events(*(column[which] for column in self))

    def reduce(self, how: str) -> Events:
        """Return one event for each owner and type, with the sum, "min" or "max" of the values."""
        order, starts = sort_groups([self.owner, self.type])
        first = order[starts]
        return Events(self.owner[first], self.type[first], reduce_groups(self.value, order, starts, how))


def _combine(parts: Iterable[Events]) -> Events:
    return Events(*map(np.concatenate, zip(*parts, strict=True)))


def make_call_events(labels: Labels, payload: Payloads, table: CallTable) -> Events:
    """Make the events of the calls in a table."""
    communicators, communicator, size = payload.communicators, table.communicator, table.bytes
    parts = [
        _make_name_events(labels, types.NCCL_COMMUNICATOR, communicators, communicator),
        _make_name_events(labels, types.NCCL_OPERATION, payload.operations, table.operation),
        _make_rank_events(labels, types.NCCL_ROOT, communicators, communicator, table.root),
        _make_number_events(types.NCCL_BYTES, np.where(table.direction == COLLECTIVE, size, NULL)),
    ]
    for number, peer_type, size_type in (
        (SENDING, types.NCCL_SEND_PEER, types.NCCL_SEND_BYTES),
        (RECEIVING, types.NCCL_RECEIVE_PEER, types.NCCL_RECEIVE_BYTES),
    ):
        peer, sent = (np.where(table.direction == number, column, NULL) for column in (table.peer, size))
        parts.append(_make_rank_events(labels, peer_type, communicators, communicator, peer))
        parts.append(_make_number_events(size_type, sent))
    parts.append(_make_number_events(types.NCCL_SEQUENCE, np.where(table.sequence > 0, table.sequence, NULL)))
    return _combine(parts)


def _make_number_events(event_type: EventType, value: IntArray) -> Events:
    """Make an event for each call that has a value, given the value or NULL of every call."""
    owner = np.flatnonzero(value != NULL)
    return Events(owner, np.full(owner.size, _POSITION[event_type]), value[owner])


def _make_name_events(labels: Labels, event_type: EventType, names: list[str], index: IntArray) -> Events:
    """Make an event for each call that has a name, given the index into the names or -1 of every call."""
    ids = labels.name_ids(event_type.names, names)
    return _make_number_events(event_type, pick(ids, index, NULL))


def _make_rank_events(
    labels: Labels, event_type: EventType, communicators: list[str], communicator: IntArray, rank: IntArray
) -> Events:
    """Make an event for each call that has a rank, by the names that `parse_rank` reads; no communicator is ''."""
    known = register_ranks(labels, event_type.names, [*communicators, ""], communicator, rank)
    ids = put(known, rank != NULL, rank.size, NULL)
    return _make_number_events(event_type, ids)


def make_kernel_events(call_events: Events, pairs: CallPairs) -> Events:
    """Make the events of kernels, which are numbered from 0; each has a call.

    A kernel shows the sum of the bytes, the lowest sequence number, and every other value of its calls once.
    """
    by_call = np.argsort(call_events.owner, kind="stable")
    first = np.append(0, np.cumsum(np.bincount(call_events.owner)))
    limits, rows = take_groups(first, pairs.call)
    events = call_events.take(by_call[rows])._replace(owner=np.repeat(pairs.kernel, np.diff(limits)))
    is_summed = np.isin(events.type, _SUMMED)
    is_sequence = events.type == _POSITION[types.NCCL_SEQUENCE]
    others = events.take(~is_summed & ~is_sequence)
    return _combine(
        [
            events.take(is_summed).reduce("sum"),
            events.take(is_sequence).reduce("min"),
            others.take(~mark_duplicates(*others)),
            _make_number_events(types.NCCL_CALLS, np.bincount(pairs.kernel)),
        ]
    )


def write_events(
    labels: Labels, result: Result, place: IntArray, begin: IntArray, end: IntArray, events: Events
) -> None:
    """Add a line with the events of each of n owners; bytes are reset to 0 at its end. Every owner has an event.

    The end (ns) is NO_END for a call without an end. Owners with the same types are written together, because there are
    few such sets, and their lines have one form.
    """
    n = place.size
    counts = np.bincount(events.owner * len(_TYPES) + events.type, minlength=n * len(_TYPES)).reshape(n, len(_TYPES))
    value = events.value[sort_rows(*events)]
    first = np.concatenate([[0], np.cumsum(counts.sum(axis=1))])
    form_of_owner, forms = find_distinct_rows(*counts.T)
    for number, form in enumerate(forms):
        rows = np.flatnonzero(form_of_owner == number)
        handles = np.repeat([labels.handle(t) if form[i] else 0 for i, t in enumerate(_TYPES)], form)
        opening = [Pair(int(handle), value[first[rows] + i]) for i, handle in enumerate(handles)]
        closing = [labels.handle(_TYPES[i]) for i in _SUMMED if form[i]]
        if closing:
            result.add_intervals(place[rows], begin[rows], end[rows], opening, closing)
        else:
            result.records.append(make_events(place[rows], begin[rows], opening))


# ---- data for the join over all reports ------------------------------------------------------------------------------


class CommunicatorUses(NamedTuple):
    """n uses of communicators: the distinct values that calls on each thread record, and when first (ns)."""

    communicator: Annotated[IntArray, Index("communicators")]
    place: PlaceColumn
    rank: IntArray
    devices: IntArray
    begin: IntArray


class MessageEnds(NamedTuple):
    """n sends and receives. Times in ns.

    In a report, `communicator` is an index, and `caller` and `place` are places; in the trace, a number and rows.

    `caller`: the thread. `id`: what a message's send and receive share. `order`: start of the call. `has_kernel`:
    whether the kernel that carries out the message is known; if so, `place`, `begin` and `end` are of it, else of the
    call.
    """

    communicator: Annotated[IntArray, Index("communicators")]
    caller: PlaceColumn
    peer: IntArray
    id: IntArray
    receives: BoolArray
    bytes: IntArray
    order: IntArray
    has_kernel: BoolArray
    place: PlaceColumn
    begin: IntArray
    end: IntArray

    def take(self, which: IntArray) -> MessageEnds:
        """Return the ends at these indices."""
        return MessageEnds._make(column[which] for column in self)


class NcclJoinData(ValueClass):
    """The data of one report for `join`.

    Communicators are indices into `communicators`, times are in ns, and NULL stands for an unrecorded value.

    `sizes`: number of ranks of each communicator; 0 if no call records it. `rank_names`: names of communicator ranks in
    the space RANK_NAMES.
    """

    communicators: list[str]
    sizes: list[int]
    operations: list[str]
    rank_names: list[str]
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
    kernel_of_call = put(pairs.kernel[by_begin], pairs.call[by_begin], table.begin.size)
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
