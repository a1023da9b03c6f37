"""Sends and receives of MPI that one report tells of: calls, and requests from the call that posts to its wait."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from nsys2prv_ng.arrays.row_keys import encode_rows
from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.intervals.as_of import find_latest
from nsys2prv_ng.report.database import NULL
from nsys2prv_ng.sources.mpi.calls import COMPLETES, IMMEDIATE, PERSISTENT, RECEIVES, SENDS, STARTS

ANY_SOURCE = -1
NOBODY = -2
"""MPI_PROC_NULL"""


class MpiRows(NamedTuple):
    """Rows of MPI calls of one report that have a thread and sound times, in columns; NULL where a row has no value.

    `end` and `place` are of the call. `role` is a sum of flags. `partner` is a rank of the communicator, ANY_SOURCE or
    NOBODY. `communicator` is an index into the report's keys.
    """

    begin: IntArray
    end: IntArray
    process: IntArray
    place: IntArray
    role: IntArray
    communicator: IntArray
    partner: IntArray
    tag: IntArray
    bytes: IntArray
    request: IntArray


class MessageEnds(NamedTuple):
    """Sends or receives of one report.

    `time` is when a send began or a receive was posted, at the place `posted_at`; `done` when a receive ended, at
    `place`, or NULL if no wait or test that completed it was recorded.
    """

    place: IntArray
    posted_at: IntArray
    time: IntArray
    done: IntArray
    communicator: IntArray
    partner: IntArray
    tag: IntArray
    bytes: IntArray


@dataclass
class MpiMessages:
    """What a report says of messages."""

    sends: MessageEnds
    receives: MessageEnds
    started_before: int = 0
    """Number of started requests that were made before the capture began: what they are is unknown."""


def read_messages(rows: MpiRows, first_of_call: IntArray, last_of_call: IntArray) -> MpiMessages:
    """Sends and receives of a report. Calls are given by their first and last row: of a Sendrecv, send and receive."""
    is_send = (rows.role[first_of_call] & SENDS != 0) & (rows.role[first_of_call] & PERSISTENT == 0)
    is_receive = (rows.role[last_of_call] & RECEIVES != 0) & (rows.role[last_of_call] & PERSISTENT == 0)
    sends, receives = first_of_call[is_send], last_of_call[is_receive]
    started, made = _started(rows)
    known = made >= 0
    starts_send = known & (rows.role[made] & SENDS != 0)
    starts_receive = known & (rows.role[made] & RECEIVES != 0)
    done_row = _completed(rows)
    none = np.full(rows.begin.size, -1, np.int64)
    return MpiMessages(
        _ends(rows, np.append(sends, started[starts_send]), np.append(sends, made[starts_send]), none),
        _ends(rows, np.append(receives, started[starts_receive]), np.append(receives, made[starts_receive]), done_row),
        int((~known).sum()),
    )


def _ends(rows: MpiRows, calls: IntArray, parameters: IntArray, done_row: IntArray) -> MessageEnds:
    """Sends or receives: the row of the call that posts each, that of its parameters, and that which completes it."""
    immediate = rows.role[calls] & (IMMEDIATE | STARTS) != 0
    done = np.where(immediate, done_row[calls], calls)
    seen = done >= 0
    return MessageEnds(
        place=np.where(seen, rows.place[done], rows.place[calls]),
        posted_at=rows.place[calls],
        time=rows.begin[calls],
        done=np.where(seen, rows.end[done], NULL),
        communicator=rows.communicator[parameters],
        partner=rows.partner[parameters],
        tag=rows.tag[parameters],
        bytes=rows.bytes[parameters],
    )


def _request_codes(rows: MpiRows) -> IntArray:
    """Dense id of each row's (process, request), -1 for a row without a request."""
    has_request = rows.request != NULL
    codes = np.full(rows.request.size, -1, np.int64)
    codes[has_request], _ = encode_rows(rows.process[has_request], rows.request[has_request])
    return codes


def _started(rows: MpiRows) -> tuple[IntArray, IntArray]:
    """(rows that start a request, the row that made that request or -1)."""
    codes = _request_codes(rows)
    started = np.flatnonzero((codes >= 0) & (rows.role & STARTS != 0))
    makers = np.flatnonzero((codes >= 0) & (rows.role & (STARTS | COMPLETES) == 0))
    found = find_latest(codes[makers], rows.begin[makers], codes[started], rows.begin[started])
    made = np.where(found >= 0, np.append(makers, -1)[found], -1)
    return started, np.where((made >= 0) & (rows.role[made] & IMMEDIATE == 0), made, -1)


def _completed(rows: MpiRows) -> IntArray:
    """For each row that makes or starts a request the row that completes it; -1 for none. Handles are used again."""
    codes = _request_codes(rows)
    completing = np.flatnonzero((codes >= 0) & (rows.role & COMPLETES != 0))
    active = np.flatnonzero((codes >= 0) & (rows.role & COMPLETES == 0))
    completing = completing[np.argsort(rows.begin[completing], kind="stable")]
    found = find_latest(codes[active], rows.begin[active], codes[completing], rows.begin[completing])
    request, first = np.unique(found[found >= 0], return_index=True)
    done = np.full(rows.begin.size, -1, np.int64)
    done[active[request]] = completing[found >= 0][first]
    return done
