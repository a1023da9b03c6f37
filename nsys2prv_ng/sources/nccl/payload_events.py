"""Turns payloads of NCCL calls and kernels into events: tables of owner, type and value, and the lines made from them.

An owner is a call or a kernel. Communicators, operations and ranks are registered by name here. Their values depend on
all reports, so `messages.join` assigns them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from nsys2prv_ng.arrays.groups import reduce_groups, sort_groups
from nsys2prv_ng.arrays.row_keys import find_distinct_rows, list_indices, mark_duplicates
from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver.event_type import EventType
from nsys2prv_ng.paraver.labels import Labels
from nsys2prv_ng.records.columns import Pair, make_events
from nsys2prv_ng.report.database import NULL
from nsys2prv_ng.sources.nccl.calls import COLLECTIVE, RECEIVING, SENDING
from nsys2prv_ng.sources.nccl.payload import Payloads
from nsys2prv_ng.sources.shared.pairs import register_ranks
from nsys2prv_ng.sources.shared.result import Result

_TYPES = (
    types.NCCL_COMMUNICATOR,
    types.NCCL_BYTES,
    types.NCCL_OPERATION,
    types.NCCL_ROOT,
    types.NCCL_SEND_PEER,
    types.NCCL_SEND_BYTES,
    types.NCCL_RECEIVE_PEER,
    types.NCCL_RECEIVE_BYTES,
    types.NCCL_SEQUENCE,
    types.NCCL_CALLS,
)
"""The event types, in their order on a line."""
_POSITION = {event_type: i for i, event_type in enumerate(_TYPES)}
_SUMMED = [_POSITION[t] for t in (types.NCCL_BYTES, types.NCCL_SEND_BYTES, types.NCCL_RECEIVE_BYTES)]
RANK_NAMES = types.NCCL_ROOT.names
"""Name space of communicator ranks: roots and peers."""


def make_call_events(labels: Labels, payload: Payloads, table: pd.DataFrame) -> pd.DataFrame:
    """Make the events of the calls in a table: `owner` (row of the table), `type` (position in _TYPES), `value`."""
    direction, sequence, communicator, operation, root, peer, size = (
        table[name].to_numpy(np.int64)
        for name in ("direction", "sequence", "communicator", "operation", "root", "peer", "bytes")
    )
    parts = [
        _make_name_events(labels, types.NCCL_COMMUNICATOR, payload.communicators, communicator),
        _make_name_events(labels, types.NCCL_OPERATION, payload.operations, operation),
        _make_rank_events(labels, types.NCCL_ROOT, payload.communicators, communicator, root),
        _make_number_events(types.NCCL_BYTES, np.where(direction == COLLECTIVE, size, NULL)),
    ]
    for number, peer_type, size_type in (
        (SENDING, types.NCCL_SEND_PEER, types.NCCL_SEND_BYTES),
        (RECEIVING, types.NCCL_RECEIVE_PEER, types.NCCL_RECEIVE_BYTES),
    ):
        parts += [
            _make_rank_events(
                labels, peer_type, payload.communicators, communicator, np.where(direction == number, peer, NULL)
            ),
            _make_number_events(size_type, np.where(direction == number, size, NULL)),
        ]
    parts.append(_make_number_events(types.NCCL_SEQUENCE, np.where(sequence > 0, sequence, NULL)))
    events: pd.DataFrame = pd.concat(parts, ignore_index=True).astype(np.int64)
    return events


def _make_number_events(event_type: EventType, value: IntArray) -> pd.DataFrame:
    """Make an event for each call that has a value, given the value or NULL of every call."""
    owner = np.flatnonzero(value != NULL)
    return pd.DataFrame({"owner": owner, "type": _POSITION[event_type], "value": value[owner]})


def _make_name_events(labels: Labels, event_type: EventType, names: list[str], index: IntArray) -> pd.DataFrame:
    """Make an event for each call that has a name, given the index into the names or -1 of every call."""
    ids = labels.name_ids(event_type.names, names)
    return _make_number_events(event_type, np.append(ids, NULL)[index])


def _make_rank_events(
    labels: Labels, event_type: EventType, communicators: list[str], communicator: IntArray, rank: IntArray
) -> pd.DataFrame:
    """Make an event for each call that has a rank, by the names that `parse_rank` reads; no communicator is ''."""
    ids = np.full(rank.size, NULL, np.int64)
    ids[rank != NULL] = register_ranks(labels, event_type.names, [*communicators, ""], communicator, rank)
    return _make_number_events(event_type, ids)


def make_kernel_events(call_events: pd.DataFrame, kernel: IntArray, call: IntArray) -> pd.DataFrame:
    """Make the events of kernels, given n pairs of a kernel (an index from 0) and a call that it carries out.

    A kernel shows the sum of the bytes, the lowest sequence number, and every other value of its calls once.
    """
    caller, kind, value = (call_events[name].to_numpy(np.int64) for name in _COLUMNS)
    by_caller = np.argsort(caller, kind="stable")
    first, after = (np.searchsorted(caller[by_caller], call, side) for side in ("left", "right"))
    rows = by_caller[list_indices(first, after - first)]
    events = np.repeat(kernel, after - first), kind[rows], value[rows]
    is_summed = np.isin(events[1], _SUMMED)
    is_sequence = events[1] == _POSITION[types.NCCL_SEQUENCE]
    once = np.flatnonzero(~is_summed & ~is_sequence)
    once = once[~mark_duplicates(*(column[once] for column in events))]
    owners, calls = np.unique(kernel), np.bincount(kernel)
    parts = [
        _reduce([column[is_summed] for column in events], "sum"),
        _reduce([column[is_sequence] for column in events], "min"),
        [column[once] for column in events],
        [owners, np.full(owners.size, _POSITION[types.NCCL_CALLS]), calls],
    ]
    columns = (np.concatenate(column).astype(np.int64, copy=False) for column in zip(*parts, strict=True))
    return pd.DataFrame(dict(zip(_COLUMNS, columns, strict=True)))


_COLUMNS = ("owner", "type", "value")


def _reduce(events: Sequence[IntArray], how: str) -> list[IntArray]:
    """Return owner, type, and the sum or "min" of the values of events with the same owner and type."""
    order, starts = sort_groups(events[:2])
    return [*(column[order[starts]] for column in events[:2]), reduce_groups(events[2], order, starts, how)]


def write_events(
    labels: Labels, result: Result, place: IntArray, begin: IntArray, end: IntArray, events: pd.DataFrame
) -> None:
    """Add a line with the events of each of n owners; bytes are reset to 0 at its end. Every owner has an event.

    The end (ns) is NO_END for a call without an end. Owners with the same types are written together, because there are
    few such sets, and their lines have one form.
    """
    n = place.size
    owner, kind = events["owner"].to_numpy(), events["type"].to_numpy()
    counts = np.bincount(owner * len(_TYPES) + kind, minlength=n * len(_TYPES)).reshape(n, len(_TYPES))
    value = events["value"].to_numpy()[np.lexsort((events["value"], kind, owner))]
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
