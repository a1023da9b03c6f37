"""To which step work belongs, and when steps end, against plain loops: on jobs made by chance, and planted cases."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nsys2prv_ng
from nsys2prv_ng.errors import UsageError
from nsys2prv_ng.job.open_job import open_job
from nsys2prv_ng.reading.open_reports import ReadOptions
from nsys2prv_ng.runtime.progress import Progress
from nsys2prv_ng.steps.spans import HostSpans
from nsys2prv_ng.steps.steps import Steps
from tests.analysis.path.path_reports import Capture
from tests.examples import examples
from tests.report_truth import Report
from tests.sources.small_reports import UTC
from tests.steps.step_truth import StepTruth

# ---- host times ------------------------------------------------------------------------------------------------------


def find_slowly(spans: Sequence[tuple[int, int, int]], task: int, time: int) -> int:
    """Return the range to whose step a time of a task belongs, looking at one range after the other; -1 for none."""
    before = None
    for at, (own, begin, end) in enumerate(spans):
        if own == task:
            if (begin if before is None else before + 1) <= time <= end:
                return at
            before = end
    return -1


lengths = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9)), max_size=6)


@given(st.lists(lengths, min_size=1, max_size=3), st.lists(st.tuples(st.integers(0, 3), st.integers(-2, 60))))
def test_times_belong_to_the_range_that_ends_next(
    tasks: list[list[tuple[int, int]]], queries: list[tuple[int, int]]
) -> None:
    """Each task has ranges given by the time before them, and their lengths."""
    spans = []
    for task, ranges in enumerate(tasks):
        time = 0
        for gap, length in ranges:
            spans.append((task, time + gap, time + gap + length))
            time += gap + length + 1
    columns = np.array(spans, np.int64).reshape(-1, 3).T
    task, time = np.array(queries, np.int64).reshape(-1, 2).T
    expected = [find_slowly(spans, *query) for query in queries]
    assert HostSpans(*columns).find(task, time).tolist() == expected


# ---- jobs ------------------------------------------------------------------------------------------------------------

operation = st.tuples(st.integers(0, 130), st.integers(1, 90), st.integers(1, 60), st.integers(0, 1), st.integers(7, 8))
"""Launch and start after it, length (us), thread, stream."""


Work = Sequence[tuple[int, int, int, int, int]]


def open_steps(ranks: Sequence[tuple[int, Work]], folder: Path) -> tuple[Steps | None, int, StepTruth]:
    """Return the steps of a job, what its times are less UTC, and the truth. For each rank: its skew (us), and work."""
    captures = [make_capture(n, len(ranks), skew, work) for n, (skew, work) in enumerate(ranks)]
    paths = [capture.write(folder / f"rank{capture.rank}.sqlite") for capture in captures]
    ranges = [
        ((n, capture.process >> 24), number, UTC + begin, UTC + begin + 20_000)
        for n, (capture, (skew, _)) in enumerate(zip(captures, ranks, strict=True))
        for number, begin in enumerate(list_begins(skew))
    ]
    table = pd.DataFrame(ranges, columns=["process", "number", "begin", "end"])
    with open_job(paths, folder, ReadOptions(align="utc"), Progress()) as job:
        return job.steps, job.alignment.utc_base, StepTruth([Report(path) for path in paths], table)


def list_begins(skew: int) -> list[int]:
    """Return when four ranges of 20 us each begin (ns), 10 us apart, from `skew` us on."""
    return [(20 + skew + 30 * number) * 1_000 for number in range(4)]


def make_capture(rank: int, ranks: int, skew: int, operations: Work) -> Capture:
    capture = Capture(rank, ranks)
    for number, begin in enumerate(list_begins(skew)):
        capture.range(f"step {number}", begin, begin + 20_000)
    busy: dict[int, int] = {}
    for launch, later, length, thread, stream in sorted(operations):
        begin = max((launch + later) * 1_000, busy.get(stream, 0))  # streams run one operation after the other
        busy[stream] = begin + length * 1_000
        call = capture.call("cudaLaunchKernel", launch * 1_000, launch * 1_000 + 1, thread)
        capture.kernel(call, begin, busy[stream], stream)
    return capture


@pytest.mark.slow
@settings(deadline=None, max_examples=examples(60))
@given(st.lists(st.tuples(st.integers(0, 15), st.lists(operation, max_size=9)), min_size=1, max_size=3))
def test_steps_tile_the_time_of_any_job(ranks: list[tuple[int, list[tuple[int, int, int, int, int]]]]) -> None:
    """They end as plain loops say, and their lengths add up to the time from the first start to the last end."""
    with tempfile.TemporaryDirectory() as folder:
        steps, base, truth = open_steps(ranks, Path(folder))
    assert steps is not None and steps.on_gpu == truth.on_gpu
    assert (steps.start + base).tolist() == truth.start and (steps.stop + base).tolist() == truth.stop
    assert (steps.length.tolist(), steps.host_length.tolist()) == (truth.lengths, truth.host_lengths)
    if steps.on_gpu:
        assert steps.start[1:].tolist() == steps.stop[:-1].tolist()
        assert steps.length.sum() == steps.stop[-1] - steps.start[0]
        for task in np.unique(steps.task):
            own = steps.task == task
            assert steps.begin[own][1:].tolist() == steps.end[own][:-1].tolist()


def test_a_step_ends_with_what_another_thread_launched(tmp_path: Path) -> None:
    """The main thread hands its work over, and the range ends long before the GPU."""
    steps, _, truth = open_steps([(0, [(25 + 30 * n, 1, 28, 1, 7) for n in range(4)])], tmp_path)
    assert steps is not None and steps.on_gpu
    assert steps.length.tolist() == truth.lengths == [34_000, 30_000, 30_000, 30_000]
    assert steps.host_length.tolist() == [20_000] * 4


def test_work_between_ranges_ends_no_step(tmp_path: Path) -> None:
    """A copy that was launched after the range does not make its step longer."""
    work = [(25 + 30 * n, 1, 10, 0, 7) for n in range(4)] + [(45, 1, 2, 0, 8)]
    steps, _, truth = open_steps([(0, work)], tmp_path)
    assert steps is not None and steps.length.tolist() == truth.lengths == [20_000, 30_000, 30_000, 30_000]


# ---- what numbers count ----------------------------------------------------------------------------------------------


def write_marked(path: Path, kernels: Sequence[tuple[int, int, int, int]], ranges: int) -> Path:
    """Write a report: ranges of 10 us, 2 us apart, and kernels: launch (us; -1 if unknown), begin, end, GPU."""
    capture = Capture(0, 1)
    for number in range(ranges):
        capture.range(f"step {number}", 12_000 * number + 1_000, 12_000 * number + 11_000)
    for launch, begin, end, gpu in kernels:
        call = 0 if launch < 0 else capture.call("cudaLaunchKernel", launch * 1_000, launch * 1_000 + 10)
        capture.kernel(call, begin * 1_000, end * 1_000, 7, f"k{gpu}", device=gpu)
    return capture.write(path)


@pytest.mark.slow
def test_steps_that_take_no_time_on_the_gpus(tmp_path: Path) -> None:
    """Every second range launches nothing while the GPU is behind: pages, comparisons and choices still hold."""
    kernels = [(12 * n + 2, 200 + 30 * n, 225 + 30 * n, 0) for n in range(0, 12, 2)]
    path = write_marked(tmp_path / "a.sqlite", kernels, 12)
    whole = nsys2prv_ng.summarize(path, html=tmp_path / "a.html")
    assert whole.efficiency is not None and min(step.length_ns for step in whole.efficiency.steps) == 0
    pair = nsys2prv_ng.compare([path, path], html=tmp_path / "c.html").pairs[0]
    assert pair.difference_ns == 0 and pair.changes == []
    for number, expected in ((4, 1), (5, 0)):
        chosen = nsys2prv_ng.summarize(path, steps=(number, number), html=tmp_path / f"{number}.html")
        assert chosen.steps is not None and (chosen.steps.count, chosen.steps.first) == (1, number)
        assert sum(kernel.count for kernel in chosen.kernels) == expected


def test_operations_without_a_launch_count_by_time(tmp_path: Path) -> None:
    """Kernels of GPU 0 run behind their launches; GPU 1 has none that are known, and all of its kernels are there."""
    kernels = [(12 * n + 2, 100 + 30 * n, 120 + 30 * n, 0) for n in range(6)]
    unknown = [(-1, 100 + 30 * n, 115 + 30 * n, 1) for n in range(6)]
    found = nsys2prv_ng.summarize(write_marked(tmp_path / "a.sqlite", [*kernels, *unknown], 6))
    counts = {kernel.name: (kernel.count, kernel.total_ns) for kernel in found.kernels}
    assert counts == {"k0": (5, 100_000), "k1": (5, 75_000)}
    assert sum(gpu.compute_ns for gpu in found.gpus) == 175_000


def test_a_gpu_that_is_idle_in_the_steps_is_listed(tmp_path: Path) -> None:
    kernels = [(12 * n + 2, 100 + 30 * n, 120 + 30 * n, 0) for n in range(6)]
    found = nsys2prv_ng.summarize(write_marked(tmp_path / "a.sqlite", [*kernels, (3, 100, 110, 1)], 6))
    assert found.efficiency is not None and found.efficiency.losses is not None
    assert [gpu.busy_ns for gpu in found.gpus] == [100_000, 0] and found.efficiency.losses.devices == 2


def test_the_time_between_captures_is_of_no_step(tmp_path: Path) -> None:
    """Two captures of one process, a millisecond apart, with four steps each, which are numbered on."""
    paths = []
    for part in range(2):
        capture, shift = Capture(0, 1), 1_000_000 * part
        for number in range(4):
            begin = shift + 30_000 * number + 20_000
            capture.range(f"step {4 * part + number}", begin, begin + 20_000)
            call = capture.call("cudaLaunchKernel", begin + 1_000, begin + 1_010)
            capture.kernel(call, begin + 2_000, begin + 25_000)
        paths.append(capture.write(tmp_path / f"part{part}.sqlite"))
    found = nsys2prv_ng.summarize(paths, align="utc")
    assert found.steps is not None and found.efficiency is not None
    lengths = [step.length_ns for step in found.efficiency.steps]
    assert lengths == [30_000] * 3 + [25_000] + [30_000] * 3
    assert sum(lengths) == sum(high - low for low, high in found.windows_ns) == found.efficiency.length_ns
    assert len(found.windows_ns) == 2 and found.critical_path is not None
    assert found.critical_path.length_ns == sum(lengths)


def test_ranks_without_steps_are_saved_and_loaded(tmp_path: Path) -> None:
    """Rank 1 has ranges that repeat, and launches outside of them: no steps."""
    paths = []
    for rank in range(2):
        capture = Capture(rank, 2)
        for number in range(5):
            begin = 30_000 * number + 1_000
            capture.range(f"step {number}" if rank == 0 else "iteration", begin, begin + 20_000)
            capture.range("forward", begin + 1_000, begin + 9_000)
            launch = begin + (2_000 if rank == 0 else 22_000)
            capture.kernel(capture.call("cudaLaunchKernel", launch, launch + 10), launch + 1_000, launch + 6_000)
        paths.append(capture.write(tmp_path / f"rank{rank}.sqlite"))
    found = nsys2prv_ng.summarize(paths, align="utc")
    found.save(tmp_path / "saved.json")
    assert nsys2prv_ng.JobSummary.load(tmp_path / "saved.json") == found
    [own] = [each for each in found.ranges if each.name == "forward"]
    assert [(task.rank, task.per_step) for task in own.tasks] == [(0, 1), (1, 0)]


def test_chosen_ranges_outside_the_chosen_steps(tmp_path: Path) -> None:
    path = write_marked(tmp_path / "a.sqlite", [(12 * n + 2, 12 * n + 3, 12 * n + 9, 0) for n in range(6)], 6)
    with pytest.raises(UsageError, match="none of these ranges is in the chosen time"):
        nsys2prv_ng.translate(path, tmp_path / "x.prv", nvtx_range="step 1", steps=(3, 4))
