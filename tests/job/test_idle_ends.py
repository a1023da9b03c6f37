"""A trace ends with the work: planted threads that wait in calls when all else has ended."""

from __future__ import annotations

from pathlib import Path

import pytest

import nsys2prv_ng
from nsys2prv_ng.paraver.checker.trace import check_trace
from nsys2prv_ng.sources.shared.reasons import AFTER_ALL_ELSE
from tests.sources.host.host_reports import (
    UTC,
    collect_in_report_time,
    get_account,
    make_tid,
    translate_sources,
    write_small_report,
)
from tests.trace_reader import read_trace

OS_RUNTIME = 66400000
BLOCKED = 9
COLUMNS = "start end eventClass globalTid nameId"
CUDA_COLUMNS = "start end eventClass globalTid correlationId nameId returnValue callchainId"
MAIN, IDLE, CALLING = make_tid(7), make_tid(7, 8), make_tid(7, 9)
NAMES = ["poll", "read", "cudaLaunchKernel_v7000"]


def test_calls_of_idle_threads_end_with_all_else(tmp_path: Path) -> None:
    calls = [
        (100_000, 1_000_000, 27, MAIN, 0),
        (200_000, 3_000_000, 27, IDLE, 0),  # cut, with what is in it
        (900_000, 2_000_000, 27, IDLE, 1),
        (1_500_000, 1_700_000, 27, IDLE, 1),  # begins too late
        (300_000, 500_000, 27, IDLE, 1),
        (3_100_000, 3_200_000, 27, IDLE, 0),
    ]
    report = write_small_report(tmp_path / "r.sqlite", {("OSRT_API", COLUMNS): calls}, NAMES)
    result, trace = translate_sources([report], tmp_path, "os_runtime")
    account = get_account(result, "os_runtime")
    assert (account.read, account.cut_at_end, account.dropped) == (6, 2, {AFTER_ALL_ELSE: 2})
    assert trace.duration == result.duration_ns == 900_000
    assert "os_runtime: 2 of idle threads cut" in result.text()
    got = collect_in_report_time(trace, result, UTC, OS_RUNTIME)
    assert sorted(got[["row", "begin", "end", "name"]].itertuples(index=False, name=None)) == [
        (0, 100_000, 1_000_000, "poll"),
        (1, 200_000, 1_000_000, "poll"),
        (1, 300_000, 500_000, "read"),
        (1, 900_000, 1_000_000, "read"),
    ]
    assert trace.states[trace.states["state"] == BLOCKED]["end"].tolist() == [900_000, 900_000]


@pytest.mark.parametrize("end", [900_001, 100_000_000])
def test_states_end_with_the_trace_in_a_window_that_reaches_beyond_it(tmp_path: Path, end: int) -> None:
    calls = [(100_000, 1_000_000, 27, MAIN, 0), (200_000, 3_000_000, 27, IDLE, 0)]
    report = write_small_report(tmp_path / "r.sqlite", {("OSRT_API", COLUMNS): calls}, NAMES)
    nsys2prv_ng.translate(report, tmp_path / "window.prv", time=(50_000, end))
    assert check_trace(tmp_path / "window.prv").problems == []
    states = read_trace(tmp_path / "window.prv").states
    assert states[states["state"] == BLOCKED][["begin", "end"]].to_numpy().tolist() == [[1, 850_001], [50_001, 850_001]]


def test_a_thread_that_did_more_is_not_idle(tmp_path: Path) -> None:
    calls = [(100_000, 1_000_000, 27, MAIN, 0), (200_000, 3_000_000, 27, CALLING, 0)]
    cuda = [(250_000, 260_000, 0, CALLING, 1, 2, 0, None)]
    tables = {("OSRT_API", COLUMNS): calls, ("CUPTI_ACTIVITY_KIND_RUNTIME", CUDA_COLUMNS): cuda}
    report = write_small_report(tmp_path / "r.sqlite", tables, NAMES)
    result, trace = translate_sources([report], tmp_path, "os_runtime")
    assert (trace.duration, get_account(result, "os_runtime").cut_at_end) == (2_900_000, 0)


def test_a_trace_that_is_hardly_longer_stays_whole(tmp_path: Path) -> None:
    for end, duration in ((1_090_000, 990_000), (1_090_001, 900_000)):  # a tenth of 900 us longer, and more
        calls = [(100_000, 1_000_000, 27, MAIN, 0), (200_000, end, 27, IDLE, 0)]
        folder = tmp_path / str(end)
        folder.mkdir()
        report = write_small_report(folder / "r.sqlite", {("OSRT_API", COLUMNS): calls}, NAMES)
        _, trace = translate_sources([report], folder, "os_runtime")
        assert trace.duration == duration


def test_idle_threads_alone_are_shown_as_they_are(tmp_path: Path) -> None:
    calls = [(200_000, 3_000_000, 27, IDLE, 0)]
    report = write_small_report(tmp_path / "r.sqlite", {("OSRT_API", COLUMNS): calls}, NAMES)
    _, trace = translate_sources([report], tmp_path, "os_runtime")
    assert trace.duration == 2_800_000
