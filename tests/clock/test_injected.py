"""Alignment of real reports, which come from one physical clock, with known errors put into copies of them."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from nsys2prv_ng.sources.registry import select_sources
from nsys2prv_ng.translation.plan_trace import TranslationPlan
from nsys2prv_ng.translation.translate import translate
from tests.clock.injected import Aligned, Error, aligned, put_into
from tests.conftest import Unpacked
from tests.tiers import cases

pytestmark = pytest.mark.slow

MS, PPM = 10**6, 1e-6
MESSAGES = 2
"""Sends and receives between the nodes of the sets of two nodes: the programs end with a ring of messages."""
NOT_NEEDED = (
    *("GPU_METRICS", "OSRT_API", "CUDA_GPU_MEMORY_USAGE_EVENTS", "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"),
    *("CUPTI_ACTIVITY_KIND_CUDA_EVENT", "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET"),
)
"""Left out of large reports: millions of rows that would only take time."""


@pytest.fixture(scope="module")
def long_set(shared_reports: Path, unpacked: Unpacked, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Small copies, made once: of the operations those of NCCL, and the calls that launched them."""
    whole = [unpacked(shared_reports / f"bench/ddplong-2x2.rank{rank}.sqlite.xz") for rank in range(4)]
    copies = put_into(whole, [Error()] * 4, tmp_path_factory.mktemp("long"), without=NOT_NEEDED)
    for path in copies:
        with closing(sqlite3.connect(path, isolation_level=None)) as database:
            database.execute(
                """DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE shortName NOT IN
                (SELECT id FROM StringIds WHERE value LIKE 'nccl%')"""
            )
            database.execute(
                """DELETE FROM CUPTI_ACTIVITY_KIND_RUNTIME WHERE correlationId NOT IN
                (SELECT correlationId FROM CUPTI_ACTIVITY_KIND_KERNEL)"""
            )
            database.execute("VACUUM")
    return copies


@pytest.fixture(scope="module")
def short_set(samples: Path) -> list[Path]:
    return [samples / f"ddp-2x2.rank{rank}.sqlite" for rank in range(4)]


@pytest.fixture(scope="module")
def mpi_set(samples: Path) -> list[Path]:
    return [samples / f"mpi-4.rank{rank}.sqlite" for rank in range(4)]


def violations(result: Aligned) -> tuple[int, int, int]:
    clocks = result.summary.clocks
    assert clocks is not None
    return clocks.before.broken, clocks.after.broken, clocks.after.checked


# ---- 5.4 s of training on two nodes ----------------------------------------------------------------------------------


@pytest.mark.all_sets
@pytest.mark.slow
def test_two_nodes_with_offset_and_drift(long_set: list[Path], tmp_path: Path) -> None:
    wrong = Error(50 * MS, 20 * PPM)
    copies = put_into(long_set, [Error(), Error(), wrong, wrong], tmp_path)
    result = aligned(long_set, copies, tmp_path, source="kernels")
    assert result.worst_us < 5
    # 20 ppm too fast is corrected by -20 / (1 + 20e-6).
    assert sorted(result.drift_ppm, key=abs)[0] == 0
    assert abs(min(result.drift_ppm) + 20) < 1
    # Of the two messages between the nodes, the one that goes against the error arrives before it was sent.
    assert violations(result) == (1202 + 1, 0, 1202 + MESSAGES)
    plain = aligned(long_set, copies, tmp_path, source="kernels", align="utc")
    assert plain.worst_us > 50_000


@pytest.mark.all_sets
@pytest.mark.slow
def test_four_reports_as_four_clocks(long_set: list[Path], tmp_path: Path) -> None:
    errors = [
        Error(0, 0, "a"),
        Error(-20 * MS, 5 * PPM, "b"),
        Error(50 * MS, 20 * PPM, "c"),
        Error(3 * MS, -12 * PPM, "d"),
    ]
    copies = put_into(long_set, errors, tmp_path)
    result = aligned(long_set, copies, tmp_path, source="kernels")
    assert result.summary.nodes == 4
    assert result.worst_us < 20
    assert violations(result)[1] == 0
    clocks = result.summary.clocks
    assert clocks is not None
    of_node = {node.name: node for node in clocks.nodes}
    assert of_node["a"].reference == "a" and of_node["a"].correction.offset == 0
    for name, error in zip("bcd", errors[1:], strict=True):
        assert abs(of_node[name].numbers.drift_ppm + error.drift / PPM) < 1


