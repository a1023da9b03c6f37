"""Callers of calls against plain SQL on the reports; which frames of CUDA's own are none; chains in any order."""

from __future__ import annotations

import sqlite3
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsys2prv_ng.report.database import Database
from nsys2prv_ng.report.metadata import Strings, read_metadata
from nsys2prv_ng.sources.cuda import cuda_api
from nsys2prv_ng.sources.shared.host_calls import Frames, _take_innermost, find_frames, read_cuda_chains
from nsys2prv_ng.sources.shared.report_reader import ReportReader
from nsys2prv_ng.sources.shared.source_options import SourceOptions
from tests.sources.host.host_reports import (
    UTC,
    cut_idle_calls,
    find_idle_threads,
    make_tid,
    number_thread_rows,
    translate_sources,
    write_small_report,
)
from tests.sources.host.test_cpu_samples import ShownLabels, shown
from tests.spans import list_reports_with
from tests.trace_reader import Trace

OS_RUNTIME, PTHREAD, CUDA_API, CALLER = 66400000, 61000000, 63000000, 70000000
OSRT = ("OSRT_API", "start end eventClass globalTid nameId callchainId")
RUNTIME = ("CUPTI_ACTIVITY_KIND_RUNTIME", "start end globalTid nameId callchainId")
COLUMNS = "id symbol module unresolved stackDepth"


def begins(trace: Trace, utc: int, start: int, *event_types: int) -> list[tuple[int, int, ShownLabels]]:
    """Return row, start and labels of the callers of each call that has callers."""
    events = trace.events
    opening = set(events.loc[events["type"].isin(event_types) & (events["value"] != 0), "line"])
    caller_events = events[events["type"].between(CALLER, CALLER + 100)]
    assert set(caller_events["line"]) <= opening
    calls_by_line: dict[int, tuple[int, int, ShownLabels]] = {}
    for event in caller_events.itertuples():
        _, _, labels = calls_by_line.setdefault(event.line, (event.row, event.time + start - utc, {}))
        labels[event.type] = trace.values[event.type][event.value]
    return list(calls_by_line.values())


def comparable(calls: Sequence[tuple[int, int, ShownLabels]]) -> Counter[object]:
    return Counter(
        (row, time, tuple(sorted((t, label[:400]) for t, label in labels.items()))) for row, time, labels in calls
    )


@pytest.mark.parametrize(("depth", "shortest"), [(1, 10_000), (100, 1_000_000)])
@pytest.mark.parametrize("path", list_reports_with("OSRT_CALLCHAINS"))
def test_callers_of_a_report_are_all_there(path: Path, depth: int, shortest: int, tmp_path: Path) -> None:
    connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)
    connection.text_factory = lambda text: text.decode(errors="replace")
    utc = connection.execute("SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME").fetchone()[0]
    calls = connection.execute(
        """SELECT rowid, start, "end", globalTid FROM OSRT_API WHERE eventClass = 27 AND "end" - start >= ?""",
        (shortest,),
    ).fetchall()
    every = pd.DataFrame(calls, columns=["call", "begin", "end", "tid"])
    calls = cut_idle_calls(every, find_idle_threads(path))[0][["call", "begin", "tid"]].itertuples(index=False)
    frames = connection.execute(
        """SELECT o.rowid, stackDepth, s.value, m.value, unresolved FROM OSRT_API o
        JOIN OSRT_CALLCHAINS c ON c.id = o.callchainId JOIN StringIds s ON s.id = symbol
        JOIN StringIds m ON m.id = module WHERE stackDepth BETWEEN 1 AND ? AND "end" - start >= ?""",
        (depth, shortest),
    ).fetchall()
    connection.close()
    labels: dict[int, ShownLabels] = {}
    for call, level, symbol, module, unresolved in frames:
        labels.setdefault(call, {})[CALLER + level] = shown(symbol, module, unresolved)
    rows = number_thread_rows(every["tid"])
    expected = [(rows[thread], time, labels[call]) for call, time, thread in calls if call in labels]
    assert expected

    summary, trace = translate_sources(
        [path], tmp_path, "os_runtime", SourceOptions(osrt_min=shortest, stack_depth=depth)
    )
    got = begins(trace, utc, summary.start_utc_ns, OS_RUNTIME, PTHREAD)
    assert comparable(got) == comparable(expected)
    assert trace.types[CALLER + 1] == "Caller at level 1"


