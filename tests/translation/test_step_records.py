"""Records of steps in a trace, compared with plain SQL on the NVTX ranges of the reports."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from nsys2prv_ng import translate
from nsys2prv_ng.reading.open_reports import Selection
from tests.analysis.path.path_reports import Capture
from tests.conftest import DATA, SAMPLES, Unpacked, unpack
from tests.report_truth import PUSH_POP
from tests.steps.step_truth import StepTruth, list_ranges
from tests.steps.test_repetition import list_launched
from tests.trace_reader import pair_intervals, read_trace
from tests.translated import Translated, translated_set

pytestmark = pytest.mark.slow

STEP, HOST_STEP, STEP_KIND = 63000430, 63000431, 63000432
DDP = sorted(SAMPLES.glob("ddp-2x2.*.sqlite"))
MPI_4 = sorted(SAMPLES.glob("mpi-4.*.sqlite"))


def list_found(translated: Translated, rows: list[int], kind: int = STEP) -> list[tuple[int, str, int, int]]:
    found = translated.intervals(kind)
    found = found[found["row"].isin(rows)]
    return sorted(zip(found["row"], found["name"], found["begin"], found["end"], strict=True))


def list_gpu_rows(translated: Translated) -> dict[int, int]:
    """Return the task, from 0, of each row of a GPU as a whole."""
    rows = [row for row, label in enumerate(translated.trace.names["THREAD"]) if label.startswith("Metrics GPU")]
    return {row: translated.trace.task_of_row[row] - 1 for row in rows}


def list_host_rows(translated: Translated, name: str) -> dict[int, tuple[int, int]]:
    """Return (report, process) of the threads that opened the ranges of steps, by row."""
    nvtx = translated.nvtx
    own = nvtx[(nvtx["name"] == name) & nvtx["number"].notna() & (nvtx["style"] == PUSH_POP)]
    tasks = translated.task_of(own["row"])
    processes = {row: int(tid) >> 24 for row, tid in zip(own["row"], own["tid"], strict=True)}
    return {int(row): (int(task), processes[row]) for row, task in zip(own["row"], tasks, strict=True)}


@pytest.mark.parametrize(("reports", "name"), [(DDP, "step"), (MPI_4, "iteration")])
def test_steps_of_main_threads_and_gpus(reports: list[Path], name: str, tmp_path: Path) -> None:
    """Each step of the job on all of them, and on main threads also their ranges."""
    translated = translated_set(reports, tmp_path)
    truth = StepTruth(translated.objects.reports, list_ranges(translated.objects.reports, name))
    assert truth.on_gpu
    hosts, gpus = list_host_rows(translated, name), list_gpu_rows(translated)
    assert len(hosts) == len(gpus) == len(reports) == 4
    spans = [(f"{name} {number}", *truth.get_limits(number)) for number in truth.numbers]
    rows = sorted([*hosts, *gpus])
    assert list_found(translated, rows) == sorted((row, *span) for row in rows for span in spans)
    ranges = [
        (row, f"{name} {number}", begin, end)
        for row, process in hosts.items()
        for number, begin, end in truth.ranges[process]
    ]
    assert list_found(translated, rows, HOST_STEP) == sorted(ranges)
    account = translated.account("steps")
    assert (account.read, account.written) == (len(rows) * len(spans) + len(ranges), account.read)
    assert account.dropped == {}
    values = translated.intervals(STEP)
    assert [f"{name} {value - 1}" for value in values["value"]] == values["name"].tolist()


def test_windows_cut_steps(tmp_path: Path) -> None:
    """The window reaches from the end of step 2 to 1 ns after the end of step 4."""
    cut = translated_set(DDP, tmp_path / "cut", selection=Selection(steps=(3, 4)))
    truth = StepTruth(cut.objects.reports, list_ranges(cut.objects.reports, "step"))
    low, high = cut.start + 1, cut.start + cut.summary.duration_ns
    assert (low, high) == (truth.get_limits(3)[0], truth.get_limits(4)[1] + 1)
    rows = sorted([*list_host_rows(cut, "step"), *list_gpu_rows(cut)])
    shown = [
        (f"step {n}", max(begin, low), min(end, high)) for n in truth.numbers for begin, end in [truth.get_limits(n)]
    ]
    spans = [(name, begin, end) for name, begin, end in shown if end > begin]
    assert [name for name, *_ in spans] == ["step 3", "step 4", "step 5"]
    assert list_found(cut, rows) == sorted((row, *span) for row in rows for span in spans)
    account = cut.account("steps")
    assert account.read == account.written + sum(account.dropped.values()) and account.dropped


def test_no_steps_where_nothing_is_derived(tmp_path: Path) -> None:
    translate(DDP, tmp_path / "x.prv", derived=False)
    assert STEP not in read_trace(tmp_path / "x.prv").types


def test_repeated_kernels(shared_reports: Path, unpacked: Unpacked, tmp_path: Path) -> None:
    """Each begins with a launch, and has as many kernels as the period of their names."""
    report = unpacked(shared_reports / "public/pipit_cloverleaf.sqlite")
    translated = translated_set([report], tmp_path)
    launched = list_launched(translated.objects.reports[0])["launched"].tolist()
    own = translated.intervals(HOST_STEP).sort_values("begin")
    assert own["name"].tolist() == [f"repeated kernels {number}" for number in range(1, 11)]
    starts = [launched.index(begin) for begin in own["begin"]]
    assert np.diff(starts[1:]).tolist() == [125] * 8
    assert (own["end"] + 1).tolist()[:-1] == own["begin"].tolist()[1:]


def test_a_task_without_a_thread_row(tmp_path: Path) -> None:
    """Kernels alone: the steps of the job are on all GPUs, also if some of them are not chosen."""
    paths = []
    for rank in range(2):
        capture = Capture(rank, 2)
        for begin in range(10_000 + 500 * rank, 60_000, 8_000):
            for at, name in zip(range(begin, begin + 3_000, 1_000), ("gemm", "relu", "adam"), strict=True):
                for device in (2 * rank, 2 * rank + 1):
                    launch = capture.call("cudaLaunchKernel", at - 500, at - 400)
                    capture.kernel(launch, at, at + 900, 7, name, device)
        paths.append(capture.write(tmp_path / f"rank{rank}.sqlite"))
    for gpus, count in ((None, 4), ([1, 2], 2)):
        translate(paths, tmp_path / "x.prv", sources=["kernels"], gpus=gpus, align="none", force=True)
        trace = read_trace(tmp_path / "x.prv")
        found = pair_intervals(trace, STEP)
        assert all(trace.names["THREAD"][row].startswith("Metrics GPU") for row in found["row"])
        assert found["row"].nunique() == count
        for _, own in found.groupby("row"):
            # The first step starts with the first launch of any rank; later ones when rank 1 has ended the one before.
            assert own["begin"].tolist()[1:] == own["end"].tolist()[:-1]
            assert set(np.diff(own["end"])) == {8_000} and len(own) == 7


def test_kinds_beside_steps(tmp_path: Path) -> None:
    """Each step has its kind, at the same time on the same rows, as the ranges say: `train`, and at times `eval`."""
    report, trace = unpack(DATA / "programs/evalloop-a.rank0.sqlite.xz"), tmp_path / "trace.prv"
    result = translate([report], trace)
    with closing(sqlite3.connect(report)) as database:
        ((utc,),) = database.execute("SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME")
        query = "SELECT start, text FROM NVTX_EVENTS WHERE text LIKE 'train %' OR text LIKE 'eval %'"
        said = {start + utc - result.start_utc_ns: text.split()[0] for start, text in database.execute(query)}
    read = read_trace(trace)
    steps, hosts, kinds = (
        pair_intervals(read, kind).sort_values(["row", "begin"]) for kind in (STEP, HOST_STEP, STEP_KIND)
    )
    assert steps[["row", "begin", "end"]].values.tolist() == kinds[["row", "begin", "end"]].values.tolist()
    assert read.values[STEP_KIND] == {0: "End", 1: "train", 2: "eval"}
    assert {read.values[STEP][value].split()[0] for value in steps["value"]} == {"train", "eval"}
    expected = {value: said[begin] for begin, value in zip(hosts["begin"], hosts["value"], strict=True)}
    shown = zip(steps["row"], steps["value"], kinds["value"], strict=True)
    found = {(row, value): read.values[STEP_KIND][kind] for row, value, kind in shown}
    assert len(steps["row"].unique()) == 2  # the main thread and the GPU
    assert found == {(row, value): text for row in steps["row"].unique() for value, text in expected.items()}
