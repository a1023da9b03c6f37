"""Device memory against plain loops over made reports, and plain SQL on real ones."""

from __future__ import annotations

import shutil
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from nsys2prv_ng.reading.open_reports import Selection
from nsys2prv_ng.summary.answer.answer import answer
from nsys2prv_ng.summary.memory.numbers import GpuMemory, MemoryNumbers
from tests.conftest import DATA, Unpacked
from tests.report_sets import find_set, list_sets, sets
from tests.sources.small_reports import PROCESS, UTC
from tests.summary.made import IN_STEPS, summarize_reports
from tests.summary.memory.memory_truth import (
    FREE,
    MALLOC,
    MIB,
    STEP,
    CachingAllocator,
    Change,
    Program,
    find_truth,
    make_random_program,
)

ALL_TIME = Selection(window=(None, None))


def measure(program: Program, path: Path) -> tuple[MemoryNumbers, int]:
    """Return the numbers of a program, and the number of its first step that counts."""
    summary = summarize_reports([program.write(path)], IN_STEPS)
    assert summary.memory is not None and summary.steps is not None
    assert summary.memory.steps == program.steps - summary.steps.warmup
    return summary.memory, summary.memory.step_numbers[0]


def check(gpu: GpuMemory, program: Program, first: int) -> None:
    """Compare the numbers of a GPU with those of plain loops."""
    truth = find_truth(program, gpu.gpu, first)
    assert (gpu.begin_bytes, gpu.end_bytes, gpu.peak_bytes) == (truth.begin, truth.end, truth.peak)
    assert gpu.least_by_step == truth.least
    assert Counter({(kept.range, kept.call): kept.bytes for kept in gpu.kept}) == truth.kept
    assert gpu.more_kept_bytes == 0


def make_leak(steps: int, size: int) -> Program:
    """A program that allocates twice the size in each step, in its earlier half, and frees one of the two."""
    program = Program(steps)
    program.changes.append(Change(0, MALLOC, 1, 10**9))
    for step in range(steps):
        time = program.begin(step) + 1000
        for n in range(2):
            program.changes.append(Change(time + 300 * n, MALLOC, 2 * step + n + 10, size))
        program.changes.append(Change(program.end(step) - 1000, FREE, 2 * step + 10, size, is_free=True))
    return program


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("devices", [1, 2])
def test_numbers_are_those_of_plain_loops(seed: int, devices: int, tmp_path: Path) -> None:
    program = make_random_program(seed, devices=devices)
    memory, first = measure(program, tmp_path / "a.sqlite")
    assert [gpu.gpu for gpu in memory.gpus] == list(range(devices))
    for gpu in memory.gpus:
        check(gpu, program, first)


@pytest.mark.slow
def test_processes_that_share_a_gpu(tmp_path: Path) -> None:
    """Each process has a report of its own. The memory of the GPU is that of both, and so are its calls."""
    programs = [make_random_program(seed, process=PROCESS + (seed << 24)) for seed in (5, 6)]
    reports = [program.write(tmp_path / f"{n}.sqlite") for n, program in enumerate(programs)]
    memory = summarize_reports(reports, IN_STEPS).memory
    assert memory is not None
    [gpu] = memory.gpus
    truths = [find_truth(program, 0, memory.step_numbers[0]) for program in programs]
    assert gpu.begin_bytes == sum(truth.begin for truth in truths)
    assert gpu.end_bytes == sum(truth.end for truth in truths)
    assert max(truth.peak for truth in truths) < gpu.peak_bytes <= sum(truth.peak for truth in truths)


@pytest.mark.slow
def test_a_leak_is_named_with_its_place(tmp_path: Path) -> None:
    program = make_leak(30, MIB)
    summary = summarize_reports([program.write(tmp_path / "a.sqlite")], IN_STEPS)
    assert summary.memory is not None
    [gpu] = summary.memory.gpus
    check(gpu, program, summary.memory.step_numbers[0])
    assert gpu.leak and gpu.growth_per_step == MIB and summary.memory.leaks == [gpu]
    assert gpu.peak_step == 29
    [line] = [line for line in answer(summary).statements if line.label == "MEMORY"]
    assert line.evidence == ["memory"]
    assert line.text == (
        "process 77 77: device memory in use grows by 1.05 MB a step, 30.4 MB in 29 steps; 100.0% of what stays was"
        " allocated in `step`, by `cudaMalloc`; a leak? keep no tensors of earlier steps: use .item() or .detach()"
    )


