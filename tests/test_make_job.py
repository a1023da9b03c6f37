"""The job that benchmarks/make_job.py makes of a few reports is one job, and has so many times their events."""

from __future__ import annotations

import importlib.util
import sqlite3
from contextlib import closing
from pathlib import Path
from types import ModuleType

import pytest

from nsys2prv_ng.translation.plan_trace import TranslationPlan
from nsys2prv_ng.translation.result import TranslationResult
from nsys2prv_ng.translation.translate import translate

MAKE_JOB = Path(__file__).parents[1] / "benchmarks/make_job.py"
COPIES = 3


def load_make_job() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_job", MAKE_JOB)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory, samples: Path) -> tuple[list[Path], list[Path]]:
    """(the samples, a job of three copies of them)."""
    given = sorted(samples.glob("ddp-2x2.rank*.sqlite"))
    return given, load_make_job().make_job(given, COPIES * len(given), tmp_path_factory.mktemp("job"))


def values(reports: list[Path], query: str) -> list[set[object]]:
    found = []
    for report in reports:
        with closing(sqlite3.connect(f"file:{report}?mode=ro", uri=True)) as database:
            found.append({value for (value,) in database.execute(query)})
    return found


@pytest.mark.all_sets
@pytest.mark.slow
def test_events_of_each_source_and_nodes_and_tasks_are_so_many_times(
    jobs: tuple[list[Path], list[Path]], tmp_path: Path
) -> None:
    # No collective connects the copies, so that waits between their nodes are not known as they are in the samples.
    plan = TranslationPlan(find_waits=False)
    one, many = (translate(job, tmp_path / f"{len(job)}.prv", plan) for job in jobs)

    def counts(summary: TranslationResult) -> list[int]:
        source_options = [(s.read, s.written, sum(s.dropped.values())) for s in summary.sources]
        of_trace = (summary.nodes, summary.tasks, summary.rows, summary.states, summary.events, summary.communications)
        return [count for source in source_options for count in source] + list(of_trace)

    assert one.tasks == 4 and one.nodes == 2
    assert [COPIES * count for count in counts(one)] == counts(many)


@pytest.mark.slow
def test_what_tells_reports_apart_differs(jobs: tuple[list[Path], list[Path]]) -> None:
    _, made = jobs
    processes = values(made, "SELECT DISTINCT globalTid >> 24 & 0xFFFFFF FROM CUPTI_ACTIVITY_KIND_RUNTIME")
    assert len(set.union(*processes)) == len(made)
    assert processes == values(made, "SELECT DISTINCT globalPid >> 24 & 0xFFFFFF FROM CUPTI_ACTIVITY_KIND_KERNEL")
    hosts = values(made, "SELECT value FROM TARGET_INFO_SYSTEM_ENV WHERE name = 'Hostname'")
    uuids = values(made, "SELECT uuid FROM TARGET_INFO_GPU")
    assert len(set.union(*hosts)) == 2 * COPIES
    assert hosts[0] == hosts[1] and uuids[0] == uuids[1] and not uuids[0] & uuids[4]
    ranks = values(made, "SELECT value FROM META_DATA_CAPTURE WHERE value LIKE 'RANK=%'")
    assert ranks == [{f'RANK="{rank}"'} for rank in range(len(made))]


def test_ranks_of_all_copies_are_in_one_communicator(jobs: tuple[list[Path], list[Path]]) -> None:
    given, made = jobs
    field = "SELECT DISTINCT json_extract(jsonText, '$.\"{}\"') FROM NVTX_EVENTS WHERE jsonText LIKE '%{}%'"
    communicators, peers = (field.format(name, name) for name in ("NCCL communicator ID", "Peer rank"))
    assert set.union(*values(made, communicators)) == set.union(*values(given, communicators))
    old = values(given, peers)
    assert any(old)
    assert values(made, peers) == [{peer + 4 * copy for peer in of} for copy in range(COPIES) for of in old]


def test_events_keep_their_times(jobs: tuple[list[Path], list[Path]]) -> None:
    given, made = jobs
    for query in ("SELECT start FROM CUPTI_ACTIVITY_KIND_KERNEL", 'SELECT "end" FROM OSRT_API'):
        assert values(made, query) == COPIES * values(given, query)


def test_first_part_ends_at_one_time_in_all_reports(tmp_path: Path, samples: Path) -> None:
    reports = sorted(samples.glob("ddp-2x2.rank*.sqlite"))
    parts = load_make_job().write_first_part(reports, tmp_path, 0.5, 3)

    def read(path: Path, query: str) -> list[tuple[int, ...]]:
        with closing(sqlite3.connect(path)) as database:
            return database.execute(query).fetchall()

    kernels = "SELECT utcEpochNs + start FROM CUPTI_ACTIVITY_KIND_KERNEL, TARGET_INFO_SESSION_START_TIME ORDER BY 1"
    times = [read(report, kernels) for report in reports]
    first, last = max(own[0][0] for own in times), min(own[-1][0] for own in times)
    end = first + int(0.5 * (last - first))
    for report, part, own in zip(reports, parts, times, strict=True):
        assert read(part, kernels) == [row for row in own if row[0] <= end] != own
        ((epoch,),) = read(report, "SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME")
        ranges = "SELECT start, end, text FROM NVTX_EVENTS WHERE start IS NOT NULL ORDER BY rowid"
        wanted = [(b, e if e is None or e <= end - epoch else None, t) for b, e, t in read(report, ranges)]
        assert read(part, ranges) == [row for row in wanted if row[0] <= end - epoch]
        if read(report, "SELECT 1 FROM sqlite_master WHERE name = 'GPU_METRICS'"):
            metrics = "SELECT timestamp, metricId, typeId, value FROM GPU_METRICS ORDER BY rowid"
            known = sorted({row[0] for row in read(report, metrics) if row[0] <= end - epoch})
            assert read(part, metrics) == [row for row in read(report, metrics) if row[0] in set(known[2::3])]
