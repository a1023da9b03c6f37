"""What programs repeat, compared with a search that tries every period, and with the steps that NVTX ranges mark.

The search takes minutes for the largest reports, which are not searched.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from nsys2prv_ng.job.open_job import open_job
from nsys2prv_ng.job.open_reports import ReadOptions
from nsys2prv_ng.job.repetition import find_repetitions, find_stretch
from nsys2prv_ng.runtime.progress import Progress
from tests.analysis.path.path_reports import Capture
from tests.analysis.path.test_real_paths import list_sets
from tests.conftest import Unpacked
from tests.job import repetition_truth as plain
from tests.report_truth import Report, split_name

SETS_WITH_STEPS = {"ex1a-fast": 8, "ex1a-slow": 8, "ex1b-fp32": 8, "ex2b-manual": 6, "ex2b-overlap": 6}
"""Exercises whose compute kernels are the same in every step, with the number of their steps."""


@pytest.mark.slow
@pytest.mark.parametrize("reports", [own for own in list_sets() if not own.id.startswith("bench/")])  # type: ignore[attr-defined]
def test_real_reports(reports: Sequence[Path], unpacked: Unpacked, tmp_path: Path) -> None:
    paths = [unpacked(path) for path in reports]
    own = [Report(path) for path in paths]
    truth = plain.find_repetitions(own)
    with open_job(paths, tmp_path, ReadOptions(align="utc"), Progress()) as job:
        found = find_repetitions(job.reports, job.whole, job.store, 3, job.engine)
        base = job.alignment.utc_base
    if found is None or truth is None:
        assert found is truth is None
        return
    by_row = [tuple((table[name] + base).tolist() for name in ("begin", "end")) for _, table in found.groupby("row")]
    assert sorted(by_row) == sorted((own.begin, own.end) for own in truth.values())


@pytest.mark.slow
@pytest.mark.parametrize("name", SETS_WITH_STEPS)
def test_repetitions_are_the_steps_of_the_program(
    name: str, shared_reports: Path, unpacked: Unpacked, tmp_path: Path
) -> None:
    """Each begins with a kernel that the next step launched, by the NVTX ranges; one at a limit may not be whole."""
    for rank in range(4):
        report = Report(unpacked(shared_reports / f"exercises/{name}.rank{rank}.sqlite"))
        with open_job([report.path], tmp_path, ReadOptions(align="utc"), Progress()) as job:
            found = find_repetitions(job.reports, job.whole, job.store, 3, job.engine)
            base = job.alignment.utc_base
        assert found is not None and SETS_WITH_STEPS[name] - 2 <= len(found) < SETS_WITH_STEPS[name]
        steps = [find_step(report, begin) for begin in (found["begin"] + base - report.utc).tolist()]
        assert all(later == earlier + 1 for earlier, later in pairwise(steps))


def find_step(report: Report, begin: int) -> int:
    """Return the number of the step in which the kernel with this begin was launched."""
    [correlation] = report.operations.loc[report.operations["begin"] == begin, "correlation"].unique()
    [launched] = report.calls.loc[report.calls["correlation"] == correlation, "begin"].unique()
    ranges = report.nvtx[(report.nvtx["begin"] <= launched) & (report.nvtx["end"] > launched)]
    [number] = [split_name(text)[1] for text in ranges["text"].unique() if split_name(text)[0] == "step"]
    assert number is not None
    return number


@pytest.mark.fast_cases(50)
@pytest.mark.parametrize("seed", range(200))
def test_stretches_of_texts_made_by_chance(seed: int) -> None:
    """A period between letters by chance, most of which come several times in it."""
    random = np.random.default_rng(seed)
    period = random.integers(0, 4, random.integers(2, 12)).tolist()
    around = [random.integers(0, 5, random.integers(0, 30)).tolist() for _ in range(2)]
    names = [*around[0], *period * random.integers(1, 8), *around[1]]
    found = find_stretch(np.array(names, np.int64), 3)
    expected = plain.find_longest([str(name) for name in names])
    assert (None if found is None else tuple(found)) == expected


def make_rank(rank: int, steps: int, first: int = 10_000) -> Capture:
    """Return a capture with three kernels a step, 1,000 ns each, and a pause of 5,000 ns before each step."""
    capture = Capture(rank, 2)
    begin = first
    for _ in range(steps):
        for name in ("gemm", "relu", "adam"):
            capture.kernel(capture.call("cudaLaunchKernel", begin - 500, begin - 400), begin, begin + 1_000, name=name)
            begin += 1_100
        begin += 5_000
    return capture


def find(tmp_path: Path, *captures: Capture) -> list[list[tuple[int, int, int]]] | None:
    """Return number, begin and length of the repetitions of each task."""
    paths = [capture.write(tmp_path / f"rank{capture.rank}.sqlite") for capture in captures]
    with open_job(paths, tmp_path, ReadOptions(align="none"), Progress()) as job:
        steps = job.steps
    if steps is None:
        return None
    assert steps.name == "repeated kernels" and not steps.has_ranges
    rows = np.unique(steps.row).tolist()
    return [
        [
            (int(steps.number[step]), int(begin - steps.begin.min()), int(end - begin))
            for row_, step, begin, end in zip(steps.row, steps.step, steps.begin, steps.end, strict=True)
            if row_ == row
        ]
        for row in rows
    ]


@pytest.mark.slow
def test_a_repetition_ends_where_the_next_begins(tmp_path: Path) -> None:
    """It begins after the pause. The last one has no next one."""
    assert find(tmp_path, make_rank(0, 4)) == [[(1, 0, 8_300), (2, 8_300, 8_300), (3, 16_600, 8_300)]]


@pytest.mark.slow
def test_ranks_that_repeat_as_often(tmp_path: Path) -> None:
    found = find(tmp_path, make_rank(0, 4), make_rank(1, 4, 11_000))
    assert found is not None and [own[0][1] for own in found] == [0, 1_000]


@pytest.mark.slow
@pytest.mark.parametrize("other", [(5, 10_000), (4, 20_000)])
def test_ranks_that_do_not_agree(tmp_path: Path, other: tuple[int, int]) -> None:
    """One repeats more often, or at another time."""
    assert find(tmp_path, make_rank(0, 4), make_rank(1, *other)) is None


@pytest.mark.slow
def test_a_loop_in_a_small_part_of_the_program(tmp_path: Path) -> None:
    capture = make_rank(0, 4)
    capture.kernel(capture.call("cudaLaunchKernel", 90_000, 90_100), 90_200, 91_000, stream=8, name="last")
    assert find(tmp_path, capture) is None


def test_one_kernel_is_no_step(tmp_path: Path) -> None:
    capture = Capture()
    for begin in range(1_000, 20_000, 1_000):
        capture.kernel(capture.call("cudaLaunchKernel", begin - 50, begin - 40), begin, begin + 900)
    assert find(tmp_path, capture) is None
