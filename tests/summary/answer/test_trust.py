"""What makes numbers less certain, and what the steps exclude."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nsys2prv_ng.reading.accounts import SkippedReport
from nsys2prv_ng.summary.answer.answer import answer
from nsys2prv_ng.summary.answer.case import Case
from nsys2prv_ng.summary.answer.trust import describe_limits, describe_start_up, list_doubts
from nsys2prv_ng.summary.job import JobSummary, StartUp
from nsys2prv_ng.summary.kernels.numbers import KernelNumbers
from nsys2prv_ng.summary.ranges.numbers import RangeOfTask, RepeatedRange
from tests.summary.made_summary import MS, STEPS, make_losses, make_summary
from tests.summary.made_waits import NO_MPI, NO_RANK, NO_WAITS, rank_of, waits_of
from tests.summary.test_tables import make_gpu

LOSSES = make_losses(compute=60, host=40)


def doubt(summary: JobSummary) -> list[tuple[str, list[str]]]:
    """The doubts, each with its evidence."""
    doubts = list_doubts(Case(summary))
    assert answer(summary).trust == [each.text for each in doubts]
    assert {each.label for each in doubts} <= {"TRUST"}
    return [(each.text, each.evidence) for each in doubts]


# ---- waits -----------------------------------------------------------------------------------------------------------


def test_waits_that_are_not_known() -> None:
    both = waits_of(rank_of(0, 0), replace(rank_of(1, 0), mpi=NO_MPI))
    mpi = waits_of(*(replace(NO_RANK, task=f"rank {n}", mpi=NO_MPI) for n in range(2)))
    assert describe_limits(both) == []
    assert describe_limits(replace(both, below_uncertainty=60)) == [
        "wait within clock error in 60 of 700 kernels and calls, counted as transfer"
    ]
    assert describe_limits(replace(mpi, not_split={"this": 2, "that": 1_000})) == [
        "1,002 of 1,642 calls may wait or transfer data, 1,000 because that, 2 because this"
    ]
    assert describe_limits(replace(NO_WAITS, not_split={"this\x1b": 1})) == [
        "1 of 1 kernel may wait or transfer data, because this"
    ]
    summary = make_summary(LOSSES, waits=replace(both, below_uncertainty=60))
    assert [evidence for _, evidence in doubt(summary)] == [["waits"]]


# ---- CUDA graphs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("share", "in_steps"), [(1, True), (31, True), (60, True), (30, False)])
def test_opaque_graphs(share: int, in_steps: bool) -> None:
    losses = make_losses(compute=70 - share if share < 60 else 40, whole_graph=share, host=30 if share < 60 else 0)
    [text] = [text for text, evidence in doubt(make_summary(losses, in_steps=in_steps)) if evidence == ["efficiency"]]
    assert text.startswith(f"{share}.0% of GPU time is in opaque CUDA graphs, which may compute, wait or transfer")
    assert "--cuda-graph-trace=node" in text


# ---- steps -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({}, []),
        ({"delimiter": "cuda`Graph"}, ["steps are found by GPU work, not by NVTX ranges: `cuda'Graph` delimits them"]),
        (
            {"delimiter": "d", "similarity": 0.9},
            ["steps are found by GPU work, not by NVTX ranges: `d` delimits them, and they are only 90.0% alike"],
        ),
        ({"count": 2}, ["only 2 steps: how much steps vary is hardly known"]),
        ({"count": 1, "spread": 0.9}, ["only 1 step: how much steps vary is hardly known"]),
        (
            {"delimiter": "d", "similarity": 0.98},
            ["steps are found by GPU work, not by NVTX ranges: `d` delimits them"],
        ),
        ({"spread": 0.5}, []),
        (
            {"spread": 0.51, "min_ns": 15 * MS, "max_ns": 161 * MS},
            ["steps differ much (15.0 ms to 161 ms): no step is typical, and savings are means"],
        ),
    ],
)
def test_steps(changes: dict[str, object], says: list[str]) -> None:
    summary = replace(make_summary(LOSSES), steps=replace(STEPS, **changes))  # type: ignore[arg-type]
    assert doubt(summary) == [(text, ["steps"]) for text in says]


@pytest.mark.parametrize(
    ("name", "count", "says"),
    [
        ("aten::add", 30, "1.5"),
        ("autograd::engine", 20, "1.0"),
        ("AddmmBackward0", 20, "1.0"),
        ("aten::add", 19, None),
        ("layer", 30, None),
    ],
)
def test_ranges_of_operators_cost_time(name: str, count: int, says: str | None) -> None:
    """20 kernels, 10 ranges of steps, and ranges of operators."""
    lengths = {"total_ns": 1, "min_ns": 1, "max_ns": 1}
    kernel = KernelNumbers(name="k", kernel_class="Other", count=20, **lengths)
    ranges = [
        RepeatedRange(domain="", name=text, depth=1, tasks=[RangeOfTask(rank=0, task="rank 0", count=times, **lengths)])
        for text, times in (("step", 10), (name, count))
    ]
    found = doubt(replace(make_summary(LOSSES), kernels=[kernel], ranges=ranges))
    text = f"NVTX ranges of operators ({says} per kernel) slow the host: capture again without them"
    assert found == ([(text, ["ranges"])] if says else [])


def test_without_steps_the_time_is_named() -> None:
    summary = make_summary(LOSSES, in_steps=False)
    assert doubt(summary) == []  # without GPUs
    on_gpu = replace(summary, gpus=[make_gpu(0, [0], [])])
    assert doubt(on_gpu) == [("no steps found (mark them with NVTX): numbers cover the capture", ["steps"])]
    assert doubt(replace(on_gpu, chosen=["time"])) == []


def test_reports_that_were_skipped() -> None:
    skipped = [SkippedReport(file=f"{n}.sqlite", why="damaged") for n in range(2)]
    assert doubt(replace(make_summary(LOSSES), skipped=skipped)) == [
        ("2 reports skipped, so ranks may be missing (listed with --details)", ["skipped"])
    ]


# ---- start-up --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "says"),
    [
        (None, ""),
        (StartUp(before_ns=900 * MS, warmup=0, wait_ns=0, after_ns=0), "excluded: 900 ms before the steps"),
        (
            StartUp(before_ns=900 * MS, warmup=1, wait_ns=192 * MS, after_ns=5 * MS),
            "excluded: 900 ms before the steps (1 warm-up step, ranks waited 192 ms in total); "
            "5.00 ms after the last step",
        ),
    ],
)
def test_what_the_steps_exclude(start: StartUp | None, says: str) -> None:
    summary = replace(make_summary(LOSSES), start_up=start)
    assert describe_start_up(summary) == answer(summary).startup == says
    lines = [line.text for line in answer(summary).statements if line.label == "STARTUP"]
    assert lines == ([says] if says else [])
