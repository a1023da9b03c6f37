"""Traces that end with the work, where planted threads wait in calls longer, and reports that cannot be of one job."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

import nsys2prv_ng
from nsys2prv_ng.errors import UsageError
from nsys2prv_ng.paraver.checker.trace import check_trace
from nsys2prv_ng.sources.shared.reasons import AFTER_ALL_ELSE
from tests.sources.host.host_reports import (
    UTC,
    collect_in_report_time,
    get_account,
    make_tid,
    translate_sources,
    write_small_report,
)
from tests.trace_reader import read_trace

OS_RUNTIME = 66400000
BLOCKED = 9
COLUMNS = "start end eventClass globalTid nameId"
CUDA_COLUMNS = "start end eventClass globalTid correlationId nameId returnValue callchainId"
MAIN, IDLE, CALLING = make_tid(7), make_tid(7, 8), make_tid(7, 9)
NAMES = ["poll", "read", "cudaLaunchKernel_v7000"]


def test_calls_of_idle_threads_end_with_all_else(tmp_path: Path) -> None:
    calls = [
        (100_000, 1_000_000, 27, MAIN, 0),
        (200_000, 3_000_000, 27, IDLE, 0),  # cut, with what is in it
        (900_000, 2_000_000, 27, IDLE, 1),
        (1_500_000, 1_700_000, 27, IDLE, 1),  # begins too late
        (300_000, 500_000, 27, IDLE, 1),
        (3_100_000, 3_200_000, 27, IDLE, 0),
    ]
    report = write_small_report(tmp_path / "r.sqlite", {("OSRT_API", COLUMNS): calls}, NAMES)
    result, trace = translate_sources([report], tmp_path, "os_runtime")
    account = get_account(result, "os_runtime")
    assert (account.read, account.cut_at_end, account.dropped) == (6, 2, {AFTER_ALL_ELSE: 2})
    assert trace.duration == result.duration_ns == 900_000
    assert "os_runtime: 2 of idle threads cut" in result.text()
    got = collect_in_report_time(trace, result, UTC, OS_RUNTIME)
    assert sorted(got[["row", "begin", "end", "name"]].itertuples(index=False, name=None)) == [
        (0, 100_000, 1_000_000, "poll"),
        (1, 200_000, 1_000_000, "poll"),
        (1, 300_000, 500_000, "read"),
        (1, 900_000, 1_000_000, "read"),
    ]
    assert trace.states[trace.states["state"] == BLOCKED]["end"].tolist() == [900_000, 900_000]


@pytest.mark.parametrize("end", [900_001, 100_000_000])
def test_states_end_with_the_trace_in_a_window_that_reaches_beyond_it(tmp_path: Path, end: int) -> None:
    calls = [(100_000, 1_000_000, 27, MAIN, 0), (200_000, 3_000_000, 27, IDLE, 0)]
    report = write_small_report(tmp_path / "r.sqlite", {("OSRT_API", COLUMNS): calls}, NAMES)
    nsys2prv_ng.translate(report, tmp_path / "window.prv", time=(50_000, end))
    assert check_trace(tmp_path / "window.prv").problems == []
    states = read_trace(tmp_path / "window.prv").states
    assert states[states["state"] == BLOCKED][["begin", "end"]].to_numpy().tolist() == [[1, 850_001], [50_001, 850_001]]


def test_a_thread_that_did_more_is_not_idle(tmp_path: Path) -> None:
    calls = [(100_000, 1_000_000, 27, MAIN, 0), (200_000, 3_000_000, 27, CALLING, 0)]
    cuda = [(250_000, 260_000, 0, CALLING, 1, 2, 0, None)]
    tables = {("OSRT_API", COLUMNS): calls, ("CUPTI_ACTIVITY_KIND_RUNTIME", CUDA_COLUMNS): cuda}
    report = write_small_report(tmp_path / "r.sqlite", tables, NAMES)
    result, trace = translate_sources([report], tmp_path, "os_runtime")
    assert (trace.duration, get_account(result, "os_runtime").cut_at_end) == (2_900_000, 0)


def test_a_trace_that_is_hardly_longer_stays_whole(tmp_path: Path) -> None:
    for end, duration in ((1_090_000, 990_000), (1_090_001, 900_000)):  # a tenth of 900 us longer, and more
        calls = [(100_000, 1_000_000, 27, MAIN, 0), (200_000, end, 27, IDLE, 0)]
        folder = tmp_path / str(end)
        folder.mkdir()
        report = write_small_report(folder / "r.sqlite", {("OSRT_API", COLUMNS): calls}, NAMES)
        _, trace = translate_sources([report], folder, "os_runtime")
        assert trace.duration == duration


def test_idle_threads_alone_are_shown_as_they_are(tmp_path: Path) -> None:
    calls = [(200_000, 3_000_000, 27, IDLE, 0)]
    report = write_small_report(tmp_path / "r.sqlite", {("OSRT_API", COLUMNS): calls}, NAMES)
    _, trace = translate_sources([report], tmp_path, "os_runtime")
    assert trace.duration == 2_800_000


SECOND = 10**9
translate = partial(nsys2prv_ng.translate, jobs=1, sources=["os_runtime"], derived=False)
"""In this process, and what the reports hold: all else takes longer than reading them."""


def write_report(
    folder: Path,
    name: str,
    process: int,
    begin: int,
    *,
    rank: int | None = None,
    mpi_rank: int | None = None,
    environment: str = "",
) -> Path:
    """Write a report of one call of 1 s that begins `begin` ns after UTC, of a rank of the launcher and of MPI."""
    tables = {("OSRT_API", COLUMNS): [(0, SECOND, 27, make_tid(process), 0)]}
    if mpi_rank is not None:
        tables["MPI_RANKS", "globalTid rank"] = [(make_tid(process), mpi_rank)]
    first, *others = [f"OMPI_COMM_WORLD_RANK={rank}"] if rank is not None else environment.split(";")
    report = write_small_report(folder / f"{name}.sqlite", tables, ["poll"], environment=first)
    with closing(sqlite3.connect(report)) as database, database:
        rows = [("PROCESS_0:ENVIRONMENT_VARIABLE", variable) for variable in others]
        database.executemany("INSERT INTO META_DATA_CAPTURE VALUES (?, ?)", rows)
        database.execute("UPDATE TARGET_INFO_SESSION_START_TIME SET utcEpochNs = ?", (UTC + begin,))
    return report


@pytest.mark.parametrize(("begin", "is_refused"), [(5 * SECOND, False), (11 * SECOND, False), (12 * SECOND, True)])
def test_reports_without_a_common_time(begin: int, is_refused: bool, tmp_path: Path) -> None:
    """Ten seconds are allowed for clocks that nothing aligns."""
    reports = [write_report(tmp_path, "early", 7, 0, rank=0), write_report(tmp_path, "late", 8, begin, rank=1)]
    if is_refused:
        with pytest.raises(UsageError, match=r"late\.sqlite begins 11 s after the end of all reports before it"):
            translate(reports, tmp_path / "trace.prv")
        assert not list(tmp_path.glob("trace*"))
    assert translate(reports, tmp_path / "trace.prv", several_jobs=True).duration_ns == begin + SECOND


def test_a_report_between_two_others_joins_them(tmp_path: Path) -> None:
    reports = [write_report(tmp_path, f"r{n}", 7 + n, 11 * n * SECOND, rank=n) for n in range(3)]
    assert translate(reports, tmp_path / "trace.prv").duration_ns == 23 * SECOND
    with pytest.raises(UsageError, match=r"r2\.sqlite begins 21 s after"):
        translate([reports[0], reports[2]], tmp_path / "other.prv")


def test_capture_ranges_of_one_run_share_a_process(tmp_path: Path) -> None:
    reports = [write_report(tmp_path, f"r{n}", 7, 100 * n * SECOND, rank=0) for n in range(2)]
    assert translate(reports, tmp_path / "trace.prv").tasks == 1


def test_two_processes_of_one_rank(tmp_path: Path) -> None:
    reports = [write_report(tmp_path, "one", 7, 0, rank=3), write_report(tmp_path, "two", 8, 0, rank=3)]
    with pytest.raises(
        UsageError, match=r"2 processes are rank 3 by OMPI_COMM_WORLD_RANK \(one\.sqlite, two\.sqlite\)"
    ):
        translate(reports, tmp_path / "trace.prv")
    result = translate(reports, tmp_path / "trace.prv", several_jobs=True)
    assert result.tasks == 2
    assert [warning for warning in result.warnings if "rank 3" in warning]


@pytest.mark.parametrize(
    ("environments", "names"),
    [
        # A batch script exports RANK once for all, or once for each node.
        ([f"RANK=0;WORLD_SIZE=1;SLURM_PROCID={n};SLURM_NTASKS=4" for n in (2, 0, 3, 1)], [2, 0, 3, 1]),
        ([f"RANK={n // 2};SLURM_PROCID={n}" for n in range(4)], [0, 1, 2, 3]),
        ([f"RANK=0;SLURM_PROCID=0;PMIX_RANK={n}" for n in range(4)], [0, 1, 2, 3]),
        # Some processes have no RANK.
        (["RANK=0;SLURM_PROCID=3", "SLURM_PROCID=0", "SLURM_PROCID=1", "SLURM_PROCID=2"], [3, 0, 1, 2]),
        # Both tell all processes apart: RANK is what the program knows.
        ([f"RANK={3 - n};SLURM_PROCID={n}" for n in range(4)], [3, 2, 1, 0]),
    ],
)
def test_the_variable_by_which_processes_differ(environments: list[str], names: list[int], tmp_path: Path) -> None:
    reports = [
        write_report(tmp_path, f"r{n}", 7 + n, 0, environment=environment) for n, environment in enumerate(environments)
    ]
    found = nsys2prv_ng.inspect(reports)
    assert {Path(report.file).name: report.ranks for report in found.reports} == {
        f"r{n}.sqlite": [rank] for n, rank in enumerate(names)
    }
    assert not [warning for warning in found.warnings if "rank" in warning]
    assert translate(reports, tmp_path / "trace.prv").tasks == 4


def test_a_variable_that_is_the_same_everywhere(tmp_path: Path) -> None:
    reports = [write_report(tmp_path, f"r{n}", 7 + n, 0, environment="RANK=5;SLURM_PROCID=1") for n in range(4)]
    with pytest.raises(
        UsageError, match=r"4 processes are rank 5 by RANK \(r0\.sqlite, r1\.sqlite\): name the reports"
    ):
        translate(reports, tmp_path / "trace.prv")


def test_restarted_workers_in_one_report(tmp_path: Path) -> None:
    """Two generations of two ranks; an export of the time of one of them is a job."""
    workers = [(7, 0, 0), (8, 1, 0), (9, 0, 2 * SECOND), (10, 1, 2 * SECOND)]
    calls = [(begin, begin + SECOND, make_tid(process), 0) for process, _, begin in workers]
    tables = {
        ("MPI_OTHER_EVENTS", "start end globalTid textId"): calls,
        ("MPI_RANKS", "globalTid rank"): [(make_tid(process), rank) for process, rank, _ in workers],
    }
    report = write_small_report(tmp_path / "both.sqlite", tables, ["MPI_Init"], duration=4 * SECOND)
    own = partial(translate, sources=["mpi"])
    with pytest.raises(
        UsageError, match=r"2 processes are rank 0 in both\.sqlite: its workers were restarted, or it has"
    ):
        own([report], tmp_path / "trace.prv")
    result = own([report], tmp_path / "all.prv", several_jobs=True)
    assert [warning for warning in result.warnings if "rank 0: were the workers in this report restarted?" in warning]
    with closing(sqlite3.connect(report)) as database, database:
        database.execute(f"DELETE FROM MPI_OTHER_EVENTS WHERE start < {SECOND}")
    assert own([report], tmp_path / "late.prv").tasks == 2


def test_processes_that_mpi_does_not_know_of_each_other(tmp_path: Path) -> None:
    """Each is rank 0 of its own MPI, but the launcher numbered them: a job of which a warning is enough."""
    reports = [write_report(tmp_path, f"r{n}", 7 + n, 0, rank=n, mpi_rank=0) for n in range(3)]
    result = translate(reports, tmp_path / "trace.prv")
    assert result.tasks == 3
    assert [warning for warning in result.warnings if "3 processes say that they are rank 0" in warning]
    same = [write_report(tmp_path, f"s{n}", 7 + n, 0, rank=0, mpi_rank=0) for n in range(2)]
    with pytest.raises(UsageError, match="2 processes are rank 0"):
        translate(same, tmp_path / "other.prv")


def test_a_source_that_is_named_and_nowhere(tmp_path: Path) -> None:
    reports = [write_report(tmp_path, "one", 7, 0, rank=0), write_report(tmp_path, "two", 8, 0, rank=1)]
    with pytest.raises(UsageError, match="sources: the reports have no events of mpi, nvtx"):
        translate(reports, tmp_path / "trace.prv", sources=["nvtx", "os_runtime", "mpi"])
    assert not list(tmp_path.glob("trace*"))
    assert translate(reports, tmp_path / "trace.prv", sources=["os_runtime"]).tasks == 2
