"""Ranges with a number in their name on one row, against plain sums."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from nsys2prv_ng import api
from nsys2prv_ng.summary.ranges.numbers import RangeOfTask, RepeatedRange
from nsys2prv_ng.summary.ranges.table import join_siblings
from tests.conftest import NO_REPORTS, REPORTS


def make(name: str, *tasks: int, depth: int = 2, domain: str = "", slowest: str | None = None) -> RepeatedRange:
    """A range that took so long (ns) on each task, in two occurrences."""
    parts = [
        RangeOfTask(
            rank=i, task=f"rank {i}", count=2, total_ns=ns, min_ns=ns // 3, max_ns=ns - ns // 3, waiting_ns=ns // 4
        )
        for i, ns in enumerate(tasks)
    ]
    return RepeatedRange(domain=domain, name=name, depth=depth, tasks=parts, slowest_task=slowest)


def test_siblings_are_summed_by_task() -> None:
    ranges = [make(f"backward mb{i}", 100 + i, 200 - i) for i in (5, 1, 7, 3)] + [make("backward mb9", 50)]
    (one,) = join_siblings(ranges)
    assert (one.name, one.depth, one.count, one.total_ns) == ("backward mb*", 2, 18, sum(r.total_ns for r in ranges))
    for i, task in enumerate(one.tasks):
        parts = [repeated.tasks[i] for repeated in ranges if i < len(repeated.tasks)]
        assert (task.rank, task.task) == (i, f"rank {i}")
        assert task.mean_ns == pytest.approx(sum(part.total_ns for part in parts) / sum(part.count for part in parts))
        assert task.waiting_ns == sum(part.waiting_ns for part in parts)
        assert (task.min_ns, task.max_ns) == (min(p.min_ns for p in parts), max(p.max_ns for p in parts))


def test_a_task_is_slowest_if_it_is_in_each() -> None:
    names = [f"mb{i}" for i in range(4)]
    assert join_siblings([make(name, 1, 2, slowest="rank 1") for name in names])[0].slowest_task == "rank 1"
    mixed = [make(name, 1, 2, slowest="rank 1" if name != "mb2" else None) for name in names]
    assert join_siblings(mixed)[0].slowest_task is None


@pytest.mark.parametrize(
    "ranges",
    [
        [make(f"layer{i}", 90 - i) for i in range(3)],  # few
        [make(f"layer{i}", 90 - i, depth=1 + i % 2) for i in range(6)],  # these may be within one another
        [make(f"layer{i}", 90 - i, domain=f"d{i % 2}") for i in range(6)],
        [make(f"conv{i} {5 - i}x3", 90 - i) for i in range(5)],  # another number than the last differs
        [make(name, 9) for name in ("load", "forward", "backward", "optimizer")],
    ],
)
def test_others_are_shown_one_by_one(ranges: list[RepeatedRange]) -> None:
    assert join_siblings(ranges) == ranges


def test_long_numbers_cost_no_more_than_their_length() -> None:
    """A search from each of their digits would take minutes."""
    ranges = [make("1" * 100_000 + f"a{i}b" + "c" * 100_000, 9) for i in range(4)]
    begin = time.process_time()
    (one,) = join_siblings(ranges)
    assert one.name == "1" * 100_000 + "a*b" + "c" * 100_000
    assert time.process_time() - begin < 2


@pytest.mark.slow
@pytest.mark.skipif(not REPORTS.is_dir(), reason=NO_REPORTS)
def test_the_pipeline_of_a_real_run() -> None:
    """Its 16 ranges of micro-batches fill no table any more; the JSON keeps them."""
    reports: list[Path] = sorted((REPORTS / "exercises").glob("ex3a-pp2.rank*.sqlite"))
    ranges = api.summarize(reports).ranges
    parts = {name: [r for r in ranges if re.fullmatch(rf"{name} mb\d", r.name)] for name in ("forward", "backward")}
    shown = {repeated.name: repeated for repeated in join_siblings(ranges)}
    for name, eight in parts.items():
        assert len(eight) == 8
        assert shown[f"{name} mb*"].total_ns == sum(repeated.total_ns for repeated in eight)
    assert len(shown) == len(ranges) - 14
