"""Collects evidence for the alignment of clocks from MPI calls: collectives, which all ranks leave together, and
messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from nsys2prv_ng.arrays.row_keys import encode_rows, find_distinct_rows
from nsys2prv_ng.arrays.types import BoolArray, IntArray
from nsys2prv_ng.operations.parts import ANY_SIZE, FROM_ROOT, SYNCHRONISING, TO_ROOT, Collectives, Messages, get_kinds
from nsys2prv_ng.paraver.value_tables import COLLECTIVE, classify_call
from nsys2prv_ng.report.database import NULL
from nsys2prv_ng.report.metadata import PID_MASK
from nsys2prv_ng.sources.mpi.communicators import UNKNOWN, AllCommunicators, Communicators
from nsys2prv_ng.sources.mpi.messages import MessageEnds, MpiCalls, MpiMessages

_SIZES_AGREE = ("MPI_Allreduce", "MPI_Alltoall", "MPI_Allgather", "MPI_Reduce_scatter_block")
_KINDS = {
    **dict.fromkeys((*_SIZES_AGREE, "MPI_Barrier", "MPI_Reduce_scatter"), SYNCHRONISING),
    **dict.fromkeys(("MPI_Bcast", "MPI_Scatter"), FROM_ROOT),
    **dict.fromkeys(("MPI_Reduce", "MPI_Gather"), TO_ROOT),
}
_PARTS_OF_CALLS = ("_init", "_begin", "_end")
"""Ends of the names of calls that are one of several for a collective."""


def collect_evidence(
    calls: MpiCalls, names: Sequence[str], communicators: Communicators, ranks: Mapping[int, int]
) -> Collectives:
    """Return the blocking collectives among some calls. `ranks`: the rank in the world of each process.

    All unknown communicators count as one communicator.
    """
    rows = calls.rows
    is_blocking = [
        classify_call(name) == COLLECTIVE and not name.startswith("MPI_I") and not name.endswith(_PARTS_OF_CALLS)
        for name in names
    ]
    calls = calls.take(np.array(is_blocking, np.bool_)[rows.name[calls.first]])
    name, process, communicator = (column[calls.first] for column in (rows.name, rows.process, rows.communicator))
    size = np.where(rows.bytes[calls.first] == NULL, ANY_SIZE, rows.bytes[calls.first])
    known = AllCommunicators([communicators])
    root, rank = rows.root[calls.first], _find_callers_ranks(process, communicator, known, communicators.keys, ranks)
    member, first = encode_rows(process)
    sizes_agree = np.isin(name, [i for i, operation in enumerate(names) if operation in _SIZES_AGREE])
    return Collectives(
        communicators=[f"mpi {key}" for key in communicators.keys],
        operations=list(names),
        communicator=communicator,
        operation=name,
        bytes=np.where(sizes_agree, size, ANY_SIZE),
        member=member,
        begin=rows.begin[calls.first],
        end=rows.end[calls.last],
        kind=get_kinds(_KINDS, names, name, size, root, rank),
        is_root=root == rank,
        has_communicator=_mark_known(communicators)[communicator],
        place=rows.place[calls.first],
        sizes=[known.get_group(key).size for key in communicators.keys],
        owners=[(number & PID_MASK, -1) for number in process[first].tolist()],
    )


def _mark_known(communicators: Communicators) -> BoolArray:
    """Mark the keys of known communicators."""
    return np.array([key != UNKNOWN for key in communicators.keys], np.bool_)


def _find_callers_ranks(
    process: IntArray, communicator: IntArray, known: AllCommunicators, keys: Sequence[str], ranks: Mapping[int, int]
) -> IntArray:
    """Return the rank of each process in each communicator; NULL if it is unknown."""
    codes, distinct = find_distinct_rows(process, communicator)
    found = [known.find_rank(keys[c], ranks.get(p)) for p, c in distinct]
    return np.array([*found, NULL], np.int64)[codes]


def collect_messages(messages: MpiMessages, communicators: Communicators, ranks: Mapping[int, int]) -> Messages:
    """Return the sends and receives that can be matched by their order alone.

    A receive from any source, with any tag or without a recorded end excludes all receives of its rank in its
    communicator, because channels with fewer receives than sends are not compared.
    """
    sends, receives = messages.sends, messages.receives
    ends = MessageEnds._make(np.concatenate(columns) for columns in zip(sends, receives, strict=True))
    is_send = np.repeat([True, False], [sends.time.size, receives.time.size])
    known = AllCommunicators([communicators])
    rank = _find_callers_ranks(ends.process, ends.communicator, known, communicators.keys, ranks)
    is_doubtful = (rank == NULL) | (ends.partner < 0) | (ends.tag == NULL) | (~is_send & (ends.done == NULL))
    is_doubtful |= ~_mark_known(communicators)[ends.communicator]
    side, _ = encode_rows(is_send.astype(np.int64), ends.communicator, rank)
    rows = np.flatnonzero(~is_doubtful & ~np.isin(side, side[is_doubtful & ~is_send]))
    is_send, rank, partner = is_send[rows], rank[rows], ends.partner[rows]
    source, target = np.where(is_send, rank, partner), np.where(is_send, partner, rank)
    channel, distinct = find_distinct_rows(ends.communicator[rows], source, target, ends.tag[rows])
    at = np.where(is_send, ends.time[rows], ends.done[rows])
    return Messages(
        channels=[f"mpi {communicators.keys[c]} {s} > {t} tag {tag}" for c, s, t, tag in distinct],
        links=[f"mpi {communicators.keys[c]} {min(s, t)} {max(s, t)}" for c, s, t, _ in distinct],
        is_forward=np.array([s < t for _, s, t, _ in distinct], np.bool_),
        channel=channel,
        is_send=is_send,
        order=ends.time[rows],
        time=at,
        handed=at,
        bytes=ends.bytes[rows],
    )
