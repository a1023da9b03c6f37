"""What marks the steps of small programs: of epochs and steps, of several threads, of several captures and kinds."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from nsys2prv_ng.job.open_job import open_job
from nsys2prv_ng.reading.open_reports import ReadOptions
from nsys2prv_ng.runtime.progress import Progress
from nsys2prv_ng.steps.steps import Steps
from tests.analysis.path.path_reports import Capture

pytestmark = pytest.mark.slow

BEGIN, PAUSE = 1_000_000, 5_000


@contextmanager
def find(paths: Sequence[Path], folder: Path) -> Iterator[Steps]:
    """Find the steps of reports, which must have some."""
    with open_job(paths, folder, ReadOptions(), Progress()) as job:
        assert job.steps is not None
        yield job.steps


def run(capture: Capture, text: str, begin: int, kernels: int = 10) -> int:
    """Add a range that launches kernels of ten names, one every 2 us; return when it ends."""
    for number in range(kernels):
        time = begin + 2_000 * number
        launch = capture.call("cudaLaunchKernel", time, time + 1_000)
        capture.kernel(launch, time + 1_500, time + 3_200, name=f"kernel{number % 10}")
    end = begin + 2_000 * (kernels + 2)
    capture.range(text, begin, end)
    return end


@pytest.mark.parametrize("step", ["step {step}", "step {all}", "train_step"])
@pytest.mark.parametrize("epoch", ["epoch {}", "Epoch {}/3", "training"])
def test_steps_within_epochs(epoch: str, step: str, tmp_path: Path) -> None:
    """Three epochs of ten steps each: the steps count, however they are numbered."""
    capture, time, begins = Capture(), BEGIN, []
    for number in range(3):
        first = time
        for of_epoch in range(10):
            begins.append(time)
            time = run(capture, step.format(step=of_epoch, all=10 * number + of_epoch), time) + PAUSE
        capture.range(epoch.format(number), first - 100, time)
    with find([capture.write(tmp_path / "rank0.sqlite")], tmp_path) as steps:
        assert steps.host_begin.size == len(begins)
        assert (steps.host_begin - steps.host_begin[0]).tolist() == [begin - BEGIN for begin in begins]


@pytest.mark.parametrize("loads", [20, 27, 40])
@pytest.mark.parametrize("step", ["infer", "infer {}"])
@pytest.mark.parametrize("load", ["load", "load {}"])
def test_ranges_of_a_thread_that_launches_nothing_are_no_steps(
    load: str, step: str, loads: int, tmp_path: Path
) -> None:
    """A thread loads data all the time, while the main thread waits for it and launches."""
    capture, time = Capture(), BEGIN
    for number in range(20):
        time = run(capture, step.format(number), time) + PAUSE
    each = (time - BEGIN) // loads
    for number in range(loads):
        begin = BEGIN + number * each
        capture.range(load.format(number), begin, begin + each - 200, thread=1)
    with find([capture.write(tmp_path / "rank0.sqlite")], tmp_path) as steps:
        assert (steps.name, steps.number.size) == ("infer", 20)


@pytest.mark.parametrize("text", ["train", None])
def test_the_pause_between_two_captures_is_of_no_step(text: str | None, tmp_path: Path) -> None:
    """Ranges without numbers, or kernels alone, in two captures of one process, a second apart."""
    paths = []
    for number in range(2):
        capture, time = Capture(), BEGIN
        for _ in range(10):
            time = run(capture, text or "", time) + PAUSE
        paths.append(capture.write(tmp_path / f"{number}.sqlite"))
        with closing(sqlite3.connect(paths[-1])) as database, database:
            database.execute("UPDATE TARGET_INFO_SESSION_START_TIME SET utcEpochNs = utcEpochNs + ?", (number * 10**9,))
            if text is None:
                database.execute("DELETE FROM NVTX_EVENTS")
    with find(paths, tmp_path) as steps:
        assert steps.number.size == 20
        assert steps.length.max() < 10**6


def test_the_first_batches_of_a_server_are_of_another_kind_than_the_others(tmp_path: Path) -> None:
    """Six batches of prefill come first: all but one count, since they are as long as others of their kind."""
    capture, time = Capture(), BEGIN
    for step in range(40):
        text, kernels = ("context_1(512)_generation_0(0)", 100) if step < 6 else ("context_0(0)_generation_4(4)", 10)
        time = run(capture, f"execute_{text}", time, kernels) + PAUSE
    with find([capture.write(tmp_path / "rank0.sqlite")], tmp_path) as steps:
        assert steps.warmup == 1
        assert [steps.kinds[kind] for kind in steps.kind.tolist()] == ["prefill"] * 6 + ["decode"] * 34
