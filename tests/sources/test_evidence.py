"""What NCCL and MPI tell of the clocks, compared with plain SQL on the reports."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from nsys2prv_ng.operations.parts import ANY_SIZE, FROM_ROOT, LOOSE, OTHER, SYNCHRONISING, TO_ROOT, Evidence
from nsys2prv_ng.report.database import Database
from nsys2prv_ng.report.metadata import Strings, read_metadata
from nsys2prv_ng.sources.registry import SOURCES, select_sources
from nsys2prv_ng.sources.shared.report_reader import ReportReader
from nsys2prv_ng.sources.shared.source import Source
from nsys2prv_ng.sources.shared.source_options import SourceOptions

ROWS = list[tuple[object, ...]]
NCCL_KINDS = {
    "AllReduce": SYNCHRONISING,
    "AllGather": SYNCHRONISING,
    "ReduceScatter": SYNCHRONISING,
    "Broadcast": OTHER,
    "Reduce": OTHER,
}
"""No call in these reports tells a rank of its own, and so not who is the root."""
WITH_ROOT = {"MPI_Bcast": FROM_ROOT, "MPI_Gather": TO_ROOT, "MPI_Reduce": TO_ROOT}


def evidence(report: Path, source: str, chosen: tuple[Source, ...] = SOURCES) -> Evidence:
    database = Database(report)
    strings = Strings(database)
    metadata = read_metadata(database, strings)
    whole = ReportReader(database, metadata, strings, {s.name: s.tables for s in chosen}, SourceOptions())
    (one,) = select_sources(source)
    apart = whole.apart(one.name, one.tables)
    found = one.read(apart).evidence
    assert whole.places.all == [] and (apart.places.all or not found.collectives)
    database.close()
    return found


@pytest.mark.parametrize("rank", range(4))
def test_nccl_kernels_with_their_payload(samples: Path, rank: int) -> None:
    report = samples / f"ddp-2x2.rank{rank}.sqlite"
    found, others = evidence(report, "nccl").collectives
    expected: ROWS = []
    with sqlite3.connect(report) as database:
        messages = database.execute(
            """SELECT k.start, k."end" FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds s ON s.id = k.shortName
            WHERE s.value LIKE 'ncclDevKernel_SendRecv%'"""
        ).fetchall()
        for name, kind in NCCL_KINDS.items():
            kernels = database.execute(
                """SELECT k.start, k."end", r.start FROM CUPTI_ACTIVITY_KIND_KERNEL k
                JOIN StringIds s ON s.id = k.shortName JOIN CUPTI_ACTIVITY_KIND_RUNTIME r
                ON r.correlationId = k.correlationId WHERE s.value LIKE ? ESCAPE '!' ORDER BY r.start""",
                (f"ncclDevKernel_{name}!_%",),
            ).fetchall()
            calls = database.execute(
                """SELECT n.start, n."end", n.jsonText FROM NVTX_EVENTS n JOIN StringIds s ON s.id = n.textId
                WHERE s.value = ? ORDER BY n.start""",
                (f"nccl{name}",),
            ).fetchall()
            for (begin, end, launched), (call_begin, call_end, text) in zip(kernels, calls, strict=True):
                assert call_begin <= launched <= call_end
                payload = json.loads(text)
                communicator = f"nccl {int(payload['NCCL communicator ID']) % 2**64:016x}"
                size = int(payload["Message size [bytes]"])
                expected.append((begin, end, f"nccl{name}", communicator, size, kind))
    got = zip(
        found.begin.tolist(),
        found.end.tolist(),
        [found.operations[i] for i in found.operation],
        [found.communicators[i] for i in found.communicator],
        found.bytes.tolist(),
        found.kind.tolist(),
        strict=True,
    )
    assert sorted(got) == sorted(expected)
    assert len(expected) > 100 and len({row[2] for row in expected}) > 2
    assert found.has_communicator.all() and set(found.member.tolist()) == {0}
    assert sorted(zip(others.begin.tolist(), others.end.tolist(), strict=True)) == sorted(messages)
    assert set(others.kind.tolist()) == {LOOSE} and not others.has_communicator.any()


def test_nccl_without_calls(samples: Path, tmp_path: Path) -> None:
    report = tmp_path / "r.sqlite"
    report.write_bytes((samples / "ddp-2x2.rank0.sqlite").read_bytes())
    with sqlite3.connect(report) as database:
        database.execute("DROP TABLE NVTX_EVENTS")
        (count,) = database.execute(
            """SELECT COUNT(*) FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds s ON s.id = k.shortName
            WHERE s.value LIKE 'ncclDevKernel_AllReduce%' OR s.value LIKE 'ncclDevKernel_AllGather%'
            OR s.value LIKE 'ncclDevKernel_ReduceScatter%'"""
        ).fetchone()
        (every,) = database.execute(
            """SELECT COUNT(*) FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds s ON s.id = k.shortName
            WHERE s.value LIKE 'ncclDevKernel%'"""
        ).fetchone()
    found, others = evidence(report, "nccl").collectives
    assert found.begin.size == count > 100
    assert set(others.kind.tolist()) == {LOOSE} and others.begin.size == every - count > 0
    assert not found.has_communicator.any() and set(found.bytes.tolist()) == {ANY_SIZE}


def test_a_process_with_several_gpus_has_a_rank_on_each(shared_reports: Path) -> None:
    (found,) = evidence(shared_reports / "gpu/oneproc-4gpu.sqlite", "nccl").collectives
    assert sorted(set(found.member.tolist())) == [0, 1, 2, 3]
    per_rank = Counter(found.member.tolist())
    assert len(set(per_rank.values())) == 1


@pytest.mark.slow
@pytest.mark.parametrize("rank", range(4))
def test_mpi_collectives(samples: Path, rank: int) -> None:
    report = samples / f"mpi-4.rank{rank}.sqlite"
    (found,) = evidence(report, "mpi").collectives
    with sqlite3.connect(report) as database:
        rows = database.execute(
            """SELECT e.start, e."end", s.value, c.size, c.groupRoot, c.groupRootUid, c.localRank, e.size, e.rootRank
            FROM MPI_COLLECTIVES_EVENTS e JOIN StringIds s ON s.id = e.textId
            JOIN MPI_COMMUNICATORS c ON c.commHandle = e.commHandle WHERE s.value NOT LIKE 'MPI_File%'"""
        ).fetchall()
    expected = []
    for begin, end, name, size, root, uid, local, sent, of_root in rows:
        key = "mpi world" if root is None else f"mpi {root}:{uid}:{size}"
        agree = name in ("MPI_Allreduce", "MPI_Alltoall")
        kind = WITH_ROOT.get(name, SYNCHRONISING)
        expected.append((begin, end, name, key, sent if agree else ANY_SIZE, kind, of_root == local))
    got = zip(
        found.begin.tolist(),
        found.end.tolist(),
        [found.operations[i] for i in found.operation],
        [found.communicators[i] for i in found.communicator],
        found.bytes.tolist(),
        found.kind.tolist(),
        found.is_root.tolist(),
        strict=True,
    )
    assert sorted(got) == sorted(expected)
    assert len(expected) == 56


@pytest.mark.slow
def test_mpi_messages(samples: Path) -> None:
    """Every message of the four ranks, by what the rows of its two ends say."""
    said: Counter[tuple[object, ...]] = Counter()
    got: Counter[tuple[object, ...]] = Counter()
    for rank in range(4):
        report = samples / f"mpi-4.rank{rank}.sqlite"
        (found,) = evidence(report, "mpi").messages
        for channel, is_send in zip(found.channel.tolist(), found.is_send.tolist(), strict=True):
            got[found.channels[channel], is_send] += 1
        assert np.array_equal(found.is_send & (found.time != found.order), np.zeros(found.time.size, np.bool_))
        with sqlite3.connect(report) as database:
            for name, other, tag in database.execute(
                "SELECT s.value, e.remoteRank, e.tag FROM MPI_P2P_EVENTS e JOIN StringIds s ON s.id = e.textId"
            ):
                # Of the two rows of a Sendrecv the first, which has no length, is the send: as many of each.
                ways = {"MPI_Isend": [True], "MPI_Send": [True], "MPI_Irecv": [False], "MPI_Recv": [False]}.get(name)
                if ways is not None:
                    s, t = (rank, other) if ways[0] else (other, rank)
                    said[f"mpi world {s} > {t} tag {tag}", ways[0]] += 1
            rows = database.execute(
                """SELECT e.start = e."end", e.remoteRank, e.tag FROM MPI_P2P_EVENTS e
                JOIN StringIds s ON s.id = e.textId WHERE s.value = 'MPI_Sendrecv'"""
            ).fetchall()
            for is_send, other, tag in rows:
                s, t = (rank, other) if is_send else (other, rank)
                said[f"mpi world {s} > {t} tag {tag}", bool(is_send)] += 1
    assert got == said
    assert sum(count for (_, is_send), count in got.items() if is_send) == 80


def test_operations_on_no_data_wait_for_nothing(samples: Path, tmp_path: Path) -> None:
    report = tmp_path / "r.sqlite"
    report.write_bytes((samples / "mpi-4.rank0.sqlite").read_bytes())
    with sqlite3.connect(report) as database:
        database.execute("UPDATE MPI_COLLECTIVES_EVENTS SET size = 0, recvSize = 0 WHERE size IS NOT NULL")
    (found,) = evidence(report, "mpi").collectives
    barrier = np.array([found.operations[i] == "MPI_Barrier" for i in found.operation])
    assert set(found.kind[barrier].tolist()) == {SYNCHRONISING}
    assert set(found.kind[~barrier].tolist()) == {OTHER}


def test_a_receive_from_any_source_leaves_its_rank_out(samples: Path, tmp_path: Path) -> None:
    report = tmp_path / "r.sqlite"
    report.write_bytes((samples / "mpi-4.rank1.sqlite").read_bytes())
    with sqlite3.connect(report) as database:
        database.execute(
            """UPDATE MPI_P2P_EVENTS SET remoteRank = -1 WHERE rowid = (SELECT e.rowid FROM MPI_P2P_EVENTS e
            JOIN StringIds s ON s.id = e.textId WHERE s.value = 'MPI_Irecv' LIMIT 1)"""
        )
    (found,) = evidence(report, "mpi").messages
    assert found.is_send.all() and found.is_send.size > 0


def test_messages_of_a_capture_that_began_after_init(samples: Path, tmp_path: Path) -> None:
    report = tmp_path / "r.sqlite"
    report.write_bytes((samples / "mpi-4.rank1.sqlite").read_bytes())
    with sqlite3.connect(report) as database:
        database.execute("DELETE FROM MPI_OTHER_EVENTS")
    assert evidence(report, "mpi").messages == []
