"""Memory of CUDA against plain SQL and a plain loop over the changes."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys2prv_ng.sources.cuda import cuda_memory
from tests.conftest import SAMPLES
from tests.examples import examples
from tests.report_sets import find_set, sets
from tests.sources.small_reports import (
    MAIN,
    PROCESS,
    UTC,
    WORKER,
    export,
    get_account,
    read_rows,
    read_utc,
    translate_reports,
)
from tests.trace_reader import Trace

ALLOCATED, FREED, KIND, LEVEL = 66500001, 66500002, 66500003, 66500010
LIFETIME, GPU = 66500004, 66500005
PID = 0xFFFFFF

SETS = ("samples/ddp-2x2", "samples/single-graph", "gpu/single-node", "gpu/um-1", "bench/ddplong-2x2")


def _points(trace: Trace) -> list[tuple[int, int, int, int]]:
    """Return time, type, bytes and kind of each allocation and free."""
    kind = trace.get_attribute(KIND)
    changes = trace.events[trace.events["type"].isin((ALLOCATED, FREED))]
    return sorted((e.time, e.type, e.value, kind[e.line]) for e in changes.itertuples())


def _levels(trace: Trace) -> dict[tuple[str, str], list[tuple[int, int]]]:
    """Times and levels by task and row, and label of the type."""
    levels: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for e in trace.events[trace.events["type"].between(LEVEL, LEVEL + 7)].itertuples():
        row = f"{trace.names['TASK'][e.task - 1]}/{trace.names['THREAD'][e.row]}"
        levels.setdefault((row, trace.types[e.type]), []).append((e.time, e.value))
    return levels


@pytest.mark.parametrize("name", sets(SETS))
def test_allocations_frees_and_level(name: str, tmp_path: Path) -> None:
    reports = find_set(name)
    trace, summary = translate_reports(reports, tmp_path / "x.prv", "cuda_memory,cuda_api,kernels")
    rows = []
    for report in reports:
        zero = read_utc(report) - summary.start_utc_ns
        query = """SELECT start, memoryOperationType, bytes, memKind, deviceId, contextId, globalPid
            FROM CUDA_GPU_MEMORY_USAGE_EVENTS ORDER BY start, rowid"""
        rows += [(start + zero, start == 0, *rest) for start, *rest in read_rows(report, query)]

    shown = [row for row in rows if not row[1]]
    expected = sorted((time, FREED if free else ALLOCATED, size, kind + 1) for time, _, free, size, kind, *_ in shown)
    assert _points(trace) == expected
    account = get_account(summary, "cuda_memory")
    before = len(rows) - len(shown)
    assert (account.read, account.written, sum(account.dropped.values())) == (len(rows), len(shown), before)

    # The level: every allocation is freed with its own bytes in these reports.
    level: dict[tuple[int, int], int] = {}
    expected_levels: dict[tuple[int, int], dict[int, int]] = {}
    for time, _, free, size, kind, device, _, process in sorted(rows, key=lambda row: row[0]):
        del device  # each process of these reports uses one GPU
        key = process, kind
        level[key] = level.get(key, 0) + (-size if free else size)
        expected_levels.setdefault(key, {})[max(time, 0)] = level[key]
    actual = _levels(trace)
    assert sorted(actual.values()) == sorted(list(levels.items()) for levels in expected_levels.values())
    for row, label in actual:
        on_gpu = "pinned" not in label and "pageable" not in label
        assert row.split("/")[1].startswith("Metrics GPU") == on_gpu


@pytest.mark.slow
def test_each_rank_has_the_level_of_its_gpu(tmp_path: Path) -> None:
    """Static memory is recorded as that of device 0; it is that of the process's only GPU."""
    reports = sorted(SAMPLES.glob("ddp-2x2.*.sqlite"))
    trace, _ = translate_reports(reports, tmp_path / "x.prv", "cuda_memory,kernels")
    on_gpu = {key for key in _levels(trace) if "pinned" not in key[1]}
    assert on_gpu == {
        (f"rank {rank}/Metrics GPU{rank}", f"CUDA memory in use: {kind} [bytes]")
        for rank in range(4)
        for kind in ("device", "device static")
    }


