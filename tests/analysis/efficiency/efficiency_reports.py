"""Reports whose efficiencies tests look at, what the package and what plain loops find in them, and their steps."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from nsys2prv_ng.analysis.efficiency.efficiency import Efficiency, compute_efficiency
from nsys2prv_ng.analysis.efficiency.times import WindowTimes
from nsys2prv_ng.analysis.waits.waits import find_waits
from nsys2prv_ng.job.open_job import Job, open_job
from nsys2prv_ng.reading.open_reports import ReadOptions, Selection
from nsys2prv_ng.runtime.progress import Progress
from nsys2prv_ng.steps.steps import Steps
from nsys2prv_ng.summary.efficiency.measure import sum_efficiency
from nsys2prv_ng.summary.efficiency.numbers import EfficiencyNumbers, WindowEfficiency
from tests.analysis.efficiency.efficiency_truth import Times, Truth, measure_common, measure_own
from tests.conftest import REPOSITORY
from tests.report_truth import PUSH_POP
from tests.steps.step_truth import StepTruth

_RANKS = {
    "exercises": "ex1a-slow ex1a-fast ex1b-fp32 ex2b-manual ex2b-overlap ex3a-pp1 ex3a-pp2 ex3a-pp2-plain tpgraph-1x4",
    "gpu": "ddp-2x2 mpi-4",
    "bench": "ddplong-2x2",
}
_SINGLE = {
    "gpu": "autograd-1 mpi-one-report oneproc-4gpu sampled-1 single-graph single-node um-1",
    "bench": "torchrun-one-report",
    "public": "h100_2gpu_1s mapf_report1 mfu_2gpu_before pipit_cloverleaf",
    "cpu": "2022.4.2-nvtx_py 2023.4.4-mpich_all 2024.2.3-acc_gcc 2024.2.3-nvtx_py 2024.2.3-omp_clang 2024.2.3-ompi_all",
}
SETS = {
    "samples/mpi-4": [f"samples/mpi-4.rank{rank}.sqlite" for rank in range(4)],
    "samples/single-graph": ["samples/single-graph.sqlite"],
    "cpu/2024.2.3-nccl_mimic": [f"cpu/2024.2.3-nccl_mimic_rank{rank}.sqlite" for rank in range(2)],
    "cpu/2024.2.3-2node": [f"cpu/2024.2.3-2node_rank{rank}.sqlite" for rank in range(4)],
    "cpu/2023.4.4-2node": [f"cpu/2023.4.4-2node_rank{rank}.sqlite" for rank in range(2)],
    "cpu/2022.4.2-ompi": [f"cpu/2022.4.2-ompi_rank{rank}.sqlite" for rank in range(2)],
}
for _folder, _names in _RANKS.items():
    _end = ".xz" if _folder == "bench" else ""
    SETS |= {f"{_folder}/{n}": [f"{_folder}/{n}.rank{r}.sqlite{_end}" for r in range(4)] for n in _names.split()}
for _folder, _names in _SINGLE.items():
    SETS |= {f"{_folder}/{n}": [f"{_folder}/{n}.sqlite{'.xz' * (_folder == 'bench')}"] for n in _names.split()}
DDP = [REPOSITORY / f"samples/ddp-2x2.rank{rank}.sqlite" for rank in range(4)]


@dataclass(frozen=True)
class Made:
    """What the package and what plain loops find. Times of the package are UTC less `base`."""

    found: Efficiency
    numbers: EfficiencyNumbers | None
    base: int
    truth: Truth
    steps: StepTruth | None

    @property
    def window(self) -> tuple[int, int]:
        """The time that numbers cover."""
        return self.truth.capture if self.steps is None else self.steps.window

    def measure_step(self, number: int) -> Times:
        """Measure a step: without GPU operations in the range of each process."""
        assert self.steps is not None
        if self.steps.on_gpu:
            return measure_common(self.truth, [self.steps.get_limits(number)])
        assert self.found.steps is not None
        ranges = list_ranges_of_steps(self.truth, self.found.steps, self.base)
        return measure_own(self.truth, ranges[ranges["number"] == number])


@contextmanager
def opened(reports: Sequence[Path], way: str = "utc", selection: Selection | None = None) -> Iterator[Job]:
    """Open reports on UTC, to which plain loops place them."""
    options = ReadOptions(align=way, selection=selection or Selection())
    with tempfile.TemporaryDirectory() as folder, open_job(reports, Path(folder), options, Progress()) as job:
        yield job


def make(reports: Sequence[Path], way: str = "utc", selection: Selection | None = None) -> Made:
    with opened(reports, way, selection) as job:
        found = compute_efficiency(job, find_waits(job))
        truth, steps = Truth(reports), None
        if job.steps is not None and selection is None:
            ranges = list_ranges_of_steps(truth, job.steps, job.alignment.utc_base)
            steps = StepTruth(truth.reports, ranges, are_ranges=job.steps.has_ranges)
        return Made(found, sum_efficiency(job, found), job.alignment.utc_base, truth, steps)


ALL_TIME = Selection(window=(None, None))


def list_ranges_of_steps(truth: Truth, steps: Steps, base: int) -> pd.DataFrame:
    """Return process, number, begin and end of the ranges of steps, or of what the kernels repeat."""
    ranges = truth.ranges
    named = ranges[(ranges["domain"] == "") & (ranges["name"] == steps.name) & (ranges["style"] == PUSH_POP)]
    if not named.empty:
        return named
    # What recurs without ranges has its truth in tests/steps/test_repetition.py: here it is given.
    assert steps.delimiter and len(truth.reports) == 1
    [process] = {process for gpu in truth.gpus.values() for process in gpu.processes}
    columns = {"begin": steps.host_begin + base, "end": steps.host_end + base}
    return pd.DataFrame({"process": [process] * steps.number.size, "number": steps.number, **columns})


def select_counted(steps: StepTruth | None, ranges: pd.DataFrame) -> pd.DataFrame:
    """Return the ranges that begin in steps that count."""
    if steps is None or ranges.empty:
        return ranges
    pairs = zip(ranges["process"], ranges["begin"], strict=True)
    return ranges[np.array([steps.counts(process, int(begin)) for process, begin in pairs], np.bool_)]


def add_up(times: WindowTimes) -> dict[str, int]:
    """Return the time of GPUs as plain loops know it."""
    assert times.devices is not None
    by_class = Counter(times.devices.by_class)
    idle = sum(by_class.pop(name) for name in ("host", "queued", "graph", "unknown", "cut"))
    communication = sum(by_class.pop(name) for name in ("waiting", "moving", "not_split"))
    return {**by_class, "idle": idle, "communication": communication}


def get_trees(window: WindowEfficiency) -> list[tuple[float, ...] | None]:
    """Return the numbers of GPUs in both conventions and of main threads, without those that need a replay."""
    trees = window.nccl_as_communication.device, window.nccl_as_useful.device, window.nccl_as_communication.host
    assert window.nccl_as_useful.host == window.nccl_as_communication.host
    return [None if tree is None else tuple(rate for rate in vars(tree).values() if rate is not None) for tree in trees]


def check_window(window: WindowEfficiency, times: Times) -> None:
    assert window.length_ns == times.window
    expected = [times.rate_devices(nccl_is_useful=False), times.rate_devices(nccl_is_useful=True), times.rate_hosts()]
    for tree, numbers in zip(get_trees(window), expected, strict=True):
        assert tree is numbers is None or tree == pytest.approx(numbers, rel=1e-12, abs=0)
