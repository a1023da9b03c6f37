"""Records of steps in a trace, compared with plain SQL on the NVTX ranges of the reports."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from nsys2prv_ng import translate
from nsys2prv_ng.job.selection import Selection
from tests.analysis.path.path_reports import Capture
from tests.conftest import SAMPLES, Unpacked
from tests.job.repetition_truth import find_repetitions
from tests.report_truth import PUSH_POP
from tests.trace_reader import pair_intervals, read_trace
from tests.translated import Translated, translated_set

pytestmark = pytest.mark.slow

STEP = 63000430
DDP = sorted(SAMPLES.glob("ddp-2x2.*.sqlite"))
MPI_4 = sorted(SAMPLES.glob("mpi-4.*.sqlite"))


def list_steps(translated: Translated, name: str) -> pd.DataFrame:
    """Return task, tid, number, begin and end (UTC) of the ranges that are steps, from the reports."""
    nvtx = translated.nvtx
    return nvtx[(nvtx["name"] == name) & nvtx["number"].notna() & (nvtx["style"] == PUSH_POP)]


def list_found(translated: Translated, rows: list[int]) -> list[tuple[int, str, int, int]]:
    found = translated.intervals(STEP)
    found = found[found["row"].isin(rows)]
    return sorted(zip(found["row"], found["name"], found["begin"], found["end"], strict=True))


def list_gpu_rows(translated: Translated) -> dict[int, int]:
    """Return the task, from 0, of each row of a GPU as a whole."""
    rows = [row for row, label in enumerate(translated.trace.names["THREAD"]) if label.startswith("Metrics GPU")]
    return {row: translated.trace.task_of_row[row] - 1 for row in rows}


@pytest.mark.parametrize(("reports", "name"), [(DDP, "step"), (MPI_4, "iteration")])
def test_steps_of_main_threads_and_gpus(reports: list[Path], name: str, tmp_path: Path) -> None:
    translated = translated_set(reports, tmp_path)
    steps = list_steps(translated, name)
    assert steps["row"].nunique() == len(reports)
    threads = zip(steps["row"], steps["number"], steps["begin"], steps["end"], strict=True)
    expected = sorted((row, f"{name} {number}", begin, end) for row, number, begin, end in threads)
    assert list_found(translated, steps["row"].unique().tolist()) == expected
    gpus = list_gpu_rows(translated)
    by_task = steps.set_index(translated.task_of(steps["row"]))
    of_gpus = [
        (row, f"{name} {number}", begin, end)
        for row, task in gpus.items()
        for number, begin, end in by_task.loc[[task], ["number", "begin", "end"]].itertuples(index=False)
    ]
    assert len(gpus) == 4 and list_found(translated, list(gpus)) == sorted(of_gpus)
    account = translated.account("steps")
    assert (account.read, account.written, account.dropped) == (len(expected) + len(of_gpus), account.read, {})
    values = translated.intervals(STEP)
    assert [f"{name} {value - 1}" for value in values["value"]] == values["name"].tolist()


def test_windows_cut_steps(tmp_path: Path) -> None:
    whole = translated_set(DDP, tmp_path / "whole")
    cut = translated_set(DDP, tmp_path / "cut", selection=Selection(steps=(3, 4)))
    low, high = cut.start + 1, cut.start + cut.summary.duration_ns
    steps = list_steps(whole, "step")
    chosen = steps[steps["number"].isin((3, 4))]
    assert (low, high) == (chosen["begin"].min() - 1, chosen["end"].max() + 1)
    found = cut.intervals(STEP)
    shown = zip(steps["number"], steps["begin"].clip(lower=low), steps["end"].clip(upper=high), strict=True)
    expected = sorted((f"step {number}", begin, end) for number, begin, end in shown if end > begin)
    is_gpu = np.isin(found["row"], list(list_gpu_rows(cut)))
    for own in (found[~is_gpu], found[is_gpu]):
        assert sorted(zip(own["name"], own["begin"], own["end"], strict=True)) == expected
    account = cut.account("steps")
    assert account.read == account.written + sum(account.dropped.values()) and account.dropped


def test_no_steps_where_nothing_is_derived(tmp_path: Path) -> None:
    translate(DDP, tmp_path / "x.prv", derived=False)
    assert STEP not in read_trace(tmp_path / "x.prv").types


def test_repeated_kernels(shared_reports: Path, unpacked: Unpacked, tmp_path: Path) -> None:
    """Begin and end are those of a search that tries every period."""
    translated = translated_set([unpacked(shared_reports / "public/h100_2gpu_1s.sqlite")], tmp_path)
    truth = find_repetitions(translated.objects.reports)
    assert truth is not None
    found = translated.intervals(STEP)
    gpus = list_gpu_rows(translated)
    expected = sorted(
        (f"repeated kernels {number}", begin, end)
        for own in truth.values()
        for number, (begin, end) in enumerate(zip(own.begin, own.end, strict=True), 1)
    )
    for is_gpu in (True, False):
        own = found[found["row"].isin(list(gpus)) == is_gpu]
        assert sorted(zip(own["name"], own["begin"], own["end"], strict=True)) == expected


def test_a_task_without_a_thread_row(tmp_path: Path) -> None:
    """Kernels alone: the steps of each rank are on the GPUs that it uses, also if some of them are not chosen."""
    paths = []
    for rank in range(2):
        capture = Capture(rank, 2)
        for begin in range(10_000 + 500 * rank, 60_000, 8_000):
            for at, name in zip(range(begin, begin + 3_000, 1_000), ("gemm", "relu", "adam"), strict=True):
                for device in (2 * rank, 2 * rank + 1):
                    launch = capture.call("cudaLaunchKernel", at - 500, at - 400)
                    capture.kernel(launch, at, at + 900, 7, name, device)
        paths.append(capture.write(tmp_path / f"rank{rank}.sqlite"))
    for gpus, begins in ((None, [0, 0, 500, 500]), ([1, 2], [0, 500])):
        translate(paths, tmp_path / "x.prv", sources=["kernels"], gpus=gpus, align="none", force=True)
        trace = read_trace(tmp_path / "x.prv")
        found = pair_intervals(trace, STEP)
        assert all(trace.names["THREAD"][row].startswith("Metrics GPU") for row in found["row"])
        assert found.groupby("row")["begin"].min().tolist() == begins
        assert (found.groupby("row")["begin"].diff().dropna() == 8_000).all()