@pytest.mark.all_sets
@pytest.mark.slow
def test_a_table_of_clocks_gives_the_same_trace(long_set: list[Path], tmp_path: Path) -> None:
    wrong = Error(50 * MS, 20 * PPM)
    copies = put_into(long_set, [Error(), Error(), wrong, wrong], tmp_path)
    table = tmp_path / "clocks.toml"
    first = aligned(long_set, copies, tmp_path, source="kernels", report=table)
    text = first.trace.path.read_bytes()
    again = aligned(long_set, copies, tmp_path, source="kernels", align=table)
    assert first.trace.path != again.trace.path
    assert again.trace.path.read_bytes() == text
    assert first.models == {"offset and drift"}


# ---- less than a second ----------------------------------------------------------------------------------------------


def test_a_short_window_claims_no_drift(short_set: list[Path], tmp_path: Path) -> None:
    wrong = Error(5 * MS, 10 * PPM)
    copies = put_into(short_set, [Error(), Error(), wrong, wrong], tmp_path)
    result = aligned(short_set, copies, tmp_path, source="kernels")
    assert result.worst_us < 30
    assert set(result.drift_ppm) == {0.0}
    assert result.models == {"offset"}
    before, after, checked = violations(result)
    assert before > 100 and (after, checked) == (0, 122 + MESSAGES)  # some ranks waited for more than 5 ms


@pytest.mark.parametrize("way", cases(["auto", "collectives"], push=1))
def test_nothing_injected(short_set: list[Path], tmp_path: Path, way: str) -> None:
    result = aligned(short_set, short_set, tmp_path, source="kernels", align=way)
    moves = [shown - true for shown, true in zip(result.shown, result.true, strict=True)]
    assert max(float(np.abs(move).max()) for move in moves) <= 15_000
    for one, other in (moves[:2], moves[2:]):
        assert set(np.unique(one)) == set(np.unique(other)) and np.unique(one).size == 1
    assert violations(result)[:2] == (0, 0)


@pytest.mark.all_sets
@pytest.mark.slow
@pytest.mark.parametrize("way", cases(["auto", "collectives"], push=1))
def test_nothing_injected_for_seconds(long_set: list[Path], tmp_path: Path, way: str) -> None:
    copies = put_into(long_set, [Error()] * 4, tmp_path)
    result = aligned(long_set, copies, tmp_path, source="kernels", align=way)
    assert result.worst_us < 15
    assert set(result.drift_ppm) == {0.0}


def test_alignment_does_not_need_the_source(short_set: list[Path], tmp_path: Path) -> None:
    """The trace has kernels only; NCCL's calls are read for the clocks all the same, and make no row."""
    wrong = Error(5 * MS)
    copies = put_into(short_set, [Error(), Error(), wrong, wrong], tmp_path)
    result = aligned(short_set, copies, tmp_path, source="kernels")
    plain = aligned(short_set, copies, tmp_path, source="kernels", align="utc")
    assert result.trace.names["THREAD"] == plain.trace.names["THREAD"]
    assert result.trace.types == plain.trace.types


def test_without_payloads_the_sequence_tells(short_set: list[Path], tmp_path: Path) -> None:
    wrong = Error(5 * MS)
    copies = put_into(short_set, [Error(), Error(), wrong, wrong], tmp_path, without=["NVTX_EVENTS"])
    result = aligned(short_set, copies, tmp_path, source="kernels")
    assert result.worst_us < 30
    assert violations(result)[2] == 0  # what is matched by its order alone proves no violation


# ---- MPI -------------------------------------------------------------------------------------------------------------

FOUR = [Error(0, 0, "a"), Error(1 * MS, 0, "b"), Error(-1 * MS, 0, "c"), Error(1 * MS, 0, "d")]


def test_mpi_ranks_as_four_hosts(mpi_set: list[Path], tmp_path: Path) -> None:
    copies = put_into(mpi_set, FOUR, tmp_path)
    result = aligned(mpi_set, copies, tmp_path, source="mpi")
    assert result.summary.nodes == 4
    assert result.worst_us < 5
    assert set(result.drift_ppm) == {0.0}
    before, after, checked = violations(result)
    assert before > 0 and after == 0
    # 24 of the world and 2 x 8 of its halves synchronise, 3 x 8 have a root; 80 messages.
    assert checked == 24 + 16 + 24 + 80


