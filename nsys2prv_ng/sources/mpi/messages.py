"""Finds the role of MPI calls by name, and the sends and receives of one report.

A send or receive is a blocking call, or a request from its posting to its wait.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, NamedTuple

import numpy as np
import numpy.typing as npt

from nsys2prv_ng.arrays.row_keys import encode_rows, find_distinct_rows
from nsys2prv_ng.arrays.types import BoolArray, Index, IntArray, PlaceColumn, pick, put
from nsys2prv_ng.intervals.step_functions import find_latest
from nsys2prv_ng.operations.parts import ANY_SIZE, FROM_ROOT, SYNCHRONISING, TO_ROOT, Collectives, Messages, get_kinds
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver.value_tables import COLLECTIVE, IO, RMA, classify_call
from nsys2prv_ng.report.database import NULL
from nsys2prv_ng.report.metadata import PID_MASK
from nsys2prv_ng.sources.mpi.communicators import UNKNOWN, AllCommunicators, Communicators
from nsys2prv_ng.value_class import ValueClass

# ---- roles of calls, and states of their threads ---------------------------------------------------------------------

SENDS = 1
RECEIVES = 2
IMMEDIATE = 4
"""The call returns a request at once; a receive completes in a wait or test."""
PERSISTENT = 8
"""The call makes a request that later calls start, any number of times."""
STARTS = 16
COMPLETES = 32
SEVERAL_ROWS = 64
"""nsys writes a row for each request of the call, or one row for the send and one for the receive."""

_SENDRECV = r"I?sendrecv(_replace)?"
_ROLES = (
    (SENDS, re.compile(rf"MPI_(I?[bsr]?send|[bsr]?send_init|{_SENDRECV})", re.IGNORECASE)),
    (RECEIVES, re.compile(rf"MPI_(I?m?recv|recv_init|{_SENDRECV})", re.IGNORECASE)),
    (IMMEDIATE, re.compile(r"MPI_I([bsr]?send|m?recv|sendrecv(_replace)?)", re.IGNORECASE)),
    (PERSISTENT, re.compile(r"MPI_([bsr]?send|recv)_init", re.IGNORECASE)),
    (STARTS, re.compile(r"MPI_Start(all)?")),
    (COMPLETES, re.compile(r"MPI_(Wait|Test)(all|any|some)?")),
    (SEVERAL_ROWS, re.compile(rf"MPI_({_SENDRECV}|Startall|(Wait|Test)(all|any|some))", re.IGNORECASE)),
)

_STATES = (
    (types.WAITING, re.compile(r"MPI_(Wait|Test)(all|any|some)?")),
    (types.TEST_PROBE, re.compile(r"MPI_(I?m?probe|Parrived)", re.IGNORECASE)),
    (types.SEND_RECEIVE, re.compile(r"MPI_I?sendrecv(_replace)?", re.IGNORECASE)),
    (types.BLOCKING_SEND, re.compile(r"MPI_[BSR]?send", re.IGNORECASE)),
    (types.WAITING_MESSAGE, re.compile(r"MPI_M?recv", re.IGNORECASE)),
    (types.IMMEDIATE_SEND, re.compile(r"MPI_(I[bsr]?send|[PBSR]?send_init|Pready\w*)", re.IGNORECASE)),
    (types.IMMEDIATE_RECEIVE, re.compile(r"MPI_(Im?recv|P?recv_init)", re.IGNORECASE)),
    (types.SYNCHRONIZATION, re.compile(r"MPI_I?barrier(_init)?", re.IGNORECASE)),
)
_STATE_OF_CLASS = {COLLECTIVE: types.GROUP_COMMUNICATION, IO: types.INPUT_OUTPUT, RMA: types.ONE_SIDED}


def get_role(name: str) -> int:
    """Return the role of a call as a sum of the flags above."""
    return sum(flag for flag, pattern in _ROLES if pattern.fullmatch(name))


def get_state(name: str) -> int:
    """Return Extrae's state of a thread within a call, but synchronization for barriers, and one-sided for RMA."""
    by_class = _STATE_OF_CLASS.get(classify_call(name), types.OTHERS)
    return next((state for state, pattern in _STATES if pattern.fullmatch(name)), by_class)


# ---- sends and receives ----------------------------------------------------------------------------------------------

ANY_SOURCE = -1
NOBODY = -2
"""MPI_PROC_NULL"""


class MpiRows(NamedTuple):
    """Rows of the MPI calls of one report that have a thread and sound times: columns of n, times in ns.

    NULL stands for a missing value.

    `thread`: globalTid. `name`: index into the names of the report's calls. `role`: sum of the flags above.
    `communicator`: index into the keys of the report's communicators; the index of UNKNOWN for a row without a
    communicator. `partner`: a rank of the communicator, ANY_SOURCE or NOBODY. `bytes`: bytes of a message, or bytes
    that a collective sends. `received_bytes`: bytes that a collective receives.
    """

    begin: IntArray
    end: IntArray
    thread: IntArray
    process: IntArray
    place: IntArray
    name: IntArray
    role: IntArray
    communicator: IntArray
    has_communicator: BoolArray
    partner: IntArray
    tag: IntArray
    root: IntArray
    bytes: IntArray
    received_bytes: IntArray
    request: IntArray


