"""Waits that were put into copies of real reports: the right rank, to the nanosecond."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.make_job import make_job
from nsys2prv_ng.analysis.waits import rules
from nsys2prv_ng.analysis.waits.clocks import get_uncertainty
from nsys2prv_ng.analysis.waits.waits import Waits, find_waits
from nsys2prv_ng.clock.alignment_table import NOTHING_CHECKED
from nsys2prv_ng.job.open_job import Job
from tests.analysis.waits.test_waits import locate, opened, ranks_of
from tests.analysis.waits.waits_truth import Kernel, find_truth
from tests.conftest import Unpacked
from tests.tiers import cases

DELAY = 7_654_321
MS = 10**6
HOST = "one-node"
_KERNELS = """SELECT k.start, k."end", r.start FROM CUPTI_ACTIVITY_KIND_KERNEL k
    JOIN StringIds s ON s.id = k.shortName JOIN CUPTI_ACTIVITY_KIND_RUNTIME r ON r.correlationId = k.correlationId
    WHERE s.value LIKE ? ORDER BY k.start"""


def read_kernels(report: Path, name: str) -> list[tuple[int, int, int]]:
    """Return begin, end and launch of kernels."""
    with closing(sqlite3.connect(report)) as database:
        return database.execute(_KERNELS, (name,)).fetchall()


def copy_to_one_node(reports: Sequence[Path], folder: Path) -> list[Path]:
    copies = [Path(shutil.copy(report, folder)) for report in reports]
    for copy in copies:
        with closing(sqlite3.connect(copy)) as database, database:
            database.execute("UPDATE TARGET_INFO_SYSTEM_ENV SET value = ? WHERE name = 'Hostname'", (HOST,))
    return copies


def delay(report: Path, time: int, by: int = DELAY) -> None:
    """Move all that begins or ends at this time or later: what is under way then takes longer."""
    with closing(sqlite3.connect(report)) as database, database:
        for (table,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            for column in [row[1] for row in database.execute(f'PRAGMA table_info("{table}")')]:
                if column in ("start", "end", "timestamp") and table.isupper():
                    database.execute(f'UPDATE "{table}" SET "{column}" = "{column}" + {by} WHERE "{column}" >= {time}')


def find_late(kernels: list[tuple[int, int, int]], compute: list[tuple[int, int, int]], cause: str) -> tuple[int, int]:
    """Return a collective in the middle, and a time before it at which only it can be made late."""
    for number in range(len(kernels) // 3, len(kernels)):
        begin, _, launch = kernels[number]
        before = kernels[number - 1][1]
        if cause == "host" and launch > before:
            return number, launch
        ends = [end for _, end, _ in compute if before < end <= begin]
        if cause == "kernel" and ends:
            return number, max(ends)
    raise AssertionError("no such collective")


@pytest.mark.slow
@pytest.mark.parametrize(("rank", "cause"), cases([(0, "kernel"), (3, "host"), (0, "host"), (3, "kernel")], push=2))
def test_a_rank_that_is_late(samples: Path, tmp_path: Path, rank: int, cause: str) -> None:
    reports = copy_to_one_node([samples / f"ddp-2x2.rank{r}.sqlite" for r in range(4)], tmp_path)
    before = read_waits(reports, tmp_path)
    kernels = [read_kernels(report, "ncclDevKernel_%") for report in reports]
    compute = sorted(set(read_kernels(reports[rank], "%")) - set(kernels[rank]))
    number, time = find_late(kernels[rank], compute, cause)
    for other in range(4):
        delay(reports[other], time if other == rank else kernels[other][number][1])
    after = read_waits(reports, tmp_path)
    late = before[rank][number][0] + DELAY
    for other in range(4):
        for k, (old, new) in enumerate(zip(before[other], after[other], strict=True)):
            begin, end, until, culprit = old
            if k != number:
                assert (new[2] - new[0], new[3]) == (until - begin, culprit)
            elif other == rank:
                assert (new[0], new[2], new[3]) == (late, late, -1)
            else:
                assert new == (begin, end + DELAY, late, rank)


def read_waits(reports: Sequence[Path], folder: Path) -> list[list[tuple[int, int, int, int]]]:
    """Return begin, end, until (from the first kernel on) and the rank waited for, for each rank's kernels of NCCL."""
    with opened(list(reports), folder) as job:
        waits = find_waits(job)
        blamed = ranks_of(job, waits.culprit)
        rank = ranks_of(job, waits.row)
        rows = []
        for number in range(4):
            at = np.flatnonzero(rank == number)
            at = at[np.argsort(waits.begin[at], kind="stable")]
            columns = (waits.begin[at], waits.end[at], waits.until[at], blamed[at])
            rows.append(list(zip(*(column.tolist() for column in columns), strict=True)))
    return rows


