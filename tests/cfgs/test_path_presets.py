"""Presets of the critical path, compared with loops over each nanosecond of a made trace and sums over a real one."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from nsys2prv_ng import translate
from nsys2prv_ng.paraver import palette
from tests.cfgs.recorded import Histogram, show
from tests.cfgs.test_wait_presets import VISIONS, see
from tests.conftest import SAMPLES
from tests.trace_reader import Trace, pair_intervals, read_trace

pytestmark = pytest.mark.slow  # translates whole jobs

END, KINDS = 5000, 13
KERNEL, NCCL_KERNEL, PATH = 63000006, 63000007, 63000420
MEMORY, CLASS = 63000001, 63000200
COMPUTES, NCCL, OTHER = 5, 22, 23
TASK_OF_ROW = (0, 0, 0, 1, 1)
TITLES = {
    **{KERNEL: "CUDA kernel", NCCL_KERNEL: "NCCL kernel", PATH: "Critical path"},
    **{MEMORY: "Memory operation", CLASS: "Kernel class"},
}
OPERATIONS = ((KERNEL, COMPUTES), (KERNEL, OTHER), (NCCL_KERNEL, NCCL), (MEMORY, NCCL), (MEMORY, OTHER), (MEMORY, 0))
"""Types of operations, and classes: only copies between GPUs have one."""

Values = dict[int, np.ndarray]
"""By event type, the value in each row and nanosecond."""


def make_trace(folder: Path, seed: int) -> tuple[Trace, Values]:
    """Write a trace of operations on all rows but the first of each task, and of a path that jumps between all rows."""
    rng = random.Random(seed)
    values = {number: np.zeros((len(TASK_OF_ROW), END), np.int64) for number in TITLES}
    events: list[tuple[int, int, str]] = []

    def write(number: int, row: int, begin: int, end: int, value: int) -> None:
        values[number][row, begin:end] = value
        place = f"2:{row + 1}:1:{TASK_OF_ROW[row] + 1}:{row - TASK_OF_ROW.index(TASK_OF_ROW[row]) + 1}"
        events.append((end, 0, f"{place}:{end}:{number}:0"))
        events.append((begin, 1, f"{place}:{begin}:{number}:{value}"))

    for row in (1, 2, 4):
        time = 1
        while time < END - 200:
            begin, end = time + rng.choice((0, 30)), time + rng.randint(40, 150)
            number, kernel_class = rng.choice(OPERATIONS)
            write(number, row, begin, end, rng.randint(1, 3))
            if kernel_class:
                write(CLASS, row, begin, end, kernel_class)
            time = end
    time = END // 10
    while time < END - 300:
        end = time + rng.randint(1, 90)
        write(PATH, rng.randrange(len(TASK_OF_ROW)), time, end, rng.randint(1, KINDS))
        time = end
    threads = ",".join(f"{TASK_OF_ROW.count(task)}:1" for task in range(2))
    lines = [f"#Paraver (01/01/2024 at 00:00):{END}_ns:1({len(TASK_OF_ROW)}):1:2({threads})"]
    lines += [line for *_, line in sorted(events, key=lambda event: event[:2])]
    (folder / "trace.prv").write_text("\n".join([*lines, ""]))
    labels = "\n".join(f"EVENT_TYPE\n0 {number} {title}\n" for number, title in TITLES.items())
    (folder / "trace.pcf").write_text(labels)
    rows = "\n".join(f"row {row}" for row in range(len(TASK_OF_ROW)))
    (folder / "trace.row").write_text(f"LEVEL TASK SIZE 2\nA\nB\nLEVEL THREAD SIZE {len(TASK_OF_ROW)}\n{rows}\n")
    return read_trace(folder / "trace.prv"), values


@pytest.fixture(scope="module", params=[1, 2, 3])
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Trace, Values]:
    return make_trace(tmp_path_factory.mktemp("path"), request.param)


def count_ns(histogram: Histogram) -> list[list[float]]:
    """Return the cells of a histogram of milliseconds in ns."""
    return (histogram.cells * 1_000_000).round(3).tolist()


def test_the_path_over_time(made: tuple[Trace, Values]) -> None:
    trace, values = made
    (window,) = show("analysis/critical_path", trace).windows
    drawn = np.zeros((len(TASK_OF_ROW), END), np.int64)
    for row, begin, end, value in window.bursts.itertuples(index=False):
        drawn[int(row), int(begin) : int(end)] = value
    assert window.level == "thread" and drawn.tolist() == values[PATH].tolist()


def test_time_of_the_path_on_rows_and_ranks(made: tuple[Trace, Values]) -> None:
    trace, values = made
    of_rows, of_ranks = show("analysis/critical_path_profile", trace).histograms
    expected = [[int((row == kind).sum()) for kind in range(1, KINDS + 1)] for row in values[PATH]]
    assert count_ns(of_rows) == expected
    assert count_ns(of_ranks) == [
        [sum(expected[row][kind] for row, task in enumerate(TASK_OF_ROW) if task == of) for kind in range(KINDS)]
        for of in range(2)
    ]
    assert sum(map(sum, expected)) == (values[PATH] > 0).any(axis=0).sum() > END // 2


def test_kernels_on_the_path(made: tuple[Trace, Values]) -> None:
    trace, values = made
    windows = {window.name: window for window in show("views/on_critical_path", trace).windows}
    shown = {
        "Compute kernels": (KERNEL, [COMPUTES]),
        "Other communication kernels": (KERNEL, [OTHER]),
        "Copies between GPUs": (MEMORY, [NCCL, OTHER]),
        "NCCL kernels": (NCCL_KERNEL, [NCCL]),
    }
    for name, (number, classes) in shown.items():
        drawn = np.zeros((len(TASK_OF_ROW), END), np.int64)
        for row, begin, end, value in windows[f"{name} on the critical path"].bursts.itertuples(index=False):
            drawn[int(row), int(begin) : int(end)] = value
        expected = np.where((values[PATH] > 0) & np.isin(values[CLASS], classes), values[number], 0)
        assert drawn.tolist() == expected.tolist() and (expected > 0).sum() > 100


def test_time_of_the_path_of_a_real_job(tmp_path: Path) -> None:
    translate(sorted(SAMPLES.glob("mpi-4.*.sqlite")), tmp_path / "x.prv")
    trace = read_trace(tmp_path / "x.prv")
    expected = np.zeros((len(trace.threads), KINDS), np.int64)
    for row, begin, end, kind in pair_intervals(trace, PATH)[["row", "begin", "end", "value"]].to_numpy().tolist():
        expected[trace.task_of_row[row] - 1, kind - 1] += end - begin
    of_ranks = show("analysis/critical_path_profile", trace).last
    assert isinstance(of_ranks, Histogram)
    assert count_ns(of_ranks) == expected.tolist()
    assert len(np.flatnonzero(expected.sum(axis=0))) > 4


MPI, NOT_SPLIT = 10, 3


@pytest.mark.parametrize("vision", VISIONS)
def test_kinds_differ_with_any_colour_vision(vision: str) -> None:
    """But for two that rarely are in one job."""
    seen = {kind: see(colour, VISIONS[vision]) for kind, colour in palette.PATH_KINDS.items()}
    assert sorted(seen) == list(range(KINDS + 1))
    for a, b in ((a, b) for a in seen for b in seen if a < b and (a, b) != (NOT_SPLIT, MPI)):
        assert float(np.linalg.norm(seen[a] - seen[b])) > 13, (a, b)