@pytest.mark.parametrize(("cut_start", "cut_end"), cases([(7, 0), (9, 5), (0, 9), (8, 8)], push=2))
def test_a_report_that_begins_later_or_ends_earlier(
    mpi_set: list[Path], tmp_path: Path, cut_start: int, cut_end: int
) -> None:
    copies = put_into(mpi_set, FOUR, tmp_path)
    truth = [*mpi_set[:2], tmp_path / "truth.sqlite", mpi_set[3]]
    truth[2].write_bytes(mpi_set[2].read_bytes())
    for path in (truth[2], copies[2]):
        with sqlite3.connect(path) as database:
            for count, order in ((cut_start, ""), (cut_end, "DESC")):
                database.execute(
                    f"""DELETE FROM MPI_COLLECTIVES_EVENTS WHERE rowid IN
                    (SELECT rowid FROM MPI_COLLECTIVES_EVENTS ORDER BY start {order} LIMIT {count})"""
                )
            database.execute("DELETE FROM MPI_P2P_EVENTS")
    result = aligned(truth, copies, tmp_path, source="mpi")
    assert result.worst_apart_us < 5
    assert violations(result)[1] == 0


def test_a_chain_of_communicators(mpi_set: list[Path], tmp_path: Path) -> None:
    """No two reports share the world: operations are left to ranks 0 and 1, 1 and 2, 2 and 3 in turn."""
    copies = put_into(mpi_set, FOUR, tmp_path)
    truth = put_into(mpi_set, [Error()] * 4, tmp_path / "truth")
    for rank, paths in enumerate(zip(copies, truth, strict=True)):
        for path in paths:
            with sqlite3.connect(path) as database:
                _leave_pairs(database, rank)
    result = aligned(truth, copies, tmp_path, source="mpi")
    assert result.worst_apart_us < 5
    assert result.models == {"offset"}
    assert violations(result)[1:] == (0, 24)


def _leave_pairs(database: sqlite3.Connection, rank: int) -> None:
    """Give every synchronising operation of the world to a communicator of two ranks, and delete all others."""
    (world,) = database.execute("SELECT commHandle FROM MPI_COMMUNICATORS WHERE size = 4").fetchone()
    rows = database.execute(
        """SELECT e.rowid FROM MPI_COLLECTIVES_EVENTS e JOIN StringIds s ON s.id = e.textId WHERE commHandle = ?
        AND s.value IN ('MPI_Allreduce', 'MPI_Barrier', 'MPI_Alltoall') ORDER BY e.start""",
        (world,),
    ).fetchall()
    for number, (rowid,) in enumerate(rows):
        pair = number % 3
        if rank in (pair, pair + 1):
            database.execute("UPDATE MPI_COLLECTIVES_EVENTS SET commHandle = ? WHERE rowid = ?", (-1 - pair, rowid))
    database.execute("DELETE FROM MPI_COLLECTIVES_EVENTS WHERE commHandle >= 0")
    database.execute("DELETE FROM MPI_P2P_EVENTS")
    for pair in range(3):
        if rank in (pair, pair + 1):
            database.execute(
                """INSERT INTO MPI_COMMUNICATORS (rank, timestamp, commHandle, parentHandle, localRank, size,
                groupRoot, groupRootUid) SELECT ?, timestamp, ?, commHandle, ?, 2, ?, 100
                FROM MPI_COMMUNICATORS WHERE size = 4""",
                (rank, -1 - pair, rank - pair, pair),
            )


def test_stragglers(mpi_set: list[Path], tmp_path: Path) -> None:
    """5 % of the collectives end milliseconds late on one of the ranks."""
    copies = put_into(mpi_set, FOUR, tmp_path)
    late = [4, 23, 42]
    for number, path in enumerate(copies):
        with sqlite3.connect(path) as database:
            rows = database.execute("SELECT rowid FROM MPI_COLLECTIVES_EVENTS ORDER BY start").fetchall()
            for i in late[number % 3 :: 3]:
                database.execute('UPDATE MPI_COLLECTIVES_EVENTS SET "end" = "end" + 3000000 WHERE rowid = ?', rows[i])
    summary = translate(copies, tmp_path / "late.prv", TranslationPlan(sources=select_sources("mpi")))
    assert summary.clocks is not None
    offset = {node.name: node.correction.offset for node in summary.clocks.nodes}
    for error in FOUR:
        assert error.host is not None
        assert abs(offset[error.host] - offset["a"] + error.offset) < 5_000


def test_a_name_that_begins_like_mpi_init(mpi_set: list[Path], tmp_path: Path) -> None:
    """MPI_Initialized, called by one rank long before MPI_Init, moves nothing."""
    copies = put_into(mpi_set, FOUR, tmp_path)
    plain = aligned(mpi_set, copies, tmp_path, source="mpi")
    with sqlite3.connect(copies[1]) as database:
        database.execute("INSERT INTO StringIds (id, value) VALUES (99999999, 'MPI_Initialized')")
        database.execute(
            """INSERT INTO MPI_OTHER_EVENTS (start, "end", globalTid, textId)
            SELECT start - 100000000, start - 99999000, globalTid, 99999999
            FROM MPI_OTHER_EVENTS ORDER BY start LIMIT 1"""
        )
    result = aligned(mpi_set, copies, tmp_path, source="mpi")
    assert result.worst_us == plain.worst_us < 5