STRINGS = [
    "poll",  # 0
    "pthread_join",
    "__poll",
    "wait_for_work",
    "main",
    "/lib/libc.so.6",
    "/home/u/prog",
    "0x7f00",  # 7
    "/usr/lib64/libcuda.so.525.105.17",
    "cuMemAlloc_v2",
    "cudart::cudaApiMalloc(void**, unsigned long)",
    "cudaMalloc",
    "cudaError cudaMalloc<float>(float**, unsigned long)",
    "/venv/lib/libcudart-d0da41ae.so.11.0",  # 13
    "__cudart516",
    "cublasCreate_v2",
    "/venv/lib/libcublas.so.13",
    "cudaMalloc_v3020",
    "custom_allocator",  # 18
    "/opt/nsys/libToolsInjection64.so",
    "cudaMallocChecked",  # a program's own
    "cudaMalloc@@libcudart.so.11.0",  # 21
]
(POLL, JOIN, LEAF, WAIT, MAIN, LIBC, PROG, ADDRESS, LIBCUDA, DRIVER, RUNTIME_INSIDE, MALLOC, WRAPPER, LIBCUDART, STATIC,
 CUBLAS, LIBCUBLAS, MALLOC_CALL, CUSTOM, INJECTION, OWN, VERSIONED) = range(22)  # fmt: skip


@pytest.mark.slow
def test_only_calls_that_are_shown_leave_their_callers(tmp_path: Path) -> None:
    chains = [(i, symbol, PROG, 0, depth) for i in range(1, 7) for depth, symbol in enumerate((LEAF, WAIT, MAIN))]
    chains += [(7, LEAF, LIBC, 0, 0), (8, MAIN, PROG, 0, 2)]
    main = make_tid(7)
    calls = [
        (100_000, 200_000, 27, main, POLL, 1),
        (300_000, 309_999, 27, main, POLL, 2),  # shorter
        (400_000, 500_000, 27, None, POLL, 3),
        (400_000, 500_000, 27, main, JOIN, 4),
        (450_000, 550_000, 27, main, POLL, 5),  # crosses
        (0, 0, 31, main, POLL, 6),  # no call
        (600_000, 700_000, 27, main, POLL, 7),  # of nothing but the call itself
        (700_000, 800_000, 27, main, POLL, 8),  # of an outer frame only
        (800_000, 900_000, 27, main, POLL, 0),
        (900_000, 950_000, 27, main, POLL, None),
        (950_000, 999_000, 27, main, POLL, 99),
    ]
    report = write_small_report(tmp_path / "r.sqlite", {OSRT: calls, ("OSRT_CALLCHAINS", COLUMNS): chains}, STRINGS)
    summary, trace = translate_sources([report], tmp_path, "os_runtime", SourceOptions(stack_depth=2))
    both = {CALLER + 1: "wait_for_work", CALLER + 2: "main"}
    expected = [(0, 100_000, both), (0, 400_000, both), (0, 700_000, {CALLER + 2: "main"})]
    calls = begins(trace, UTC, summary.start_utc_ns, OS_RUNTIME, PTHREAD)
    assert sorted(calls, key=lambda call: call[1]) == expected
    assert set(trace.values[CALLER + 1].values()) == {"wait_for_work", "main"}
    _, trace = translate_sources([report], tmp_path, "os_runtime")
    assert CALLER + 2 not in trace.types