class MpiCalls(NamedTuple):
    """n calls of one report. Most calls have one row. The first row of a Sendrecv sends, and the last row receives.

    `first`: index of the first row of each call. `last`: index of the last row of each call.
    """

    rows: MpiRows
    first: IntArray
    last: IntArray

    def take(self, at: npt.NDArray[np.generic]) -> MpiCalls:
        """Return the calls at these indices, or the calls that a mask selects."""
        return MpiCalls(self.rows, self.first[at], self.last[at])


class MessageEnds(NamedTuple):
    """Sends or receives of one report: columns of n, times in ns.

    `place`: the place where it ended, or where it was posted if its end was not recorded. `posted_at`: the place of the
    call that posted it. `time`: the start of a send, or the posting of a receive. `done`: the end; NULL if no wait or
    test that completed it was recorded. `completing`: the start of the call in which it ended; NULL if its end was not
    recorded.
    """

    place: PlaceColumn
    posted_at: PlaceColumn
    process: IntArray
    time: IntArray
    done: IntArray
    completing: IntArray
    communicator: Annotated[IntArray, Index("communicators.keys")]
    partner: IntArray
    tag: IntArray
    bytes: IntArray


class MpiMessages(ValueClass):
    """The sends and receives of one report.

    `started_before`: number of started requests that were made before the capture started. They may be sends or
    receives.
    """

    sends: MessageEnds
    receives: MessageEnds
    started_before: int = 0


def read_messages(calls: MpiCalls) -> MpiMessages:
    """Return the sends and receives among a report's calls."""
    rows = calls.rows
    first_role, last_role = rows.role[calls.first], rows.role[calls.last]
    is_send = (first_role & SENDS != 0) & (first_role & PERSISTENT == 0)
    receives = calls.last[(last_role & RECEIVES != 0) & (last_role & PERSISTENT == 0)]
    codes = np.full(rows.request.size, -1, np.int64)  # of each (process, request)
    has_request = rows.request != NULL
    codes[has_request], _ = encode_rows(rows.process[has_request], rows.request[has_request])
    started, made = _find_starts(rows, codes)
    done_row = _find_completions(rows, codes)

    def make_ends(posting: IntArray, last: IntArray, flag: int) -> MessageEnds:
        """Add the sends or receives that a persistent request started, and make columns of all."""
        is_started = (made >= 0) & (rows.role[made] & flag != 0)
        calls, parameters = np.append(posting, started[is_started]), np.append(posting, made[is_started])
        return _make_ends(rows, calls, parameters, np.append(last, started[is_started]), done_row)

    sends = make_ends(calls.first[is_send], calls.last[is_send], SENDS)
    return MpiMessages(sends, make_ends(receives, receives, RECEIVES), int((made < 0).sum()))


def _make_ends(rows: MpiRows, calls: IntArray, parameters: IntArray, last: IntArray, done_row: IntArray) -> MessageEnds:
    """Make columns of sends or receives.

    For each send or receive, `calls` is the row that posts it, `parameters` the row with its parameters, and `last` the
    last row of the call (MPI_Sendrecv ends with its receive). `done_row` is the row that completes the request of each
    row, or -1.
    """
    immediate = rows.role[calls] & (IMMEDIATE | STARTS) != 0
    done = np.where(immediate, done_row[calls], last)
    is_done = done >= 0
    return MessageEnds(
        place=np.where(is_done, rows.place[done], rows.place[calls]),
        posted_at=rows.place[calls],
        process=rows.process[calls],
        time=rows.begin[calls],
        done=np.where(is_done, rows.end[done], NULL),
        completing=np.where(is_done, np.where(immediate, rows.begin[done], rows.begin[calls]), NULL),
        communicator=rows.communicator[parameters],
        partner=rows.partner[parameters],
        tag=rows.tag[parameters],
        bytes=rows.bytes[parameters],
    )


def _find_starts(rows: MpiRows, codes: IntArray) -> tuple[IntArray, IntArray]:
    """Return (rows that start a persistent request, the row that made each request or -1).

    `codes`: the request of each row as a dense id; -1 for a row without a request.
    """
    started = np.flatnonzero((codes >= 0) & (rows.role & STARTS != 0))
    makers = np.flatnonzero((codes >= 0) & (rows.role & (STARTS | COMPLETES) == 0))
    maker = find_latest(codes[makers], rows.begin[makers], codes[started], rows.begin[started])
    made = pick(makers, maker, -1)
    return started, np.where((made >= 0) & (rows.role[made] & IMMEDIATE == 0), made, -1)


def _find_completions(rows: MpiRows, codes: IntArray) -> IntArray:
    """Return the row that completes the request (code) that each row makes or starts, or -1. Handles are reused."""
    completing = np.flatnonzero((codes >= 0) & (rows.role & COMPLETES != 0))
    active = np.flatnonzero((codes >= 0) & (rows.role & COMPLETES == 0))
    completing = completing[np.argsort(rows.begin[completing], kind="stable")]
    completed = find_latest(codes[active], rows.begin[active], codes[completing], rows.begin[completing])
    request, first = np.unique(completed[completed >= 0], return_index=True)
    return put(completing[completed >= 0][first], active[request], rows.begin.size)


# ---- evidence on clocks ----------------------------------------------------------------------------------------------

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
