"""Captures in turn of one process: the reports of a run, cut into captures, are one job with its steps."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

import nsys2prv_ng
from nsys2prv_ng.errors import UsageError
from tests.report_truth import Report
from tests.translated import KERNEL, NCCL_KERNEL, translated_set

SECOND = 10**9
NAMING = (33, 39, 75, 76)
"""Types of NVTX events that nsys repeats in each capture."""


def capture(report: Path, copy: Path, begin: int, end: int, later: int = 0, rename: str = "") -> Path:
    """Write what a capture from `begin` to `end` (ns of the report) has, as if it was recorded `later` (ns).

    Work is of the capture in which it was launched, and runs on after it.
    """
    copy.write_bytes(report.read_bytes())
    with closing(sqlite3.connect(copy)) as database, database:
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        columns = {t: {row[1] for row in database.execute(f'PRAGMA table_info("{t}")')} for t in tables}
        outside = f"NOT (start >= {begin} AND start < {end})"
        launched_outside = f"SELECT correlationId FROM CUPTI_ACTIVITY_KIND_RUNTIME WHERE {outside}"
        events = [t for t in tables if {"start", "timestamp"} & columns[t] and not t.startswith(("META", "TARGET"))]
        for table in sorted(events, key=lambda t: t == "CUPTI_ACTIVITY_KIND_RUNTIME"):
            if table.startswith("CUPTI") and "deviceId" in columns[table]:
                database.execute(f"DELETE FROM {table} WHERE correlationId IN ({launched_outside})")
            elif table == "NVTX_EVENTS":
                database.execute(f"DELETE FROM {table} WHERE {outside} AND eventType NOT IN {NAMING}")
            elif "start" in columns[table]:
                database.execute(f"DELETE FROM {table} WHERE {outside}")
            for name in {"start", "end", "timestamp"} & columns[table]:
                database.execute(f'UPDATE {table} SET "{name}" = "{name}" - {begin}')
        database.execute(f"UPDATE ANALYSIS_DETAILS SET duration = {end - begin}")
        database.execute(f"UPDATE TARGET_INFO_SESSION_START_TIME SET utcEpochNs = utcEpochNs + {begin + later}")
        if rename:
            database.execute(
                f"UPDATE NVTX_EVENTS SET text = replace(text, 'step ', '{rename}') WHERE text LIKE 'step %'"
            )
    return copy


def cut(samples: Path, folder: Path, steps: Sequence[int], apart: int = 0, rename: Sequence[str] = ()) -> list[Path]:
    """Cut the reports of all ranks before these steps; the next capture begins `apart` (ns) later. By rank, in turn."""
    reports = []
    for report in sorted(samples.glob("ddp-2x2.*.sqlite")):
        duration = Report(report).value("SELECT duration FROM ANALYSIS_DETAILS")
        starts = [Report(report).value(f"SELECT start FROM NVTX_EVENTS WHERE text = 'step {n}'") for n in steps]
        limits = [0, *(start - 200_000 for start in starts), duration]
        for number, (begin, end) in enumerate(itertools.pairwise(limits)):
            copy = folder / f"{report.stem}.{number}.sqlite"
            reports.append(capture(report, copy, begin, end, apart * number, rename[number] if rename else ""))
    return reports


def kernels(translated):
    found = translated.intervals(KERNEL, NCCL_KERNEL)
    return sorted(found[["row", "begin", "end", "name"]].itertuples(index=False, name=None))


@pytest.mark.slow
@pytest.mark.parametrize("steps", [(3,), (2, 4)])
def test_captures_without_a_gap_are_the_whole_run(samples, tmp_path, steps):
    """Whether or not several jobs are allowed, and in any order of the files."""
    reports = cut(samples, tmp_path, steps)
    whole = translated_set(sorted(samples.glob("ddp-2x2.*.sqlite")), tmp_path / "whole", "kernels,nvtx")
    for order in (reports, reports[::-1]):
        got = translated_set(order, tmp_path / f"got{order is reports}", "kernels,nvtx")
        assert kernels(got) == kernels(whole)
        assert got.summary.tasks == whole.summary.tasks == 4
    summary = nsys2prv_ng.summarize(reports)
    expected = nsys2prv_ng.summarize(sorted(samples.glob("ddp-2x2.*.sqlite")))
    assert (summary.steps.first, summary.steps.last, summary.steps.count) == (1, 5, 5)
    assert summary.steps.median_ns == expected.steps.median_ns
    assert [gpu.compute_ns for gpu in summary.gpus] == [gpu.compute_ns for gpu in expected.gpus]


@pytest.mark.slow
def test_time_between_captures_is_no_idle_time(samples, tmp_path):
    """Each step is as long as in the run, but for the first of the second capture, whose GPUs still had work before."""
    reports = cut(samples, tmp_path, (3,), apart=5 * SECOND)
    summary = nsys2prv_ng.summarize(reports)
    whole = nsys2prv_ng.summarize(sorted(samples.glob("ddp-2x2.*.sqlite")))
    assert (summary.steps.count, summary.ranks, len(summary.gpus)) == (5, 4, 4)
    assert summary.steps.min_ns == whole.steps.min_ns
    assert summary.steps.max_ns < SECOND
    assert all(gpu.idle_ns < SECOND for gpu in summary.gpus)


@pytest.mark.slow
def test_numbers_of_steps_may_be_missing_between_captures(samples, tmp_path):
    reports = cut(samples, tmp_path, (3,), apart=5 * SECOND, rename=("step ", "step 1"))  # steps 0-2 and 13-15
    summary = nsys2prv_ng.summarize(reports)
    assert (summary.steps.name, summary.steps.first, summary.steps.last, summary.steps.count) == ("step", 1, 15, 5)


@pytest.mark.slow
def test_ranks_with_fewer_captures(samples, tmp_path):
    """The steps that all ranks have count."""
    reports = cut(samples, tmp_path, (3,), apart=5 * SECOND)
    summary = nsys2prv_ng.summarize([report for report in reports if ".rank2.1." not in report.name])
    assert (summary.ranks, summary.steps.first, summary.steps.last) == (4, 1, 2)


@pytest.mark.slow
@pytest.mark.parametrize("other", ["host", "process"])
def test_captures_of_other_processes_are_not_in_turn(samples, tmp_path, other):
    """A process of another host with the same id, or another process: both cannot be rank 0."""
    one, two = cut(samples, tmp_path, (3,), apart=SECOND)[:2]
    with closing(sqlite3.connect(two)) as database, database:
        if other == "host":
            database.execute("UPDATE TARGET_INFO_SYSTEM_ENV SET value = 'elsewhere' WHERE name = 'Hostname'")
        else:
            for (table,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
                known = {row[1] for row in database.execute(f'PRAGMA table_info("{table}")')}
                for name in known & {"globalTid", "globalPid"}:
                    database.execute(f'UPDATE "{table}" SET {name} = {name} + {1 << 24}')
    with pytest.raises(UsageError, match="2 processes are rank 0"):
        nsys2prv_ng.summarize([one, two])


@pytest.mark.slow
def test_time_since_the_boot_sets_the_distance(samples, tmp_path):
    """UTC was set forward by 0.4 s between two captures: the time since the boot was not."""
    reports = cut(samples, tmp_path, (3,), apart=SECOND)[:2]
    for report, jump in zip(reports, (0, 400_000_000), strict=True):
        with closing(sqlite3.connect(report)) as database, database:
            table = "TARGET_INFO_SESSION_START_TIME"
            database.execute(f"ALTER TABLE {table} ADD COLUMN systemClockNs INTEGER")
            database.execute(f"UPDATE {table} SET systemClockNs = utcEpochNs - 1700000000000000000")
            database.execute(f"UPDATE {table} SET utcEpochNs = utcEpochNs + {jump}")
    got = translated_set(reports, tmp_path / "got", "kernels")
    assert kernels(got) == kernels(translated_set(cut(samples, tmp_path, (3,), SECOND)[:2], tmp_path / "x", "kernels"))
