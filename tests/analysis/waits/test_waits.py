"""Who waits for whom in real reports, compared with plain loops over their kernels."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
import pytest

from nsys2prv_ng.analysis.gpus.waiting import WAITING, sweep_gpu_waits
from nsys2prv_ng.analysis.waits import rules
from nsys2prv_ng.analysis.waits.clocks import get_uncertainty
from nsys2prv_ng.analysis.waits.waits import Waits, find_waits
from nsys2prv_ng.job.open_job import Job, open_job
from nsys2prv_ng.reading.open_reports import ReadOptions
from nsys2prv_ng.runtime.progress import Progress
from tests.analysis.waits.waits_truth import Kernel, find_truth, make_table
from tests.conftest import Unpacked
from tests.tiers import cases

ONE_NODE = ("ex1a-slow", "ex1a-fast", "ex3a-pp1")
TWO_NODES = ("ex2b-manual", "ex2b-overlap", "ex3a-pp2")


@contextmanager
def opened(reports: list[Path], folder: Path) -> Iterator[Job]:
    with open_job(reports, folder, ReadOptions(), Progress()) as job:
        yield job


def locate(shared_reports: Path, unpacked: Unpacked, name: str) -> list[Path]:
    return [unpacked(shared_reports / f"exercises/{name}.rank{rank}.sqlite") for rank in range(4)]


def ranks_of(job: Job, rows: np.ndarray) -> np.ndarray:
    """Return the rank of each row; -1 for no row."""
    of_task = np.array([-1 if rank is None else rank for rank in job.whole.ranks])
    return np.where(rows >= 0, of_task[job.whole.task_of_row[rows]], -1)


def sorted_by_rank(job: Job, waits: Waits) -> list[np.ndarray]:
    """Return indices of each rank's kernels in order of time."""
    rank = ranks_of(job, waits.row)
    order = np.argsort(waits.begin, kind="stable")
    return [order[rank[order] == number] for number in range(4)]


@pytest.mark.parametrize("name", cases(ONE_NODE, push=["ex1a-slow", "ex3a-pp1"], quick=["ex1a-slow"]))
def test_one_node_to_the_nanosecond(shared_reports: Path, unpacked: Unpacked, tmp_path: Path, name: str) -> None:
    reports = locate(shared_reports, unpacked, name)
    truth = find_truth(reports)
    with opened(reports, tmp_path) as job:
        waits = find_waits(job)
        base = job.alignment.utc_base
        assert (waits.verdict == rules.SPLIT).all() and not waits.is_mpi.any()
        blamed = ranks_of(job, waits.culprit)
        for kernels, at in zip(truth, sorted_by_rank(job, waits), strict=True):
            expected = [(k.begin - base, k.end - base, k.until - base, k.last) for k in kernels]
            columns = (waits.begin[at], waits.end[at], waits.until[at], blamed[at])
            assert list(zip(*(column.tolist() for column in columns), strict=True)) == expected
        idle = measure_waiting_exposed(job, waits)
    assert idle == [sum(k.waits_while_idle for k in kernels) for kernels in truth]
    check_readme(shared_reports, name, truth)


def measure_waiting_exposed(job: Job, waits: Waits) -> list[int]:
    """Return the time (ns) in which the GPU of each rank does nothing but wait."""
    total = [0] * 4
    for changes in sweep_gpu_waits(job, waits):
        for i in range(changes.row.size - 1):
            if changes.value[i] == WAITING and changes.row[i + 1] == changes.row[i]:
                rank = int(ranks_of(job, changes.row[i : i + 1])[0])
                total[rank] += int(changes.time[i + 1] - changes.time[i])
    return total


def check_readme(shared_reports: Path, name: str, truth: list[list[Kernel]]) -> None:
    """Compare the loops of this test with numbers that other loops made, where they are at hand."""
    readme = shared_reports / "README.md"
    if readme.exists():
        assert f"| {name} | {' - '.join(make_table(truth))} |" in readme.read_text()


@pytest.mark.slow
@pytest.mark.parametrize("name", cases(TWO_NODES, push=["ex3a-pp2"]))
def test_two_nodes_to_the_uncertainty(shared_reports: Path, unpacked: Unpacked, tmp_path: Path, name: str) -> None:
    """All reports have one clock, so that what the translator is off by is known; it says by how much it may be."""
    reports = locate(shared_reports, unpacked, name)
    truth = find_truth(reports)
    check_readme(shared_reports, name, truth)
    node_of_rank = np.array([0, 0, 1, 1])
    with opened(reports, tmp_path) as job:
        waits = find_waits(job)
        apart = float(get_uncertainty(job)[:2].sum())
        assert set(waits.verdict.tolist()) <= {rules.SPLIT, rules.BELOW_UNCERTAINTY}
        blamed = ranks_of(job, waits.culprit)
        for rank, (kernels, at) in enumerate(zip(truth, sorted_by_rank(job, waits), strict=True)):
            assert len(kernels) == at.size
            for i, kernel in zip(at.tolist(), kernels, strict=True):
                assert abs(int(waits.end[i] - waits.begin[i]) - (kernel.end - kernel.begin)) <= 1 + 1e-4 * kernel.wait
                same_node = kernel.last >= 0 and node_of_rank[kernel.last] == node_of_rank[rank]
                limit = 1 if same_node and waits.culprit[i] >= 0 else apart + 1
                assert abs(int(waits.until[i] - waits.begin[i]) - kernel.wait) <= limit
                if waits.culprit[i] >= 0:
                    assert blamed[i] == kernel.last
                if waits.verdict[i] == rules.BELOW_UNCERTAINTY:
                    assert waits.until[i] == waits.begin[i] and waits.culprit[i] == rules.NOBODY


def test_payloads_in_some_reports_only(samples: Path, tmp_path: Path) -> None:
    """All ranks reduce together, but the communicators of two are unknown: so is how many ranks each one has."""
    reports = [tmp_path / f"rank{rank}.sqlite" for rank in range(4)]
    for rank, report in enumerate(reports):
        shutil.copyfile(samples / f"ddp-2x2.rank{rank}.sqlite", report)
        if rank % 2:
            with closing(sqlite3.connect(report)) as database, database:
                database.execute("UPDATE NVTX_EVENTS SET jsonText = NULL")
    with opened(reports, tmp_path) as job:
        waits = find_waits(job)
        reduces = np.isin(waits.operation, np.arange(len(job.operations)))
        assert np.bincount(ranks_of(job, waits.row[reduces]), minlength=4).min() >= 120
        assert set(waits.verdict[reduces].tolist()) == {rules.MEMBER_MISSING}
    with opened([samples / f"ddp-2x2.rank{rank}.sqlite" for rank in range(4)], tmp_path) as job:
        assert rules.MEMBER_MISSING not in find_waits(job).verdict