@pytest.mark.slow
def test_kernels_of_graphs(shared_reports: Path, unpacked: Unpacked, tmp_path: Path) -> None:
    """Four ranks with graphs traced by node: rank r begins r x 100 ns before rank 0 in each kernel of a graph."""
    (source, *_) = locate(shared_reports, unpacked, "tpgraph-1x4")
    reports = make_job([source], 4, tmp_path)
    utc = read_utc(source)
    for rank, report in enumerate(reports):
        with closing(sqlite3.connect(report)) as database, database:
            database.execute("UPDATE TARGET_INFO_SESSION_START_TIME SET utcEpochNs = ?", (utc,))
            database.execute("UPDATE TARGET_INFO_SYSTEM_ENV SET value = ? WHERE name = 'Hostname'", (HOST,))
            database.execute(
                """UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET start = start - ? WHERE graphNodeId IS NOT NULL
                AND shortName IN (SELECT id FROM StringIds WHERE value LIKE 'nccl%')""",
                (100 * rank,),
            )
    with opened(reports, tmp_path) as job:
        waits = find_waits(job)
        ranks, blamed = ranks_of(job, waits.row), ranks_of(job, waits.culprit)
    assert waits.row.size == 4 * (32 + 512) and (waits.verdict == rules.SPLIT).all()
    in_graph = waits.wait > 0
    assert np.bincount(ranks[in_graph]).tolist() == [0, 512, 512, 512]
    assert (waits.wait[in_graph] == 100 * ranks[in_graph]).all() and set(blamed[in_graph].tolist()) == {0}
    assert (waits.margin[in_graph] == 100).all()


@pytest.mark.slow
def test_a_rank_with_other_graphs_matches_nothing(shared_reports: Path, unpacked: Unpacked, tmp_path: Path) -> None:
    """Only rank 0's graphs were traced by node: its kernels in them are counted, and not split."""
    reports = locate(shared_reports, unpacked, "tpgraph-1x4")
    with opened(reports, tmp_path) as job:
        waits = find_waits(job)
        rank = ranks_of(job, waits.row)
    assert count(waits) == {rules.SPLIT: 4 * 32, rules.NOT_MATCHED: 512}
    assert set(rank[waits.verdict == rules.NOT_MATCHED].tolist()) == {0}


def count(waits: Waits) -> dict[int, int]:
    verdicts, numbers = np.unique(waits.verdict, return_counts=True)
    return dict(zip(verdicts.tolist(), numbers.tolist(), strict=True))


def test_a_rank_without_a_report(samples: Path, tmp_path: Path) -> None:
    """What the fourth rank did is not known: nothing is split."""
    reports = copy_to_one_node([samples / f"ddp-2x2.rank{r}.sqlite" for r in range(3)], tmp_path)
    with opened(reports, tmp_path) as job:
        waits = find_waits(job)
    assert set(count(waits)) <= {rules.MEMBER_MISSING, rules.NOT_MATCHED}
    assert (waits.wait == 0).all() and (waits.culprit == rules.NOBODY).all()


