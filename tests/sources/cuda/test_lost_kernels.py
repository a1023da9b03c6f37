"""Launches whose kernels nsys did not record, counted by SQL in samples from which operations were removed."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from nsys2prv_ng.job.open_job import open_job
from nsys2prv_ng.reading.open_reports import ReadOptions
from nsys2prv_ng.runtime.progress import Progress
from tests.sources.small_reports import MAIN, PROCESS, WORKER, export

OPERATIONS = [f"CUPTI_ACTIVITY_KIND_{name}" for name in ("KERNEL", "MEMCPY", "MEMSET")]


def warn(report: Path) -> list[str]:
    with open_job([report], report.parent, ReadOptions(), Progress()) as job:
        return [text for text in job.reports[0].metadata.warnings if "kernel launches" in text]


def edit(samples: Path, folder: Path, *statements: str) -> tuple[Path, int, int]:
    """Change a copy of a sample; return it, and by SQL the launches without an operation and all launches."""
    report = folder / "report.sqlite"
    shutil.copyfile(samples / "ddp-2x2.rank0.sqlite", report)
    with closing(sqlite3.connect(report)) as database, database:
        for statement in statements:
            database.execute(statement)
        present = {name for (name,) in database.execute("SELECT name FROM sqlite_master")}
        tables = [f"SELECT correlationId FROM {table} WHERE end > 0" for table in OPERATIONS if table in present]
        ran = " UNION ".join(tables) or "SELECT NULL WHERE 0"
        [(lost, launches)] = database.execute(
            f"""SELECT SUM(correlationId NOT IN ({ran})), COUNT(*) FROM CUPTI_ACTIVITY_KIND_RUNTIME
            JOIN StringIds ON id = nameId WHERE value LIKE 'cu%LaunchKernel%'"""
        )
    return report, lost, launches


def test_a_complete_report_lacks_none(samples: Path, tmp_path: Path) -> None:
    report, lost, launches = edit(samples, tmp_path)
    assert (lost, launches) == (0, 3302)
    assert warn(report) == []


@pytest.mark.parametrize(
    "statements",
    [
        [f"DELETE FROM {table} WHERE start BETWEEN 300000000 AND 500000000" for table in OPERATIONS],
        [f"DROP TABLE {table}" for table in OPERATIONS],
        [f"UPDATE {OPERATIONS[0]} SET start = 0, end = 0 WHERE start BETWEEN 300000000 AND 500000000"],
    ],
)
def test_lost_operations(samples: Path, tmp_path: Path, statements: Sequence[str]) -> None:
    report, lost, launches = edit(samples, tmp_path, *statements)
    assert lost > 100
    [warning] = warn(report)
    assert f"it lacks the kernels of {lost:,} of its {launches:,} kernel launches" in warning


def test_kernels_that_had_not_run_when_the_capture_ended(samples: Path, tmp_path: Path) -> None:
    """The calls went on for a while: as in a public report in which half of the launches had not run."""
    report, lost, _ = edit(samples, tmp_path, *(f"DELETE FROM {table} WHERE start > 600000000" for table in OPERATIONS))
    assert lost > 100
    assert warn(report) == []


def test_launches_into_graphs(samples: Path) -> None:
    """24 launches were captured."""
    assert warn(samples / "single-graph.sqlite") == []


LAUNCH, BEGIN, END = "cudaLaunchKernel_v7000", "cudaStreamBeginCapture_v10000", "cudaStreamEndCapture_v10000"


@pytest.mark.parametrize(
    ("calls", "lost"),
    [
        ([(LAUNCH, 20, 30, MAIN)], 1),
        ([(LAUNCH, 20, 30, MAIN), (LAUNCH, 22, 28, MAIN)], 1),  # the driver's call within that of the runtime
        ([(LAUNCH, 20, 30, MAIN), (LAUNCH, 22, 28, WORKER)], 2),
        ([(BEGIN, 15, 16, MAIN), (LAUNCH, 20, 30, WORKER), (END, 40, 41, MAIN), (LAUNCH, 50, 51, MAIN)], 1),
        ([(LAUNCH, 20, 30, MAIN), (END, 40, 41, MAIN), (LAUNCH, 50, 51, MAIN)], 1),
        ([(LAUNCH, 20, 30, MAIN), (BEGIN, 40, 41, MAIN), (LAUNCH, 50, 51, MAIN)], 1),
        ([("cudaMemcpyAsync_v3020", 20, 30, MAIN)], 0),
        ([(LAUNCH, 80, 91, MAIN)], 0),
        ([(LAUNCH, 120, 130, MAIN)], 0),
    ],
)
def test_what_counts(tmp_path: Path, calls: Sequence[tuple[str, int, int, int]], lost: int) -> None:
    """One kernel, launched at 1, runs until 90; the GPU is idle; another, launched at 100, runs from 112."""
    made = [*calls, (LAUNCH, 1, 2, MAIN), (LAUNCH, 100, 110, MAIN)]
    names = [*sorted({name for name, *_ in made}), "kernel"]
    rows = [(begin, end, tid, names.index(name), n, 0) for n, (name, begin, end, tid) in enumerate(made, 1)]
    failed = (60, 61, MAIN, names.index(LAUNCH), 99, 700)
    kernel = dict.fromkeys(("shortName", "demangledName"), len(names) - 1)
    kernel |= {"globalPid": PROCESS, "deviceId": 0, "contextId": 1, "streamId": 7}
    ran = [(3, 90, len(made) - 1), (112, 140, len(made))]
    tables = {
        "CUPTI_ACTIVITY_KIND_RUNTIME": (
            ("start", "end", "globalTid", "nameId", "correlationId", "returnValue"),
            [*rows, failed],
        ),
        "CUPTI_ACTIVITY_KIND_KERNEL": (
            ("start", "end", "correlationId", *kernel),
            [(*times, *kernel.values()) for times in ran],
        ),
    }
    warnings = warn(export(tmp_path / "report.sqlite", names, tables))
    assert [text.split()[5] for text in warnings] == ([str(lost)] if lost else [])
