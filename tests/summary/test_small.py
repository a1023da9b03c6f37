"""Cases that captures seldom have, in small reports: results are worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from nsys2prv_ng.reading.open_reports import Selection
from nsys2prv_ng.summary.gpus.numbers import Cause
from nsys2prv_ng.summary.job import JobSummary
from tests.sources.nccl.nccl_reports import COMMUNICATOR, OPERATION, SIZE, Call, Kernel, write_nccl_report
from tests.sources.small_reports import MAIN, PROCESS, WORKER, Rows, export
from tests.summary.made import summarize_reports

STRINGS = ("", "kernel", "cudaLaunchKernel", "cuLaunchKernel", "cudaMalloc")
KERNEL, LAUNCH, INNER, MALLOC = 1, 2, 3, 4
PUSH_POP = 59
OPERATION_COLUMNS = ("start", "end", "globalPid", "deviceId", "contextId", "streamId", "correlationId")


def report(
    path: Path,
    *,
    kernels: Sequence[tuple[int, int, int, int]] = (),
    calls: Sequence[tuple[int, int, int, int, int]] = (),
    ranges: Sequence[tuple[int, int | None, int, str]] = (),
    sets: Sequence[tuple[int, int, int]] = (),
) -> Path:
    """Kernels (begin, end, stream, correlation id), calls (begin, end, thread, name, correlation id), push/pop ranges
    (begin, end, thread, text) and memsets (begin, end, bytes)."""
    tables: dict[str, Rows] = {
        "CUPTI_ACTIVITY_KIND_KERNEL": (
            (*OPERATION_COLUMNS, "shortName", "demangledName"),
            [(b, e, PROCESS, 0, 1, stream, i, KERNEL, KERNEL) for b, e, stream, i in kernels],
        ),
        "CUPTI_ACTIVITY_KIND_MEMSET": (
            (*OPERATION_COLUMNS, "bytes"),
            [(b, e, PROCESS, 0, 1, 9, 0, size) for b, e, size in sets],
        ),
        "CUPTI_ACTIVITY_KIND_RUNTIME": (("start", "end", "globalTid", "nameId", "correlationId"), calls),
        "NVTX_EVENTS": (
            ("start", "end", "globalTid", "eventType", "text"),
            [(b, e, tid, PUSH_POP, text) for b, e, tid, text in ranges],
        ),
    }
    return export(path, STRINGS, {name: table for name, table in tables.items() if table[1]})


def causes(found: JobSummary) -> list[Cause]:
    [gpu] = found.gpus
    assert gpu.idle_causes is not None
    return sorted(gpu.idle_causes, key=lambda each: (each.cause, each.range, each.call))


@pytest.mark.slow
def test_of_operations_that_begin_together_the_first_that_was_launched_ends_the_gap(tmp_path: Path) -> None:
    path = report(
        tmp_path / "a.sqlite",
        kernels=[(100, 200, 7, 1), (300, 400, 7, 2), (300, 400, 8, 3)],
        calls=[(90, 95, MAIN, LAUNCH, 1), (280, 290, MAIN, LAUNCH, 2), (260, 265, WORKER, LAUNCH, 3)],
        ranges=[(0, 500, MAIN, "main"), (0, 500, WORKER, "worker")],
    )
    assert causes(summarize_reports([path])) == [
        Cause(cause="host", range="worker", call="", ns=60, gaps=1),
        Cause(cause="host", range="worker", call="cudaLaunchKernel", ns=5, gaps=1),
        Cause(cause="queued", range="", call="", ns=35, gaps=1),
    ]


@pytest.mark.slow
def test_a_launch_lasts_until_its_outermost_call_returns(tmp_path: Path) -> None:
    """The call of the runtime began before the gap with the driver's, which returned: the host was not ahead."""
    path = report(
        tmp_path / "a.sqlite",
        kernels=[(100, 200, 7, 1), (300, 400, 7, 2)],
        calls=[(90, 95, MAIN, LAUNCH, 1), (150, 290, MAIN, LAUNCH, 2), (150, 190, MAIN, INNER, 2)],
    )
    assert causes(summarize_reports([path])) == [
        Cause(cause="host", range="", call="cudaLaunchKernel", ns=90, gaps=1),
        Cause(cause="queued", range="", call="", ns=10, gaps=1),
    ]


