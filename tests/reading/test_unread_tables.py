"""GPU work in tables that no source reads: one line of a summary and of a translation, and its rows in `inspect`."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from nsys2prv_ng.reading.unread_tables import warn_of_unread_work
from nsys2prv_ng.report.database import open_database
from tests.cli.program_runs import run
from tests.conftest import SAMPLES
from tests.sources.small_reports import export

ENGINE = "CUPTI_ACTIVITY_KIND_NEWENGINE"
PLACE = ("start", "end", "deviceId", "contextId", "streamId", "globalPid")


def add_table(report: Path, name: str, columns: Sequence[str], rows: int) -> None:
    with closing(sqlite3.connect(report)) as database, database:
        database.execute(f'CREATE TABLE "{name}" ({", ".join(columns)})')
        marks = ", ".join("?" * len(columns))
        database.executemany(f'INSERT INTO "{name}" VALUES ({marks})', [[1] * len(columns)] * rows)


@pytest.mark.parametrize(
    ("table", "columns", "rows", "is_work"),
    [
        (ENGINE, PLACE, 1, True),
        (ENGINE, PLACE, 0, False),
        (ENGINE, ("start", "end", "deviceId"), 2, True),
        (ENGINE, ("start", "end", "globalTid", "streamId"), 2, True),
        (ENGINE, ("timestamp", "deviceId", "streamId"), 2, False),
        (ENGINE, ("startNs", "endNs", "deviceId", "streamId"), 2, True),
        (ENGINE, ("timestamp", "duration", "deviceId"), 2, True),
        (ENGINE, ("start", "end", "gpuId"), 2, True),
        (ENGINE, ("start", "durationNs", "gpuId"), 2, True),
        (ENGINE, ("timestamp", "rawTimestamp", "gpuId"), 2, False),  # samples
        (ENGINE, ("start", "end", "gpuId", "globalTid"), 2, False),
        ("CUPTI_ACTIVITY_KIND_JIT", ("start", "end", "globalTid", "deviceId"), 2, False),
        ("CUPTI_ACTIVITY_KIND_WARP_TRACE", ("start", "end", "deviceId", "SMId", "globalPid"), 2, False),
        ("VULKAN_API", ("start", "end", "globalTid", "contextId"), 2, False),
        ("VULKAN_WORKLOAD", ("start", "end", "globalTid", "contextId"), 2, True),
        ("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", PLACE, 2, False),
        ("CUPTI_ACTIVITY_KIND_GRAPH_HOST_NODE_AND_HOST_LAUNCH", PLACE, 2, False),
        ("TARGET_INFO_NEW", PLACE, 2, False),
    ],
)
def test_what_is_work_of_gpus(table: str, columns: Sequence[str], rows: int, is_work: bool, tmp_path: Path) -> None:
    report = export(tmp_path / "a.sqlite", [""], {})
    add_table(report, table, columns, rows)
    with open_database(report) as database:
        assert [table in text for text in warn_of_unread_work(database)] == ([True] if is_work else [])


@pytest.mark.slow
def test_one_line_for_all_reports(tmp_path: Path) -> None:
    """However many rows each has; `inspect` has these numbers."""
    reports = []
    for rank, rows in enumerate((2, 3)):
        reports.append(tmp_path / f"ddp-2x2.rank{rank}.sqlite")
        reports[rank].write_bytes((SAMPLES / reports[rank].name).read_bytes())
        add_table(reports[rank], ENGINE, PLACE, rows)
    for command in (["summary", *reports], ["translate", *reports, tmp_path / "x.prv"]):
        done = run(*command, "--quiet")
        lines = [line for line in (done.stdout + done.stderr).splitlines() if ENGINE in line]
        assert len(lines) == 1 and "and 1 other report: no source reads the work of GPUs" in lines[0], done.stderr
    listed = [line for line in run("inspect", *reports).stdout.splitlines() if ENGINE in line]
    assert len(listed) == 1 and "5 rows" in listed[0] and "no source reads this table" in listed[0]
