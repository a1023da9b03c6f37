"""Units of work: only ranges that occur equally often in every step, and that are most of the work."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import nsys2prv_ng
from nsys2prv_ng.comparison.compare import compare_sides
from nsys2prv_ng.comparison.model import Pair, Side, WorkUnits
from nsys2prv_ng.comparison.result import format_comparison
from nsys2prv_ng.summary.job import JobSummary
from nsys2prv_ng.summary.ranges.numbers import RangeOfTask, RepeatedRange
from tests.comparison.made import GPUS, MS, make_summary
from tests.conftest import Unpacked
from tests.report_truth import Report
from tests.steps.step_truth import StepTruth, list_ranges

STEPS = 5


def make_range(name: str, per_step: int | list[int], ms: float, depth: int = 2) -> RepeatedRange:
    """A range on each of four ranks. `ms`: its time in each step; `per_step`: 0 if it occurs unevenly."""
    counts = per_step if isinstance(per_step, list) else [per_step] * GPUS
    tasks = [
        RangeOfTask(
            rank=rank,
            task=f"rank {rank}",
            count=STEPS * max(1, count),
            total_ns=int(STEPS * ms * MS),
            min_ns=1,
            max_ns=1,
            per_step=count,
        )
        for rank, count in enumerate(counts)
    ]
    return RepeatedRange(domain="", name=name, depth=depth, tasks=tasks)


def run(ms: int, *ranges: RepeatedRange) -> JobSummary:
    return replace(make_summary([{"compute_ns": ms * MS * GPUS}] * STEPS), ranges=list(ranges))


def pair_of(a: JobSummary, b: JobSummary) -> Pair:
    return compare_sides([Side("before", a), Side("after", b)]).pairs[0]


def find(a: JobSummary, b: JobSummary) -> WorkUnits | None:
    return pair_of(a, b).units


def test_the_unit_with_most_time() -> None:
    a = run(30, make_range("forward", 1, 8), make_range("backward", 1, 20), make_range("optimizer", 1, 2))
    b = run(96, make_range("forward", 4, 24), make_range("backward", 4, 70), make_range("optimizer", 1, 2))
    assert find(a, b) == WorkUnits("backward", 1, 4, 30 * MS, 24 * MS, pytest.approx(-0.2))
    assert find(b, a) == WorkUnits("backward", 4, 1, 24 * MS, 30 * MS, pytest.approx(0.25))
    text = " ".join(format_comparison(compare_sides([Side("one", a), Side("four", b)])).split())
    assert (
        "WORK `four` has 4 `backward` per step, `one` 1: +220.0% per step, -20.0% per `backward` (24.0 ms instead of"
        " 30.0 ms) " in text
    )
    assert find(a, a) is None and find(b, b) is None


def test_what_is_no_unit() -> None:
    a = run(30, make_range("forward", 2, 20), make_range("log", 1, 5), make_range("step", 1, 30, depth=1))
    uneven = run(60, make_range("forward", 0, 40), make_range("log", 1, 5))
    ranks = run(60, make_range("forward", [4, 4, 3, 4], 40), make_range("log", 1, 5))
    small = run(60, make_range("forward", 2, 40), make_range("log", 3, 5))
    other = run(60, make_range("train", 4, 40), make_range("log", 1, 5))
    mixed = run(60, make_range("forward", 4, 20), make_range("rest", 1, 30))
    for b in (uneven, ranks, small, other, mixed):
        assert find(a, b) is None
    sound = run(60, make_range("forward", 4, 40), make_range("log", 1, 5))
    assert find(a, sound) == WorkUnits("forward", 2, 4, 15 * MS, 15 * MS, pytest.approx(0.0))


def test_ratios_that_are_not_integers() -> None:
    a, b = run(40, make_range("micro", 2, 30)), run(90, make_range("micro", 3, 80))
    assert find(a, b) == WorkUnits("micro", 2, 3, 20 * MS, 30 * MS, pytest.approx(0.5))


@pytest.mark.all_sets
@pytest.mark.slow
def test_micro_batches_of_real_runs(shared_reports: Path, unpacked: Unpacked) -> None:
    """Counts of ranges by step, and steps, by plain loops: a step of one run has four micro-batches."""
    sides = [
        [unpacked(shared_reports / f"exercises/{name}.rank{rank}.sqlite") for rank in range(4)]
        for name in ("ex1a-fast", "ex1c-accum")
    ]
    pair = nsys2prv_ng.compare(sides, labels=["a", "b"], jobs=1).pairs[0]
    per_unit = []
    for paths, times in zip(sides, (1, 4), strict=True):
        reports = [Report(path) for path in paths]
        truth = StepTruth(reports, list_ranges(reports, "step"))
        counts = {
            len([text for begin, text in zip(own["begin"], own["text"], strict=True)
                 if text == "backward" and truth.find_step(process, begin + report.utc) == number])
            for report, process in zip(reports, truth.ranges, strict=True)
            for own in [report.nvtx]
            for number in truth.counted
        }  # fmt: skip
        assert counts == {times}
        lengths = sorted(truth.lengths[truth.warmup :])
        per_unit.append(lengths[len(lengths) // 2] / times)
    assert pair.units is not None
    assert (pair.units.range, pair.units.count_a, pair.units.count_b) == ("backward", 1, 4)
    assert pair.units.change == pytest.approx(per_unit[1] / per_unit[0] - 1, abs=1e-6)
    assert pair.units.change == pytest.approx(-0.183, abs=0.001)
