"""What MPI's calls tell of the clocks: collectives, which all ranks leave together, and messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from nsys2prv_ng.arrays.row_keys import find_distinct_rows
from nsys2prv_ng.arrays.types import BoolArray, IntArray
from nsys2prv_ng.clock.collectives import (
    ANY_SIZE,
    FROM_ROOT,
    OTHER,
    SYNCHRONISING,
    TO_ROOT,
    Collectives,
    Messages,
    hash_kinds,
)
from nsys2prv_ng.objects.places import Places, Thread
from nsys2prv_ng.paraver.mpi_values import COLLECTIVE, classify_call
from nsys2prv_ng.report.database import NULL
from nsys2prv_ng.sources.mpi.communicators import UNKNOWN, WORLD, Communicators
from nsys2prv_ng.sources.mpi.messages import MessageEnds
from nsys2prv_ng.sources.mpi.messages import MpiMessages as ReportMessages

_KINDS = {
    **dict.fromkeys(
        ("MPI_Barrier", "MPI_Allreduce", "MPI_Alltoall", "MPI_Allgather", "MPI_Reduce_scatter"), SYNCHRONISING
    ),
    "MPI_Reduce_scatter_block": SYNCHRONISING,
    **dict.fromkeys(("MPI_Bcast", "MPI_Scatter"), FROM_ROOT),
    **dict.fromkeys(("MPI_Reduce", "MPI_Gather"), TO_ROOT),
}
_SIZES_AGREE = ("MPI_Allreduce", "MPI_Alltoall", "MPI_Allgather", "MPI_Reduce_scatter_block")


class CollectiveCalls(NamedTuple):
    """Calls of MPI of one report, n in any order: name as an index, communicator as one of the report's keys."""

    name: IntArray
    process: IntArray
    communicator: IntArray
    begin: IntArray
    end: IntArray
    bytes: IntArray
    root: IntArray


def collect_evidence(
    calls: CollectiveCalls, names: Sequence[str], communicators: Communicators, ranks: Mapping[int, int]
) -> Collectives:
    """The blocking collectives among some calls. `ranks`: rank in the world of each process.

    An operation on no data need not wait for anything. A communicator that is not known is taken for one.
    """
    blocking = np.array([classify_call(name) == COLLECTIVE and _is_blocking(name) for name in names], np.bool_)
    at = np.flatnonzero(blocking[calls.name]) if len(names) else np.zeros(0, np.int64)
    calls = CollectiveCalls(*(column[at] for column in calls))
    size = np.where(calls.bytes == NULL, ANY_SIZE, calls.bytes)
    kind = hash_kinds(names, _KINDS)[calls.name] if at.size else calls.name
    own = _own_ranks(calls.process, calls.communicator, communicators, ranks)
    rooted = (kind == FROM_ROOT) | (kind == TO_ROOT)
    kind = np.where((size == 0) | (rooted & ((calls.root == NULL) | (own == NULL))), OTHER, kind)
    agree = np.isin(calls.name, [i for i, name in enumerate(names) if name in _SIZES_AGREE])
    return Collectives(
        communicators=[f"mpi {key}" for key in communicators.keys],
        operations=list(names),
        communicator=calls.communicator,
        operation=calls.name,
        bytes=np.where(agree, size, ANY_SIZE),
        member=pd.factorize(calls.process)[0].astype(np.int64),
        begin=calls.begin,
        end=calls.end,
        kind=kind,
        is_root=calls.root == own,
        has_communicator=_is_known(communicators)[calls.communicator],
    )


def _is_blocking(name: str) -> bool:
    return not name.startswith("MPI_I") and not name.endswith(("_init", "_begin", "_end"))


def _is_known(communicators: Communicators) -> BoolArray:
    return np.array([key != UNKNOWN for key in communicators.keys], np.bool_)


def _own_ranks(
    process: IntArray, communicator: IntArray, communicators: Communicators, ranks: Mapping[int, int]
) -> IntArray:
    """Rank of each process in each communicator; NULL where it is not known."""
    codes, distinct = find_distinct_rows(process, communicator)
    found = [_own_rank(ranks.get(p), communicators.keys[c], communicators) for p, c in distinct]
    return np.array([*found, NULL], np.int64)[codes]


def _own_rank(world: int | None, key: str, communicators: Communicators) -> int:
    group = communicators.groups.get(key)
    while group is not None and group.copy_of:
        key = group.copy_of
        group = communicators.groups.get(key)
    if world is None or (key != WORLD and group is None):
        return NULL
    if key == WORLD:
        return world
    assert group is not None
    return next((local for local, member in group.members.items() if member == world), NULL)


def collect_messages(
    found: ReportMessages, places: Places, communicators: Communicators, ranks: Mapping[int, int]
) -> Messages:
    """Sends and receives whose order tells which of them meet.

    Of a rank that has a receive from any source or with any tag in a communicator, or one whose end was not recorded,
    no receive there is given: channels with fewer receives than sends are not compared.
    """
    sends = _table(found.sends, places, communicators, ranks)
    receives = _table(found.receives, places, communicators, ranks)
    doubtful = receives["doubtful"] | (receives["done"] == NULL)
    blind = pd.MultiIndex.from_frame(receives.loc[doubtful, ["communicator", "own"]])
    receives = receives[~pd.MultiIndex.from_frame(receives[["communicator", "own"]]).isin(blind)]
    sends = sends[~sends["doubtful"]]
    both = pd.concat(
        [
            sends.rename(columns={"own": "source", "partner": "target"}).assign(is_send=True, at=sends["time"]),
            receives.rename(columns={"own": "target", "partner": "source"}).assign(is_send=False, at=receives["done"]),
        ],
        ignore_index=True,
    )
    channel, distinct = pd.MultiIndex.from_frame(both[["communicator", "source", "target", "tag"]]).factorize()
    return Messages(
        channels=[f"mpi {communicators.keys[c]} {s} > {t} tag {tag}" for c, s, t, tag in distinct],
        channel=channel.astype(np.int64),
        is_send=both["is_send"].to_numpy(np.bool_),
        order=both["time"].to_numpy(np.int64),
        time=both["at"].to_numpy(np.int64),
    )


def _table(ends: MessageEnds, places: Places, communicators: Communicators, ranks: Mapping[int, int]) -> pd.DataFrame:
    used, position = np.unique(ends.posted_at, return_inverse=True)
    threads = [places.all[number] for number in used.tolist()]
    processes = [thread.process if isinstance(thread, Thread) else -1 for thread in threads]
    own = _own_ranks(np.array(processes, np.int64)[position], ends.communicator, communicators, ranks)
    known = _is_known(communicators)[ends.communicator]
    return pd.DataFrame(
        {
            "communicator": ends.communicator,
            "own": own,
            "partner": ends.partner,
            "tag": ends.tag,
            "time": ends.time,
            "done": ends.done,
            "doubtful": ~known | (own == NULL) | (ends.partner < 0) | (ends.tag == NULL),
        }
    )
