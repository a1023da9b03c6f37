"""System calls. No capture is at hand, so the tests make small exports with the documented columns."""

from __future__ import annotations

from pathlib import Path

from nsys2prv_ng.sources.shared.source_options import SourceOptions
from tests.sources.small_reports import MAIN, WORKER, export, get_account, translate_reports
from tests.trace_reader import pair_intervals

SYSTEM_CALL = 66410000
COLUMNS = ("start", "end", "eventClass", "globalTid", "nameId", "callchainId")
STRINGS = ["futex", "read", "getpid"]
ROWS = [
    (20, 60, 82, MAIN, 0, 0),
    (70, 90, 82, MAIN, 1, 0),
    (95, 96, 82, MAIN, 2, 0),
    (30, 70, 82, WORKER, 2, 0),
    (80, None, 82, WORKER, 2, 0),
    (80, 90, 82, None, 2, 0),
]


def test_calls_with_names_and_states(tmp_path: Path) -> None:
    report = export(tmp_path / "a.sqlite", STRINGS, {"SYSCALL": (COLUMNS, ROWS)})
    trace, summary = translate_reports([report], tmp_path / "x.prv", "system_calls", SourceOptions(osrt_min=5))
    intervals = pair_intervals(trace, SYSTEM_CALL)
    assert sorted((e.begin + 20, e.end + 20, e.row, trace.values[e.type][e.value]) for e in intervals.itertuples()) == [
        (20, 60, 0, "futex"),
        (30, 70, 1, "getpid"),
        (70, 90, 0, "read"),
    ]
    account = get_account(summary, "system_calls")
    assert (account.read, account.written) == (6, 3)
    assert account.dropped == {"no start or end": 1, "no thread": 1, "shorter than the minimum of 5ns": 1}
    blocked, input_output, running = 9, 12, 1
    main = trace.states[trace.states["row"] == 0]
    assert [(s.begin + 20, s.end + 20, s.state) for s in main.itertuples()] == [
        (20, 60, blocked),
        (60, 70, running),
        (70, 90, input_output),
    ]


def test_a_process_that_only_makes_system_calls_is_a_task_but_no_rank(tmp_path: Path) -> None:
    other = 1 << 48 | 99 << 24 | 99
    tables = {
        "SYSCALL": (COLUMNS, [(20, 60, 82, other, 0, 0)]),
        "CUPTI_ACTIVITY_KIND_RUNTIME": (
            ("start", "end", "globalTid", "nameId", "correlationId"),
            [(20, 60, MAIN, 1, 1)],
        ),
    }
    trace, _ = translate_reports(
        [export(tmp_path / "a.sqlite", STRINGS, tables)],
        tmp_path / "x.prv",
        "cuda_api,system_calls",
        SourceOptions(osrt_min=0),
    )
    assert len(trace.threads) == 2
    assert set(trace.events[trace.events["type"] == SYSTEM_CALL]["task"]) == {2}


def test_callers_are_those_of_the_chain(tmp_path: Path) -> None:
    strings = ["futex", "libc.so.6", "wait", "work", "main"]
    tables = {
        "SYSCALL": (COLUMNS, [(20, 60, 82, MAIN, 0, 1), (70, 90, 82, MAIN, 0, 2), (92, 93, 82, MAIN, 0, 1)]),
        "SYSCALL_CALLCHAINS": (
            ("id", "stackDepth", "symbol", "module", "unresolved"),
            [(1, 0, 2, 1, 0), (1, 1, 3, 1, 0), (1, 2, 4, 1, 0)],
        ),
    }
    options = SourceOptions(osrt_min=5, stack_depth=2)
    trace, _ = translate_reports(
        [export(tmp_path / "a.sqlite", strings, tables)], tmp_path / "x.prv", "system_calls", options
    )
    callers = trace.events[trace.events["type"].between(70000001, 70000100)]
    assert [(e.time + 20, e.type - 70000000, trace.values[e.type][e.value]) for e in callers.itertuples()] == [
        (20, 1, "wait"),
        (20, 2, "work"),
    ]
