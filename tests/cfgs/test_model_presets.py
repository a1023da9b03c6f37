"""Presets of efficiencies: totals below their histograms.

They are compared with the summary of the same reports, and with sums over each nanosecond of a made trace.
"""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from nsys2prv_ng import summarize, translate
from nsys2prv_ng.summary.efficiency.numbers import EfficiencyNumbers, Losses, WindowEfficiency
from tests.cfgs.recorded import show
from tests.spans import list_report_sets
from tests.trace_reader import Trace, read_trace

pytestmark = pytest.mark.slow  # translates whole jobs

SETS = {
    "samples/ddp-2x2": [f"samples/ddp-2x2.rank{rank}.sqlite" for rank in range(4)],
    "samples/mpi-4": [f"samples/mpi-4.rank{rank}.sqlite" for rank in range(4)],
}
CHOICES: dict[str, dict[str, Any]] = {"whole": {}, "steps": {"skip_warmup": True}}
STEP = 63000430

USEFUL, ACTIVE, KERNELS = (
    "Useful time of each GPU [%]",
    "Active time of each GPU [%]",
    "Time in any kernel, NCCL's too [%]",
)
USEFUL_BY_STEP, ACTIVE_BY_STEP = "Useful time by step [ms]", "Active time by step [ms]"
KERNELS_BY_STEP, LENGTH = "Time in any kernel by step, NCCL's too [ms]", "Length of each step [ms]"
OUTSIDE_MPI, OUTSIDE = "Time outside of MPI [%]", "Time outside of MPI and CUDA [%]"
OUTSIDE_MPI_BY_STEP, OUTSIDE_BY_STEP = "Time outside of MPI by step [ms]", "Time outside of MPI and CUDA by step [ms]"
OFFLOAD = "Offload of each rank [%]"


class Totals(NamedTuple):
    """What Paraver shows below a column: the sum over its rows, their average and their maximum."""

    total: float
    average: float
    maximum: float


Columns = dict[str, Totals]
"""Totals by the label of a column."""


def total_columns(trace: Trace, preset: str) -> dict[str, Columns]:
    """Return the totals of each histogram of a preset, by its title."""
    return {
        histogram.name: {
            label: Totals(totals["Total"], totals["Average"], totals["Maximum"])
            for label, totals in histogram.totals.items()
        }
        for histogram in show(f"model/{preset}", trace).histograms
    }


# ---- the summary of the same reports ---------------------------------------------------------------------------------


class Job(NamedTuple):
    trace: Trace
    efficiency: EfficiencyNumbers
    is_whole: bool


def list_jobs() -> list[object]:
    """Return reports and what is chosen of them; every push takes each set and each choice once."""
    pushed = {"whole": ["samples/mpi-4"], "steps": ["samples/ddp-2x2"]}
    return [
        pytest.param((*of_set.values, choice), id=f"{choice}-{of_set.id}", marks=of_set.marks)
        for choice in CHOICES
        for of_set in list_report_sets(SETS, push=pushed[choice])
    ]


