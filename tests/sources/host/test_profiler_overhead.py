"""Profiler overhead against plain SQL on the reports: its events, and state Profiling over everything else."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pandas as pd
import pytest

from nsys2prv_ng.sources.host.operating_system import is_profiling
from nsys2prv_ng.sources.shared.source_options import SourceOptions
from tests.sources.host.host_reports import (
    UTC,
    collect_in_report_time,
    copy_without_other_calls,
    get_account,
    make_tid,
    number_thread_rows,
    sum_painted,
    translate_sources,
    write_small_report,
)
from tests.spans import list_reports_with
from tests.trace_reader import compare_tables

OVERHEAD, PROFILING, RUNNING, SYNCHRONIZATION = 66800000, 18, 1, 5
NSYS = ("PROFILER_OVERHEAD", "start end globalTid nameId")
CUPTI = ("CUPTI_ACTIVITY_KIND_OVERHEAD", "start end globalTid nameId overheadType")
CUDA = ("CUPTI_ACTIVITY_KIND_RUNTIME", "start end globalTid nameId")
PUSHED = ("public/h100_2gpu_1s", "samples/single-graph", "gpu/um-1", "gpu/autograd-1", "cpu/2022.4.2-ompi")
NO_CALL, NO_TASK = "its thread made no traced call", "its process made no traced call"


def _overhead(path: Path) -> tuple[int, pd.DataFrame, set[int]]:
    """(UTC of time 0, rows of both tables, threads that made calls of CUDA or of the operating system)."""
    connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    utc = connection.execute("SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME").fetchone()[0]
    parts = [
        pd.read_sql_query(
            f"""SELECT o.start AS begin, o."end", o.globalTid AS tid, s.value AS name FROM {table} o
            LEFT JOIN StringIds s ON s.id = o.nameId""",
            connection,
        )
        for table in ("PROFILER_OVERHEAD", "CUPTI_ACTIVITY_KIND_OVERHEAD")
        if table in tables
    ]
    callers: set[int] = set()
    for table in {"CUPTI_ACTIVITY_KIND_RUNTIME", "OSRT_API"} & tables:
        callers |= {t for (t,) in connection.execute(f"SELECT DISTINCT globalTid FROM {table} WHERE start < end")}
    connection.close()
    return utc, pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(), callers


@pytest.mark.slow
@pytest.mark.parametrize("path", list_reports_with("PROFILER_OVERHEAD CUPTI_ACTIVITY_KIND_OVERHEAD", push=PUSHED))
def test_overhead_of_a_report_is_all_there(path: Path, tmp_path: Path) -> None:
    utc, rows, callers = _overhead(path)
    sources = "cuda_api,os_runtime,profiler_overhead"
    summary, trace = translate_sources(
        [copy_without_other_calls(path, tmp_path)], tmp_path, sources, SourceOptions(osrt_min=0)
    )
    processes = {thread >> 24 for thread in callers}
    has_caller = rows["tid"].isin(callers)
    has_task = (rows["tid"] // 2**24).isin(processes)
    drops = {NO_CALL: int((has_task & ~has_caller).sum()), NO_TASK: int((~has_task).sum())}
    overhead = get_account(summary, "profiler_overhead")
    assert (overhead.read, overhead.written) == (len(rows), has_caller.sum())
    assert overhead.dropped == {reason: count for reason, count in drops.items() if count}
    if overhead.written == 0:
        return
    kept = rows[has_caller]
    got = collect_in_report_time(trace, summary, utc, OVERHEAD)
    by_rows = _threads_of_rows(trace, callers, path)
    expected = kept.assign(row=kept["tid"].map(by_rows))
    assert compare_tables(got, expected, ["row", "begin", "end", "name"]) == ""

    profiling = expected[[not name.startswith("Command Buffer Full") for name in expected["name"]]]
    lengths = sum_painted(profiling.assign(state=PROFILING))
    states = trace.states[trace.states["state"] == PROFILING]
    assert (states["end"] - states["begin"]).groupby([states["row"], states["state"]]).sum().to_dict() == lengths


def _threads_of_rows(trace, callers: set[int], path: Path) -> dict[int, int]:
    """Return the row of each thread. Tasks of CUDA come first, by rank if a report has ranks, the others by process."""
    connection = sqlite3.connect(path)
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    cuda: set[int] = set()
    if "CUPTI_ACTIVITY_KIND_RUNTIME" in tables:
        cuda = {t >> 24 for (t,) in connection.execute("SELECT DISTINCT globalTid FROM CUPTI_ACTIVITY_KIND_RUNTIME")}
    ranks: dict[int, int] = {}
    if "MPI_RANKS" in tables:
        ranks = dict(connection.execute("SELECT globalTid >> 24, rank FROM MPI_RANKS").fetchall())
    connection.close()
    position = number_thread_rows(callers)
    order = sorted(callers, key=lambda t: (t >> 24 not in cuda, ranks.get(t >> 24, 0) if cuda else 0, position[t]))
    assert len(order) == sum(trace.threads)
    return {thread: row for row, thread in enumerate(order)}


def test_profiling_is_over_every_other_state(tmp_path: Path) -> None:
    names = ["cudaDeviceSynchronize_v3020", "CUPTI Buffer flush", "Command Buffer Full", "dlopen(x.so)", "cudaMalloc"]
    main = make_tid(7)
    calls = [(100, 1_000, main, 0), (2_000, 3_000, main, 4)]
    nsys = [
        (50, 150, main, 3),
        (60, 90, main, 1),  # within
        (400, 500, main, 1),
        (500, 500, main, 1),
        (2_500, 3_500, main, 1),
        (10, 20, make_tid(7, 8), 1),
        (10, 20, make_tid(9), 1),
        (420, 600, main, 1),  # crosses
        (None, 20, main, 1),
    ]
    cupti = [(700, 800, main, 2, 8), (900, 950, main, None, 4), (2_100, 2_200, main, None, 6), (1, 2, None, 1, 3)]
    cupti += [(2_300, 2_400, main, 4, 8)]  # a name that tells nothing
    report = write_small_report(tmp_path / "r.sqlite", {CUDA: calls, NSYS: nsys, CUPTI: cupti}, names)
    summary, trace = translate_sources([report], tmp_path, "cuda_api,profiler_overhead")
    overhead = get_account(summary, "profiler_overhead")
    assert overhead.read == 14
    assert overhead.dropped == {
        NO_CALL: 1,
        NO_TASK: 1,
        "partly overlaps another call on its thread": 1,
        "no start or end": 1,
        "no thread": 1,
    }
    got = collect_in_report_time(trace, summary, UTC, OVERHEAD)
    assert sorted(got[["begin", "end", "name"]].itertuples(index=False, name=None)) == [
        (50, 150, "dlopen(x.so)"),
        (60, 90, "CUPTI Buffer flush"),
        (400, 500, "CUPTI Buffer flush"),
        (500, 500, "CUPTI Buffer flush"),
        (700, 800, "Command Buffer Full"),
        (900, 950, "CUPTI Instrumentation"),
        (2_100, 2_200, "Runtime triggered module loading"),
        (2_300, 2_400, "cudaMalloc"),
        (2_500, 3_500, "CUPTI Buffer flush"),
    ]
    shift = summary.start_utc_ns - UTC
    states = sorted((s.begin + shift, s.end + shift, s.state) for s in trace.states.itertuples())
    assert states == [
        (50, 150, PROFILING),
        (150, 400, SYNCHRONIZATION),
        (400, 500, PROFILING),
        (500, 900, SYNCHRONIZATION),
        (900, 950, PROFILING),
        (950, 1_000, SYNCHRONIZATION),
        (1_000, 2_500, RUNNING),
        (2_500, 3_500, PROFILING),
    ]


def test_overhead_alone_is_no_task(tmp_path: Path) -> None:
    report = write_small_report(tmp_path / "r.sqlite", {NSYS: [(10, 20, make_tid(7), 0)]}, ["TLS allocation"])
    summary, trace = translate_sources([report], tmp_path, "profiler_overhead")
    assert get_account(summary, "profiler_overhead").dropped == {NO_TASK: 1}
    assert OVERHEAD not in set(trace.events["type"])
    assert trace.states.empty


@pytest.mark.parametrize("name", ["Command Buffer Full", "Lazy function loading", "Runtime Module loading"])
def test_what_the_driver_does_anyway_is_not_profiling(name: str) -> None:
    assert not is_profiling(name)


@pytest.mark.parametrize(
    "name", ["CUPTI Buffer flush", "TLS allocation", "dlopen(x)", "Unknown", "CUPTI: Instrumentation"]
)
def test_what_the_profiler_does_is_profiling(name: str) -> None:
    assert is_profiling(name)
