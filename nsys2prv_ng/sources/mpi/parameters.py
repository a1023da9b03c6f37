"""Makes pairs of event type and value for the parameters of MPI calls: partner, tag, root, communicator and bytes.

Ranks and communicators are registered by name here. Their values depend on all reports, so the `join` of the source
assigns them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver.event_type import EventType
from nsys2prv_ng.paraver.labels import Labels
from nsys2prv_ng.records.columns import Pair
from nsys2prv_ng.report.database import NULL
from nsys2prv_ng.sources.mpi.calls import RECEIVES, SENDS
from nsys2prv_ng.sources.mpi.messages import MpiCalls
from nsys2prv_ng.sources.shared.pairs import make_number_pair, make_partial_pair, register_ranks, register_used

RANK_NAMES, COMMUNICATOR_NAMES = types.MPI_PARTNER.names, types.MPI_COMMUNICATOR.names
"""Name spaces of communicator ranks and of communicators."""


def make_collective_pairs(labels: Labels, keys: Sequence[str], calls: MpiCalls) -> tuple[list[Pair], list[Pair]]:
    """Make pairs for root and communicator, and pairs for sent and received bytes of collectives.

    The bytes are amounts, which are reset to 0 at the end of a call. `keys`: the keys of communicators.
    """
    rows = calls.rows
    root, communicator = rows.root[calls.first], rows.communicator[calls.first]
    attributes = [
        _make_rank_pair(labels, keys, types.MPI_ROOT, communicator, np.where(root >= 0, root, NULL)),
        _make_communicator_pair(labels, keys, types.MPI_COLLECTIVE_COMMUNICATOR, calls),
    ]
    amounts = [
        make_number_pair(labels, types.MPI_SENT_BYTES, rows.bytes[calls.first]),
        make_number_pair(labels, types.MPI_RECEIVED_BYTES, rows.received_bytes[calls.first]),
    ]
    return attributes, amounts


def make_message_pairs(labels: Labels, keys: Sequence[str], calls: MpiCalls) -> tuple[list[Pair], list[Pair]]:
    """Make pairs for partner, tag and communicator, and pairs for bytes of other calls, likewise.

    The receiving half of a Sendrecv has separate event types.
    """
    rows = calls.rows
    both = SENDS | RECEIVES
    is_sendrecv = rows.role[calls.first] & both == both
    source, tag, received = (
        np.where(is_sendrecv, column[calls.last], NULL) for column in (rows.partner, rows.tag, rows.bytes)
    )
    attributes = [
        _make_rank_pair(labels, keys, types.MPI_PARTNER, rows.communicator[calls.first], rows.partner[calls.first]),
        make_number_pair(labels, types.MPI_TAG, rows.tag[calls.first]),
        _make_communicator_pair(labels, keys, types.MPI_COMMUNICATOR, calls),
        _make_rank_pair(labels, keys, types.MPI_SENDRECV_SOURCE, rows.communicator[calls.last], source),
        make_number_pair(labels, types.MPI_SENDRECV_TAG, tag),
    ]
    amounts = [
        make_number_pair(labels, types.MPI_BYTES, rows.bytes[calls.first]),
        make_number_pair(labels, types.MPI_SENDRECV_BYTES, received),
    ]
    return attributes, amounts


def _make_rank_pair(
    labels: Labels, keys: Sequence[str], event_type: EventType, communicator: IntArray, rank: IntArray
) -> Pair:
    """Make a pair for the calls with a rank."""
    ids = register_ranks(labels, event_type.names, keys, communicator, rank)
    return make_partial_pair(labels, event_type, ids, rank != NULL)


def _make_communicator_pair(labels: Labels, keys: Sequence[str], event_type: EventType, calls: MpiCalls) -> Pair:
    """Make a pair for the calls with a communicator."""
    present = calls.rows.has_communicator[calls.first]
    ids = register_used(labels, event_type.names, keys, calls.rows.communicator[calls.first][present])
    return make_partial_pair(labels, event_type, ids, present)