@pytest.fixture(scope="module", params=list_jobs())
def job(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Job:
    reports, choice = request.param
    chosen = CHOICES[choice]
    output = tmp_path_factory.mktemp("model") / "x.prv"
    translate(reports, output, **chosen)
    efficiency = summarize(reports, **(chosen or {"time": ":"})).efficiency
    assert efficiency is not None
    return Job(read_trace(output), efficiency, not chosen)


def count_ns(totals: Totals, unit: float) -> Totals:
    """Return totals in ns; `unit` in ns. Times are whole numbers of ns, averages need not be."""
    total, maximum = round(totals.total * unit), round(totals.maximum * unit)
    assert (totals.total * unit, totals.maximum * unit) == pytest.approx((total, maximum), abs=0.01)
    return Totals(total, total / round(totals.total / totals.average), maximum)


def list_device(useful: Totals, active: Totals, window: float) -> tuple[float, ...]:
    """Return parallel efficiency, load balance, communication and orchestration, as the preset describes them."""
    return (
        useful.average / window,
        useful.average / useful.maximum,
        useful.maximum / active.maximum,
        active.maximum / window,
    )


def list_host(outside_mpi: Totals, useful: Totals, window: float) -> tuple[float, ...]:
    """Return the efficiencies in the order of HostEfficiency."""
    return (
        useful.average / window,
        outside_mpi.average / window,
        outside_mpi.average / outside_mpi.maximum,
        outside_mpi.maximum / window,
        useful.average / outside_mpi.average,
    )


def get_device(numbers: WindowEfficiency, convention: str) -> tuple[float, ...]:
    found = getattr(numbers, convention).device
    return found.parallel, found.load_balance, found.communication, found.orchestration


def get_host(numbers: WindowEfficiency) -> tuple[float, ...]:
    found = numbers.nccl_as_communication.host
    assert found is not None
    return found.parallel, found.mpi_parallel, found.mpi_load_balance, found.mpi_communication, found.offload


def check_device(useful: Totals, kernels: Totals, active: Totals, window: float, numbers: WindowEfficiency) -> None:
    """Compare times to the ns, and what follows from them."""
    losses = numbers.losses
    assert isinstance(losses, Losses)
    in_kernels = losses.compute_ns + losses.waiting_ns + losses.moving_ns + losses.not_split_ns
    assert (useful.total, kernels.total, active.total) == (losses.compute_ns, in_kernels, in_kernels + losses.memory_ns)
    for own, convention in ((useful, "nccl_as_communication"), (kernels, "nccl_as_useful")):
        assert list_device(own, active, window) == pytest.approx(get_device(numbers, convention), rel=1e-12)


def test_efficiencies_of_gpus(job: Job) -> None:
    percent = job.trace.duration / 100
    totals = {
        title: count_ns(columns["1"], percent) for title, columns in total_columns(job.trace, "gpu_efficiency").items()
    }
    check_device(totals[USEFUL], totals[KERNELS], totals[ACTIVE], job.efficiency.length_ns, job.efficiency)


def test_efficiencies_of_gpus_in_each_step(job: Job) -> None:
    totals = total_columns(job.trace, "gpu_efficiency_by_step")
    assert len(job.efficiency.steps) > 3
    for step in job.efficiency.steps:
        own = find_step(totals, step.number)
        assert own[LENGTH].maximum == step.length_ns
        check_device(own[USEFUL_BY_STEP], own[KERNELS_BY_STEP], own[ACTIVE_BY_STEP], step.length_ns, step)


def find_step(totals: dict[str, Columns], number: int) -> dict[str, Totals]:
    """Return the column of a step in each histogram, in ns."""
    found = {}
    for title, columns in totals.items():
        (label,) = (label for label in columns if re.fullmatch(rf".*\D{number}", label))
        found[title] = count_ns(columns[label], 1_000_000)
    return found


def test_efficiencies_of_main_threads(job: Job) -> None:
    """The time that the trace has beyond the window, or lacks of it, is without calls."""
    totals = total_columns(job.trace, "host_efficiency")
    beyond = job.trace.duration - job.efficiency.length_ns
    assert beyond == 2 or job.is_whole  # a trace of steps has a nanosecond more at either end
    in_ns = {title: count_ns(totals[title]["1"], job.trace.duration / 100) for title in (OUTSIDE_MPI, OUTSIDE)}
    outside_mpi, useful = (
        Totals(own.total, own.average - beyond, own.maximum - beyond) for own in (in_ns[OUTSIDE_MPI], in_ns[OUTSIDE])
    )
    shown = list_host(outside_mpi, useful, job.efficiency.length_ns)
    assert shown == pytest.approx(get_host(job.efficiency), rel=1e-12)


def test_efficiencies_of_main_threads_in_each_step(job: Job) -> None:
    totals = total_columns(job.trace, "host_efficiency_by_step")
    for step in job.efficiency.steps:
        own = find_step(totals, step.number)
        assert own[LENGTH].maximum == step.length_ns
        shown = list_host(own[OUTSIDE_MPI_BY_STEP], own[OUTSIDE_BY_STEP], step.length_ns)
        assert shown == pytest.approx(get_host(step), rel=1e-12)


# ---- a made trace ----------------------------------------------------------------------------------------------------

END, STEPS = 6000, range(3, 6)
CUDA, MPI, ACTIVITY, SYSTEM = 63000000, 50000002, 63000400, 66400000
TITLES = {CUDA: "CUDA API call", MPI: "MPI Collective Comm", ACTIVITY: "GPU activity", SYSTEM: "OS runtime call"}
TASK_OF_ROW = (0, 0, 0, 0, 1, 1, 2)
MAIN, GPUS, COPIES_ONLY, LOADER = (0, 4), (2, 3, 5), 3, 6
"""Rows: of each rank its main thread, a thread only of the first, GPUs; a process that only loads data."""

Values = dict[int, np.ndarray]
"""By event type, the value in each row and nanosecond; of calls, how many are open."""


def make_trace(folder: Path, seed: int) -> tuple[Trace, Values]:
    """Write a trace of calls that nest and touch, of GPUs of which one never computes, and of steps apart in time."""
    rng = random.Random(seed)
    values = {number: np.zeros((len(TASK_OF_ROW), END), np.int64) for number in (*TITLES, STEP)}
    events: list[tuple[int, int, int, str]] = []

    def write(number: int, row: int, begin: int, end: int, value: int, depth: int = 0) -> None:
        """`depth`: of the call; inner calls end before, and begin after, the outer one at the same time."""
        values[number][row, begin:end] += value
        place = f"2:{row + 1}:1:{TASK_OF_ROW[row] + 1}:{row - TASK_OF_ROW.index(TASK_OF_ROW[row]) + 1}"
        events.append((end, 0, -depth, f"{place}:{end}:{number}:0"))
        events.append((begin, 1, depth, f"{place}:{begin}:{number}:{value}"))

    for row in (*MAIN, 1, LOADER):
        time = rng.randint(0, 100)
        while time < END - 300:
            end = time + rng.randint(30, 200)
            number = SYSTEM if row == LOADER else rng.choice((MPI, CUDA))
            write(number, row, time, end, 1)
            if number != SYSTEM and rng.random() < 0.5:
                write(
                    rng.choice((MPI, CUDA)), row, rng.randint(time, time + 10), rng.randint(end - 10, end), 1, depth=1
                )
            time = end + rng.choice((0, rng.randint(1, 200)))
    for row in GPUS:
        time = rng.randint(0, 400)
        while time < END - 300:
            end = time + rng.randint(1, 150)
            write(ACTIVITY, row, time, end, 4 if row == COPIES_ONLY else rng.randint(1, 8))
            time = end
    for task in range(2):
        time = rng.randint(0, 900)
        for step in STEPS:
            end = time + rng.randint(800, 1400)
            for row in (own for own in (*MAIN, *GPUS) if TASK_OF_ROW[own] == task):
                write(STEP, row, time, end, step + 1)
            time = end + rng.choice((0, 150))
    threads = ",".join(f"{TASK_OF_ROW.count(task)}:1" for task in range(3))
    lines = [f"#Paraver (01/01/2024 at 00:00):{END}_ns:1({len(TASK_OF_ROW)}):1:3({threads})"]
    lines += [line for *_, line in sorted(events, key=lambda event: event[:3])]
    (folder / "trace.prv").write_text("\n".join([*lines, ""]))
    steps = "".join(f"{step + 1} step {step}\n" for step in STEPS)
    labels = [f"EVENT_TYPE\n0 {number} {title}\n" for number, title in TITLES.items()]
    (folder / "trace.pcf").write_text("\n".join([*labels, f"EVENT_TYPE\n0 {STEP} Step\nVALUES\n{steps}"]))
    rows = "\n".join(f"row {row}" for row in range(len(TASK_OF_ROW)))
    (folder / "trace.row").write_text(f"LEVEL TASK SIZE 3\nA\nB\nC\nLEVEL THREAD SIZE {len(TASK_OF_ROW)}\n{rows}\n")
    return read_trace(folder / "trace.prv"), values


@pytest.fixture(scope="module", params=[1, 2, 3])
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Trace, Values]:
    return make_trace(tmp_path_factory.mktemp("made"), request.param)


