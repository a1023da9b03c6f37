"""What the latest rank takes longer for than the others: numbers made by hand, and captures with planted causes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from nsys2prv_ng.summary.ranges.numbers import RangeOfTask, RepeatedRange
from nsys2prv_ng.summary.waits.culprits import find_excess
from nsys2prv_ng.summary.waits.numbers import Excess
from tests.conftest import Unpacked
from tests.summary.made import IN_STEPS, summarize_reports
from tests.summary.made_summary import MS, make_rank, make_waits

WAITS = make_waits([make_rank(0, 9 * MS, 0), make_rank(1, 0, 20 * MS), make_rank(2, 11 * MS, 0)], [], [])
"""The others wait for rank 1."""


def make_range(name: str, depth: int, *times: tuple[int, int, int]) -> RepeatedRange:
    """Return a range with total, waiting of the thread, and of thread or GPU (ms), for each rank."""
    tasks = [
        RangeOfTask(
            rank=rank, task=f"rank {rank}", count=3, total_ns=total * MS, min_ns=0, max_ns=0,
            waiting_ns=waiting * MS, gpu_waiting_ns=gpu * MS,
        )
        for rank, (total, waiting, gpu) in enumerate(times)
    ]  # fmt: skip
    return RepeatedRange(domain="", name=name, depth=depth, tasks=tasks)


def test_what_takes_longer_with_and_without_waiting() -> None:
    ranges = [
        make_range("step", 1, (90, 0, 0), (99, 0, 0), (90, 0, 0)),  # contains everything
        make_range("layer", 2, (10, 2, 2), (19, 0, 0), (12, 4, 4)),  # 8 and 8 without waiting
        make_range("around", 1, (10, 0, 0), (22, 0, 0), (10, 0, 0)),  # more, but an inner one is nearly as long
        make_range("ahead", 2, (20, 0, 9), (18, 0, 0), (20, 0, 9)),  # the others are longer: their hosts run ahead
        make_range("blocked", 2, (10, 0, 0), (12, 0, 6), (10, 0, 0)),  # the GPU of rank 1 waits meanwhile
        make_range("own", 2, (0, 0, 0), (5, 0, 0), (0, 0, 0)),
    ]
    calls = [("free", "rank 0", 1 * MS), ("free", "rank 1", 7 * MS), ("nap", "rank 2", 3 * MS), ("sync", "rank 1", MS)]
    found = find_excess(WAITS, ranges, calls, "step")
    expected = [
        ("range", "layer", 19, 8.0),
        ("range", "around", 22, 10.0),
        ("call", "free", 7, 0.5),
        ("range", "own", 5, 0.0),
        ("call", "sync", 1, 0.0),
    ]
    rows = [Excess(kind=k, domain="", name=n, ns=ns * MS, others_ns=round(o * MS)) for k, n, ns, o in expected]
    assert found == rows


def test_nobody_waits_for_anybody() -> None:
    nobody = replace(WAITS, ranks=[replace(rank, caused_wait_ns=0) for rank in WAITS.ranks])
    ranges = [make_range("own", 2, (0, 0, 0), (5, 0, 0), (0, 0, 0))]
    assert (
        find_excess(nobody, ranges, [], "") == [] == find_excess(replace(WAITS, ranks=WAITS.ranks[1:2]), ranges, [], "")
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "cause"),
    [("whatif/m-late", "late host"), pytest.param("exercises/ex1a-slow", None, marks=pytest.mark.all_sets)],
)
def test_planted_causes_are_first(shared_reports: Path, unpacked: Unpacked, name: str, cause: str | None) -> None:
    """Rank 2 of m-late sleeps 6 ms a step. All ranks of ex1a-slow load data for about as long: nothing is named."""
    found = summarize_reports([unpacked(shared_reports / f"{name}.rank{n}.sqlite") for n in range(4)], IN_STEPS)
    assert found.waits is not None and found.steps is not None
    window = found.steps.window_ns[1] - found.steps.window_ns[0]
    named = [row for row in found.waits.excess if row.ns - row.others_ns >= 0.02 * window]
    assert [row.name for row in named if row.kind == "range"] == ([] if cause is None else [cause])
    if cause is not None:
        assert named[0].name == cause and named[0].ns / found.steps.count == pytest.approx(6.1 * MS, rel=0.03)
