"""CUDA events and synchronization against plain SQL."""

from __future__ import annotations

import contextlib
import sqlite3
from collections import Counter
from pathlib import Path

import pytest

from tests.report_sets import find_set, sets
from tests.sources.small_reports import MAIN, PROCESS, UTC, WORKER, export, get_account, read_utc, translate_reports
from tests.trace_reader import Trace, pair_intervals

SYNC, WAITED_FOR, RECORDED = 63000220, 63000221, 63000222
EVENT, DEVICE, STREAM, CONTEXT = 9301, 9302, 9303, 9304
NONE = 0xFFFFFFFF

SETS = (
    *("samples/ddp-2x2", "samples/single-graph", "gpu/oneproc-4gpu"),
    *("public/pipit_cloverleaf", "public/mfu_2gpu_before"),
)
# By what the calls are called: what they wait for is known without the record.
KIND_OF_CALL = {
    "cudaEventQuery": "Event synchronization",
    "cudaEventSynchronize": "Event synchronization",
    "cudaStreamWaitEvent": "Stream waits for event",
    "cudaStreamSynchronize": "Stream synchronization",
    "cudaDeviceSynchronize": "Context synchronization",
}


def _sql(report: Path, query: str) -> list[tuple[int, ...]]:
    with contextlib.closing(sqlite3.connect(f"{report.resolve().as_uri()}?mode=ro&immutable=1", uri=True)) as database:
        tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master")}
        return database.execute(query).fetchall() if query.split(" FROM ")[1].split()[0] in tables else []


def _row_of_call(trace: Trace) -> dict[int, set[int]]:
    """Return rows with a CUDA call that starts at each time."""
    calls = trace.events[(trace.events["type"] == 63000000) & (trace.events["value"] != 0)]
    rows: dict[int, set[int]] = {}
    for time, row in zip(calls["time"], calls["row"], strict=True):
        rows.setdefault(time, set()).add(row)
    return rows


JOIN = """JOIN CUPTI_ACTIVITY_KIND_RUNTIME r
    ON r.correlationId = y.correlationId AND r.globalTid >> 24 = y.globalPid >> 24
    JOIN StringIds s ON s.id = r.nameId"""


@pytest.mark.slow
@pytest.mark.parametrize("name", sets(SETS))
def test_synchronizations(name: str, tmp_path: Path) -> None:
    reports = find_set(name)
    trace, summary = translate_reports(reports, tmp_path / "x.prv", "cuda_sync,cuda_api")
    at = {number: trace.get_attribute(number) for number in (EVENT, DEVICE, STREAM, CONTEXT, WAITED_FOR)}
    intervals = pair_intervals(trace, SYNC)
    rows = _row_of_call(trace)
    expected, count = Counter(), 0
    call_of = {}
    for report in reports:
        zero = read_utc(report) - summary.start_utc_ns
        count += _sql(report, "SELECT COUNT(*) FROM CUPTI_ACTIVITY_KIND_SYNCHRONIZATION")[0][0]
        query = f"""SELECT y.start, y.end, y.eventId, y.streamId, y.contextId, s.value, r.start
            FROM CUPTI_ACTIVITY_KIND_SYNCHRONIZATION y {JOIN}"""
        for begin, end, event, stream, context, call, called in _sql(report, query):
            kind = KIND_OF_CALL[str(call).partition("_v")[0]]
            ids = [None if i == NONE else i for i in (event, stream, context)]
            expected[(begin + zero, end + zero, kind, *ids)] += 1
            call_of[begin + zero] = called + zero
    assert expected

    def stream_of(line: int) -> int | None:
        """The stream that waits, or is waited for."""
        assert not (line in at[STREAM].index and line in at[WAITED_FOR].index)
        return at[STREAM].get(line, at[WAITED_FOR].get(line))

    assert expected == Counter(
        (e.begin, e.end, trace.values[SYNC][e.value], at[EVENT].get(e.line), stream_of(e.line), at[CONTEXT].get(e.line))
        for e in intervals.itertuples()
    )
    assert all(e.row in rows[call_of[e.begin]] for e in intervals.itertuples())
    waited_for = {trace.values[SYNC][e.value] for e in intervals.itertuples() if e.line in at[WAITED_FOR].index}
    assert waited_for <= {"Stream synchronization"}
    dropped = get_account(summary, "cuda_sync").dropped.get("no call recorded with its correlation id", 0)
    assert dropped == count - sum(expected.values())