@pytest.mark.slow
def test_threads_are_those_of_the_calls(tmp_path: Path) -> None:
    report = SAMPLES / "single-graph.sqlite"
    trace, summary = translate_reports([report], tmp_path / "x.prv", "cuda_memory,cuda_api")
    threads = dict(
        read_rows(
            report,
            """SELECT u.start, MIN(r.globalTid) & 0xFFFFFF FROM CUDA_GPU_MEMORY_USAGE_EVENTS u
            JOIN CUPTI_ACTIVITY_KIND_RUNTIME r ON r.correlationId = u.correlationId
            AND r.globalTid >> 24 = u.globalPid >> 24 GROUP BY u.start""",
        )
    )
    zero = read_utc(report) - summary.start_utc_ns
    calls = trace.events[trace.events["type"] == 63000000]
    row_of_thread = {}
    for start, thread in read_rows(report, "SELECT start, globalTid & 0xFFFFFF FROM CUPTI_ACTIVITY_KIND_RUNTIME"):
        row_of_thread.setdefault(thread, set()).update(calls.loc[calls["time"] == start + zero, "row"])
    points = trace.events[trace.events["type"].isin((ALLOCATED, FREED))]
    assert threads
    for point in points.itertuples():
        if point.time - zero in threads:
            assert point.row in row_of_thread[threads[point.time - zero]]
        else:
            assert point.row == 0  # the main thread's


# ---- what the reports do not hold ------------------------------------------------------------------------------------

COLUMNS = (
    "start",
    "globalPid",
    "deviceId",
    "contextId",
    "address",
    "bytes",
    "memKind",
    "memoryOperationType",
    "correlationId",
)
CALLS = (("start", "end", "globalTid", "nameId", "correlationId"), [(10, 30, WORKER, 0, 1), (5, 90, MAIN, 0, 9)])
DEVICE = "CUDA memory in use: device [bytes]"


def _event(
    start: int | None, address: int | None, size: int | None, free: int | None = 0, **others: int | None
) -> tuple[int | None, ...]:
    fields = {"process": PROCESS, "device": 0, "context": 1, "kind": 2, "correlation": 0, **others}
    place = fields["process"], fields["device"], fields["context"]
    return (start, *place, address, size, fields["kind"], free, fields["correlation"])


def _report(path: Path, rows: Sequence[Sequence[object]], utc: int = UTC, **tables: object) -> Path:
    all_tables = {"CUPTI_ACTIVITY_KIND_RUNTIME": CALLS, "CUDA_GPU_MEMORY_USAGE_EVENTS": (COLUMNS, rows), **tables}
    return export(path, ["cudaMalloc"], all_tables, utc)  # type: ignore[arg-type]


def test_frees_without_bytes_and_of_unknown_memory(tmp_path: Path) -> None:
    rows = [
        _event(0, 1, 1000),
        _event(20, 2, 64, correlation=1),
        _event(40, 2, 0, 1),
        _event(50, 2, 128),
        _event(60, 2, None, 1),
        _event(65, 2, 128, 1),  # freed already
        _event(70, 99, 32, 1),  # allocated before, unknown to nsys
        _event(80, 1, 1000, 1),
    ]
    trace, summary = translate_reports(
        [_report(tmp_path / "a.sqlite", rows)], tmp_path / "x.prv", "cuda_memory,cuda_api"
    )
    zero = UTC - summary.start_utc_ns
    assert [(time - zero, t, size) for time, t, size, _ in _points(trace)] == [
        (20, ALLOCATED, 64),
        (40, FREED, 64),
        (50, ALLOCATED, 128),
        (60, FREED, 128),
        (65, FREED, 128),
        (70, FREED, 32),
        (80, FREED, 1000),
    ]
    (levels,) = _levels(trace).values()
    # The trace starts at the first call: memory in use at 0 is in use there.
    assert zero == -5
    assert levels == [(0, 1000), (15, 1064), (35, 1000), (45, 1128), (55, 1000), (75, 0)]
    account = get_account(summary, "cuda_memory_level")
    assert (account.read, account.written, account.dropped) == (
        8,
        6,
        {"frees memory that the report does not show as allocated": 2},
    )


