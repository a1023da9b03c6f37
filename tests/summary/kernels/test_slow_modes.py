"""Slow modes of kernels: cells against loops, made kernels with and without a slow mode, and edited real reports."""

from __future__ import annotations

import sqlite3
from collections import Counter, defaultdict
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pytest

from nsys2prv_ng.summary.answer.answer import answer
from nsys2prv_ng.summary.kernels.cells import MOST_BLOCKS, Kernels, KernelTimes, Shape, find_blocks, sum_kernels
from nsys2prv_ng.summary.kernels.numbers import SlowKernel, SlowMode, SlowModeNumbers, SlowTask
from nsys2prv_ng.summary.kernels.slow_modes import LEAST_SHARE, group_modes, judge
from nsys2prv_ng.summary.kernels.table import describe_slow_modes
from tests.conftest import DATA, Unpacked
from tests.report_sets import find_set, list_sets, sets
from tests.summary.kernels.slow_modes_truth import make_times, slow_down
from tests.summary.made import IN_STEPS, summarize_reports
from tests.summary.made_summary import make_losses, make_summary

# ---- cells -----------------------------------------------------------------------------------------------------------


def sum_by_loops(kernels: Kernels) -> Counter[tuple[float, ...]]:
    """Return task, shape, step, kernels, clean kernels, time and level of each cell."""
    rows = sorted(zip(*(column.tolist() for column in kernels), strict=True), key=lambda row: (row[3], row[4]))
    launched: dict[Any, Counter[int]] = defaultdict(Counter)
    places: dict[Any, list[Any]] = defaultdict(list)
    for task, step, shape, _, _, ns, is_beside in rows:
        places[task, step, shape].append((ns, is_beside))
        launched[task, step][shape] += 1
    usual: dict[Any, list[float]] = defaultdict(list)
    for (task, step, shape), own in places.items():
        for place, (ns, is_beside) in enumerate(own):
            usual[task, str(sorted(launched[task, step].items())), shape, place, is_beside].append(np.log(max(ns, 1)))
    cells: Counter[tuple[float, ...]] = Counter()
    for (task, step, shape), own in places.items():
        content = str(sorted(launched[task, step].items()))
        has_clean = any(not is_beside for _, is_beside in own)
        levels = [
            np.log(max(ns, 1)) - median(usual[task, content, shape, place, is_beside])
            for place, (ns, is_beside) in enumerate(own)
            if not (is_beside and has_clean)
        ]
        clean = sum(not is_beside for _, is_beside in own)
        cells[task, shape, step, len(own), clean, sum(ns for ns, _ in own), round(median(levels), 9) + 0.0] += 1
    return cells


@pytest.mark.parametrize("seed", range(20))
def test_cells_are_those_of_loops(seed: int) -> None:
    random = np.random.default_rng(seed)
    n = int(random.integers(0, 60))
    kernels = Kernels(
        *(random.integers(0, high, n) for high in (2, 4, 3)),
        launched=random.permutation(n),
        begin=np.arange(n),
        ns=random.integers(0, 9, n),
        is_beside=random.random(n) < 0.3,
    )
    shapes = [Shape(f"kernel {n}", (1, 1, 1), (32, 1, 1)) for n in range(3)]
    times = sum_kernels(kernels, shapes, 4)
    cells = times.cells
    columns = (cells.task, cells.block, cells.kernels, cells.clean, cells.ns)
    names = [times.shapes[key].name for key in cells.shape.tolist()]
    found = Counter(
        (task, int(name.split()[1]), *rest, round(level, 9) + 0.0)
        for name, level, task, *rest in zip(
            names, cells.level.tolist(), *(column.tolist() for column in columns), strict=True
        )
    )
    assert found == sum_by_loops(kernels)
    assert cells.steps.tolist() == [1] * len(names)
    assert sum(times.task_ns.values()) == kernels.ns.sum() == cells.ns.sum()


def test_blocks_of_many_steps_are_nearly_equal() -> None:
    few = find_blocks(np.arange(MOST_BLOCKS), MOST_BLOCKS)
    assert few.tolist() == list(range(MOST_BLOCKS))
    many = np.bincount(find_blocks(np.arange(1000), 1000))
    assert many.size == MOST_BLOCKS and many.sum() == 1000 and np.ptp(many) == 1


# ---- made kernels ----------------------------------------------------------------------------------------------------

