"""UCX, of which no capture is at hand: small exports with the columns of real exports that have no events."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.sources.small_reports import MAIN, WORKER, export, get_account, translate_reports
from tests.trace_reader import pair_intervals

CALL, BYTES, TAG, PEER, TRANSFERRED, FIRST_LANE, LANES = 66420000, 66420001, 66420002, 66420003, 66420004, 66420010, 16
CALLS = ("start", "end", "globalTid", "textId")
MESSAGES = (*CALLS, "bufferAddr", "packedSize", "peerWorkerUid", "tag")
STRINGS = ["ucp_worker_progress", "ucp_tag_send_nbx", "ucp_tag_recv_nbx"]
HERE, THERE, ELSEWHERE = 0x11, 0x22, -2
"""Uids of workers: of this report's process, of the other's, and of one that no report is of."""


@pytest.mark.slow
def test_calls_and_what_they_send(tmp_path: Path) -> None:
    tables = {
        "UCP_EVENTS": (CALLS, [(10, 30, MAIN, 0), (50, None, MAIN, 0)]),
        "UCP_SUBMIT_EVENTS": (
            MESSAGES,
            [
                (12, 14, MAIN, 1, 0, 4096, THERE, 7),  # within the progress of a worker
                (20, 22, WORKER, 2, 0, None, None, None),
                (40, 42, MAIN, 1, 0, 0, ELSEWHERE, 0),
                (13, 35, MAIN, 1, 0, 1, THERE, 0),  # crosses it
            ],
        ),
        "UCP_WORKERS": (("globalTid", "workerUid"), [(MAIN, HERE)]),
    }
    there = 1 << 48 | 88 << 24 | 88
    others = {
        "UCP_SUBMIT_EVENTS": (MESSAGES, [(12, 14, there, 2, 0, 4096, HERE, 7)]),
        "UCP_WORKERS": (("globalTid", "workerUid"), [(there + 1, THERE)]),  # of a thread without a row
    }
    reports = [
        export(tmp_path / "a.sqlite", STRINGS, tables),
        export(tmp_path / "b.sqlite", STRINGS, others, host="other"),
    ]
    trace, summary = translate_reports(reports, tmp_path / "x.prv", "ucx")
    names = trace.names["TASK"]
    in_trace = pair_intervals(trace, CALL)
    assert sorted((e.begin + 10, e.end + 10, e.row, trace.values[CALL][e.value]) for e in in_trace.itertuples()) == [
        (10, 30, 0, "ucp_worker_progress"),
        (12, 14, 0, "ucp_tag_send_nbx"),
        (12, 14, 2, "ucp_tag_recv_nbx"),
        (20, 22, 1, "ucp_tag_recv_nbx"),
        (40, 42, 0, "ucp_tag_send_nbx"),
    ]
    details = {t: trace.events[trace.events["type"] == t] for t in (BYTES, TAG, PEER)}
    assert [(e.time + 10, e.row, e.value) for e in details[BYTES].itertuples()] == [
        (12, 0, 4096),
        (12, 2, 4096),
        (40, 0, 0),
    ]
    assert [(e.time + 10, e.row, e.value) for e in details[TAG].itertuples()] == [(12, 0, 7), (12, 2, 7), (40, 0, 0)]
    peers = [(e.time + 10, e.row, e.value, trace.values[PEER][e.value]) for e in details[PEER].itertuples()]
    assert peers == [(12, 0, 2, names[1]), (12, 2, 1, names[0]), (40, 0, 3, "worker 0xfffffffffffffffe")]
    counts = get_account(summary, "ucx")
    assert (counts.read, counts.written) == (7, 5)
    assert counts.dropped == {"no start or end": 1, "partly overlaps another call on its thread": 1}


@pytest.mark.slow
def test_a_worker_that_several_tasks_have_is_no_task(tmp_path: Path) -> None:
    owned = {"UCP_WORKERS": (("globalTid", "workerUid"), [(MAIN, HERE)])}
    sent = {"UCP_SUBMIT_EVENTS": (MESSAGES, [(12, 14, MAIN, 1, 0, 4096, HERE, 7)])}
    reports = [export(tmp_path / f"{i}.sqlite", STRINGS, {**owned, **sent}, host=f"h{i}") for i in range(2)]
    trace, _ = translate_reports(reports, tmp_path / "x.prv", "ucx")
    assert trace.values[PEER] == {3: "worker 0x11"}


def test_transfers_that_overlap_are_on_lanes(tmp_path: Path) -> None:
    """All that fit are shown with their names, none overlaps another of its lane, and sizes add up."""
    random = np.random.default_rng(5)
    begin = np.sort(random.integers(0, 4000, 300))
    end = begin + random.integers(0, 150, 300)
    thread = np.where(random.random(300) < 0.5, MAIN, WORKER)
    size = random.integers(0, 10**6, 300)
    name = random.integers(1, 3, 300)
    rows = [
        (int(b), int(e), int(t), int(n), 0, int(s), None, None)
        for b, e, t, n, s in zip(begin, end, thread, name, size, strict=True)
    ]
    report = export(tmp_path / "a.sqlite", STRINGS, {"UCP_PROGRESS_EVENTS": (MESSAGES, rows)})
    trace, summary = translate_reports([report], tmp_path / "x.prv", "ucx")
    lanes = range(FIRST_LANE, FIRST_LANE + LANES)
    in_trace = pair_intervals(trace, *lanes)
    origin = int(begin.min())
    shown = sorted(
        (e.begin + origin, e.end + origin, [MAIN, WORKER][e.row], STRINGS.index(trace.values[e.type][e.value]))
        for e in in_trace.itertuples()
    )
    assert shown == sorted((b, e, t, n) for b, e, t, n, *_ in rows)
    for _, lane in in_trace.sort_values("begin").groupby(["row", "type"]):
        assert (lane["begin"].to_numpy()[1:] >= lane["end"].to_numpy()[:-1]).all()
    assert trace.events[trace.events["type"] == TRANSFERRED]["value"].sum() == size.sum()
    assert get_account(summary, "ucx").dropped == {}


def test_more_transfers_at_a_time_than_lanes_are_counted(tmp_path: Path) -> None:
    rows = [(10 + i, 1000, MAIN, 1, 0, 1, None, None) for i in range(LANES + 3)]
    report = export(tmp_path / "a.sqlite", STRINGS, {"UCP_PROGRESS_EVENTS": (MESSAGES, rows)})
    trace, summary = translate_reports([report], tmp_path / "x.prv", "ucx")
    counts = get_account(summary, "ucx")
    assert (counts.read, counts.written) == (LANES + 3, LANES)
    assert counts.dropped == {f"more than {LANES} transfers at a time on its thread": 3}
    assert sorted(t for t in trace.types if t >= FIRST_LANE) == list(range(FIRST_LANE, FIRST_LANE + LANES))


def test_workers_alone_are_no_events(tmp_path: Path) -> None:
    tables = {"UCP_WORKERS": (("globalTid", "workerUid"), [(MAIN, HERE)]), "UCP_EVENTS": (CALLS, [(10, 30, WORKER, 0)])}
    trace, _ = translate_reports([export(tmp_path / "a.sqlite", STRINGS, tables)], tmp_path / "x.prv", "ucx")
    assert len(trace.names["THREAD"]) == 1