@pytest.mark.slow
@pytest.mark.parametrize(("leak", "is_found"), [(0, False), (20 * MIB, True)])
def test_a_leak_behind_a_caching_allocator(leak: int, is_found: bool, tmp_path: Path) -> None:
    """CUDA only sees the segments by which the allocator grows."""
    program, allocator = Program(40), CachingAllocator()
    for step in range(program.steps):
        handles = [allocator.allocate(size * MIB) for size in (1, 3, 8, 30)]
        if leak:
            allocator.allocate(leak)
        for handle in handles:
            allocator.free(handle)
        for n in range(len(program.changes), len(allocator.grown)):
            time = program.begin(step) + STEP // 2 + 1000 * (n + 1)
            program.changes.append(Change(time, MALLOC, n + 1, allocator.grown[n]))
    memory, first = measure(program, tmp_path / "a.sqlite")
    check(memory.gpus[0], program, first)
    assert memory.gpus[0].leak == is_found
    assert memory.gpus[0].growth_per_step == leak


@pytest.mark.slow
def test_memory_that_grows_with_the_inputs_is_no_leak(tmp_path: Path) -> None:
    program = make_leak(30, MIB)
    program.kernel_ns = lambda step: 1000 + 20 * step
    memory, _ = measure(program, tmp_path / "a.sqlite")
    assert memory.leaks == [] and memory.gpus[0].growth_per_step == MIB


@pytest.mark.slow
def test_reports_without_device_memory_have_no_numbers(samples: Path, tmp_path: Path) -> None:
    program = Program(5)
    program.changes.append(Change(program.begin(2), MALLOC, 1, MIB, kind=4))
    for report in (program.write(tmp_path / "managed.sqlite"), samples / "mpi-4.rank0.sqlite"):
        summary = summarize_reports([report], IN_STEPS)
        assert summary.memory is None
        assert all(line.label != "MEMORY" for line in answer(summary).statements)


@pytest.mark.slow
def test_a_process_with_several_captures_has_no_numbers(tmp_path: Path) -> None:
    """The second report lists the memory of the first one again."""
    first, second = make_leak(4, MIB), make_leak(4, MIB)
    reports = [first.write(tmp_path / "1.sqlite"), second.write(tmp_path / "2.sqlite")]
    with closing(sqlite3.connect(reports[1])) as database, database:
        database.execute("UPDATE TARGET_INFO_SESSION_START_TIME SET utcEpochNs = ?", (UTC + 10**9,))
    assert summarize_reports(reports, ALL_TIME).memory is None
    assert summarize_reports(reports[:1], ALL_TIME).memory is not None


# ---- real reports ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", sets(["gpu/single-graph", "whatif/hf-emptycache.rank0"]))
def test_all_time_of_a_real_report_by_sql(name: str, shared_reports: Path, unpacked: Unpacked) -> None:
    """The second one is GPT-2 that empties its cache in each step: cudaFree and cudaMalloc."""
    report = unpacked(shared_reports / f"{name}.sqlite")
    memory = summarize_reports([report], ALL_TIME).memory
    assert memory is not None
    [gpu] = memory.gpus
    with closing(sqlite3.connect(report)) as database:
        rows = database.execute(
            """SELECT start, bytes, memoryOperationType FROM CUDA_GPU_MEMORY_USAGE_EVENTS
            WHERE memKind = 2 ORDER BY start, rowid"""
        ).fetchall()
    level, levels = 0, []
    for start, size, is_free in rows:
        level += -size if is_free else size
        levels += [level] if start else []
    assert gpu.begin_bytes == sum(size if not is_free else -size for start, size, is_free in rows if not start)
    assert gpu.steps == memory.steps == 0 and gpu.growth_per_step is None
    assert (gpu.end_bytes, gpu.peak_bytes) == (levels[-1], max(levels))


