"""MPI in small reports made for a test: requests, communicators, and rows that are not sound."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from nsys2prv_ng.translation.result import TranslationResult
from tests.sources.small_reports import UTC, export, get_account, translate_reports
from tests.trace_reader import Trace, pair_intervals

NAMES = [
    *("MPI_Init", "MPI_Finalize", "MPI_Send", "MPI_Recv", "MPI_Isend", "MPI_Irecv", "MPI_Wait", "MPI_Waitall"),
    *("MPI_Test", "MPI_Sendrecv", "MPI_Send_init", "MPI_Recv_init", "MPI_Start", "MPI_Startall", "MPI_Barrier"),
    *("MPI_Bcast", "MPI_Ibcast", "MPIX_New_call", "MPI_Mrecv", "MPI", "my range"),
]
P2P, COLLECTIVE, OTHER = 50000001, 50000002, 50000003
PARTNER, TAG, BYTES, COMMUNICATOR, SOURCE, SOURCE_TAG, SOURCE_BYTES = range(50100011, 50100018)
NCCL_KERNEL = 63000007
WORLD, SPLIT = 0x7F00_0000_1000, 0x7F00_0000_2000
MERGED = "merged into another row of the same call"

P2P_COLUMNS = ("start", "end", "globalTid", "textId", "commHandle", "tag", "remoteRank", "size", "requestHandle")
WAIT_COLUMNS = ("start", "end", "globalTid", "textId", "requestHandle")
OTHER_COLUMNS = ("start", "end", "globalTid", "textId")
COLLECTIVE_COLUMNS = (*OTHER_COLUMNS, "commHandle", "rootRank", "size", "recvSize", "requestHandle")
COMMUNICATOR_COLUMNS = (
    *("rank", "timestamp", "commHandle", "parentHandle", "localRank", "size", "groupRoot", "groupRootUid", "members"),
)

Row = Sequence[object]


def tid(rank: int, thread: int = 0) -> int:
    return 1 << 56 | (100 + rank) << 24 | (100 + rank + 1000 * thread)


def text(name: str) -> int:
    return NAMES.index(name)


def message(
    name: str,
    begin: int,
    end: int | None,
    rank: int,
    partner: int | None,
    tag: int | None = 5,
    size: int | None = 8,
    request: int | None = None,
    communicator: int | None = WORLD,
    thread: int = 0,
) -> Row:
    return begin, end, tid(rank, thread), text(name), communicator, tag, partner, size, request


def wait(name: str, begin: int, end: int, rank: int, request: int | None, thread: int = 0) -> Row:
    return begin, end, tid(rank, thread), text(name), request


def world(ranks: Sequence[int], size: int = 2, handle: int = WORLD) -> list[Row]:
    return [(rank, 3, handle, 0, rank, size, None, None, None) for rank in ranks]


def report(
    path: Path,
    messages: Sequence[Row] = (),
    waits: Sequence[Row] = (),
    others: Sequence[Row] = (),
    collectives: Sequence[Row] = (),
    communicators: Sequence[Row] | None = None,
    ranks: Sequence[int] = (0, 1),
    utc: int = UTC,
) -> Path:
    """A report in which MPI was initialised before 10 and finalised from 9000 on."""
    frame = [(1, 2, tid(rank), text("MPI_Init")) for rank in ranks]
    frame += [(9000, 9001, tid(rank), text("MPI_Finalize")) for rank in ranks]
    tables = {
        "MPI_RANKS": (("globalTid", "rank"), [(tid(rank), rank) for rank in ranks]),
        "MPI_P2P_EVENTS": (P2P_COLUMNS, messages),
        "MPI_START_WAIT_EVENTS": (WAIT_COLUMNS, waits),
        "MPI_OTHER_EVENTS": (OTHER_COLUMNS, [*frame, *others]),
        "MPI_COLLECTIVES_EVENTS": (COLLECTIVE_COLUMNS, collectives),
        "MPI_COMMUNICATORS": (COMMUNICATOR_COLUMNS, world(ranks) if communicators is None else communicators),
    }
    return export(path, NAMES, tables, utc=utc)


def lines(trace: Trace) -> list[tuple[int, int, int, int, int, int]]:
    """(row and time of the send, row and time of the receive, bytes, tag), with times of the report of `report`."""
    columns = ["send_row", "send_logical", "receive_row", "receive_logical", "size", "tag"]
    in_trace = trace.communications[columns].itertuples(index=False, name=None)
    return sorted((a, send + 1, b, receive + 1, size, tag) for a, send, b, receive, size, tag in in_trace)


def calls(trace: Trace) -> list[tuple[int, int, int, str]]:
    """(row, begin, end, name) of calls between MPI_Init and MPI_Finalize."""
    in_trace = pair_intervals(trace, *range(P2P, P2P + 5))
    names = [trace.values[t][v] for t, v in zip(in_trace["type"], in_trace["value"], strict=True)]
    all_calls = zip(in_trace["row"], in_trace["begin"] + 1, in_trace["end"] + 1, names, strict=True)
    return sorted(call for call in all_calls if call[3] not in ("MPI_Init", "MPI_Finalize"))


def count_messages(summary: TranslationResult) -> tuple[int, dict[str, int]]:
    """Messages that were read, and those dropped."""
    messages = get_account(summary, "mpi_messages")
    return messages.read, messages.dropped


@pytest.mark.slow
def test_immediate_calls_complete_in_their_wait(tmp_path: Path) -> None:
    """The same handle is used by three requests of a process, and by another process. Rows need not be in order."""
    messages = [
        message("MPI_Isend", 100, 110, 0, 1, size=10, request=-7),
        message("MPI_Isend", 120, 130, 0, 1, size=20, request=-7),
        message("MPI_Irecv", 100, 110, 1, 0, size=99, request=-7),
        message("MPI_Irecv", 200, 210, 1, 0, size=99, request=-7),
        message("MPI_Isend", 400, 410, 1, 0, size=30, tag=6, request=-7),
        message("MPI_Recv", 300, 500, 0, 1, size=99, tag=6),
    ]
    waits = [
        wait("MPI_Wait", 140, 150, 0, -7),
        wait("MPI_Wait", 160, 170, 0, -7),
        wait("MPI_Wait", 150, 180, 1, -7),
        wait("MPI_Test", 250, 260, 1, -7),
        wait("MPI_Wait", 420, 430, 1, -7),
    ]
    path = report(tmp_path / "r.sqlite", messages[::-1], waits[::-1])
    trace, summary = translate_reports([path], tmp_path / "t.prv", "mpi")
    assert lines(trace) == [(0, 100, 1, 180, 10, 5), (0, 120, 1, 260, 20, 5), (1, 400, 0, 500, 30, 6)]
    assert count_messages(summary) == (3, {})


@pytest.mark.slow
def test_a_receive_ends_on_the_thread_that_waits(tmp_path: Path) -> None:
    messages = [message("MPI_Send", 100, 110, 0, 1), message("MPI_Irecv", 100, 110, 1, 0, request=4)]
    waits = [wait("MPI_Wait", 120, 150, 1, 4, thread=1)]
    trace, _ = translate_reports([report(tmp_path / "r.sqlite", messages, waits)], tmp_path / "t.prv", "mpi")
    assert trace.threads == [1, 2]
    assert lines(trace) == [(0, 100, 2, 150, 8, 5)]


@pytest.mark.slow
def test_persistent_requests(tmp_path: Path) -> None:
    """Each start sends or receives once; a persistent collective and a request from before the capture do neither."""
    messages = [
        message("MPI_Send_init", 20, 21, 0, 1, size=10, request=1),
        message("MPI_Recv_init", 20, 21, 1, 0, size=99, request=2),
        message("MPI_Recv_init", 30, 31, 1, 0, size=99, request=3, tag=6),
        message("MPI_Send", 400, 410, 0, 1, size=30, tag=6),
        message("MPI_Isend", 650, 660, 0, 1, tag=8, request=9),
    ]
    waits = [
        wait("MPI_Start", 100, 101, 0, 1),
        wait("MPI_Wait", 102, 103, 0, 1),
        wait("MPI_Start", 200, 201, 0, 1),
        wait("MPI_Wait", 202, 203, 0, 1),
        wait("MPI_Startall", 110, 112, 1, 2),
        wait("MPI_Startall", 110, 112, 1, 3),
        wait("MPI_Wait", 120, 130, 1, 2),
        wait("MPI_Start", 140, 141, 1, 2),
        wait("MPI_Waitall", 220, 460, 1, 2),
        wait("MPI_Waitall", 220, 460, 1, 3),
        wait("MPI_Start", 500, 501, 1, 77),
        wait("MPI_Start", 600, 601, 1, 88),
        wait("MPI_Start", 700, 701, 0, 9),
    ]
    collectives = [(590, 591, tid(1), text("MPI_Ibcast"), WORLD, 0, 8, 8, 88)]
    path = report(tmp_path / "r.sqlite", messages, waits, collectives=collectives)
    trace, summary = translate_reports([path], tmp_path / "t.prv", "mpi")
    assert lines(trace) == [(0, 100, 1, 130, 10, 5), (0, 200, 1, 460, 10, 5), (0, 400, 1, 460, 30, 6)]
    assert count_messages(summary) == (
        6,
        {"its request was made before the capture": 2, "sent, and no receive was recorded": 1},
    )
    assert get_account(summary, "mpi").dropped == {MERGED: 2}


@pytest.mark.slow
def test_a_receive_whose_end_is_not_recorded(tmp_path: Path) -> None:
    """The wait is of a later request with the same handle."""
    messages = [
        message("MPI_Send", 100, 110, 0, 1, size=10),
        message("MPI_Send", 120, 130, 0, 1, size=20),
        message("MPI_Irecv", 100, 110, 1, 0, request=4),
        message("MPI_Irecv", 150, 160, 1, 0, request=4),
    ]
    path = report(tmp_path / "r.sqlite", messages, [wait("MPI_Wait", 170, 180, 1, 4)])
    trace, summary = translate_reports([path], tmp_path / "t.prv", "mpi")
    assert lines(trace) == [(0, 120, 1, 180, 20, 5)]
    assert count_messages(summary) == (2, {"sent, and the end of its receive was not recorded": 1})


@pytest.mark.slow
def test_sendrecv_is_one_call(tmp_path: Path) -> None:
    """Of two rows the send and then the receive, or of one that is both."""
    messages = [
        message("MPI_Sendrecv", 100, 100, 0, 1, tag=1, size=10),
        message("MPI_Sendrecv", 100, 150, 0, 1, tag=2, size=20),
        message("MPI_Sendrecv", 90, 160, 1, 0, tag=1, size=10),
        message("MPI_Sendrecv", 90, 90, 1, 0, tag=2, size=20),
        message("MPI_Sendrecv", 200, 220, 0, 1, tag=3, size=30),
        message("MPI_Sendrecv", 200, 230, 1, 0, tag=3, size=30),
    ]
    trace, summary = translate_reports([report(tmp_path / "r.sqlite", messages)], tmp_path / "t.prv", "mpi")
    assert calls(trace) == [
        (0, 100, 150, "MPI_Sendrecv"),
        (0, 200, 220, "MPI_Sendrecv"),
        (1, 90, 160, "MPI_Sendrecv"),
        (1, 200, 230, "MPI_Sendrecv"),
    ]
    assert lines(trace) == [
        (0, 100, 1, 160, 10, 1),
        (0, 200, 1, 230, 30, 3),
        (1, 90, 0, 150, 20, 2),
        (1, 200, 0, 220, 30, 3),
    ]
    assert get_account(summary, "mpi").dropped == {MERGED: 2}
    begin = trace.events[(trace.events["row"] == 0) & (trace.events["time"] == 99)]
    assert dict(zip(begin["type"], begin["value"], strict=True)) == {
        **{P2P: 41, PARTNER: 2, TAG: 1, BYTES: 10, COMMUNICATOR: 1},
        **{63000410: 2, 63000414: 10},  # it moves data at once, and rank 1 waited 10 ns for it
        **{SOURCE: 2, SOURCE_TAG: 2, SOURCE_BYTES: 20},
    }


@pytest.mark.slow
def test_rows_that_are_not_sound_are_counted(tmp_path: Path) -> None:
    """And since one may be a message, unequal numbers of sends and receives in such captures stay unmatched."""
    messages = [
        message("MPI_Send", 100, 110, 0, 1),
        message("MPI_Send", 120, 130, 0, 1),
        message("MPI_Recv", 100, None, 1, 0),
        message("MPI_Recv", 150, 140, 1, 0),
        message("MPI_Recv", 0, 0, 1, 0),
        message("MPI_Recv", 160, 170, 1, 0),
        (100, 110, None, text("MPI_Recv"), WORLD, 5, 0, 8, None),
        message("MPI_Recv", 200, 300, 0, 1),
        message("MPI_Recv", 250, 350, 0, 1),
    ]
    trace, summary = translate_reports([report(tmp_path / "r.sqlite", messages)], tmp_path / "t.prv", "mpi")
    assert get_account(summary, "mpi").dropped == {
        "no start or end": 1,
        "ends before it starts": 1,
        "no time (start and end are 0)": 1,
        "no thread": 1,
        "partly overlaps another call on its thread": 1,
    }
    assert [call[:3] for call in calls(trace)] == [(0, 100, 110), (0, 120, 130), (0, 200, 300), (1, 160, 170)]
    assert lines(trace) == []
    assert count_messages(summary) == (
        5,
        {
            "unequal numbers of sends and receives in a capture that began after MPI_Init": 3,
            "received, and no send was recorded": 2,
        },
    )


@pytest.mark.slow
def test_communicators_by_root_count_and_size(tmp_path: Path) -> None:
    """A handle means another communicator after it was freed; processes call the same communicator differently."""
    communicators = [
        *world((0, 1, 2), size=3),
        (0, 20, 900, WORLD, 0, 2, 0, 0, None),
        (2, 21, 901, WORLD, 1, 2, 0, 0, None),
        (1, 20, 900, WORLD, 0, 1, 1, 0, "1"),
        (0, 200, 900, WORLD, 1, 2, 1, 1, None),
        (1, 201, 900, WORLD, 0, 2, 1, 1, None),
        (0, 300, 902, WORLD, None, None, None, None, None),
        (1, 301, 903, WORLD, None, None, None, None, None),
        (2, 302, 904, WORLD, None, None, None, None, None),
        (0, 310, 905, 900, None, None, None, None, None),
        (1, 311, 906, 900, None, None, None, None, None),
    ]
    messages = [
        message("MPI_Send", 100, 110, 0, 1, communicator=900, size=1),
        message("MPI_Recv", 100, 120, 2, 0, communicator=901),
        message("MPI_Send", 220, 230, 0, 0, communicator=900, size=2),
        message("MPI_Recv", 220, 240, 1, 1, communicator=900),
        message("MPI_Send", 320, 330, 0, 1, communicator=902, size=3),
        message("MPI_Send", 340, 350, 0, 1, communicator=WORLD, size=4),
        message("MPI_Send", 360, 370, 0, 0, communicator=905, size=5),
        message("MPI_Recv", 320, 380, 1, 0, communicator=WORLD),
        message("MPI_Recv", 400, 410, 1, 0, communicator=903),
        message("MPI_Recv", 420, 430, 1, 1, communicator=906),
    ]
    path = report(tmp_path / "r.sqlite", messages, communicators=communicators, ranks=(0, 1, 2))
    trace, summary = translate_reports([path], tmp_path / "t.prv", "mpi")
    assert lines(trace) == [
        (0, 100, 2, 120, 1, 5),
        (0, 220, 1, 240, 2, 5),
        (0, 320, 1, 410, 3, 5),
        (0, 340, 1, 380, 4, 5),
        (0, 360, 1, 430, 5, 5),
    ]
    assert count_messages(summary) == (5, {})
    assert trace.communicators == [
        "c:1:1:3:1:2:3",
        "c:1:2:2:1:3",
        "c:1:3:3:1:2:3",
        "c:1:4:1:2",
        "c:1:5:2:2:1",
        "c:1:6:2:2:1",
    ]
    labels = trace.values[COMMUNICATOR]
    assert labels == {
        1: "MPI_COMM_WORLD",
        2: "communicator 2: ranks 0 2",
        3: "communicator 3: copy of MPI_COMM_WORLD",
        5: "communicator 5: ranks 1 0",
        6: "communicator 6: copy of communicator 5",
    }
    shown = trace.events[trace.events["type"] == COMMUNICATOR].sort_values(["row", "time"])["value"].tolist()
    assert shown == [2, 5, 3, 1, 6, 5, 1, 3, 6, 2]
    partners = trace.events[trace.events["type"] == PARTNER].sort_values(["row", "time"])["value"].tolist()
    assert partners == [3, 2, 2, 2, 2, 1, 1, 1, 1, 1]


@pytest.mark.slow
def test_reports_without_communicators(tmp_path: Path) -> None:
    """Calls are there, but whom they mean is unknown."""
    messages = [message("MPI_Send", 100, 110, 0, 1), message("MPI_Recv", 100, 120, 1, 0)]
    path = report(tmp_path / "r.sqlite", messages, communicators=())
    trace, summary = translate_reports([path], tmp_path / "t.prv", "mpi")
    assert len(calls(trace)) == 2 and lines(trace) == [] and trace.communicators == []
    assert count_messages(summary) == (2, {"its communicator is not recorded": 2})
    assert trace.values[COMMUNICATOR] == {1: "unknown communicator"}
    assert trace.values[PARTNER] == {3: "unknown rank"}


@pytest.mark.slow
def test_members_that_one_rank_tells(tmp_path: Path) -> None:
    """Where reports of other members are missing, and only if the list fits what the rank says of itself."""
    ranks = (0,)
    communicators = [
        *world(ranks, size=4),
        (0, 20, 900, WORLD, 1, 2, 3, 0, "3,0"),
        (0, 30, 901, WORLD, 1, 2, 2, 0, "0,2"),
    ]
    messages = [
        message("MPI_Send", 100, 110, 0, 0, communicator=900),
        message("MPI_Send", 120, 130, 0, 0, communicator=901),
    ]
    path = report(tmp_path / "r.sqlite", messages, communicators=communicators, ranks=ranks)
    trace, _ = translate_reports([path], tmp_path / "t.prv", "mpi")
    shown = trace.events[trace.events["type"] == PARTNER]["value"].tolist()
    assert [trace.values[PARTNER][value] for value in shown] == ["rank 3", "unknown rank"]
    assert trace.values[COMMUNICATOR][3] == "communicator 3: ranks 3 0"
    assert trace.values[COMMUNICATOR][2] == "communicator 2: ranks ? 0"


@pytest.mark.slow
def test_constants_of_mpich_and_open_mpi(tmp_path: Path) -> None:
    """-1 is any source for Open MPI and no process for MPICH, -2 the other way round."""
    for handle, any_source, nobody in ((WORLD, -1, -2), (0x44000000, -2, -1)):
        messages = [
            message("MPI_Send", 100, 110, 0, 1, communicator=handle),
            message("MPI_Send", 120, 130, 0, nobody, communicator=handle),
            message("MPI_Recv", 100, 120, 1, any_source, communicator=handle, tag=None),
            message("MPI_Recv", 130, 140, 1, nobody, communicator=handle),
        ]
        folder = tmp_path / str(handle)
        folder.mkdir()
        path = report(folder / "r.sqlite", messages, communicators=world((0, 1), handle=handle))
        trace, summary = translate_reports([path], folder / "t.prv", "mpi")
        assert lines(trace) == [(0, 100, 1, 120, 8, 5)]
        assert count_messages(summary) == (3, {"to or from MPI_PROC_NULL": 2})
        assert trace.values[PARTNER] == {2: "rank 1", 4: "no process", 5: "any source"}


@pytest.mark.slow
def test_mrecv_may_have_taken_anything(tmp_path: Path) -> None:
    """A probe found its message, which is not recorded. The receive before it is certain, the one after it is not."""
    messages = [
        *(message("MPI_Send", begin, begin + 5, 0, 1, size=begin) for begin in (100, 110, 120)),
        message("MPI_Recv", 100, 130, 1, 0),
        message("MPI_Mrecv", 140, 150, 1, None, None, communicator=None),
        message("MPI_Recv", 160, 170, 1, 0),
    ]
    trace, summary = translate_reports([report(tmp_path / "r.sqlite", messages)], tmp_path / "t.prv", "mpi")
    assert lines(trace) == [(0, 100, 1, 130, 100, 5)]
    assert count_messages(summary) == (
        5,
        {"its partner is not recorded": 1, "may have been taken by a receive with a wildcard": 3},
    )


@pytest.mark.slow
def test_reports_on_clocks_of_their_own(tmp_path: Path) -> None:
    """One began 1000 ns after the other, so that its times are smaller; handles of the world differ."""
    messages = ([message("MPI_Send", 5000, 5010, 0, 1)], [message("MPI_Recv", 4005, 4020, 1, 0, communicator=55)])
    reports = [
        report(tmp_path / "0.sqlite", messages[0], communicators=world([0]), ranks=[0]),
        report(tmp_path / "1.sqlite", messages[1], communicators=world([1], handle=55), ranks=[1], utc=UTC + 1000),
    ]
    trace, summary = translate_reports(reports, tmp_path / "t.prv", "mpi")
    assert lines(trace) == [(0, 5000, 1, 5020, 8, 5)]
    assert count_messages(summary) == (1, {})
    assert trace.communicators == ["c:1:1:2:1:2"]


@pytest.mark.slow
def test_two_processes_of_one_rank_are_no_partners(tmp_path: Path) -> None:
    """Reports of two jobs: who is meant by rank 1 is not known."""
    reports = [
        report(tmp_path / "0.sqlite", [message("MPI_Send", 100, 110, 0, 1)], communicators=world([0]), ranks=[0]),
        report(tmp_path / "1.sqlite", [message("MPI_Recv", 100, 110, 1, 0)], communicators=world([1]), ranks=[1]),
        report(tmp_path / "2.sqlite", [message("MPI_Recv", 100, 115, 1, 0)], communicators=world([1]), ranks=[1]),
    ]
    trace, summary = translate_reports(reports, tmp_path / "t.prv", "mpi")
    assert lines(trace) == []
    assert count_messages(summary) == (
        3,
        {"its partner is a rank without a report": 1, "received, and no send was recorded": 2},
    )


def test_calls_without_a_table_entry_or_a_name(tmp_path: Path) -> None:
    others = [(100, 110, tid(0), text("MPIX_New_call")), (120, 130, tid(0), None), (140, 140, tid(0), 12345)]
    trace, _ = translate_reports([report(tmp_path / "r.sqlite", others=others)], tmp_path / "t.prv", "mpi")
    in_trace = pair_intervals(trace, OTHER)
    shown = {
        (v, trace.values[OTHER][v], e - b)
        for v, b, e in zip(in_trace["value"], in_trace["begin"], in_trace["end"], strict=True)
    }
    assert shown >= {(2001, "(no name)", 10), (2002, "MPIX_New_call", 10), (2003, "name 12345", 0)}


@pytest.mark.slow
def test_tables_and_columns_that_are_missing(tmp_path: Path) -> None:
    """Exports leave out empty tables, and other versions have other columns."""
    columns = ("start", "end", "globalTid", "textId")
    rows = [(100, 110, tid(0), text("MPI_Send")), (120, 130, tid(0), text("MPI_Recv"))]
    path = export(tmp_path / "r.sqlite", NAMES, {"MPI_P2P_EVENTS": (columns, rows)})
    trace, summary = translate_reports([path], tmp_path / "t.prv", "mpi")
    in_trace = pair_intervals(trace, P2P)
    assert [(v, b, e) for v, b, e in zip(in_trace["value"], in_trace["begin"], in_trace["end"], strict=True)] == [
        (1, 0, 10),
        (2, 20, 30),
    ]
    assert count_messages(summary) == (2, {"its partner is not recorded": 2})
    assert set(trace.types) - {NCCL_KERNEL} == {P2P}  # every .pcf declares the type of NCCL's kernels


@pytest.mark.slow
def test_reports_without_mpi(tmp_path: Path) -> None:
    trace, summary = translate_reports([export(tmp_path / "r.sqlite", NAMES, {})], tmp_path / "t.prv", "mpi")
    assert [(source.name, source.read) for source in summary.sources if source.name.startswith("mpi")] == [("mpi", 0)]
    assert trace.communicators == []


NVTX_COLUMNS = ("start", "end", "eventType", "globalTid", "text", "textId", "domainId")


def nvtx_rows(rank: int = 0) -> list[Row]:
    thread = tid(rank)
    return [
        (5, None, 75, thread, "MPI", None, 1),
        (6, None, 75, thread, None, text("my range"), 2),
        (100, 110, 59, thread, None, text("MPI_Barrier"), 1),
        (120, 130, 59, thread, "MPI_Bcast", text("my range"), 1),
        (140, 150, 59, thread, None, text("my range"), 1),
        (160, 170, 59, thread, None, text("MPI_Barrier"), 2),
        (180, 190, 59, thread, None, text("MPI_Barrier"), 0),
        (200, 190, 59, thread, None, text("MPI_Barrier"), 1),
        (0, 0, 34, thread, None, text("MPI_Barrier"), 1),
    ]


@pytest.mark.slow
def test_ranges_of_the_domain_mpi_are_calls(tmp_path: Path) -> None:
    """Only those that are named as calls are, and only in that domain; they are no NVTX ranges then."""
    path = export(tmp_path / "r.sqlite", NAMES, {"NVTX_EVENTS": (NVTX_COLUMNS, nvtx_rows())})
    trace, summary = translate_reports([path], tmp_path / "t.prv", "mpi,nvtx")
    in_trace = pair_intervals(trace, COLLECTIVE)
    names = [trace.values[COLLECTIVE][value] for value in in_trace["value"]]
    assert list(zip(names, in_trace["end"] - in_trace["begin"], strict=True)) == [
        ("MPI_Barrier", 10),
        ("MPI_Bcast", 10),
    ]
    mpi, nvtx = get_account(summary, "mpi"), get_account(summary, "nvtx")
    assert (mpi.read, mpi.dropped) == (3, {"ends before it starts": 1})
    assert nvtx.read == 4


@pytest.mark.slow
def test_ranges_of_that_domain_beside_tables_of_calls(tmp_path: Path) -> None:
    """They are the program's own."""
    tables = {
        "NVTX_EVENTS": (NVTX_COLUMNS, nvtx_rows()),
        "MPI_OTHER_EVENTS": (OTHER_COLUMNS, [(300, 310, tid(0), text("MPI_Init"))]),
    }
    path = export(tmp_path / "r.sqlite", NAMES, tables)
    _, summary = translate_reports([path], tmp_path / "t.prv", "mpi,nvtx")
    assert get_account(summary, "mpi").read == 1
    assert get_account(summary, "nvtx").read == 7