def test_memory_from_before_the_capture_in_any_order(tmp_path: Path) -> None:
    """nsys lists it at time 0, and may list the frees at an address before the allocations."""
    rows = [
        *(_event(0, 1, 100, 1, correlation=number) for number in (2, 4)),
        *(_event(0, 1, 100, correlation=number) for number in (1, 3)),
        _event(50, 2, 8, correlation=5),
    ]
    trace, summary = translate_reports(
        [_report(tmp_path / "a.sqlite", rows)], tmp_path / "x.prv", "cuda_memory,cuda_api"
    )
    assert list(_levels(trace).values()) == [[(0, 0), (45, 8)]]
    assert get_account(summary, "cuda_memory_level").dropped == {
        "merged into the next change at the same time, nothing is lost": 3
    }


@pytest.mark.parametrize("seed", range(3))
def test_lifetimes_and_gpus(seed: int, tmp_path: Path) -> None:
    """An allocation that is freed has its lifetime; what changes the memory of a GPU has the GPU's number."""
    rng = random.Random(seed)
    rows, live, expected = [], {}, []
    for time in range(100, 4000, 100):
        size, gpu, kind = rng.randrange(1, 99), rng.randrange(2), rng.choice([1, 2, 4])
        if live and rng.random() < 0.4:
            address = rng.choice(list(live))
            since, size, gpu, kind, at = live.pop(address)
            expected[at] = (*expected[at][:3], time - since)
        elif rng.random() < 0.1:  # a free of unknown memory
            rows.append(_event(time, 10**6 + time, size, 1))
            expected.append((time, None, FREED, None))
            continue
        else:
            address = time
            live[address] = time, size, gpu, kind, len(expected)
            rows.append(_event(time, address, size, kind=kind, device=gpu, context=gpu + 1))
            expected.append((time, gpu if kind != 1 else None, ALLOCATED, None))
            continue
        rows.append(_event(time, address, size, 1, kind=kind, device=gpu, context=gpu + 1))
        expected.append((time, gpu if kind != 1 else None, FREED, None))
    gpus = {"TARGET_INFO_GPU": (("id", "name", "uuid"), [(0, "GPU", "one"), (1, "GPU", "two")])}
    trace, summary = translate_reports(
        [_report(tmp_path / "a.sqlite", rows, **gpus)], tmp_path / "x.prv", "cuda_memory,cuda_api"
    )
    zero = UTC - summary.start_utc_ns
    lifetime, gpu_of_line = trace.get_attribute(LIFETIME), trace.get_attribute(GPU)
    changes = trace.events[trace.events["type"].isin((ALLOCATED, FREED))]
    found = [(e.time - zero, gpu_of_line.get(e.line), e.type, lifetime.get(e.line)) for e in changes.itertuples()]
    assert sorted(found, key=lambda row: row[0]) == expected
    assert any(row[3] for row in expected)


def test_rows_that_cannot_be_shown(tmp_path: Path) -> None:
    rows = [
        _event(20, 1, 8, process=None),
        _event(None, 2, 8),
        _event(2**63 - 1, 2, 8),
        _event(30, 3, 8, 7),
        _event(30, 3, 8, None),
        _event(40, 4, None),
        _event(50, 5, None, 1),
        _event(60, 6, 8, kind=None),
        _event(61, 6, 8, kind=99),
    ]
    trace, summary = translate_reports(
        [_report(tmp_path / "a.sqlite", rows)], tmp_path / "x.prv", "cuda_memory,cuda_api"
    )
    assert get_account(summary, "cuda_memory").dropped == {
        "no process": 1,
        "no time": 2,
        "neither allocation nor free": 2,
        "no number of bytes": 2,
    }
    assert [(size, kind) for _, _, size, kind in _points(trace)] == [(8, 8), (8, 8)]
    # A process that ran nothing on it does not own the GPU: it is the node's.
    assert list(_levels(trace)) == [("host/Metrics GPU0", "CUDA memory in use: unknown [bytes]")]