_PLANTED = 128 * MIB
"""Bytes in each step: the program allocates 138 MB once, in the second step."""


def plant_leak(report: Path, target: Path, size: int) -> int:
    """Copy a report whose steps are ranges; each then allocates more memory in its middle. Return the first step."""
    shutil.copy(report, target)
    with closing(sqlite3.connect(target)) as database, database:
        ranges = database.execute(
            """SELECT start, "end", globalTid FROM NVTX_EVENTS LEFT JOIN StringIds ON id = textId
            WHERE eventType = 59 AND coalesce(text, value) LIKE 'step%' ORDER BY start"""
        ).fetchall()
        (process, device, context), (top,) = (
            database.execute(f"SELECT {columns} FROM {table} {limit}").fetchone()
            for columns, table, limit in (
                ("globalPid, deviceId, contextId", "CUPTI_ACTIVITY_KIND_KERNEL", "LIMIT 1"),
                ("max(id)", "StringIds", ""),
            )
        )
        database.execute("INSERT INTO StringIds VALUES (?, 'cudaMalloc_v3020')", (top + 1,))
        for n, (start, end, tid) in enumerate(ranges):
            time = (start + end) // 2
            database.execute(
                """INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME (start, "end", eventClass, globalTid, correlationId, nameId,
                returnValue) VALUES (?, ?, 0, ?, ?, ?, 0)""",
                (time - 10, time + 10, tid, 2**30 + n, top + 1),
            )
            database.execute(
                """INSERT INTO CUDA_GPU_MEMORY_USAGE_EVENTS (start, globalPid, deviceId, contextId, address, pc, bytes,
                memKind, memoryOperationType, correlationId) VALUES (?, ?, ?, ?, ?, 0, ?, 2, 0, ?)""",
                (time, process, device, context, 2**50 + n, size, 2**30 + n),
            )
    return len(ranges)


@pytest.mark.slow
def test_a_leak_planted_in_a_real_report(shared_reports: Path, unpacked: Unpacked, tmp_path: Path) -> None:
    report = unpacked(shared_reports / "whatif/x-uneven.rank0.sqlite")
    steps = plant_leak(report, tmp_path / report.name, _PLANTED)
    summary = summarize_reports([tmp_path / report.name], IN_STEPS)
    assert summary.memory is not None and steps == 30
    [gpu] = summary.memory.gpus
    assert gpu.leak and gpu.growth_per_step == _PLANTED
    assert sum(kept.bytes for kept in gpu.kept if kept.call == "cudaMalloc") >= _PLANTED * (gpu.steps - 1)
    assert any(line.label == "MEMORY" for line in answer(summary).statements)


SETS = {name: paths for name, paths in list_sets().items() if not name.startswith("cpu/")}
_PUSH = {"samples/ddp-2x2", "whatif/hf-emptycache", "whatif/x-uneven"}


@pytest.mark.slow
@pytest.mark.parametrize("name", sets(SETS, push=_PUSH))
def test_real_reports_have_no_leak(name: str) -> None:
    memory = summarize_reports(find_set(name), IN_STEPS).memory
    for gpu in [] if memory is None else memory.gpus:
        assert not gpu.leak


def test_a_real_leak_behind_a_caching_allocator(unpacked: Unpacked) -> None:
    """The program keeps 8 x 512 x 8192 floats of each step; the allocator has enough for the first ones."""
    kept = 8 * 512 * 8192 * 4
    report = unpacked(DATA / "h100/leak.rank0.sqlite.xz")
    with closing(sqlite3.connect(report)) as database:
        query = "SELECT bytes FROM CUDA_GPU_MEMORY_USAGE_EVENTS WHERE memoryOperationType = 0 AND memKind = 2"
        sizes = Counter(size for (size,) in database.execute(query))
    summary = summarize_reports([report], IN_STEPS)
    assert summary.memory is not None
    [gpu] = summary.memory.gpus
    assert sizes[kept] >= 18 and gpu.leak and gpu.growth_per_step == kept
    assert (gpu.end_bytes - gpu.begin_bytes) % kept == 0 and gpu.end_bytes > gpu.begin_bytes
