"""Events of a report are loaded once while a thread asks for them, and anew when they have changed."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from nsys2prv_ng import source_names
from nsys2prv_ng.job.open_job import Job, open_job
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.reading import opened_events
from nsys2prv_ng.reading.open_reports import ReadOptions
from nsys2prv_ng.reading.opened_events import (
    ABSENT,
    OpenedEvents,
    keep_opened_events,
    load_opened_events,
    load_source_records,
)
from nsys2prv_ng.reading.read_reports import change_records
from nsys2prv_ng.records.columns import Records
from nsys2prv_ng.runtime.progress import Progress
from nsys2prv_ng.sources.shared.source import Result


@pytest.fixture
def job(samples: Path, tmp_path: Path) -> Iterator[Job]:
    with open_job([samples / "single-graph.sqlite"], tmp_path, ReadOptions(), Progress()) as opened:
        yield opened


def test_what_is_loaded_is_kept_within_the_context_and_the_thread(job: Job) -> None:
    (report,) = job.reports

    def load(source: str = source_names.KERNELS) -> OpenedEvents:
        return load_opened_events(report, source, job.store)

    assert load() is not load()
    with keep_opened_events():
        events = load()
        assert load() is events and load(source_names.CUDA_API) is not events
        assert events.get_values(types.KERNEL) is events.get_values(types.KERNEL)
        with ThreadPoolExecutor(1) as other:
            assert other.submit(load).result() is not events
        with keep_opened_events():
            assert load() is not events
        assert load() is events
    assert load() is not events


@keep_opened_events()
def test_changed_records_are_loaded_anew(job: Job) -> None:
    (opened,) = job.reports
    before = load_opened_events(opened, source_names.KERNELS, job.store)

    def drop_half(result: Result, _: None) -> None:
        result.records = [records.take(np.arange(len(records) // 2)) for records in result.records]

    change_records([(opened.results[source_names.KERNELS], opened.clock, None)], drop_half, job.store, job.engine)
    after = load_opened_events(opened, source_names.KERNELS, job.store)
    assert 0 < after.begin.size < before.begin.size


@keep_opened_events()
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


@keep_opened_events()
def test_a_thread_keeps_no_more_than_the_limit(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    (report,) = job.reports

    def load(source: str) -> Records:
        return load_source_records(report, source, job.store)

    kernels, calls, ranges = (
        sum(column.nbytes for column in load(source).columns)
        for source in (source_names.KERNELS, source_names.CUDA_API, source_names.NVTX)
    )
    assert ranges < kernels < calls
    monkeypatch.setattr(opened_events, "_MOST_KEPT", kernels)
    first = load(source_names.KERNELS)
    assert load(source_names.CUDA_API) is not load(source_names.CUDA_API)  # larger than the limit, and takes no room
    assert load(source_names.KERNELS) is first
    assert load(source_names.NVTX) is load(source_names.NVTX)
    assert load(source_names.KERNELS) is not first
