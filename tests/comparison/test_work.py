"""How many steps of two runs are the same work: planted ratios, and programs whose truth no verdict may contradict."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import nsys2prv_ng
from nsys2prv_ng.comparison.compare import compare_sides
from nsys2prv_ng.comparison.model import Pair, Side
from nsys2prv_ng.comparison.result import format_comparison
from nsys2prv_ng.summary.difference.statistics import LARGE, NOISE
from nsys2prv_ng.summary.job import JobSummary
from nsys2prv_ng.summary.kernels.numbers import KernelNumbers
from nsys2prv_ng.summary.memory.numbers import MemoryOperationNumbers
from nsys2prv_ng.summary.ranges.numbers import RangeOfTask, RepeatedRange
from tests.comparison.made import MS, make_summary
from tests.conftest import Unpacked

US = 1000
KERNELS = "repeated kernels"


def run(
    lengths: Sequence[float],
    kernels: Mapping[str, tuple[float, float]],
    *,
    name: str = KERNELS,
    input_bytes: float = 0,
    ranges: Mapping[str, tuple[int, float]] | None = None,
    warmup: int = 1,
) -> JobSummary:
    """A run with steps of these lengths (ms), and one GPU.

    `kernels`: count in a step and time of each (us), by name. `input_bytes`: in a step. `ranges`: count, and share of
    the steps in which each is open.
    """
    steps = len(lengths)
    made = make_summary([{"compute_ns": round(length * MS)} for length in lengths], gpus=1)
    assert made.steps is not None
    copies = []
    if input_bytes:
        size = round(input_bytes * steps)
        copies = [
            MemoryOperationNumbers(
                operation="Memcpy host to device", count=steps, bytes=size, total_ns=steps, rated_ns=steps
            )
        ]
    return replace(
        made,
        steps=replace(made.steps, name=name, delimiter="last" if name == KERNELS else "", warmup=warmup),
        kernels=[
            KernelNumbers(
                name=kernel,
                kernel_class="Other",
                count=max(1, round(count * steps)),
                total_ns=max(1, round(count * steps * us * US)),
                min_ns=1,
                max_ns=1,
            )
            for kernel, (count, us) in kernels.items()
        ],
        memory_operations=copies,
        ranges=[
            RepeatedRange(
                domain="",
                name=text,
                depth=1,
                tasks=[
                    RangeOfTask(
                        rank=0, task="0", count=count, total_ns=round(share * made.measured_ns), min_ns=1, max_ns=1
                    )
                ],
            )
            for text, (count, share) in (ranges or {}).items()
        ],
    )


def pair_of(a: JobSummary, b: JobSummary) -> Pair:
    return compare_sides([Side("before", a), Side("after", b)]).pairs[0]


def spread(ms: float, steps: int) -> list[float]:
    """Lengths of steps that vary by less than a percent."""
    return [ms * (1 + 0.001 * (n * 7 % 10)) for n in range(steps)]


SWEEP = {"jacobi": (1, 26), "subtract": (1, 25), "reduce": (1, 12)}
"""A sweep, and the check of the residual after it."""
CYCLE = {"jacobi": (100, 26), "subtract": (1, 25), "reduce": (1, 12)}
"""A hundred sweeps, and one check."""


def check_mirrored(a: JobSummary, b: JobSummary) -> Pair:
    """Return the pair, after a check that the sides exchanged have the opposite result."""
    there, back = pair_of(a, b), pair_of(b, a)
    opposite = {"faster": "slower", "slower": "faster"}
    least = min(abs(change or 0) for change in (there.verdict.change, back.verdict.change))
    if min(abs(least - limit) for limit in (NOISE, LARGE)) > LARGE**2:  # changes are shares of the first side
        assert back.verdict.kind == opposite.get(there.verdict.kind, there.verdict.kind)
    assert (back.verdict.a_ns, back.verdict.b_ns) == (there.verdict.b_ns, there.verdict.a_ns)
    assert back.verdict.p == there.verdict.p
    assert (back.sizes, back.step) == (there.sizes[::-1], there.step)
    return there


# ---- planted ratios --------------------------------------------------------------------------------------------------


def test_a_step_that_holds_a_hundred_of_the_other_run() -> None:
    """2400 sweeps of 115 us, each with a check, and 24 cycles of 2.9 ms: the same work takes a quarter of the time."""
    a, b = run(spread(0.115, 2399), SWEEP), run(spread(2.9, 23), CYCLE)
    pair = check_mirrored(a, b)
    assert (pair.verdict.kind, pair.sizes) == ("faster", (100, 1))
    assert pair.verdict.change == pytest.approx(2.9 / 11.5 - 1, abs=0.01)
    assert len(pair.a.step_ns) == 23 and sum(row.difference_ns for row in pair.rows) == pair.difference_ns
    kernels = {row.name: row for table in pair.tables if table.key == "kernels" for row in table.rows}
    assert (kernels["jacobi"].a, kernels["jacobi"].b) == (2600 * US, 2600 * US)
    assert (kernels["subtract"].count_a, kernels["subtract"].count_b) == (100, 1)
    text = " ".join(format_comparison(compare_sides([Side("slow", a), Side("fast", b)])).split())
    assert "`fast` is faster than `slow`: 2.91 ms instead of 11.6 ms for the same work" in text
    assert "WORK one step of `fast` holds 100 of `slow` (`jacobi` 1 and 100 times in a step): times are of so" in text
    assert "RUN `slow`: 0 GPUs, 1 rank, 23 times 100 steps by kernels (`last` delimits them), median 11.6 ms" in text


def test_other_numbers_of_steps_in_all_decide_nothing() -> None:
    """1500 sweeps and 24 cycles: whether a cycle is a hundred sweeps does not show."""
    a, b = run(spread(0.115, 1499), SWEEP), run(spread(2.9, 23), CYCLE)
    pair = check_mirrored(a, b)
    assert (pair.verdict.kind, pair.verdict.p, pair.step) == ("inconclusive", None, "")
    assert [(each.name, each.a, each.b) for each in pair.shared] == [("jacobi", 1, 100), ("subtract", 1, 1)]
    a = run(spread(0.115, 1499), SWEEP, ranges={"cycle": (15, 0.9)})
    b = run(spread(2.9, 23), CYCLE, ranges={"cycle": (24, 0.9)})
    assert check_mirrored(a, b).step == "cycle"
    text = " ".join(format_comparison(compare_sides([Side("slow", a), Side("fast", b)])).split())
    assert "(`jacobi` 1 and 100 times, `subtract` 1 and 1 times); --step `cycle` compares both by it" in text


def test_steps_of_one_name_are_the_same_work() -> None:
    """Another batch, and other kernels: the ranges of the program count."""
    a = run(spread(30, 8), {"gemm": (128, 100)}, name="rollout")
    b = run(spread(20, 8), {"gemm": (8, 400), "other": (1, 1)}, name="rollout")
    assert (check_mirrored(a, b).verdict.kind, pair_of(a, b).sizes) == ("faster", (1, 1))


def test_ranges_against_kernels() -> None:
    """Cycles by their range in one run, and sweeps by kernels in the other, which have nothing equally often."""
    a = run(spread(3, 10), {"jacobi": (100, 26)}, name="cycle", ranges={"cycle": (10, 0.95)})
    b = run(spread(0.025, 2000), {"jacobi": (1, 20)})
    pair = check_mirrored(a, b)
    assert (pair.verdict.kind, pair.sizes) == ("faster", (1, 100))
    unlike = run(spread(0.025, 2000), {"jacobi": (1, 20)}, ranges={"cycle": (40, 0.9)})
    assert check_mirrored(a, unlike).verdict.measure == "capture" and pair_of(a, unlike).step == "cycle"


def test_batches_are_not_parts_of_steps() -> None:
    """Sixteen times fewer kernels in a step, as of a larger batch, with as many bytes, steps, or an optimizer."""
    kernels, batched = {"conv": (1600, 2), "linear": (800, 2)}, {"conv": (100, 2), "linear": (50, 2)}
    optimizer = {"adam": (1, 50)}
    for a, b in (
        (run(spread(30, 10), kernels), run(spread(3, 10), batched)),
        (run(spread(30, 10), kernels, input_bytes=1e6), run(spread(3, 90), batched, input_bytes=1e6)),
        (run(spread(30, 10), kernels | optimizer), run(spread(3, 90), batched | optimizer)),
        (run(spread(30, 20), kernels, ranges={"update": (20, 0.9)}),
         run(spread(3, 90), batched, ranges={"update": (90, 0.9)})),
    ):  # fmt: skip
        pair = check_mirrored(a, b)
        assert (pair.verdict.kind, pair.verdict.p) == ("inconclusive", None)


def test_smaller_parts_of_the_same_work() -> None:
    """Two micro-batches of half the size, in half of the steps: kernels take half as long."""
    a, b = run(spread(10, 99), {"gemm": (10, 100)}), run(spread(13, 49), {"gemm": (20, 50)})
    assert check_mirrored(a, b).verdict.p is None


def test_a_ratio_that_is_not_whole() -> None:
    a, b = run(spread(10, 30), {"gemm": (2, 100)}), run(spread(13, 20), {"gemm": (3, 100)})
    assert check_mirrored(a, b).verdict.p is None


def test_nothing_in_common() -> None:
    a, b = run(spread(10, 30), {"one": (2, 100)}), run(spread(13, 20), {"two": (3, 100)})
    assert check_mirrored(a, b).verdict.p is None
    assert "they have no kernel or copy in common" in format_comparison(
        compare_sides([Side("a", a), Side("b", b)]), 300
    )


# ---- programs that never ran -----------------------------------------------------------------------------------------


@given(st.integers(0, 2**32))
def test_no_significant_verdict_contradicts_the_truth(seed: int) -> None:
    """Programs of equal units of work, cut into steps in two ways, with a cure that changes counts and times.

    Both runs do the same number of units, or runs have different lengths. What costs time is what kernels take, and a
    time of the host for each.
    """
    chance = random.Random(seed)
    names = [f"kernel {n}" for n in range(chance.randint(1, 8))]
    unit = {name: (chance.choice([1, 2, 8, 100, 1000]), chance.uniform(1, 200)) for name in names}
    cured = {
        name: (
            max(1, round(count * chance.choice([1, 1, 1, 1, 0.5, 2, 0.01, 1 / 16]))),
            us * chance.choice([1, 1, 0.5, 2]),
        )
        for name, (count, us) in unit.items()
    }
    host_us = chance.choice([0, 5])
    units = [chance.randint(6, 30)] * 2 if chance.random() < 0.7 else [chance.randint(6, 30) for _ in range(2)]
    cuts = [chance.choice([1, 1, 2, 4, 10]) for _ in range(2)]
    sides, truth = [], []
    for kernels, count, cut in zip((unit, cured), units, cuts, strict=True):
        ns = sum(times * (us + host_us) for times, us in kernels.values())
        in_step = {name: (times / cut, us) for name, (times, us) in kernels.items()}
        sides.append(run(spread(ns / cut / 1000, count * cut - 1), in_step, input_bytes=1e6 / cut))
        truth.append(ns)
    pair = check_mirrored(*sides)
    if pair.verdict.kind in ("faster", "slower"):
        assert (truth[1] < truth[0]) == (pair.verdict.kind == "faster"), (unit, cured, units, cuts)


# ---- medians and means -----------------------------------------------------------------------------------------------


def named(lengths: Sequence[float]) -> JobSummary:
    return run(lengths, {"gemm": (1, 1)}, name="step")


def test_a_few_longer_steps_change_the_mean() -> None:
    """Every fifth step writes a checkpoint: the medians are equal, the mean step is 40 % longer."""
    plain = spread(10, 60)
    slow = [ms + 20 * (n % 5 == 4) for n, ms in enumerate(plain)]
    pair = check_mirrored(named(plain), named(slow))
    assert (pair.verdict.kind, pair.verdict.average) == ("slower", "mean")
    assert pair.verdict.change == pytest.approx(0.4, abs=0.01) and pair.verdict.p is not None
    assert sum(row.difference_ns for row in pair.rows) == pair.difference_ns
    text = " ".join(format_comparison(compare_sides([Side("a", named(plain)), Side("b", named(slow))])).split())
    assert "rank test, of the mean step of a permutation test: part" in text
    assert "14.0 ms per mean `step` instead of 10.0 ms" in text and "median 10.1 ms, mean 14.0 ms" in text


def test_one_longer_step_may_be_chance() -> None:
    plain = spread(10, 20)
    pair = check_mirrored(named(plain), named([*plain[:-1], 100]))
    assert (pair.verdict.kind, pair.verdict.average) == ("inconclusive", "mean")


def test_shorter_steps_with_longer_exceptions_are_not_faster() -> None:
    """The typical step gets shorter by a fifth, every fourth takes three times as long: the job takes longer."""
    plain = spread(10, 60)
    other = [ms * (3 if n % 4 == 3 else 0.8) for n, ms in enumerate(plain)]
    pair = check_mirrored(named(plain), named(other))
    assert (pair.verdict.kind, pair.verdict.average) == ("slower", "mean")


# ---- programs --------------------------------------------------------------------------------------------------------


def of_program(folder: Path, unpacked: Unpacked, name: str) -> list[list[Path]]:
    return [[unpacked(folder / f"programs/{name}-{speed}.rank0.sqlite")] for speed in ("slow", "fast")]


@pytest.mark.all_sets
@pytest.mark.slow
@pytest.mark.parametrize(("name", "step", "change"), [("solver", "cycle", -0.75), ("ppo", "rollout", -0.73)])
def test_programs(
    shared_reports: Path, unpacked: Unpacked, tmp_path: Path, name: str, step: str, change: float
) -> None:
    """With ranges, and without: the verdict is that of the named steps, or none."""
    sides = of_program(shared_reports, unpacked, name)
    assert nsys2prv_ng.compare(sides, step=step, jobs=1).pairs[0].verdict.change == pytest.approx(change, abs=0.01)
    found = nsys2prv_ng.compare(sides, jobs=1).pairs[0]
    assert found.verdict.change == pytest.approx(change, abs=0.02) and found.verdict.kind == "faster"
    bare = [[drop_ranges(path, tmp_path) for path in side] for side in sides]
    pair = nsys2prv_ng.compare(bare, jobs=1).pairs[0]
    if name == "solver":
        assert (pair.sizes, pair.verdict.kind) == ((100, 1), "faster")
        assert pair.verdict.change == pytest.approx(change, abs=0.01)
    else:
        assert (pair.verdict.kind, pair.verdict.p, pair.step) == ("inconclusive", None, "")
    # Only one run is summed up by these ranges: then the other one is, too.
    named_run = nsys2prv_ng.summarize(sides[0], step=step, jobs=1)
    again = nsys2prv_ng.compare(named_run, sides[1], labels=["slow", "fast"], jobs=1).pairs[0]
    assert again.verdict.change == pytest.approx(change, abs=0.01) and again.b.step_name == step


def drop_ranges(report: Path, folder: Path) -> Path:
    """Copy a report without its NVTX ranges, so that kernels mark the steps."""
    copy = folder / report.name
    shutil.copyfile(report, copy)
    with closing(sqlite3.connect(copy)) as database, database:
        database.execute("DELETE FROM NVTX_EVENTS")
    return copy