HEALTHY: dict[str, dict[str, Any]] = {
    "log-normal noise": {},
    "much noise": {"noise": 0.2},
    "heavy tails": {"noise": 0.1, "tail": 0.2},
    "a warm-up that drifts": {"drift": 0.3},
    "two clusters in every step, by place": {"has_contents": True},
    "two clusters in every step, by chance": {"has_chance": True},
}


def find(times: KernelTimes) -> list[tuple[set[int], list[int], float]]:
    """Return tasks, steps and lost time of each mode that costs enough of the kernel time of its steps."""
    judged = judge(times)
    found = []
    for mode in group_modes(times.cells, judged):
        at = np.concatenate(mode.series)
        lost = float(judged.lost[at[np.isin(times.cells.block[at], sorted(mode.slow))]].sum())
        inside = np.isin(times.cells.task, sorted(mode.tasks)) & np.isin(times.cells.block, sorted(mode.slow))
        if lost >= LEAST_SHARE * times.cells.ns[inside].sum():
            found.append((mode.tasks, sorted(mode.slow), lost))
    return found


@pytest.mark.parametrize("name", HEALTHY)
@pytest.mark.parametrize(("ranks", "steps"), [(1, 6), (1, 12), (4, 7), (8, 5)])
def test_healthy_kernels_have_no_slow_mode(name: str, ranks: int, steps: int) -> None:
    """The rate of many more jobs is in docs/reference/summary.md."""
    assert [find(make_times(seed, ranks, steps, **HEALTHY[name])[0]) for seed in range(4)] == [[]] * 4


@pytest.mark.parametrize("noise", [{}, {"noise": 0.05, "tail": 0.02}, {"has_contents": True}])
@pytest.mark.parametrize(
    ("ranks", "steps", "slow"),
    [
        (1, 12, (0, range(5, 12), 1.3)),
        (1, 12, (0, range(4, 7), 1.3)),
        (4, 7, (2, range(4, 7), 1.3)),
        (4, 6, (1, range(6), 1.3)),
        (8, 12, (3, range(0, 12, 3), 1.4)),
    ],
)
def test_a_slow_mode_has_its_rank_steps_and_cost(
    noise: dict[str, Any], ranks: int, steps: int, slow: tuple[int, range, float]
) -> None:
    times, planted = make_times(7, ranks, steps, slow=slow, **noise)
    [(tasks, found, lost)] = find(times)
    assert tasks == {slow[0]} and found == list(slow[1])
    assert lost == pytest.approx(planted, rel=0.05)


def test_steps_with_other_contents_are_not_compared() -> None:
    """Kernels of the same shape take longer in steps that also launch something else."""
    parts = []
    for step in range(12):
        more = [5] if step % 2 else []
        shape = np.array([0] * 8 + more, np.int64)
        ns = np.where(shape == 0, 2000 if step % 2 else 1000, 10)
        parts.append(np.stack([shape, np.full(shape.size, step), ns, np.arange(shape.size)]))
    shape, step, ns, order = np.concatenate(parts, axis=1)
    none = np.zeros(shape.size, np.bool_)
    kernels = Kernels(np.zeros_like(step), step, shape, 100 * step + order, order, ns, none)
    shapes = [Shape(f"kernel {n}", (1, 1, 1), (1, 1, 1)) for n in range(6)]
    assert find(sum_kernels(kernels, shapes, 12)) == []
    alike = kernels.take(shape == 0)
    assert [steps for _, steps, _ in find(sum_kernels(alike, shapes, 12))] == [list(range(1, 12, 2))]


# ---- reports ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "ranks", "slow", "kernel"),
    [
        ("exercises/ex1a-fast", 4, 2, "%"),
        pytest.param("exercises/ex1a-fast", 4, 1, "nvjet%", marks=pytest.mark.all_sets),
        ("whatif/w-base", 1, 0, "nvjet%"),
    ],
)
def test_slower_kernels_of_a_real_report(
    shared_reports: Path, unpacked: Unpacked, tmp_path: Path, name: str, ranks: int, slow: int, kernel: str
) -> None:
    """The kernels of one rank take 30 % longer from step 5 on."""
    paths = [unpacked(shared_reports / f"{name}.rank{rank}.sqlite") for rank in range(ranks)]
    edited = tmp_path / paths[slow].name
    planted = slow_down(paths[slow], edited, 5, 1.3, kernel)
    found = summarize_reports([*paths[:slow], edited, *paths[slow + 1 :]], IN_STEPS)
    assert found.slow_modes is not None and found.steps is not None
    [mode] = found.slow_modes.modes
    assert [task.rank for task in mode.tasks] == [slow]
    assert mode.steps == list(range(5, found.steps.last + 1)) and not mode.all_steps
    assert mode.lost_ns == pytest.approx(planted, rel=0.03)
    assert mode.ratio == pytest.approx(1.3, rel=0.01)
    assert mode.lost_ns == mode.more_lost_ns + sum(each.lost_ns for each in mode.kernels)
    assert mode.lost_ns == sum(task.lost_ns for task in mode.tasks)
    assert all(each.name.startswith("nvjet") for each in mode.kernels) == (kernel == "nvjet%")
    [line] = [line.text for line in answer(found).statements if line.label == "SLOW"]
    where = f"rank {slow}, " if ranks > 1 else ""
    assert line.startswith(f"{where}steps 5-{found.steps.last}: ") and ("nvidia-smi" in line) == (kernel == "%")


