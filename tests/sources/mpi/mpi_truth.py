"""MPI in reports, by plain SQL and plain loops: calls, communicators, and messages by walking MPI's queues."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

TABLES = ("MPI_P2P_EVENTS", "MPI_COLLECTIVES_EVENTS", "MPI_START_WAIT_EVENTS", "MPI_OTHER_EVENTS")
SEVERAL_ROWS = {"MPI_Sendrecv", "MPI_Sendrecv_replace", "MPI_Waitall", "MPI_Testall", "MPI_Waitany", "MPI_Startall"}
SENDS = {"MPI_Send", "MPI_Ssend", "MPI_Bsend", "MPI_Rsend", "MPI_Isend", "MPI_Issend"}
RECEIVES = {"MPI_Recv", "MPI_Irecv"}
COMPLETING = ("MPI_Wait", "MPI_Test")


@dataclass
class Row:
    """One row of a table of calls. Times are UTC (ns)."""

    table: str
    rank: int
    thread: int
    begin: int
    end: int
    name: str
    values: dict[str, int | None]

    def __getitem__(self, name: str) -> int | None:
        return self.values.get(name)


@dataclass
class Call:
    """A call: its rows by end."""

    rows: list[Row]

    @property
    def key(self) -> tuple[int, int, int, str]:
        """Rank, begin, end, name."""
        return self.rows[0].rank, self.rows[0].begin, max(row.end for row in self.rows), self.rows[0].name


@dataclass
class Truth:
    """The rows of calls and the communicators of all reports of a job."""

    rows: list[Row] = field(default_factory=list)
    communicators: list[tuple[int, int, int, int, tuple[object, ...]]] = field(default_factory=list)
    """(rank, handle, since, local rank or -1, identity)"""

    @property
    def calls(self) -> list[Call]:
        grouped: dict[object, list[Row]] = {}
        for number, row in enumerate(self.rows):
            key = (row.rank, row.thread, row.begin, row.name, None if row.name in SEVERAL_ROWS else number)
            grouped.setdefault(key, []).append(row)
        return [Call(sorted(rows, key=lambda row: row.end)) for rows in grouped.values()]

    def find_communicator(self, row: Row) -> tuple[object, ...]:
        """Return the identity of the communicator of a row."""
        valid = [c for c in self.communicators if c[0] == row.rank and c[1] == row["commHandle"] and c[2] <= row.begin]
        return max(valid, key=lambda c: c[2])[4]

    def map_members(self, identity: tuple[object, ...]) -> dict[int, int]:
        """Return the world rank of each local rank of a communicator."""
        while identity[0] == "copy":
            identity = identity[1]  # type: ignore[assignment]
        return {local: rank for rank, _, _, local, other in self.communicators if other == identity}


def read(paths: Sequence[Path]) -> Truth:
    """Read the calls and communicators of reports."""
    truth = Truth()
    for path in paths:
        connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)
        connection.row_factory = sqlite3.Row
        utc = connection.execute("SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME").fetchone()[0]
        ranks = {tid >> 24: rank for tid, rank in connection.execute("SELECT globalTid, rank FROM MPI_RANKS")}
        for table in TABLES:
            query = f"SELECT e.*, s.value AS name FROM {table} e JOIN StringIds s ON s.id = e.textId ORDER BY e.rowid"
            for record in connection.execute(query):
                row = dict(record)
                tid = row["globalTid"]
                begin, end = row["start"] + utc, row["end"] + utc
                truth.rows.append(Row(table, ranks[tid >> 24], tid, begin, end, row["name"], row))
        copies: dict[object, int] = defaultdict(int)
        for record in connection.execute("SELECT * FROM MPI_COMMUNICATORS ORDER BY timestamp"):
            row = dict(record)
            rank, handle, since = row["rank"], row["commHandle"], row["timestamp"] + utc
            local = row["localRank"] if row["localRank"] is not None else -1
            if row["groupRoot"] is not None:
                identity: tuple[object, ...] = ("group", row["groupRoot"], row["groupRootUid"], row["size"])
            elif not row["parentHandle"]:
                identity = ("world",)
            else:
                earlier = [c for c in truth.communicators if c[0] == rank and c[1] == row["parentHandle"]]
                original = earlier[-1][4]
                copies[rank, original] += 1
                identity = ("copy", original, copies[rank, original])
            truth.communicators.append((rank, handle, since, local, identity))
        connection.close()
    return truth


@dataclass
class Message:
    """One end of a message."""

    communicator: tuple[object, ...]
    rank: int
    partner: int | None
    """World rank; None for any source."""
    tag: int | None
    begin: int
    end: int | None
    bytes: int


def list_ends(truth: Truth) -> tuple[list[Message], list[Message]]:
    """Return all sends, and all receives with the end of the call that completed them, both in the order of posting."""
    sends, receives = [], []
    rows = sorted(truth.rows, key=lambda row: row.begin)

    def make_message(row: Row, begin: int, end: int | None) -> Message:
        identity = truth.find_communicator(row)
        remote = row["remoteRank"]
        assert remote is not None
        partner = None if remote < 0 else truth.map_members(identity)[remote]
        return Message(identity, row.rank, partner, row["tag"], begin, end, row["size"] or 0)

    def find_completion(row: Row) -> int | None:
        later = [
            other
            for other in rows
            if other.rank == row.rank
            and other["requestHandle"] == row["requestHandle"]
            and other.name.startswith(COMPLETING)
            and other.begin >= row.begin
        ]
        return later[0].end if later else None

    for call in truth.calls:
        first, last = call.rows[0], call.rows[-1]
        if first.name.startswith("MPI_Sendrecv"):
            sends.append(make_message(first, first.begin, None))
            receives.append(make_message(last, last.begin, last.end))
        elif first.name in SENDS:
            sends.append(make_message(first, first.begin, None))
        elif first.name in RECEIVES:
            end = first.end if first.name == "MPI_Recv" else find_completion(first)
            receives.append(make_message(first, first.begin, end))
        elif first.name == "MPI_Start":
            made = [
                row
                for row in rows
                if row.rank == first.rank
                and row["requestHandle"] == first["requestHandle"]
                and row.name.endswith("_init")
                and row.begin < first.begin
            ][-1]
            if made.name == "MPI_Send_init":
                sends.append(make_message(made, first.begin, None))
            else:
                receives.append(make_message(made, first.begin, find_completion(first)))
    return sorted(sends, key=lambda m: m.begin), sorted(receives, key=lambda m: m.begin)


def match_messages(truth: Truth) -> list[tuple[int, int, int, int | None, int, int]]:
    """Return (sender, begin, receiver, end, bytes, tag) of all messages, sorted.

    Each receive, in the order of posting, takes the first send that it matches. A receive from any source must be from
    the only sender of its tag.
    """
    sends, receives = list_ends(truth)
    messages = []
    waiting = list(sends)
    for receive in receives:
        fits = [
            send
            for send in waiting
            if send.communicator == receive.communicator
            and send.partner == receive.rank
            and receive.partner in (None, send.rank)
            and receive.tag in (None, send.tag)
        ]
        if receive.partner is None:
            senders = {s.rank for s in sends if s.partner == receive.rank and s.tag == receive.tag}
            assert len(senders) <= 1, "several ranks may have sent this message"
        if fits:
            send = fits[0]
            waiting.remove(send)
            assert send.tag is not None
            messages.append((send.rank, send.begin, receive.rank, receive.end, send.bytes, send.tag))
    return sorted(messages)
