"""OpenMP events against plain SQL on a capture of clang's runtime, and kinds that it does not have."""

from __future__ import annotations

import sqlite3
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.conftest import NO_REPORTS, REPORTS
from tests.sources.host.host_reports import (
    UTC,
    collect_in_report_time,
    get_account,
    make_tid,
    number_thread_rows,
    translate_sources,
    write_small_report,
)
from tests.trace_reader import compare_tables

CAPTURE = REPORTS / "cpu/2024.2.3-omp_clang.sqlite"
PARALLEL, WORKSHARING, BARRIER, CRITICAL, LOCK = 60000001, 60000002, 60000005, 60000006, 60000009
FUNCTION, TASKWAIT, TASK, CREATION, TASKGROUP = 60000018, 60000022, 60000023, 60000024, 60000027
TASK_ID, TASKLOOP, ORDERED, THREAD, REDUCTION, WAIT = 60000028, 60000029, 60000033, 60000040, 60000041, 60000042
OTHER_SYNCHRONIZATION, POINT = 60000043, 60000044
SYNCHRONIZATION = 5

# What rows are in the trace: table, kind (None: any), event type, value, label.
MEANING = [
    ("PARALLEL", None, PARALLEL, 3, "Parallel region"),
    ("WORKSHARE", 1, WORKSHARING, 4, "Loop"),
    ("WORKSHARE", 2, WORKSHARING, 5, "Sections"),
    ("WORKSHARE", 3, WORKSHARING, 6, "Single"),
    ("WORKSHARE", 4, WORKSHARING, 8, "Single (by another thread)"),
    ("MASTER", None, WORKSHARING, 7, "Master"),
    ("SYNC_REGION", 2, BARRIER, 2, "Implicit barrier"),
    ("SYNC_REGION", 3, BARRIER, 3, "Explicit barrier"),
    ("SYNC_REGION", 5, TASKWAIT, 1, "Taskwait"),
    ("MUTEX_WAIT", 1, LOCK, 3, "Waiting to enter"),
    ("MUTEX_WAIT", 5, CRITICAL, 3, "Waiting to enter"),
    ("CRITICAL_SECTION", None, CRITICAL, 6, "Inside"),
    ("MUTEX_RELEASED", 1, LOCK, 5, "Leaving"),
    ("TASK", 2, FUNCTION, 1, "Implicit task"),
    ("TASK", 4, TASK, 1, "Explicit task"),
]


@pytest.fixture(scope="module")
def capture() -> sqlite3.Connection:
    if not CAPTURE.exists():
        pytest.skip(NO_REPORTS)
    return sqlite3.connect(f"{CAPTURE.as_uri()}?mode=ro&immutable=1", uri=True)


def _rows(connection: sqlite3.Connection) -> pd.DataFrame:
    """Return begin, end, tid, type, value and name of each row: intervals, and points of an interval type."""
    parts = []
    for table, kind, event_type, value, label in MEANING:
        where = "" if kind is None else f"WHERE kind = {kind}"
        task = "taskId" if table == "TASK" else "0"
        parts.append(
            pd.read_sql_query(
                f"""SELECT start AS begin, "end", globalTid AS tid, {event_type} AS type, {value} AS value,
                '{label}' AS name, {task} AS task FROM OPENMP_EVENT_KIND_{table} {where}""",
                connection,
            )
        )
        assert len(parts[-1]), (table, kind)
    return pd.concat(parts, ignore_index=True)


