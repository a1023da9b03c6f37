"""Messages of real reports by plain SQL and loops: the k-th send of a rank to another meets its k-th receive."""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple


class Message(NamedTuple):
    """A message between ranks. Times are UTC (ns); `both` is the later start of its kernels or calls."""

    sender: int
    receiver: int
    bytes: int
    both: int
    end: int
    send_end: int
    correlations: tuple[int, int] = (0, 0)
    """Correlation ids of the kernels that send and receive."""

    @property
    def ns(self) -> int:
        return self.end - self.both


_KERNELS = """SELECT k.start, k."end", k.correlationId FROM CUPTI_ACTIVITY_KIND_KERNEL k
    JOIN StringIds s ON s.id = k.shortName JOIN CUPTI_ACTIVITY_KIND_RUNTIME r ON r.correlationId = k.correlationId
    WHERE s.value LIKE 'ncclDevKernel_SendRecv%' ORDER BY r.start"""
_CALLS = """SELECT s.value, n.jsonText FROM NVTX_EVENTS n JOIN StringIds s ON s.id = n.textId
    WHERE s.value IN ('ncclSend', 'ncclRecv') ORDER BY n.start"""


def read_utc(database: sqlite3.Connection) -> int:
    return int(database.execute("SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME").fetchone()[0])


def read_nccl(reports: Sequence[Path]) -> list[Message]:
    """Return the messages of programs whose every group has one call, in a communicator of all ranks."""
    sides: dict[tuple[str, int, int], list[tuple[int, int, int, int]]] = defaultdict(list)
    for rank, report in enumerate(reports):
        with closing(sqlite3.connect(report)) as database:
            utc = read_utc(database)
            kernels, calls = database.execute(_KERNELS).fetchall(), database.execute(_CALLS).fetchall()
        for (begin, end, correlation), (name, text) in zip(kernels, calls, strict=True):
            payload = json.loads(text)
            peer = payload["Peer rank"]
            way = (rank, peer) if name == "ncclSend" else (peer, rank)
            sides[(name, *way)].append((utc + begin, utc + end, payload["Message size [bytes]"], correlation))
    return _match(sides, "ncclSend", "ncclRecv")


def read_blocking_mpi(reports: Sequence[Path]) -> list[Message]:
    """Return the messages from MPI_Send to MPI_Recv, of programs that use no other call with their tags."""
    sides: dict[tuple[str, int, int], list[tuple[int, int, int, int]]] = defaultdict(list)
    for rank, report in enumerate(reports):
        with closing(sqlite3.connect(report)) as database:
            utc = read_utc(database)
            rows = database.execute(
                """SELECT s.value, e.start, e."end", e.remoteRank, e.size FROM MPI_P2P_EVENTS e
                JOIN StringIds s ON s.id = e.textId WHERE s.value IN ('MPI_Send', 'MPI_Recv') ORDER BY e.start"""
            ).fetchall()
        for name, begin, end, peer, size in rows:
            way = (rank, peer) if name == "MPI_Send" else (peer, rank)
            sides[(name, *way)].append((utc + begin, utc + end, size, 0))
    return _match(sides, "MPI_Send", "MPI_Recv")


def _match(
    sides: dict[tuple[str, int, int], list[tuple[int, int, int, int]]], send: str, receive: str
) -> list[Message]:
    messages = []
    for (name, *way), sent in sides.items():
        if name == send:
            for one, other in zip(sent, sides[(receive, *way)], strict=True):
                both = max(one[0], other[0])
                messages.append(Message(*way, one[2], both, other[1], one[1], (one[3], other[3])))
    return messages


def read_ring(reports: Sequence[Path]) -> list[Message]:
    """Return the messages of a ring: each rank's k-th MPI_Waitall ends its k-th MPI_Isend and its k-th MPI_Irecv.

    Each call has messages with both neighbours, so in a ring of four ranks data moves once all four are in their calls.
    A message has no length if some rank's call started much later than all of these were posted.
    """
    waits: list[list[tuple[int, int]]] = []
    posted: list[list[tuple[int, int]]] = []
    sends: list[list[tuple[int, int]]] = []
    for report in reports:
        with closing(sqlite3.connect(report)) as database:
            utc = read_utc(database)
            calls = database.execute(
                'SELECT DISTINCT start, "end" FROM MPI_START_WAIT_EVENTS ORDER BY start'
            ).fetchall()
            rows = database.execute(
                """SELECT s.value, e.start, e.remoteRank, e.size FROM MPI_P2P_EVENTS e
                JOIN StringIds s ON s.id = e.textId ORDER BY e.start"""
            ).fetchall()
        waits.append([(utc + begin, utc + end) for begin, end in calls])
        starts = {name: [utc + row[1] for row in rows if row[0] == name] for name in ("MPI_Isend", "MPI_Irecv")}
        posted.append([*zip(starts["MPI_Isend"], starts["MPI_Irecv"], strict=True)])
        sends.append([(peer, size) for name, _, peer, size in rows if name == "MPI_Isend"])
    messages = []
    for k in range(len(waits[0])):
        start, first = max(calls[k][0] for calls in waits), max(max(times[k]) for times in posted)
        for rank in range(len(reports)):
            peer, size = sends[rank][k]
            end = waits[peer][k][1]
            known = start - first <= 0.1 * (end - start) and waits[rank][k][1] >= start
            messages.append(Message(rank, peer, size, start, end if known else start, waits[rank][k][1]))
    return messages


def list_sent_bytes(report: Path) -> dict[int, int]:
    """Return the bytes that a rank sends to each rank of MPI_COMM_WORLD; a Sendrecv sends in its first row."""
    sums: dict[int, int] = defaultdict(int)
    with closing(sqlite3.connect(report)) as database:
        rows = database.execute(
            """SELECT s.value, e.remoteRank, e.size FROM MPI_P2P_EVENTS e JOIN StringIds s ON s.id = e.textId
            ORDER BY e.start, e.rowid"""
        ).fetchall()
    both = 0
    for name, peer, size in rows:
        both += name == "MPI_Sendrecv"
        if name in ("MPI_Send", "MPI_Isend") or (name == "MPI_Sendrecv" and both % 2):
            sums[peer] += size
    return dict(sums)