@pytest.mark.slow
def test_a_launch_that_returned_before_the_gap_is_not_the_hosts(tmp_path: Path) -> None:
    path = report(
        tmp_path / "a.sqlite",
        kernels=[(100, 200, 7, 1), (300, 400, 7, 2)],
        calls=[(90, 95, MAIN, LAUNCH, 1), (150, 200, MAIN, LAUNCH, 2), (210, 220, MAIN, MALLOC, 9)],
    )
    assert causes(summarize_reports([path])) == [Cause(cause="queued", range="", call="", ns=100, gaps=1)]


@pytest.mark.slow
def test_innermost_range_and_outermost_call_of_each_moment(tmp_path: Path) -> None:
    path = report(
        tmp_path / "a.sqlite",
        kernels=[(100, 200, 7, 1), (300, 400, 7, 2)],
        calls=[
            (90, 95, MAIN, LAUNCH, 1),
            (210, 240, MAIN, MALLOC, 8),
            (220, 230, MAIN, INNER, 9),
            (280, 330, MAIN, LAUNCH, 2),
        ],
        ranges=[(0, 290, MAIN, "outer"), (205, 225, MAIN, "inner 7"), (0, 500, WORKER, "other")],
    )
    assert causes(summarize_reports([path])) == [
        Cause(cause="host", range="", call="cudaLaunchKernel", ns=10, gaps=1),
        Cause(cause="host", range="inner", call="", ns=5, gaps=1),
        Cause(cause="host", range="inner", call="cudaMalloc", ns=15, gaps=1),
        Cause(cause="host", range="outer", call="", ns=5 + 40, gaps=1),
        Cause(cause="host", range="outer", call="cudaLaunchKernel", ns=10, gaps=1),
        Cause(cause="host", range="outer", call="cudaMalloc", ns=15, gaps=1),
    ]


@pytest.mark.slow
def test_a_gap_that_a_window_cuts(tmp_path: Path) -> None:
    """The trace begins with the first call: the window is from 190 to 250, then to 350."""
    path = report(
        tmp_path / "a.sqlite",
        kernels=[(100, 200, 7, 1), (300, 400, 7, 2)],
        calls=[(90, 95, MAIN, LAUNCH, 1), (280, 290, MAIN, LAUNCH, 2)],
    )
    found = summarize_reports([path], Selection(window=(100, 160)))
    assert causes(found) == [Cause(cause="cut", range="", call="", ns=50, gaps=1)]
    assert (found.gpus[0].span_ns, found.gpus[0].busy_ns, found.windows_ns) == (60, 10, [(1, 61)])
    found = summarize_reports([path], Selection(window=(120, 260)))
    assert causes(found) == [
        Cause(cause="host", range="", call="", ns=70, gaps=1),
        Cause(cause="host", range="", call="cudaLaunchKernel", ns=10, gaps=1),
        Cause(cause="queued", range="", call="", ns=10, gaps=1),
    ]
    assert (found.kernels[0].count, found.kernels[0].total_ns) == (1, 50)


@pytest.mark.slow
def test_operations_without_length(tmp_path: Path) -> None:
    """Their name and bytes are on the line that also ends them."""
    path = report(tmp_path / "a.sqlite", kernels=[(100, 100, 7, 1), (200, 230, 7, 2)], sets=[(150, 150, 64)])
    found = summarize_reports([path])
    [kernel], [memset] = found.kernels, found.memory_operations
    assert (kernel.name, kernel.kernel_class, kernel.count, kernel.total_ns) == ("kernel", "Other", 2, 30)
    assert (kernel.min_ns, kernel.max_ns) == (0, 30)
    assert (memset.operation, memset.count, memset.bytes, memset.total_ns) == ("Memset", 1, 64, 0)
    [gpu] = found.gpus
    assert (gpu.gaps, gpu.idle_ns, gpu.longest_gap_ns) == (2, 100, 50)


