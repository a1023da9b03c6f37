"""Finds the role of MPI calls by name (sends, receives, starts or completes), and the state of their thread."""

from __future__ import annotations

import re

from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver.value_tables import COLLECTIVE, IO, OTHER, RMA, classify_call

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
_STATE_OF_CLASS = {
    COLLECTIVE: types.GROUP_COMMUNICATION,
    IO: types.INPUT_OUTPUT,
    RMA: types.ONE_SIDED,
    OTHER: types.OTHERS,
}


def get_role(name: str) -> int:
    """Return the role of a call as a sum of the flags above."""
    return sum(flag for flag, pattern in _ROLES if pattern.fullmatch(name))


def get_state(name: str) -> int:
    """Return Extrae's state of a thread within a call, but synchronization for barriers, and one-sided for RMA."""
    by_class = _STATE_OF_CLASS.get(classify_call(name), types.OTHERS)
    return next((state for state, pattern in _STATES if pattern.fullmatch(name)), by_class)
