"""What changed most: the ranges, calls, kernels and transfers that explain a difference."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import nsys2prv_ng
from nsys2prv_ng.comparison.compare import compare_sides
from nsys2prv_ng.comparison.model import Side
from nsys2prv_ng.comparison.result import format_comparison
from nsys2prv_ng.summary.difference.changes import Change
from nsys2prv_ng.summary.job import CallNumbers, JobSummary
from nsys2prv_ng.summary.kernels.numbers import KernelNumbers
from nsys2prv_ng.summary.memory.numbers import MemoryOperationNumbers
from nsys2prv_ng.summary.ranges.numbers import RangeOfTask, RepeatedRange
from nsys2prv_ng.summary.waits.numbers import MpiNumbers, NcclNumbers
from tests.comparison.made import GPUS, MS, make_summary
from tests.comparison.made_runs import make_facts, make_gpu
from tests.conftest import Unpacked
from tests.report_truth import Report
from tests.steps.step_truth import StepTruth, list_ranges
from tests.tiers import cases

STEPS = 5
HOST = {"compute": 20, "host": 80}
FAST = {"compute": 20}
Named = tuple[str, str, float, str, int | None, str]


def run(label: str, parts: Mapping[str, int], **tables: Any) -> JobSummary:
    """A run of five steps with these parts (ms of each GPU)."""
    steps = [{f"{name}_ns": ms * MS * GPUS for name, ms in parts.items()}] * STEPS
    sources = {"kernels": 1, "nvtx": 1, "cuda_api": 1, "os_runtime": 1, "mpi": 1, "memory_operations": 1, "nccl": 1}
    facts = make_facts(captures=[label], sources=sources)
    gpus = [make_gpu(number) for number in range(GPUS)]
    return replace(make_summary(steps, facts=facts), gpus=gpus, **tables)


def in_mpi(name: str, ms: int) -> MpiNumbers:
    """Calls that take so long in each step of each rank."""
    total = ms * MS * STEPS * GPUS
    return MpiNumbers(call=name, count=1, total_ns=total, max_ns=1, sent_bytes=1, received_bytes=1, rated_ns=1)


def in_range(name: str, ms: float, depth: int = 2, ranks: Sequence[int] = range(GPUS), waiting: float = 0):
    tasks = [
        RangeOfTask(
            rank=rank,
            task=f"rank {rank}",
            count=STEPS,
            total_ns=int(ms * MS * STEPS),
            min_ns=1,
            max_ns=1,
            waiting_ns=int(waiting * MS * STEPS),
        )
        for rank in ranks
    ]
    return RepeatedRange(domain="", name=name, depth=depth, tasks=tasks)


def call(name: str, ms: float, source: str = "cuda_api", main: float | None = None) -> CallNumbers:
    total, on_main = (int(each * MS * STEPS * GPUS) for each in (ms, ms if main is None else main))
    return CallNumbers(name=name, source=source, count=STEPS, total_ns=total, main_ns=on_main)


def kernel(name: str, kind: str, ms: float) -> KernelNumbers:
    total = int(ms * MS * STEPS * GPUS)
    return KernelNumbers(name=name, kernel_class=kind, count=STEPS, total_ns=total, min_ns=1, max_ns=1)


def name(a: JobSummary, b: JobSummary) -> list[Named]:
    """What changed most from a to b: kind, name, ms, mean over, rank, only side."""
    changes = compare_sides([Side("A", a), Side("B", b)]).pairs[0].changes
    for change in changes:
        assert change.difference_ns == change.b_ns - change.a_ns
    return [(each.kind, each.name, each.difference_ns / MS, each.per, each.rank, each.only) for each in changes]


def test_a_range_per_rank() -> None:
    a = run("a", FAST, ranges=[in_range("loading", 1), in_range("forward", 10)])
    b = run("b", HOST, ranges=[in_range("loading", 80), in_range("forward", 11)])
    assert name(a, b) == [("range", "loading", 79, "rank", None, "")]
    assert name(b, a) == [("range", "loading", -79, "rank", None, "")]
    assert name(a, a) == []


def test_the_innermost_range_with_nearly_all_of_a_change() -> None:
    outer, inner, step = in_range("epoch", 90, 1), in_range("loading", 80, 2), in_range("step", 95, 1)
    a = run("a", FAST)
    assert name(a, run("b", HOST, ranges=[step, outer, inner]))[0][:2] == ("range", "loading")
    half = in_range("loading", 45, 2)
    assert name(a, run("b", HOST, ranges=[step, outer, half]))[0][:2] == ("range", "epoch")


def test_one_rank_with_nearly_all_of_a_change() -> None:
    a = run("a", FAST, ranges=[in_range("forward", 1)])
    b = run("b", HOST, ranges=[in_range("forward", 1), in_range("late host", 80, ranks=[2])])
    assert name(a, b) == [("range", "late host", 80, "rank", 2, "B")]
    text = " ".join(format_comparison(compare_sides([Side("x", a), Side("y", b)])).split())
    assert "CHANGED range `late host` +80.0 ms per step on rank 2 (only in `y`) PARTS" in text


def test_waits_for_other_ranks_are_no_change_of_a_range() -> None:
    a = run("a", FAST, ranges=[in_range("reduce", 1), in_range("loading", 1, ranks=[0])])
    b = run("b", HOST, ranges=[in_range("reduce", 81, waiting=80), in_range("loading", 80, ranks=[0])])
    assert name(a, b) == [("range", "loading", 79, "rank", 0, "")]


def test_calls_beside_and_without_ranges() -> None:
    """Those of helper threads do not count, nor waits for another thread."""
    idle = [call("poll", 100, "os_runtime", main=0), call("pthread_cond_*wait", 90, "os_runtime")]
    calls = [call("cudaFree", 50), call("cudaMalloc", 30), call("read", 20, "os_runtime"), *idle]
    a, b = run("a", FAST, calls=[call("cudaMalloc", 1)]), run("b", HOST, calls=calls)
    expected = [("call", "cudaFree", 50, "rank", None, "B"), ("call", "cudaMalloc", 29, "rank", None, "")]
    assert name(a, b) == expected
    # Beside ranges, only a call that one side alone has, and that the range cannot contain.
    for length, others in ((30, [expected[0]]), (70, [])):
        found = name(a, replace(b, ranges=[in_range("loading", length)]))
        assert sorted(found) == sorted([("range", "loading", length, "rank", None, "B"), *others])


def test_calls_of_mpi() -> None:
    mpi = in_mpi("MPI_Sendrecv", 60)
    assert name(run("a", FAST), run("b", HOST, mpi=[mpi])) == [("call", "MPI_Sendrecv", 60, "rank", None, "B")]


def test_kernels_by_class_or_the_one_that_has_nearly_all() -> None:
    a = run("a", {"compute": 10}, kernels=[kernel("sgemm", "GEMM", 5), kernel("copy", "Copy", 5)])
    b = run(
        "b",
        {"compute": 30},
        kernels=[kernel("sgemm", "GEMM", 24), kernel("gemv", "GEMM", 1), kernel("copy", "Copy", 5)],
    )
    assert name(a, b) == [("kernel", "sgemm", 19, "GPU", None, "")]
    c = run(
        "c", {"compute": 30}, kernels=[kernel("s2", "GEMM", 12), kernel("s3", "GEMM", 12), kernel("copy", "Copy", 6)]
    )
    assert name(a, c) == [("kernel", "GEMM", 19, "GPU", None, "")]
    nccl = kernel("ncclDevKernel_AllReduce", "NCCL", 50)  # waits of other ranks are in it
    assert name(a, replace(b, kernels=[*b.kernels, nccl])) == [("kernel", "sgemm", 19, "GPU", None, "")]


def test_kernels_of_one_name_in_several_classes() -> None:
    """Their demangled names have different classes, and the short name that a summary shows is the same."""
    a = run("a", {"compute": 10}, kernels=[kernel("k", "Copy", 5), kernel("k", "GEMM", 5)])
    b = run("b", {"compute": 30}, kernels=[kernel("k", "GEMM", 25), kernel("k", "Copy", 5)])
    assert name(a, b) == [("kernel", "k", 20, "GPU", None, "")]
    assert name(b, a) == [("kernel", "k", -20, "GPU", None, "")]


def test_transfers_without_their_waits() -> None:
    def reduce(function: str, ms: int, wait: int) -> NcclNumbers:
        ns, waits = (each * MS * STEPS * GPUS for each in (ms, wait))
        return NcclNumbers(
            function=function, calls=1, bytes=1, kernels=1, kernel_ns=ns, carried_bytes=1, carried_ns=1, wait_ns=waits
        )

    copy = MemoryOperationNumbers(operation="HtoD", count=1, bytes=5, total_ns=9 * MS * STEPS * GPUS, rated_ns=1)
    a = run("a", {"compute": 10, "moving": 10}, nccl=[reduce("AllReduce", 10, 0), reduce("AllGather", 50, 50)])
    b = run(
        "b",
        {"compute": 10, "moving": 30, "memory": 9},
        nccl=[reduce("AllReduce", 90, 60), reduce("AllGather", 0, 0)],
        memory_operations=[copy],
    )
    assert name(a, b) == [("transfer", "AllReduce", 20, "GPU", None, "")]


def test_noise_has_no_name() -> None:
    """A change below 2 % of the step, one of a kind that did not change, and one that goes the other way."""
    a = run("a", {"compute": 90, "host": 10}, ranges=[in_range("loading", 10)], kernels=[kernel("k", "K", 90)])
    small = replace(a, ranges=[in_range("loading", 11.5)], kernels=[kernel("k", "K", 91.5)])
    assert name(a, small) == []
    hidden = replace(a, ranges=[in_range("loading", 60)])
    assert name(a, hidden) == []
    against = run("b", {"compute": 90, "host": 40}, ranges=[in_range("loading", 1)], kernels=[kernel("k", "K", 90)])
    assert name(a, against) == []


def test_a_range_of_one_side_is_named_if_hosts_are_not_late() -> None:
    """Its kernels take the time, its host half a percent of the step."""
    a = run("a", {"compute": 90}, kernels=[kernel("k", "K", 90)])
    b = run("b", {"compute": 120}, kernels=[kernel("k", "K", 120)], ranges=[in_range("extra work", 0.5)])
    assert name(a, b) == [("kernel", "k", 30, "GPU", None, ""), ("range", "extra work", 0.5, "rank", None, "B")]
    tiny = replace(b, ranges=[in_range("extra work", 0.4)])
    assert name(a, tiny) == [("kernel", "k", 30, "GPU", None, "")]


def test_no_names_without_steps() -> None:
    whole = make_summary([{"compute_ns": 100 * MS * GPUS}] * 4, chosen=False)
    b = replace(whole, kernels=[kernel("k", "K", 50)])
    assert name(whole, b) == []


# ---- real runs with a planted cause ----------------------------------------------------------------------------------


def sum_ranges(report: Path, text: str, truth: StepTruth) -> float:
    """Time (ns a step) of the ranges of a name whose steps count, by SQL and a loop."""
    own = Report(report)
    [process] = truth.ranges
    rows = own.nvtx[own.nvtx["text"] == text]
    times = zip(rows["begin"], rows["end"], strict=True)
    return sum(end - begin for begin, end in times if truth.counts(process, begin + own.utc)) / len(truth.counted)


def find_steps(report: Path) -> StepTruth:
    own = [Report(report)]
    return StepTruth(own, list_ranges(own, "step"))


def compare(a: Path, b: Path) -> dict[str, Change]:
    pair = nsys2prv_ng.compare([[a], [b]], labels=["a", "b"], jobs=1).pairs[0]
    return {change.name: change for change in pair.changes}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("planted", "text", "only"), cases([("w-load", "data loading", ""), ("w-gemm", "extra work", "B")], push=1)
)
def test_planted_ranges(shared_reports: Path, unpacked: Unpacked, planted: str, text: str, only: str) -> None:
    a, b = (unpacked(shared_reports / f"whatif/{each}.rank0.sqlite") for each in ("w-base", planted))
    change = compare(a, b)[text]
    before, after = sum_ranges(a, text, find_steps(a)), sum_ranges(b, text, find_steps(b))
    assert (change.a_ns, change.b_ns) == pytest.approx((before, after), abs=1)
    assert (change.kind, change.only) == ("range", only)


@pytest.mark.slow
def test_a_planted_call_of_a_host_that_runs_ahead(shared_reports: Path, unpacked: Unpacked) -> None:
    """`.item()` after every layer: the host waits, the step takes as long as before, and only B has the call."""
    a, b = (unpacked(shared_reports / f"whatif/{each}.rank0.sqlite") for each in ("w-base", "w-sync"))
    change = compare(a, b)["cudaStreamSynchronize"]
    truth, report = find_steps(b), Report(b)
    [process] = truth.ranges
    own = report.calls[report.calls["name"] == "cudaStreamSynchronize"]
    ns = sum(
        end - begin
        for begin, end in zip(own["begin"], own["end"], strict=True)
        if truth.counts(process, begin + report.utc)
    )
    assert (change.kind, change.only, change.a_ns) == ("call", "B", 0)
    assert change.b_ns == pytest.approx(ns / len(truth.counted), abs=1) and change.b_ns > 6 * MS


@pytest.mark.slow
def test_planted_kernels(shared_reports: Path, unpacked: Unpacked) -> None:
    """Kernels that only B has, launched in its steps that count."""
    a, b = (unpacked(shared_reports / f"whatif/{each}.rank0.sqlite") for each in ("w-base", "w-gemm"))
    [first, *_] = compare(a, b).values()
    truth, utc = find_steps(b), Report(b).utc
    [process] = truth.ranges
    with closing(sqlite3.connect(b)) as database:
        rows = database.execute(
            """SELECT k."end" - k.start, min(r.start) FROM CUPTI_ACTIVITY_KIND_KERNEL k
            JOIN CUPTI_ACTIVITY_KIND_RUNTIME r USING (correlationId) JOIN StringIds s ON s.id = k.demangledName
            WHERE s.value = ? GROUP BY k.rowid""",
            [first.name],
        ).fetchall()
    ns = sum(length for length, launched in rows if truth.counts(process, launched + utc)) / len(truth.counted)
    assert (first.kind, first.only, first.a_ns) == ("kernel", "B", 0)
    assert first.b_ns == pytest.approx(ns, abs=1) == pytest.approx(10.9 * MS, rel=0.02)