def test_everything_at_once(tmp_path: Path) -> None:
    path = write_nccl_report(tmp_path / "a.sqlite", [], [Kernel(100, 200, "ncclDevKernel_AllReduce", None, stream=8)])
    [gpu] = summarize_reports([path]).gpus
    assert (gpu.compute_ns, gpu.communication_ns, gpu.overlap_ns, gpu.memory_ns) == (0, 100, 0, 0)
    path = write_nccl_report(
        tmp_path / "b.sqlite",
        [],
        [Kernel(100, 200, "ncclDevKernel_AllReduce", None, stream=8), Kernel(150, 260, "gemm", None)],
        more={
            "CUPTI_ACTIVITY_KIND_MEMSET": (
                (*OPERATION_COLUMNS, "bytes"),
                [(140, 180, PROCESS, 0, 1, 9, 0, 4), (250, 270, PROCESS, 0, 1, 9, 0, 4)],
            )
        },
    )
    [gpu] = summarize_reports([path]).gpus
    assert (gpu.compute_ns, gpu.communication_ns, gpu.overlap_ns, gpu.memory_ns) == (110, 100, 50, 60)
    assert (gpu.busy_ns, gpu.span_ns, gpu.idle_ns) == (170, 170, 0)


@pytest.mark.slow
def test_the_rate_is_of_the_kernels_whose_bytes_are_known(tmp_path: Path) -> None:
    payload = {COMMUNICATOR: 5, SIZE: 4096, OPERATION: 0}
    path = write_nccl_report(
        tmp_path / "a.sqlite",
        [Call(10, 20, "ncclAllReduce", payload), Call(30, 40, "ncclAllReduce")],
        [Kernel(100, 200, "ncclDevKernel_AllReduce", 15), Kernel(300, 700, "ncclDevKernel_AllReduce", None)],
    )
    [found] = summarize_reports([path]).nccl
    assert (found.function, found.calls, found.bytes) == ("AllReduce", 2, 4096)
    assert (found.kernels, found.kernel_ns, found.carried_bytes, found.carried_ns) == (2, 500, 4096, 100)


def test_a_range_repeats_from_the_third_time_on_a_thread(tmp_path: Path) -> None:
    ranges = [(i * 10, i * 10 + 5, MAIN, f"three {i}") for i in range(3)]
    ranges += [(100 + i * 10, 105 + i * 10, tid, "two") for i in range(2) for tid in (MAIN, WORKER)]
    found = summarize_reports([report(tmp_path / "a.sqlite", ranges=ranges)])
    [three] = found.ranges
    assert (three.name, three.depth, three.count, three.total_ns) == ("three", 1, 3, 15)


@pytest.mark.slow
def test_ranges_within_two_others_are_not_shown(tmp_path: Path) -> None:
    ranges = [
        (100 * i + d, 100 * i + 50 - d, MAIN, name) for i in range(3) for d, name in enumerate(("one", "two", "three"))
    ]
    found = summarize_reports([report(tmp_path / "a.sqlite", ranges=ranges)])
    assert [(each.name, each.depth, each.total_ns) for each in found.ranges] == [("one", 1, 150), ("two", 2, 144)]


@pytest.mark.slow
def test_a_range_without_an_end_lasts_until_the_trace_ends(tmp_path: Path) -> None:
    ranges: list[tuple[int, int | None, int, str]] = [(0, 10, MAIN, "step"), (20, 30, MAIN, "step")]
    ranges += [(40, None, MAIN, "step"), (0, 90, WORKER, "x")]
    found = summarize_reports([report(tmp_path / "a.sqlite", ranges=ranges)])
    [step] = found.ranges
    assert (step.count, step.tasks[0].max_ns) == (3, 50)