def test_the_caller_of_cuda_is_outside_of_cuda(tmp_path: Path) -> None:
    """Chains as in NVIDIA's documentation: of a call of the driver that the runtime makes, and others."""
    frames_of_chain = {
        0: [(ADDRESS, LIBCUDA, 1), (DRIVER, LIBCUDA, 0), (RUNTIME_INSIDE, PROG, 0), (MALLOC, PROG, 0),
            (WRAPPER, PROG, 0), (MAIN, PROG, 0)],
        1: [(ADDRESS, LIBCUDART, 1), (MALLOC, LIBCUDART, 0), (ADDRESS, LIBCUBLAS, 1), (CUBLAS, LIBCUBLAS, 0),
            (MAIN, PROG, 0)],
        2: [(ADDRESS, INJECTION, 1), (STATIC, PROG, 0), (CUSTOM, PROG, 0), (ADDRESS, LIBCUDA, 1), (MAIN, PROG, 0)],
        3: [(ADDRESS, LIBCUDA, 1), (MALLOC, PROG, 0), (VERSIONED, PROG, 0)],
        5: [(ADDRESS, LIBCUDA, 1), (MALLOC, PROG, 0), (OWN, PROG, 0), (MAIN, PROG, 0)],
    }  # fmt: skip
    chains = [(i, *frame, depth) for i, frames in frames_of_chain.items() for depth, frame in enumerate(frames)]
    calls = [(100_000 * i, 100_000 * i + 50_000, make_tid(7), MALLOC_CALL, i) for i in range(6)]
    tables = {RUNTIME: calls, ("CUDA_CALLCHAINS", COLUMNS): [*chains[::-1], (1, CUSTOM, PROG, 0, 2)]}
    report = write_small_report(tmp_path / "r.sqlite", tables, STRINGS)
    summary, trace = translate_sources([report], tmp_path, "cuda_api", SourceOptions(stack_depth=3))
    assert sorted(begins(trace, UTC, summary.start_utc_ns, CUDA_API), key=lambda call: call[1]) == [
        (0, 0, {CALLER + 1: STRINGS[WRAPPER], CALLER + 2: "main"}),
        (0, 100_000, {CALLER + 1: "(libcublas.so.13)", CALLER + 2: "cublasCreate_v2", CALLER + 3: "main"}),
        (0, 200_000, {CALLER + 1: "custom_allocator", CALLER + 2: "(libcuda.so.525.105.17)", CALLER + 3: "main"}),
        (0, 500_000, {CALLER + 1: "cudaMallocChecked", CALLER + 2: "main"}),
    ]
    summary, trace = translate_sources([report], tmp_path, "cuda_api")
    calls = begins(trace, UTC, summary.start_utc_ns, CUDA_API)
    assert sorted(labels[CALLER + 1] for _, _, labels in calls) == [
        "(libcublas.so.13)", STRINGS[WRAPPER], "cudaMallocChecked", "custom_allocator"
    ]  # fmt: skip


def test_a_report_without_chains_says_nothing_of_callers(tmp_path: Path) -> None:
    calls = [(100_000, 200_000, make_tid(7), MALLOC_CALL)]
    report = write_small_report(tmp_path / "r.sqlite", {(RUNTIME[0], "start end globalTid nameId"): calls}, STRINGS)
    _, trace = translate_sources([report], tmp_path, "cuda_api")
    assert set(trace.events["type"]) == {CUDA_API}


def test_long_names_of_calls_cost_no_time(tmp_path: Path) -> None:
    """A regular expression of these names takes 10 s."""
    names = [40_000 * "A" + name for name in STRINGS]
    calls = [(100_000 * i, 100_000 * i + 50_000, make_tid(7), i, 1) for i in range(len(names))]
    tables = {RUNTIME: calls, ("CUDA_CALLCHAINS", COLUMNS): [(1, MALLOC, PROG, 0, 0), (1, MAIN, PROG, 0, 1)]}
    database = Database(write_small_report(tmp_path / "r.sqlite", tables, names))
    strings = Strings(database)
    reader = ReportReader(
        database, read_metadata(database, strings), strings, {"cuda_api": cuda_api.SOURCE.tables}, SourceOptions()
    )
    begin = time.process_time()
    frames, _ = find_frames(read_cuda_chains(reader, set(names) - {names[MAIN]}), 0, np.array([1]))
    assert time.process_time() - begin < 2
    assert frames.name.tolist() == [MAIN]


SMALL = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 5)), max_size=30)


@given(SMALL, st.integers(1, 4))
def test_the_first_frames_of_each_chain(rows: list[tuple[int, int]], count: int) -> None:
    chain, depth = np.array(rows, np.int64).reshape(-1, 2).T
    frames, level = _take_innermost(chain, depth, count)
    expected = []
    for one_chain in sorted(set(chain.tolist())):
        depths = sorted({d for c, d in rows if c == one_chain})[:count]
        expected += [(rows.index((one_chain, d)), n) for n, d in enumerate(depths)]
    assert list(zip(frames.tolist(), level.tolist(), strict=True)) == expected


@given(st.lists(SMALL, max_size=3), st.lists(st.integers(-1, 6), max_size=10), st.integers(0, 6))
def test_frames_are_found_by_chain_and_level(parts: list[list[tuple[int, int]]], wanted: list[int], level: int) -> None:
    everything = [row for part in parts for row in part]
    made, number = [], 0
    for part in parts:
        chain, at = np.array(part, np.int64).reshape(-1, 2).T
        name = np.arange(number, number + len(part))
        made.append(Frames(chain, at, name, name, np.zeros(len(part), np.bool_)))
        number += len(part)
    frames, present = find_frames(made, level, np.array(wanted, np.int64))
    assert present.tolist() == [(chain, level) in everything for chain in wanted]
    expected = [everything.index((chain, level)) for chain in wanted if (chain, level) in everything]
    assert frames.name.tolist() == expected
