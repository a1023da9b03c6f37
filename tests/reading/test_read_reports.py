"""What is observed of threads, where the calls of these are not chosen."""

from __future__ import annotations

from pathlib import Path

import pytest

from nsys2prv_ng.job.open_job import open_job
from nsys2prv_ng.reading.open_reports import ReadOptions
from nsys2prv_ng.runtime.limits import Resources
from nsys2prv_ng.runtime.progress import Progress
from nsys2prv_ng.sources.shared.source_options import SourceOptions
from tests.sources.small_reports import MAIN, WORKER, export, get_account, translate_reports
from tests.trace_reader import pair_intervals


@pytest.mark.parametrize("sources", ["scheduling", "scheduling,os_runtime"])
def test_threads_whose_calls_are_not_chosen_are_shown(tmp_path: Path, sources: str) -> None:
    """That a thread made calls does not depend on whether they are in the trace."""
    other = 1 << 48 | 99 << 24
    tables = {
        "SCHED_EVENTS": (
            ("start", "cpu", "isSchedIn", "globalTid"),
            [
                (10, 0, 1, MAIN),
                (20, 0, 0, MAIN),
                (30, 0, 1, WORKER),
                (40, 0, 0, WORKER),
                (50, 0, 1, other),
                (60, 0, 0, other),
            ],
        ),
        "CUPTI_ACTIVITY_KIND_RUNTIME": (("start", "end", "globalTid", "nameId", "correlationId"), [(1, 2, MAIN, 0, 1)]),
        "OSRT_API": (
            ("start", "end", "globalTid", "nameId", "eventClass"),
            [(5, 6, MAIN, 0, 27), (0, 0, other, 0, 31)],  # the other's is no call
        ),
    }
    report = export(tmp_path / "a.sqlite", ["call"], tables)
    trace, summary = translate_reports([report], tmp_path / "x.prv", sources, SourceOptions(osrt_min=0))
    assert len(pair_intervals(trace, 66700000)) == 1
    dropped = get_account(summary, "scheduling").dropped
    assert dropped == {"its thread made no traced call": 1, "its process made no traced call": 1}


def test_damage_of_what_is_not_chosen_does_not_matter(tmp_path: Path) -> None:
    tables = {
        "SCHED_EVENTS": (("start", "cpu", "isSchedIn", "globalTid"), [(10, 0, 1, MAIN), (20, 0, 0, MAIN)]),
        "CUPTI_ACTIVITY_KIND_RUNTIME": (("start", "globalTid"), [(1, "no number")]),
        "MPI_P2P_EVENTS": (("start", "globalTid"), [(1, MAIN)]),
    }
    trace, _ = translate_reports([export(tmp_path / "a.sqlite", ["call"], tables)], tmp_path / "x.prv", "scheduling")
    assert len(pair_intervals(trace, 66700000)) == 1


@pytest.mark.parametrize(("jobs", "calls"), [(1, 0), (2, 1)])
def test_this_process_does_something_while_others_read(tmp_path: Path, samples: Path, jobs: int, calls: int) -> None:
    done: list[bool] = []
    options = ReadOptions(resources=Resources(jobs=jobs))
    with open_job(
        sorted(samples.glob("mpi-4.rank[01].sqlite")), tmp_path, options, Progress(), lambda: done.append(True)
    ) as job:
        assert len(job.reports) == 2
    assert len(done) == calls