def test_every_row_of_the_capture_is_there(capture: sqlite3.Connection, tmp_path: Path) -> None:
    utc = capture.execute("SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME").fetchone()[0]
    expected = _rows(capture)
    names = capture.execute("SELECT name FROM sqlite_master WHERE name LIKE 'OPENMP\\_EVENT\\_KIND\\_%' ESCAPE '\\'")
    total = sum(capture.execute(f"SELECT COUNT(*) FROM {name}").fetchone()[0] for (name,) in names.fetchall())
    created = pd.read_sql_query(
        "SELECT start AS time, globalTid AS tid, newTaskId AS task FROM OPENMP_EVENT_KIND_TASK_CREATE", capture
    )
    assert len(expected) + len(created) == total == 333

    summary, trace = translate_sources([CAPTURE], tmp_path, "openmp")
    openmp = get_account(summary, "openmp")
    assert (openmp.read, openmp.written, openmp.dropped) == (total, total, {})
    rows = number_thread_rows(expected["tid"])
    assert trace.threads == [len(rows)]
    expected["row"] = expected["tid"].map(rows)
    types = sorted(set(expected["type"]))
    got = collect_in_report_time(trace, summary, utc, *types)
    assert compare_tables(got, expected, ["type", "row", "begin", "end", "value", "name"]) == ""

    task_id = trace.events[trace.events["type"] == TASK_ID].set_index("line")["value"]
    assert task_id.index.is_unique
    tasks = got[got["type"].isin([FUNCTION, TASK])]
    tasks = tasks.assign(task=task_id.reindex(tasks["line"]).to_numpy())
    expected_tasks = expected[expected["type"].isin([FUNCTION, TASK])]
    assert compare_tables(tasks, expected_tasks, ["type", "row", "begin", "end", "task"]) == ""
    points = trace.events[trace.events["type"] == CREATION]
    assert set(points["value"]) == {1}
    points = points.assign(
        time=points["time"] + summary.start_utc_ns - utc, task=task_id.reindex(points["line"]).to_numpy()
    )
    assert compare_tables(points, created.assign(row=created["tid"].map(rows)), ["row", "time", "task"]) == ""


@pytest.mark.slow
def test_threads_wait_where_they_run_no_task(capture: sqlite3.Connection, tmp_path: Path) -> None:
    utc = capture.execute("SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME").fetchone()[0]
    rows = _rows(capture)
    waits = (rows["type"].isin([BARRIER, TASKWAIT])) | (rows["name"] == "Waiting to enter")
    chosen = rows[waits | (rows["type"] == TASK)].assign(waits=waits)
    summary, trace = translate_sources([CAPTURE], tmp_path, "openmp")
    shift = summary.start_utc_ns - utc
    got = trace.states[trace.states["state"] == SYNCHRONIZATION]
    row_of = number_thread_rows(rows["tid"])
    for thread, thread_rows in chosen.groupby("tid"):
        # What goes on between two neighbouring times: the interval around it that began last.
        times = np.unique(np.concatenate([thread_rows["begin"], thread_rows["end"]]))
        expected = 0
        for low, high in pairwise(times):
            around = thread_rows[(thread_rows["begin"] <= low) & (thread_rows["end"] >= high)]
            if len(around):
                innermost = around.sort_values(["begin", "end"], ascending=[True, False]).iloc[-1]
                expected += (high - low) if innermost["waits"] else 0
        mine = got[got["row"] == row_of[thread]]
        assert expected > 0
        assert (mine["end"] - mine["begin"]).sum() == expected
        assert mine["begin"].min() + shift == thread_rows.loc[thread_rows["waits"], "begin"].min()


def _table(what: str, columns: str) -> tuple[str, str]:
    return f"OPENMP_EVENT_KIND_{what}", columns