USEFUL_VALUES, KERNEL_VALUES, ACTIVE_VALUES = (1, 3, 5, 7), (1, 2, 3, 5, 6, 7), (1, 2, 3, 4, 5, 6, 7)
OF_GPUS = {USEFUL: USEFUL_VALUES, KERNELS: KERNEL_VALUES, ACTIVE: ACTIVE_VALUES}
OF_GPUS_BY_STEP = {USEFUL_BY_STEP: USEFUL_VALUES, KERNELS_BY_STEP: KERNEL_VALUES, ACTIVE_BY_STEP: ACTIVE_VALUES}


def check_totals(shown: Totals, expected: list[float]) -> None:
    assert shown == pytest.approx((sum(expected), sum(expected) / len(expected), max(expected)), abs=1e-9)


def test_gpus_that_never_compute_count(made: tuple[Trace, Values]) -> None:
    trace, values = made
    assert not np.isin(values[ACTIVITY][COPIES_ONLY], USEFUL_VALUES).any()
    totals = total_columns(trace, "gpu_efficiency")
    for title, doing in OF_GPUS.items():
        assert list(totals[title]) == ["1"]
        check_totals(totals[title]["1"], [100 * np.isin(values[ACTIVITY][row], doing).mean() for row in GPUS])


def test_gpus_in_steps(made: tuple[Trace, Values]) -> None:
    trace, values = made
    totals = total_columns(trace, "gpu_efficiency_by_step")
    for step in STEPS:
        in_step = values[STEP] == step + 1
        for title, doing in OF_GPUS_BY_STEP.items():
            expected = [(np.isin(values[ACTIVITY][row], doing) & in_step[row]).sum() / 1e6 for row in GPUS]
            check_totals(totals[title][f"step {step}"], expected)
        check_totals(totals[LENGTH][f"step {step}"], [in_step[row].sum() / 1e6 for row in (*GPUS, *MAIN)])