@pytest.mark.slow
def test_exports_without_payload(shared_reports: Path, unpacked: Unpacked, tmp_path: Path) -> None:
    """All-reduces of both stages agree in order and name, and are of two communicators: one on each node."""
    reports = locate(shared_reports, unpacked, "ex3a-pp2-plain")
    kernels = [read_kernels(report, "ncclDevKernel_AllReduce%") for report in reports]
    expected = []
    for rank, own in enumerate(kernels):
        other = kernels[rank ^ 1]
        shift = read_utc(reports[rank ^ 1]) - read_utc(reports[rank])
        for (begin, end, _), (other_begin, _, _) in zip(own, other, strict=True):
            wait = max(0, min(end, other_begin + shift) - begin)
            expected.append((rank, end - begin, wait, rank ^ 1 if wait else -1))
    messages = sum(len(read_kernels(report, "ncclDevKernel_SendRecv%")) for report in reports)
    with opened(reports, tmp_path) as job:
        waits = find_waits(job)
        at = waits.verdict == rules.SPLIT
        columns = (ranks_of(job, waits.row), waits.end - waits.begin, waits.wait, ranks_of(job, waits.culprit))
        got = list(zip(*(column[at].tolist() for column in columns), strict=True))
    assert count(waits) == {rules.SPLIT: 1536, rules.NOT_MATCHED: messages}
    assert sorted(got) == sorted(expected)


def read_utc(report: Path) -> int:
    with closing(sqlite3.connect(report)) as database:
        return int(database.execute("SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME").fetchone()[0])


@pytest.mark.slow
def test_payload_that_is_dropped_on_one_node(shared_reports: Path, unpacked: Unpacked, tmp_path: Path) -> None:
    """One communicator, as causality shows: kernels are split by their order as they are with payload."""
    reports = locate(shared_reports, unpacked, "ex3a-pp1")
    copies = [Path(shutil.copy(report, tmp_path)) for report in reports]
    for copy in copies:
        with closing(sqlite3.connect(copy)) as database, database:
            database.execute("UPDATE NVTX_EVENTS SET jsonText = NULL, jsonTextId = NULL, binaryData = NULL")
    with_payload, without = read_waits(reports, tmp_path), read_waits(copies, tmp_path)
    assert with_payload == without


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kernels"), [("h100_2gpu_1s", 0), ("mfu_2gpu_before", 66)])
def test_public_reports(shared_reports: Path, unpacked: Unpacked, tmp_path: Path, name: str, kernels: int) -> None:
    """Without payload, groups of sends and receives match nothing; each kernel is counted once."""
    report = unpacked(shared_reports / f"public/{name}.sqlite")
    with opened([report], tmp_path) as job:
        waits = find_waits(job)
    assert count(waits) == ({rules.NOT_MATCHED: kernels} if kernels else {})


@pytest.mark.slow
@pytest.mark.parametrize("size", cases([1_000_000, 20_000_000], push=1))
def test_a_clock_that_jumps(shared_reports: Path, unpacked: Unpacked, tmp_path: Path, size: int) -> None:
    """A node's clock jumps before the last fifth of a run: no fit follows it, but the uncertainty includes it.

    No kernel waits for the wrong rank then, as some do by the bounds of the fit.
    """
    sources = locate(shared_reports, unpacked, "ex2b-manual")
    truth = find_truth(sources)
    reports = [Path(shutil.copy(source, tmp_path)) for source in sources]
    times = [kernel.begin for kernel in truth[2]]
    jump = times[len(times) * 80 // 100] - 1
    for report in reports[2:]:
        delay(report, jump - read_utc(report), size)
    with opened(reports, tmp_path) as job:
        left = job.alignment.after
        apart = float(get_uncertainty(job)[:2].sum())
        assert max(left.worst, size) <= apart < 1.2 * size + MS
        assert apart > 10 * max(node.bound or 0 for node in job.alignment.nodes)
        assert count_wrongly_blamed(job, truth) == 0
        by_fit = replace(job, alignment=replace(job.alignment, after=NOTHING_CHECKED))
        assert size > MS or count_wrongly_blamed(by_fit, truth) > 0


def count_wrongly_blamed(job: Job, truth: Sequence[Sequence[Kernel]]) -> int:
    """Count the kernels that wait for another rank than they do."""
    waits = find_waits(job)
    rank, blamed = ranks_of(job, waits.row), ranks_of(job, waits.culprit)
    wrong = 0
    for number, kernels in enumerate(truth):
        at = np.flatnonzero(rank == number)
        at = at[np.argsort(waits.begin[at], kind="stable")]
        wrong += sum(blamed[i] not in (-1, kernel.last) for i, kernel in zip(at.tolist(), kernels, strict=True))
    return wrong