def test_calls_that_are_all_unsound(tmp_path: Path) -> None:
    path = export(tmp_path / "a.sqlite", NAMES, {"MPI_OTHER_EVENTS": (OTHER_COLUMNS, [(9, 1, tid(0), text("MPI"))])})
    _, summary = translate_reports([path], tmp_path / "a.prv", "mpi")
    assert get_account(summary, "mpi").dropped == {"ends before it starts": 1}


@pytest.mark.slow
def test_sizes_that_no_communicator_has(tmp_path: Path) -> None:
    """Nobody counts the ranks of a damaged one."""
    rows = [(0, 3, WORLD, 0, 0, 2**62, None, None, "9" * 5000), (1, 3, WORLD, 0, 2**40, 2, None, None, None)]
    send = message("MPI_Send", 20, 30, 0, 1)
    trace, _ = translate_reports([report(tmp_path / "a.sqlite", [send], communicators=rows)], tmp_path / "a.prv", "mpi")
    assert trace.communicators == ["c:1:1:2:1:2"]


@pytest.mark.slow
def test_messages_of_calls_that_are_not_shown(tmp_path: Path) -> None:
    """A receive that crosses another call and lasts longer than the trace is a line that ends with it."""
    messages = [
        message("MPI_Send", 20, 30, 0, 1),
        message("MPI_Send", 8900, 8950, 1, None),
        message("MPI_Recv", 8920, 10**6, 1, 0),
    ]
    trace, summary = translate_reports([report(tmp_path / "a.sqlite", messages)], tmp_path / "a.prv", "mpi")
    assert get_account(summary, "mpi").dropped == {"partly overlaps another call on its thread": 1}
    assert [line[3] for line in lines(trace)] == [9001]


@pytest.mark.slow
def test_sends_without_a_tag(tmp_path: Path) -> None:
    messages = [message("MPI_Send", 20, 30, 0, 1, tag=None), message("MPI_Send", 40, 50, 0, 1, tag=-1)]
    messages += [message("MPI_Recv", 20, 30, 1, 0), message("MPI_Recv", 40, 50, 1, 0, tag=-1)]
    trace, summary = translate_reports([report(tmp_path / "a.sqlite", messages)], tmp_path / "a.prv", "mpi")
    reasons = {"its tag is not recorded": 2, "received, and no send was recorded": 2}
    assert count_messages(summary) == (4, reasons) and lines(trace) == []
