"""Reports that cannot be of one job are refused, unless the user wants them."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

import nsys2prv_ng
from nsys2prv_ng.errors import UsageError
from tests.sources.host.host_reports import UTC, make_tid, write_small_report

COLUMNS = "start end eventClass globalTid nameId"
SECOND = 10**9
translate = partial(nsys2prv_ng.translate, jobs=1, sources=["os_runtime"], derived=False)
"""In this process, and what the reports hold: all else takes longer than reading them."""


def write_report(
    folder: Path, name: str, process: int, begin: int, *, rank: int | None = None, mpi_rank: int | None = None
) -> Path:
    """Write a report of one call of 1 s that begins `begin` ns after UTC, of a rank of the launcher and of MPI."""
    tables = {("OSRT_API", COLUMNS): [(0, SECOND, 27, make_tid(process), 0)]}
    if mpi_rank is not None:
        tables["MPI_RANKS", "globalTid rank"] = [(make_tid(process), mpi_rank)]
    environment = "" if rank is None else f"OMPI_COMM_WORLD_RANK={rank}"
    report = write_small_report(folder / f"{name}.sqlite", tables, ["poll"], environment=environment)
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
