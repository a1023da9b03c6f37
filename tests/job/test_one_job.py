"""Reports that cannot be of one job are refused, unless the user wants them."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from nsys2prv_ng import translate
from nsys2prv_ng.errors import UsageError
from tests.sources.host.host_reports import UTC, make_tid, write_small_report

COLUMNS = "start end eventClass globalTid nameId"
SECOND = 10**9


def write_report(folder: Path, name: str, process: int, begin: int, *, rank: int | None = None) -> Path:
    """Write a report of one call of 1 s that begins `begin` ns after UTC."""
    calls = [(0, SECOND, 27, make_tid(process), 0)]
    environment = "" if rank is None else f"OMPI_COMM_WORLD_RANK={rank}"
    report = write_small_report(
        folder / f"{name}.sqlite", {("OSRT_API", COLUMNS): calls}, ["poll"], environment=environment
    )
    with closing(sqlite3.connect(report)) as database, database:
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
    with pytest.raises(UsageError, match=r"2 processes are rank 3 \(one\.sqlite, two\.sqlite\)"):
        translate(reports, tmp_path / "trace.prv")
    result = translate(reports, tmp_path / "trace.prv", several_jobs=True)
    assert result.tasks == 2
    assert [warning for warning in result.warnings if "rank 3" in warning]


def test_a_source_that_is_named_and_nowhere(tmp_path: Path) -> None:
    reports = [write_report(tmp_path, "one", 7, 0, rank=0), write_report(tmp_path, "two", 8, 0, rank=1)]
    with pytest.raises(UsageError, match="sources: the reports have no events of mpi, nvtx"):
        translate(reports, tmp_path / "trace.prv", sources=["nvtx", "os_runtime", "mpi"])
    assert not list(tmp_path.glob("trace*"))
    assert translate(reports, tmp_path / "trace.prv", sources=["os_runtime"]).tasks == 2