def test_an_export_without_addresses(tmp_path: Path) -> None:
    columns = [column for column in COLUMNS if column not in ("address", "correlationId", "contextId")]
    rows = [(10, PROCESS, 0, 64, 2, 0), (20, PROCESS, 0, 64, 2, 1)]
    report = export(tmp_path / "a.sqlite", [], {"CUDA_GPU_MEMORY_USAGE_EVENTS": (columns, rows)})
    trace, _ = translate_reports([report], tmp_path / "x.prv", "cuda_memory")
    assert list(_levels(trace).values()) == [[(0, 64), (10, 0)]]


def _gpu(uuid: str, process: int) -> dict[str, object]:
    """A GPU, and a kernel that ran on it."""
    columns = ("start", "end", "globalPid", "deviceId", "contextId", "streamId", "shortName", "demangledName")
    return {
        "TARGET_INFO_GPU": (("id", "name", "uuid"), [(0, "GPU", uuid)]),
        "CUPTI_ACTIVITY_KIND_KERNEL": (columns, [(600, 700, process, 0, 1, 7, 0, 0)]),
    }


@pytest.mark.slow
def test_processes_that_share_a_gpu(tmp_path: Path) -> None:
    """The level of a GPU is that of both processes, each with a report of its own; brute force over all changes."""
    rng = random.Random(3)
    first, second, third = (PROCESS + (i << 24) for i in range(3))
    rows = [
        [_event(rng.randrange(1, 500), address, rng.randrange(1, 99), process=process) for address in range(40)]
        for process in (first, second)
    ]
    rows[0].append(_event(0, 1000, 7, process=first))
    rows[1].append(_event(0, 1000, 11, process=second))
    reports = [
        _report(tmp_path / "1.sqlite", rows[0], UTC, **_gpu("one", first)),
        _report(tmp_path / "2.sqlite", rows[1], UTC + 50, **_gpu("one", second)),
        _report(tmp_path / "3.sqlite", [_event(100, 1, 5, process=third)], UTC + 50, **_gpu("another", third)),
    ]
    trace, summary = translate_reports(reports, tmp_path / "x.prv", "cuda_memory,cuda_api,kernels")
    start = summary.start_utc_ns - UTC
    changes = [
        (max(0, row[0] + offset - start), row[5]) for part, offset in zip(rows, (0, 50), strict=True) for row in part
    ]
    expected, level = {}, 0
    for time, size in sorted(changes):
        level += size
        expected[time] = level
    actual = sorted(_levels(trace).values(), key=len)
    assert actual == [[(150 - start, 5)], list(expected.items())]


def test_level_within_a_window(tmp_path: Path) -> None:
    """The window starts with the memory that was in use before it."""
    rows = [_event(0, 1, 1000), _event(20, 2, 64), _event(40, 3, 8), _event(60, 4, 1)]
    report = _report(tmp_path / "a.sqlite", rows)
    trace, summary = translate_reports([report], tmp_path / "x.prv", "cuda_memory,cuda_api", window=(20, 45))
    assert summary.start_utc_ns + 1 == UTC + 5 + 20
    (levels,) = _levels(trace).values()
    assert levels == [(1, 1064), (16, 1072)]


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.integers(0, 100), max_size=30), st.lists(st.integers(0, 100), min_size=2, max_size=8, unique=True))
def test_each_window_starts_with_the_memory_in_use(times: list[int], limits: list[int]) -> None:
    limits = sorted(limits)[: len(limits) // 2 * 2]
    windows = list(zip(limits[::2], limits[1::2], strict=True))
    changes = np.array(times, np.int64)
    shown = cuda_memory._move_into_windows(changes, windows)
    for low, high in windows:
        assert (shown <= low).sum() == (changes <= low).sum()
        inside = (changes >= low) & (changes <= high)
        assert (shown[inside] == changes[inside]).all()
