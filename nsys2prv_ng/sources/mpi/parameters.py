"""Makes pairs of event type and value for the parameters of MPI calls: partner, tag, root, communicator and bytes.

Ranks and communicators are registered by name here. Their values depend on all reports, so the `join` of the source
assigns them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from nsys2prv_ng.arrays.row_keys import find_distinct_rows
from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver.event_type import EventType
from nsys2prv_ng.paraver.labels import Labels
from nsys2prv_ng.records.columns import Pair
from nsys2prv_ng.report.database import NULL
from nsys2prv_ng.sources.mpi.calls import RECEIVES, SENDS
from nsys2prv_ng.sources.mpi.messages import MpiCalls
from nsys2prv_ng.sources.shared.pairs import make_number_pair, make_partial_pair, register_used

RANK_NAMES, COMMUNICATOR_NAMES = types.MPI_PARTNER.names, types.MPI_COMMUNICATOR.names
"""Name spaces of communicator ranks and of communicators."""


class CallParameters(NamedTuple):
    """Parameters of n calls: attributes are events at the start of a call, and amounts are reset to 0 at its end."""

    attributes: list[Pair]
    amounts: list[Pair]


def parse_rank(name: str) -> tuple[str, int]:
    """Return the key of the communicator and the rank in it, for a name in the space RANK_NAMES."""
    key, _, rank = name.rpartition(" ")
    return key, int(rank)


def make_collective_pairs(labels: Labels, keys: Sequence[str], calls: MpiCalls) -> CallParameters:
    """Make pairs for root, communicator, sent and received bytes of collectives. `keys`: the keys of communicators."""
    rows = calls.rows
    root, communicator = rows.root[calls.first], rows.communicator[calls.first]
    attributes = [
        *_make_rank_pairs(labels, keys, types.MPI_ROOT, communicator, np.where(root >= 0, root, NULL)),
        *_make_communicator_pairs(labels, keys, types.MPI_COLLECTIVE_COMMUNICATOR, calls),
    ]
    sent = _make_number_pairs(labels, types.MPI_SENT_BYTES, rows.bytes[calls.first])
    received = _make_number_pairs(labels, types.MPI_RECEIVED_BYTES, rows.received_bytes[calls.first])
    return CallParameters(attributes, sent + received)


def make_message_pairs(labels: Labels, keys: Sequence[str], calls: MpiCalls) -> CallParameters:
    """Make pairs for partner, tag, communicator and bytes of other calls. `keys`: the keys of communicators.

    The receiving half of a Sendrecv has separate event types.
    """
    rows = calls.rows
    attributes = [
        *_make_rank_pairs(labels, keys, types.MPI_PARTNER, rows.communicator[calls.first], rows.partner[calls.first]),
        *_make_number_pairs(labels, types.MPI_TAG, rows.tag[calls.first]),
        *_make_communicator_pairs(labels, keys, types.MPI_COMMUNICATOR, calls),
    ]
    amounts = _make_number_pairs(labels, types.MPI_BYTES, rows.bytes[calls.first])
    both = SENDS | RECEIVES
    is_sendrecv = rows.role[calls.first] & both == both
    if is_sendrecv.any():
        source, tag, received = (
            np.where(is_sendrecv, column[calls.last], NULL) for column in (rows.partner, rows.tag, rows.bytes)
        )
        attributes += _make_rank_pairs(labels, keys, types.MPI_SENDRECV_SOURCE, rows.communicator[calls.last], source)
        attributes += _make_number_pairs(labels, types.MPI_SENDRECV_TAG, tag)
        amounts += _make_number_pairs(labels, types.MPI_SENDRECV_BYTES, received)
    return CallParameters(attributes, amounts)


def _make_number_pairs(labels: Labels, event_type: EventType, values: IntArray) -> list[Pair]:
    """Make a pair for the calls with a value; none if no call has one."""
    return [make_number_pair(labels, event_type, values)] if (values != NULL).any() else []


def _make_rank_pairs(
    labels: Labels, keys: Sequence[str], event_type: EventType, communicator: IntArray, rank: IntArray
) -> list[Pair]:
    """Make a pair for the calls with a rank, with names for `parse_rank`; none if no call has one."""
    present = rank != NULL
    codes, distinct = find_distinct_rows(communicator[present], rank[present])
    ids = labels.name_ids(event_type.names, [f"{keys[index]} {local}" for index, local in distinct])[codes]
    return [make_partial_pair(labels, event_type, ids, present)] if ids.size else []


def _make_communicator_pairs(labels: Labels, keys: Sequence[str], event_type: EventType, calls: MpiCalls) -> list[Pair]:
    """Make a pair for the calls with a communicator; none if no call has one."""
    present = calls.rows.has_communicator[calls.first]
    ids = register_used(labels, event_type.names, keys, calls.rows.communicator[calls.first][present])
    return [make_partial_pair(labels, event_type, ids, present)] if ids.size else []
