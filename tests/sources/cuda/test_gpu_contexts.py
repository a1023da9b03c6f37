"""Turns of GPU contexts: small exports, and a capture against plain SQL."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from nsys2prv_ng.sources.registry import select_sources
from nsys2prv_ng.translation.plan_trace import TranslationPlan
from nsys2prv_ng.translation.translate import translate
from tests.conftest import NO_REPORTS, REPORTS
from tests.sources.small_reports import PROCESS, export, get_account, translate_reports
from tests.trace_reader import pair_intervals, read_trace

CONTEXT = 63000250
COLUMNS = ("tag", "vmId", "seqNo", "contextId", "timestamp", "globalPid", "gpuId")
END, BEGIN, STEP = 7, 8, 2
OTHER = 1 << 48 | 99 << 24


def rows(*events: tuple[int, int, int, int | None, int]) -> list[tuple[object, ...]]:
    return [(tag, 0, i, context, time, pid, gpu) for i, (tag, context, time, pid, gpu) in enumerate(events)]


def test_turns(tmp_path: Path) -> None:
    table = rows(
        (END, 1, 5, PROCESS, 0),  # began before the capture
        (BEGIN, 1, 10, PROCESS, 0),
        (STEP, 1, 15, PROCESS, 0),
        (END, 1, 20, PROCESS, 0),
        (END, 2, 30, OTHER, 0),  # of the same time: the numbers tell the order, not the rows
        (BEGIN, 2, 20, OTHER, 0),
        (BEGIN, 1, 30, PROCESS, 0),
        (BEGIN, 1, 40, PROCESS, 0),  # the end of the former is lost
        (END, 1, 50, PROCESS, 0),
        (BEGIN, 3, 45, None, 0),  # crosses it
        (END, 3, 55, None, 0),
        (BEGIN, 1, 12, PROCESS, 1),  # another GPU
        (END, 1, 14, PROCESS, 1),
        (BEGIN, 4, 60, None, 0),  # lasts
        (BEGIN, 5, 52, PROCESS, None),
        (BEGIN, 5, 2**63 - 1, PROCESS, 0),
    )
    processes = (("globalPid", "name"), [(PROCESS, "/usr/bin/train"), (OTHER, "other")])
    tables = {"GPU_CONTEXT_SWITCH_EVENTS": (COLUMNS, table), "PROCESSES": processes}
    kernels = (
        (
            "start",
            "end",
            "globalPid",
            "deviceId",
            "contextId",
            "streamId",
            "shortName",
            "demangledName",
            *tuple(f"{kind}{axis}" for kind in ("grid", "block") for axis in "XYZ"),
            "staticSharedMemory",
            "dynamicSharedMemory",
            "localMemoryPerThread",
            "registersPerThread",
        ),
        [(0, 100, PROCESS, 0, 1, 7, 0, 0, *[1] * 10)],
    )
    report = export(tmp_path / "a.sqlite", ["kernel"], {**tables, "CUPTI_ACTIVITY_KIND_KERNEL": kernels})
    trace, summary = translate_reports([report], tmp_path / "x.prv", "gpu_contexts,kernels")
    turns = pair_intervals(trace, CONTEXT)
    names = trace.values[CONTEXT]
    assert sorted((trace.names["THREAD"][e.row], e.begin, e.end, names[e.value]) for e in turns.itertuples()) == [
        ("Metrics GPU0", 10, 20, "train (77), context 1"),
        ("Metrics GPU0", 20, 30, "other (99), context 2"),
        ("Metrics GPU0", 40, 50, "train (77), context 1"),
        ("Metrics GPU0", 60, 100, "context 4"),
        ("Metrics GPU1", 12, 14, "train (77), context 1"),
    ]
    account = get_account(summary, "gpu_contexts")
    assert (account.read, account.written, account.closed_at_end) == (11, 5, 1)
    assert account.dropped == {
        "a step of the switch itself": 1,
        "start of a turn without its end": 1,
        "end of a turn without its start": 1,
        "partly overlaps another turn on its GPU": 1,
        "no context, GPU or time": 2,
    }


@pytest.mark.skipif(not REPORTS.exists(), reason=NO_REPORTS)
def test_capture_against_sql(tmp_path: Path) -> None:
    report = REPORTS / "gpu/um-1.sqlite"
    with closing(sqlite3.connect(f"file:{report}?mode=ro&immutable=1", uri=True)) as database:
        (utc,) = database.execute("SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME").fetchone()
        expected = database.execute(
            "SELECT b.timestamp, min(e.timestamp) FROM GPU_CONTEXT_SWITCH_EVENTS b JOIN GPU_CONTEXT_SWITCH_EVENTS e"
            " ON b.tag = 8 AND e.tag = 7 AND b.contextId = e.contextId AND b.gpuId = e.gpuId"
            " AND e.timestamp > b.timestamp GROUP BY b.timestamp"
        ).fetchall()
    assert len(expected) == 2
    summary = translate([report], tmp_path / "x.prv", TranslationPlan(sources=select_sources("gpu_contexts")))
    start = summary.start_utc_ns - utc
    turns = pair_intervals(read_trace(tmp_path / "x.prv"), CONTEXT)
    assert sorted((e.begin + start, e.end + start) for e in turns.itertuples()) == expected