def test_main_threads_of_ranks_count(made: tuple[Trace, Values]) -> None:
    trace, values = made
    outside_mpi = values[MPI] == 0
    outside = outside_mpi & (values[CUDA] == 0)
    assert ((values[MPI] > 0) & (values[CUDA] > 0)).any()
    totals = total_columns(trace, "host_efficiency")
    check_totals(totals[OUTSIDE_MPI]["1"], [100 * outside_mpi[row].mean() for row in MAIN])
    check_totals(totals[OUTSIDE]["1"], [100 * outside[row].mean() for row in MAIN])
    check_totals(totals[OFFLOAD]["1"], [100 * outside[row].sum() / outside_mpi[row].sum() for row in MAIN])


def test_main_threads_in_steps(made: tuple[Trace, Values]) -> None:
    trace, values = made
    outside_mpi = values[MPI] == 0
    outside = outside_mpi & (values[CUDA] == 0)
    totals = total_columns(trace, "host_efficiency_by_step")
    for step in STEPS:
        in_step = values[STEP] == step + 1
        for title, doing in ((OUTSIDE_MPI_BY_STEP, outside_mpi), (OUTSIDE_BY_STEP, outside)):
            check_totals(totals[title][f"step {step}"], [(doing[row] & in_step[row]).sum() / 1e6 for row in MAIN])
