"""Events of a report are loaded once while a thread asks for them, and anew when they have changed."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from nsys2prv_ng import source_names
from nsys2prv_ng.job import opened_events
from nsys2prv_ng.job.open_job import Job, open_job
from nsys2prv_ng.job.open_reports import ReadOptions
from nsys2prv_ng.job.opened_events import ABSENT, load_opened_events, load_source_records
from nsys2prv_ng.job.spill import change_records
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.runtime.progress import Progress
from nsys2prv_ng.sources.shared.result import Result


@pytest.fixture
def report(samples: Path) -> Path:
    return samples / "single-graph.sqlite"


@pytest.fixture
def job(report: Path, tmp_path: Path) -> Iterator[Job]:
    with open_job([report], tmp_path, ReadOptions(), Progress()) as opened:
        yield opened


def test_what_was_loaded_last_is_kept(job: Job) -> None:
    (report,) = job.reports
    events = load_opened_events(report, source_names.KERNELS, job.store)
    assert load_opened_events(report, source_names.KERNELS, job.store) is events
    assert load_opened_events(report, source_names.CUDA_API, job.store) is not events
    assert events.get_values(types.KERNEL) is events.get_values(types.KERNEL)


def test_changed_records_are_loaded_anew(job: Job, report: Path) -> None:
    (opened,) = job.reports
    before = load_opened_events(opened, source_names.KERNELS, job.store)

    def drop_half(result: Result, _: None) -> None:
        result.records = [records.take(np.arange(len(records) // 2)) for records in result.records]

    change_records([(opened.results[source_names.KERNELS], opened.clock, None)], drop_half, job.store, job.engine)
    after = load_opened_events(opened, source_names.KERNELS, job.store)
    assert 0 < after.begin.size < before.begin.size


def test_reports_with_the_same_events_are_told_apart(samples: Path, tmp_path: Path) -> None:
    reports = sorted(samples.glob("ddp-2x2.rank*.sqlite"))
    with open_job(reports, tmp_path, ReadOptions(), Progress()) as job:
        for _ in range(2):
            for each in job.reports:
                events = load_opened_events(each, source_names.KERNELS, job.store)
                lines = (events.get_values(types.KERNEL) != ABSENT) | (events.get_values(types.NCCL_KERNEL) != ABSENT)
                with closing(sqlite3.connect(each.path)) as database:
                    (count,) = database.execute("SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL").fetchone()
                assert int(lines.sum()) == count


def test_a_thread_keeps_no_more_than_the_limit(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    (report,) = job.reports
    sources = (source_names.KERNELS, source_names.CUDA_API, source_names.NVTX)
    sizes = [sum(c.nbytes for c in load_source_records(report, name, job.store).columns) for name in sources]
    monkeypatch.setattr(opened_events, "_MOST_KEPT", max(sizes[1], sizes[2]))
    loaded = [load_source_records(report, name, job.store) for name in sources]
    assert load_source_records(report, sources[2], job.store) is loaded[2]
    assert load_source_records(report, sources[0], job.store) is not loaded[0]
