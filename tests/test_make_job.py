"""The job that benchmarks/make_job.py makes of a few reports is one job, and has so many times their events."""

from __future__ import annotations

import importlib.util
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from nsys2prv_ng.translation.plan_trace import TranslationPlan
from nsys2prv_ng.translation.result import TranslationResult
from nsys2prv_ng.translation.translate import translate

MAKE_JOB = Path(__file__).parents[1] / "benchmarks/make_job.py"
COPIES = 3


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory, samples: Path) -> tuple[list[Path], list[Path]]:
    """(the samples, a job of three copies of them)."""
    spec = importlib.util.spec_from_file_location("make_job", MAKE_JOB)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    given = sorted(samples.glob("ddp-2x2.rank*.sqlite"))
    return given, module.make_job(given, COPIES * len(given), tmp_path_factory.mktemp("job"))


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
