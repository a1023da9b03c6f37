"""OpenACC. No capture is at hand, so the tests make small exports with the columns of real exports."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sources.small_reports import MAIN, WORKER, export, get_account, translate_reports
from tests.trace_reader import Trace, pair_intervals

OTHER, DATA, LAUNCH = 66000000, 66000001, 66000002
BYTES, VARIABLE, KERNEL, GANGS, WORKERS, VECTOR = range(66300001, 66300007)
_BASE = (
    "start",
    "end",
    "nameId",
    "globalTid",
    "eventKind",
    "DeviceType",
    "lineNo",
    "cuDeviceId",
    "srcFile",
    "funcName",
)
STRINGS = ["acc", "/home/one/saxpy.c", "main", "x", "main_12_gpu"]
FILE, FUNCTION, VARIABLE_X, KERNEL_NAME = 1, 2, 3, 4


def base(start: int | None, end: int | None, kind: int | None, line: int = 12, thread: int | None = MAIN) -> tuple:
    return (start, end, 0, thread, kind, 4, line, 0, FILE, FUNCTION)


TABLES = {
    "CUPTI_ACTIVITY_KIND_OPENACC_OTHER": (
        _BASE,
        [base(10, 100, 9), base(20, 30, 7), base(110, 120, 1), base(130, None, 1)],
    ),
    "CUPTI_ACTIVITY_KIND_OPENACC_DATA": (
        (*_BASE, "bytes", "varName"),
        [
            (*base(40, 80, 11, 9), None, None),
            (*base(50, 60, 5, 9), 4096, VARIABLE_X),  # within the former
            (*base(55, 70, 5, 9), 64, VARIABLE_X),  # crosses it
            (*base(85, 86, 77, 9), 0, None),
            (*base(85, 86, 5, 9, None), 7, None),
        ],
    ),
    "CUPTI_ACTIVITY_KIND_OPENACC_LAUNCH": (
        (*_BASE, "numGangs", "numWorkers", "vectorLength", "kernelName"),
        [(*base(88, 90, 4), 80, 4, 128, KERNEL_NAME), (*base(88, 90, 4, 12, WORKER), None, None, None, None)],
    ),
}


@pytest.fixture
def translated(tmp_path: Path) -> tuple[Trace, dict[str, int], tuple[int, int]]:
    trace, summary = translate_reports([export(tmp_path / "a.sqlite", STRINGS, TABLES)], tmp_path / "x.prv", "openacc")
    account = get_account(summary, "openacc")
    return trace, account.dropped, (account.read, account.written)


def shown(trace: Trace, *event_types: int) -> list[tuple[int, int, int, str]]:
    intervals = pair_intervals(trace, *event_types)
    return sorted((e.begin + 10, e.end + 10, e.row, trace.values[e.type][e.value]) for e in intervals.itertuples())


def test_kinds_of_each_activity(translated: tuple[Trace, dict[str, int], tuple[int, int]]) -> None:
    trace, dropped, counts = translated
    assert shown(trace, OTHER) == [(10, 100, 0, "Compute construct"), (20, 30, 0, "Wait"), (110, 120, 0, "Device init")]
    assert shown(trace, DATA) == [
        (40, 80, 0, "Enter data"),
        (50, 60, 0, "Enqueue upload"),
        (85, 86, 0, "Unknown event"),
    ]
    assert shown(trace, LAUNCH) == [(88, 90, 0, "Enqueue launch"), (88, 90, 1, "Enqueue launch")]
    assert counts == (11, 8)
    assert dropped == {"no start or end": 1, "partly overlaps another call on its thread": 1, "no thread": 1}


def test_lines_and_functions_last_as_long(translated: tuple[Trace, dict[str, int], tuple[int, int]]) -> None:
    trace, _, _ = translated
    for i, event_type in enumerate((OTHER, DATA, LAUNCH)):
        intervals = [interval[:3] for interval in shown(trace, event_type)]
        line = "saxpy.c:9" if event_type == DATA else "saxpy.c:12"
        assert shown(trace, 66100000 + i) == [(*interval, line) for interval in intervals]
        assert shown(trace, 66200000 + i) == [(*interval, "main") for interval in intervals]


def test_sizes_and_names(translated: tuple[Trace, dict[str, int], tuple[int, int]]) -> None:
    trace, _, _ = translated

    def of(event_type: int) -> list[tuple[int, int, int]]:
        events = trace.events[trace.events["type"] == event_type]
        return [(e.time + 10, e.row, e.value) for e in events.itertuples()]

    assert of(BYTES) == [(40, 0, 0), (50, 0, 4096), (60, 0, 0), (80, 0, 0), (85, 0, 0), (86, 0, 0)]
    assert [(time, trace.values[VARIABLE][value]) for time, _, value in of(VARIABLE)] == [(50, "x")]
    assert [(time, trace.values[KERNEL][value]) for time, _, value in of(KERNEL)] == [(88, "main_12_gpu")]
    assert [of(event_type) for event_type in (GANGS, WORKERS, VECTOR)] == [[(88, 0, 80)], [(88, 0, 4)], [(88, 0, 128)]]


def test_only_waits_say_what_a_thread_does(translated: tuple[Trace, dict[str, int], tuple[int, int]]) -> None:
    trace, _, _ = translated
    synchronization = trace.states[trace.states["state"] == 5]
    assert [(s.begin + 10, s.end + 10, s.row) for s in synchronization.itertuples()] == [(20, 30, 0)]


def test_exports_of_before_2023_lack_columns(tmp_path: Path) -> None:
    columns = ("start", "end", "globalTid", "eventKind")
    tables = {"CUPTI_ACTIVITY_KIND_OPENACC_DATA": (columns, [(10, 20, MAIN, 13)])}
    trace, _ = translate_reports([export(tmp_path / "a.sqlite", [], tables)], tmp_path / "x.prv", "openacc")
    assert shown(trace, DATA) == [(10, 20, 0, "Create")]
    assert set(trace.events["type"]) == {DATA, BYTES}