def test_kinds_that_other_runtimes_have(tmp_path: Path) -> None:
    main = make_tid(7)
    merged = (1 << 31) | 4
    work = [(i * 10, i * 10 + 5, main, kind) for i, kind in enumerate([5, 6, 7, 8, 10, 11, 12, 13, 9, None], 1)]
    tables = {
        _table("THREAD", "start end globalTid"): [(1, 900, main)],
        _table("WORKSHARE", "start end globalTid kind"): work,
        _table("SYNC_REGION", "start end globalTid kind"): [
            (200 + kind * 10, 205 + kind * 10, main, kind) for kind in (1, 4, 6, 7, 8, 9, 10, 99)
        ],
        _table("SYNC_REGION_WAIT", "start end globalTid kind"): [(211, 214, main, 1), (261, 264, main, 6)],
        _table("REDUCTION", "start end globalTid kind"): [(220, 225, main, 7)],
        _table("MUTEX_WAIT", "start end globalTid kind"): [(400, 410, main, 7), (420, 430, main, 6)],
        _table("MUTEX_RELEASED", "start globalTid kind nameId"): [(440, main, 7, 4294967295)],
        _table("TASK", "start end globalTid kind taskId"): [
            (1, 899, main, 1, 1),
            (500, 510, main, merged, 2),
            (520, 530, main, merged - 2**32, 3),
            (540, 550, main, 8, None),
            (560, 570, main, 16, 4),
        ],
        _table("LOCK_INIT", "start globalTid"): [(600, main)],
        _table("LOCK_DESTROY", "start globalTid"): [(601, main)],
        _table("TASK_SCHEDULE", "start globalTid"): [(602, main)],
        _table("CANCEL", "start globalTid"): [(603, main)],
        _table("DISPATCH", "start globalTid kind"): [(604, main, 1)],
        _table("FLUSH", "start globalTid"): [(605, main), (606, None), (None, main)],
        _table("PARALLEL", "start end globalTid"): [(700, 800, main), (750, 850, main), (3, 2, main)],
    }
    report = write_small_report(tmp_path / "r.sqlite", tables)
    summary, trace = translate_sources([report], tmp_path, "openmp")
    openmp = get_account(summary, "openmp")
    assert openmp.read == sum(len(list(rows)) for rows in tables.values())
    assert openmp.dropped == {
        "no thread": 1,
        "no start or end": 1,
        "partly overlaps another call on its thread": 1,
        "ends before it starts": 1,
    }
    types = [PARALLEL, WORKSHARING, BARRIER, ORDERED, 60000008, FUNCTION, TASK, TASKGROUP, TASKLOOP]
    types += [THREAD, REDUCTION, WAIT, OTHER_SYNCHRONIZATION]
    got = collect_in_report_time(trace, summary, UTC, *types).sort_values(["begin", "type"])
    assert list(got[["type", "begin", "name"]].itertuples(index=False, name=None)) == [
        (FUNCTION, 1, "Initial task"),
        (THREAD, 1, "OpenMP thread"),
        (WORKSHARING, 10, "Workshare"),
        (WORKSHARING, 20, "Distribute"),
        (TASKLOOP, 30, "Taskloop"),
        (WORKSHARING, 40, "Scope"),
        (WORKSHARING, 50, "Loop (static)"),
        (WORKSHARING, 60, "Loop (dynamic)"),
        (WORKSHARING, 70, "Loop (guided)"),
        (WORKSHARING, 80, "Loop (other schedule)"),
        (WORKSHARING, 90, "Unknown worksharing"),
        (WORKSHARING, 100, "Unknown worksharing"),
        (BARRIER, 210, "Barrier"),
        (WAIT, 211, "Barrier"),
        (REDUCTION, 220, "Reduction"),
        (BARRIER, 240, "Runtime barrier"),
        (TASKGROUP, 260, "Taskgroup"),
        (WAIT, 261, "Taskgroup"),
        (REDUCTION, 270, "Reduction"),
        (BARRIER, 280, "Implicit worksharing barrier"),
        (BARRIER, 290, "Implicit parallel barrier"),
        (BARRIER, 300, "Implicit teams barrier"),
        (ORDERED, 400, "Waiting to enter"),
        (60000008, 420, "Waiting to enter"),
        (ORDERED, 440, "Leaving"),
        (TASK, 500, "Explicit task"),
        (TASK, 520, "Explicit task"),
        (TASK, 540, "Target task"),
        (TASK, 560, "Unknown task"),
        (PARALLEL, 700, "Parallel region"),
        (OTHER_SYNCHRONIZATION, 1190, "Unknown synchronization"),
    ]
    points = trace.events[trace.events["type"] == POINT]
    assert trace.get_labels(POINT, points["value"]) == [
        "Lock initialised",
        "Lock destroyed",
        "Task scheduled",
        "Cancellation",
        "Work dispatched",
        "Flush",
    ]


def test_the_barrier_of_a_task_shows_within_the_task(tmp_path: Path) -> None:
    """A thread in a barrier runs a task, which waits for a task that it made."""
    main = make_tid(7)
    tables = {
        _table("SYNC_REGION", "start end globalTid kind"): [(100, 200, main, 3), (120, 160, main, 5)],
        _table("TASK", "start end globalTid kind taskId"): [(110, 180, main, 4, 2), (130, 140, main, 4, 3)],
    }
    report = write_small_report(tmp_path / "r.sqlite", tables)
    summary, trace = translate_sources([report], tmp_path, "openmp")
    shift = summary.start_utc_ns - UTC
    waits = trace.states[trace.states["state"] == SYNCHRONIZATION]
    assert sorted(zip(waits["begin"] + shift, waits["end"] + shift, strict=True)) == [
        (100, 110),
        (120, 130),
        (140, 160),
        (180, 200),
    ]
