"""Threads on cores against plain SQL on the reports, and what becomes of threads and processes that are only seen."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pandas as pd
import pytest

from nsys2prv_ng.sources.shared.source_options import SourceOptions
from tests.sources.host.host_reports import (
    UTC,
    collect_in_report_time,
    copy_without_other_calls,
    get_account,
    make_tid,
    number_thread_rows,
    translate_sources,
    write_small_report,
)
from tests.spans import list_reports_with
from tests.trace_reader import compare_tables

ON_CPU, CAPTURE = 66700000, 63000300
SCHED = ("SCHED_EVENTS", "start cpu isSchedIn globalTid")
OSRT = ("OSRT_API", "start end eventClass globalTid nameId")
NO_CALL, NO_TASK = "its thread made no traced call", "its process made no traced call"


def _open(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)


@pytest.mark.parametrize("path", list_reports_with("SCHED_EVENTS"))
def test_times_on_cores_of_a_report_are_all_there(path: Path, tmp_path: Path) -> None:
    connection = _open(path)
    utc = connection.execute("SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME").fetchone()[0]
    periods = pd.read_sql_query(
        """SELECT begin, "end", cpu, tid FROM (
            SELECT start AS begin, LEAD(start) OVER w AS "end", cpu, globalTid AS tid, isSchedIn
            FROM SCHED_EVENTS WINDOW w AS (PARTITION BY globalTid ORDER BY start)
        ) WHERE isSchedIn""",
        connection,
    )
    assert periods["end"].notna().all()
    has_calls = connection.execute("SELECT COUNT(*) FROM sqlite_master WHERE name = 'OSRT_API'").fetchone()[0]
    calls = connection.execute("SELECT DISTINCT globalTid FROM OSRT_API WHERE eventClass = 27") if has_calls else []
    callers = {thread for (thread,) in calls}
    connection.close()
    processes = {thread >> 24 for thread in callers}

    summary, trace = translate_sources(
        [copy_without_other_calls(path, tmp_path)], tmp_path, "os_runtime,scheduling", SourceOptions(osrt_min=0)
    )
    has_caller = periods["tid"].isin(callers)
    has_task = (periods["tid"] // 2**24).isin(processes)
    expected_drops = {NO_CALL: int((has_task & ~has_caller).sum()), NO_TASK: int((~has_task).sum())}
    scheduling = get_account(summary, "scheduling")
    assert scheduling.read == len(periods)
    assert scheduling.written == has_caller.sum()
    assert scheduling.dropped == {reason: count for reason, count in expected_drops.items() if count}
    assert scheduling.closed_at_end == 0
    if not callers:
        assert CAPTURE in trace.types
        return
    rows = number_thread_rows(callers)
    assert sum(trace.threads) == len(rows)
    kept = periods[has_caller]
    expected = kept.assign(row=kept["tid"].map(rows), value=kept["cpu"] + 1, name="core " + kept["cpu"].astype(str))
    got = collect_in_report_time(trace, summary, utc, ON_CPU)
    assert compare_tables(got, expected, ["row", "begin", "end", "value", "name"]) == ""


def _calls(*threads: int) -> list[tuple[object, ...]]:
    return [(0, 500_000, 27, thread, 0) for thread in threads]


def test_switches_that_have_no_partner(tmp_path: Path) -> None:
    main, other = make_tid(7), make_tid(7, 8)
    switches = [
        (100, 3, 0, main),  # taken off, never put on
        (200, 3, 1, main),
        (300, 3, 0, main),
        (300, 2, 1, main),  # at once onto another core
        (300, 2, 0, main),  # and off it
        (310, 2, 0, main),  # off again
        (400, 1, 1, main),  # lost its end
        (450, 0, 1, other),
        (500, 1, 1, main),
        (600, 1, 0, main),
        (700, 11, 1, main),  # on until the end
        (None, 1, 1, main),
        (2**63 - 1, 1, 1, main),
        (800, None, 1, main),
        (800, -1, 1, main),
        (800, 2**31 - 1, 1, main),  # Paraver labels no value above
        (800, 1, 1, None),
        (800, 1, None, main),
    ]
    report = write_small_report(
        tmp_path / "r.sqlite", {SCHED: switches, OSRT: _calls(main, other)}, ["poll"], duration=400_000
    )
    summary, trace = translate_sources([report], tmp_path, "scheduling,os_runtime")
    scheduling = get_account(summary, "scheduling")
    assert scheduling.dropped == {
        "no thread": 1,
        "no time": 2,
        "no core": 3,
        "neither in nor out": 1,
        "no start (taken off a core without having been put on one)": 2,
        "no end (put on a core twice)": 1,
    }
    assert (scheduling.written, scheduling.closed_at_end) == (5, 2)
    got = collect_in_report_time(trace, summary, UTC, ON_CPU)
    assert sorted(got[["row", "begin", "end", "value", "name"]].itertuples(index=False, name=None)) == [
        (0, 200, 300, 4, "core 3"),
        (0, 300, 300, 3, "core 2"),
        (0, 500, 600, 2, "core 1"),
        (0, 700, 500_000, 12, "core 11"),
        (1, 450, 500_000, 1, "core 0"),
    ]


@pytest.mark.slow
def test_what_is_only_seen_has_no_row_and_does_not_move_the_limits(tmp_path: Path) -> None:
    switches = [
        (-900, 0, 1, make_tid(1)),
        (-800, 0, 0, make_tid(1)),
        (10, 0, 1, make_tid(7, 9)),
        (20, 0, 0, make_tid(7, 9)),
        (30, 0, 1, make_tid(7)),
        (40, 0, 0, make_tid(7)),
        (9_000_000, 5, 1, make_tid(2)),  # for ever
        (9_000_000, 5, 1, make_tid(7, 9)),
    ]
    report = write_small_report(tmp_path / "r.sqlite", {SCHED: switches, OSRT: _calls(make_tid(7))}, ["poll"])
    for sources in ("scheduling,os_runtime", "os_runtime,scheduling"):
        summary, trace = translate_sources([report], tmp_path, sources)
        assert get_account(summary, "scheduling").dropped == {NO_TASK: 2, NO_CALL: 2}
        assert get_account(summary, "scheduling").closed_at_end == 0
        assert trace.threads == [1]
        assert (summary.start_utc_ns, trace.duration) == (UTC, 500_000)
        assert set(trace.events["row"]) == {0}


@pytest.mark.slow
def test_cores_have_the_same_value_in_every_trace(tmp_path: Path) -> None:
    reports = []
    for name, core in (("a", 17), ("b", 2)):
        switches = [(10, core, 1, make_tid(7)), (20, core, 0, make_tid(7))]
        reports.append(
            write_small_report(
                tmp_path / f"{name}.sqlite", {SCHED: switches, OSRT: _calls(make_tid(7))}, ["poll", name]
            )
        )
    _, trace = translate_sources(reports, tmp_path, "scheduling,os_runtime")
    assert trace.values[ON_CPU] == {0: "End", 3: "core 2", 18: "core 17"}
    assert sorted(trace.events.loc[trace.events["type"] == ON_CPU, "value"]) == [0, 0, 3, 18]


def test_a_report_of_nothing_but_switches_shows_its_capture(tmp_path: Path) -> None:
    switches = [(10, 0, 1, make_tid(7)), (20, 0, 0, make_tid(7)), (30, 0, 1, make_tid(8))]
    report = write_small_report(tmp_path / "r.sqlite", {SCHED: switches}, duration=5_000)
    summary, trace = translate_sources([report], tmp_path, "scheduling")
    assert get_account(summary, "scheduling").dropped == {NO_TASK: 2}
    assert trace.duration == 5_000
    assert set(trace.events["type"]) == {CAPTURE}