SETS = {name: paths for name, paths in list_sets().items() if not name.startswith("cpu/")}
_PUSH = {"samples/ddp-2x2", "exercises/ex2b-overlap", "whatif/hf-emptycache"}


@pytest.mark.slow
@pytest.mark.parametrize("name", sets(SETS, push=_PUSH))
def test_real_reports_have_no_slow_mode(name: str) -> None:
    found = summarize_reports(find_set(name), IN_STEPS)
    assert found.slow_modes is None or found.slow_modes.modes == []


# ---- words -----------------------------------------------------------------------------------------------------------

MODE = SlowMode(
    tasks=[SlowTask(rank=3, task="rank 3", lost_ns=6_000_000)],
    steps=[5, 6, 7, 9],
    all_steps=False,
    ratio=1.25,
    lost_ns=6_000_000,
    step_share=0.05,
    kernel_share=0.9,
    kernels=[
        SlowKernel(name=f"kernel {n}", grid=[8, 1, 1], block=[32, 1, 1], count=4, usual_ns=10, ns=50, lost_ns=10)
        for n in range(2)
    ],
)


def test_a_slow_mode_in_words() -> None:
    summary = make_summary(make_losses(compute=100))
    assert describe_slow_modes(summary.slow_modes, has_several=summary.tasks > 1) == ""
    slow = SlowModeNumbers(steps=9, kernel_ns=100, judged_ns=90, modes=[MODE])
    assert describe_slow_modes(slow, has_several=summary.tasks > 1) == (
        "rank 3, steps 5-7, 9: 2 names and launch shapes of kernels (90.0% of kernel time, first `kernel 0`) take 25.0%"
        " longer than usual, 6.00 ms lost (5.0% of these steps); clocks throttled, or another process? compare"
        " nvidia-smi -q -d CLOCK,PERFORMANCE on that GPU"
    )
    narrow = replace(MODE, kernel_share=0.1, kernels=MODE.kernels[:1], all_steps=True)
    assert describe_slow_modes(replace(slow, modes=[narrow, MODE]), has_several=summary.tasks > 1) == (
        "rank 3, steps 5-7, 9: `kernel 0` takes 25.0% longer than on other ranks, 6.00 ms lost (5.0% of these steps);"
        " other kernels are as fast as usual: another algorithm, or more data?; 1 more slow mode: --details"
    )


@pytest.mark.slow
def test_a_kernel_that_one_rank_runs_longer_from_a_step_on(unpacked: Unpacked) -> None:
    """`spin_kernel` runs six times a step for 1,000,000 cycles, on rank 1 for 1,300,000 from step 5 on."""
    reports = [unpacked(DATA / f"h100/spin.rank{rank}.sqlite.xz") for rank in range(2)]
    times: dict[bool, list[int]] = {False: [], True: []}
    with closing(sqlite3.connect(reports[1])) as database:
        query = """SELECT k."end" - k.start FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds s ON s.id = k.shortName
            WHERE s.value = 'spin_kernel' ORDER BY k.start"""
        for number, (ns,) in enumerate(database.execute(query)):
            times[number >= 6 * 5].append(ns)
    numbers = summarize_reports(reports, IN_STEPS).slow_modes
    assert numbers is not None
    [mode] = numbers.modes
    assert [task.rank for task in mode.tasks] == [1] and mode.steps == list(range(5, 14))
    assert len(times[True]) == 6 * len(mode.steps)
    assert mode.lost_ns == pytest.approx(sum(times[True]) - len(times[True]) * median(times[False]), rel=0.01)