def test_no_collectives_keep_utc(mpi_set: list[Path], tmp_path: Path) -> None:
    copies = put_into(mpi_set, FOUR, tmp_path, without=["MPI_COLLECTIVES_EVENTS"])
    summary = translate(copies, tmp_path / "none.prv", TranslationPlan(sources=select_sources("mpi")))
    (warning,) = [warning for warning in summary.warnings if "share no collective" in warning]
    assert sorted(warning.partition(" share")[0].split(", ")) == ["a", "b", "c", "d"]
    assert summary.clocks is not None
    assert {node.correction.offset for node in summary.clocks.nodes} == {0}


def test_one_collective_only(mpi_set: list[Path], tmp_path: Path) -> None:
    """Nothing can be held out: automatic alignment keeps UTC, and alignment that is asked for uses it."""
    copies = put_into(mpi_set, FOUR, tmp_path)
    truth = []
    for path, original in zip(copies, mpi_set, strict=True):
        truth.append(tmp_path / f"truth-{path.name}")
        truth[-1].write_bytes(original.read_bytes())
        for each in (path, truth[-1]):
            with sqlite3.connect(each) as database:
                database.execute(
                    """DELETE FROM MPI_COLLECTIVES_EVENTS WHERE rowid NOT IN (SELECT e.rowid FROM
                    MPI_COLLECTIVES_EVENTS e JOIN StringIds s ON s.id = e.textId WHERE s.value = 'MPI_Barrier'
                    ORDER BY e.start LIMIT 1)"""
                )
                database.execute("DELETE FROM MPI_P2P_EVENTS")
    kept = aligned(truth, copies, tmp_path, source="mpi")
    assert any("too few collectives" in warning for warning in kept.summary.warnings)
    assert abs(kept.worst_us - 1000) < 1e-6
    assert aligned(truth, copies, tmp_path, source="mpi", align="collectives").worst_us < 5


def test_communicator_ids_over_2_to_the_63(short_set: list[Path], tmp_path: Path) -> None:
    wrong = Error(5 * MS)
    copies = put_into(short_set, [Error(), Error(), wrong, wrong], tmp_path)
    for path in copies:
        with sqlite3.connect(path) as database:
            for rowid, text in database.execute(
                "SELECT rowid, jsonText FROM NVTX_EVENTS WHERE jsonText LIKE '%NCCL communicator ID%'"
            ).fetchall():
                _, _, tail = text.partition('"NCCL communicator ID":')
                digits = tail.lstrip(' "').split(",")[0].split("}")[0].rstrip('" ')
                replaced = text.replace(digits, str(2**63 + int(digits) % 2**62))
                database.execute("UPDATE NVTX_EVENTS SET jsonText = ? WHERE rowid = ?", (replaced, rowid))
    result = aligned(short_set, copies, tmp_path, source="kernels")
    assert result.worst_us < 30
    before, after, checked = violations(result)
    assert before > 100 and (after, checked) == (0, 122 + MESSAGES)


# ---- shifted exports -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("normalized", "shift"), cases([(False, 123_456_789_012), (True, -5_000_000_000), (True, 0)], push=2)
)
def test_exports_that_were_shifted_already(short_set: list[Path], tmp_path: Path, normalized: bool, shift: int) -> None:
    """What --ts-normalize and --ts-shift add to every time, as the exporter does, is not added again."""
    copies = put_into(short_set, [Error()] * 4, tmp_path)
    for path in copies[1:]:
        with sqlite3.connect(path) as database:
            (utc,) = database.execute("SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME").fetchone()
            added = shift + (utc if normalized else 0)
            for (table,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
                names = [row[1] for row in database.execute(f'PRAGMA table_info("{table}")')]
                times = [name for name in names if name in ("start", "end", "timestamp", "rawTimestamp")]
                if times:
                    sets = ", ".join(f'"{name}" = "{name}" + {added}' for name in times)
                    database.execute(f'UPDATE "{table}" SET {sets}')
            said = {"EXPORT_PARAM_TIME_NORMALIZE": str(normalized).lower(), "EXPORT_PARAM_TIME_SHIFT": str(shift)}
            for name, value in said.items():
                database.execute("UPDATE META_DATA_EXPORT SET value = ? WHERE name = ?", (value, name))
    result = aligned(short_set, copies, tmp_path, source="kernels", align="utc")
    assert result.worst_us == 0