@pytest.mark.parametrize("name", sets(SETS))
def test_events(name: str, tmp_path: Path) -> None:
    reports = find_set(name)
    trace, summary = translate_reports(reports, tmp_path / "x.prv", "cuda_sync,cuda_api")
    at = {number: trace.get_attribute(number) for number in (EVENT, DEVICE, STREAM, CONTEXT)}
    points = trace.events[trace.events["type"] == RECORDED]
    rows = _row_of_call(trace)
    expected = Counter()
    for report in reports:
        zero = read_utc(report) - summary.start_utc_ns
        query = f"""SELECT y.eventId, y.deviceId, y.streamId, y.contextId, r.start
            FROM CUPTI_ACTIVITY_KIND_CUDA_EVENT y {JOIN}"""
        expected.update((*ids, called + zero) for *ids, called in _sql(report, query))
    assert expected or "public" in name
    assert expected == Counter(
        (*(at[t][p.line] for t in (EVENT, DEVICE, STREAM, CONTEXT)), p.time) for p in points.itertuples()
    )
    assert all(p.row in rows[p.time] for p in points.itertuples())


def test_devices_are_those_of_the_contexts(tmp_path: Path) -> None:
    """In oneproc-4gpu synchronization names device 0 whatever the context; contexts 1 .. 4 are of devices 0 .. 3."""
    trace, _ = translate_reports(find_set("gpu/oneproc-4gpu"), tmp_path / "x.prv", "cuda_sync")
    device, context = trace.get_attribute(DEVICE), trace.get_attribute(CONTEXT)
    lines = pair_intervals(trace, SYNC)["line"]
    assert {(device[line], context[line]) for line in lines} == {(i, i + 1) for i in range(4)}


# ---- what the reports do not hold ------------------------------------------------------------------------------------

IDS = ("globalPid", "correlationId", "deviceId", "contextId", "streamId", "eventId")


def test_records_that_cannot_be_shown(tmp_path: Path) -> None:
    calls = [(10, 30, WORKER, 0, 1), (40, 90, MAIN, 0, 2), (100, 110, None, 0, 3)]
    synchronizations = [
        (11, 29, 1, PROCESS, 1, 0, 1, NONE, 5),
        (42, 50, 0, PROCESS, 2, 0, 1, 7, NONE),  # of a kind that CUPTI does not know
        (52, 60, 3, PROCESS, 2, 0, 1, 0, None),  # stream 0
        (62, 70, 4, PROCESS, 2, 0, 1, NONE, NONE),
        (55, 65, 3, PROCESS, 2, 0, 1, 7, NONE),  # neither inside nor outside
        (80, 75, 3, PROCESS, 2, 0, 1, 7, NONE),
        (None, 75, 3, PROCESS, 2, 0, 1, 7, NONE),
        (105, 106, 3, PROCESS, 3, 0, 1, 7, NONE),  # its call has no thread
        (71, 72, 3, PROCESS, None, 0, 1, 7, NONE),
        (71, 72, 3, PROCESS + (1 << 24), 2, 0, 1, 7, NONE),  # of another process
        (71, 72, 3, None, 2, 0, 1, 7, NONE),
    ]
    tables = {
        "CUPTI_ACTIVITY_KIND_RUNTIME": (("start", "end", "globalTid", "nameId", "correlationId"), calls),
        "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": (("start", "end", "syncType", *IDS), synchronizations),
        "CUPTI_ACTIVITY_KIND_CUDA_EVENT": (
            ("timestamp", *IDS),
            [(0, PROCESS, 1, 0, 1, 7, 12), (99, PROCESS, 8, 0, 1, 7, 13), (0, None, 1, 0, 1, 7, 14)],
        ),
    }
    report = export(tmp_path / "a.sqlite", ["cudaStreamSynchronize"], tables)
    trace, summary = translate_reports([report], tmp_path / "x.prv", "cuda_sync")
    assert summary.start_utc_ns == UTC + 10
    intervals = pair_intervals(trace, SYNC).sort_values("begin")
    kinds = [trace.values[SYNC][value] for value in intervals["value"]]
    assert list(zip(intervals["begin"] + 10, intervals["end"] + 10, kinds, strict=True)) == [
        (11, 29, "Event synchronization"),
        (42, 50, "Unknown"),
        (52, 60, "Stream synchronization"),
        (62, 70, "Context synchronization"),
    ]
    assert trace.get_attribute(WAITED_FOR).tolist() == [0]
    assert get_account(summary, "cuda_sync").dropped == {
        "no process": 2,
        "no call recorded with its correlation id": 4,
        "no start or end": 1,
        "ends before it starts": 1,
        "partly overlaps another call on its thread": 1,
    }
    point = trace.events[trace.events["type"] == RECORDED]
    assert point["time"].tolist() == [0]
    assert trace.get_attribute(EVENT)[point["line"]].tolist() == [12]


def test_without_calls_nothing_can_be_placed(tmp_path: Path) -> None:
    tables = {"CUPTI_ACTIVITY_KIND_CUDA_EVENT": (IDS, [(PROCESS, 1, 0, 1, 7, 12)])}
    _, summary = translate_reports([export(tmp_path / "a.sqlite", [], tables)], tmp_path / "x.prv", "cuda_sync")
    assert get_account(summary, "cuda_sync").dropped == {"no call recorded with its correlation id": 1}
