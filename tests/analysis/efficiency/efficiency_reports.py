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
from nsys2prv_ng.job.open_reports import ReadOptions
from nsys2prv_ng.job.selection import Selection
from nsys2prv_ng.runtime.progress import Progress
from nsys2prv_ng.summary.compute.efficiency import sum_efficiency
from nsys2prv_ng.summary.numbers.efficiency import EfficiencyNumbers, WindowEfficiency
from tests.analysis.efficiency.efficiency_truth import Times, Truth
from tests.conftest import REPOSITORY
from tests.job.repetition_truth import find_repetitions
from tests.job.test_steps import count_warmup
from tests.report_truth import PUSH_POP

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


@contextmanager
def opened(reports: Sequence[Path], way: str = "utc", selection: Selection | None = None) -> Iterator[Job]:
    """Open reports on UTC, to which plain loops place them."""
    options = ReadOptions(align=way, selection=selection or Selection())
    with tempfile.TemporaryDirectory() as folder, open_job(reports, Path(folder), options, Progress()) as job:
        yield job


def make(reports: Sequence[Path], way: str = "utc") -> Made:
    with opened(reports, way) as job:
        found = compute_efficiency(job, find_waits(job))
        return Made(found, sum_efficiency(job, found), job.alignment.utc_base, Truth(reports))


def list_all_steps(truth: Truth, found: Efficiency) -> pd.DataFrame:
    """Return process, number, begin and end of the ranges of steps, or of what the kernels repeat."""
    assert found.steps is not None
    ranges = truth.ranges
    named = ranges[(ranges["domain"] == "") & (ranges["name"] == found.steps.name) & (ranges["style"] == PUSH_POP)]
    if not named.empty:
        return named
    repeated = find_repetitions(truth.reports)
    assert repeated is not None and found.steps.name == "repeated kernels"
    rows = [
        (process, number, *limits)
        for process, own in repeated.items()
        for number, limits in enumerate(zip(own.begin, own.end, strict=True), 1)
    ]
    return pd.DataFrame(rows, columns=["process", "number", "begin", "end"])


def count_warm(steps: pd.DataFrame) -> int:
    return count_warmup((steps["end"] - steps["begin"]).groupby(steps["number"]).max().sort_index().tolist())


def list_steps(truth: Truth, found: Efficiency) -> pd.DataFrame:
    """Return the steps that count."""
    steps = list_all_steps(truth, found)
    return steps[steps["number"] >= steps["number"].min() + count_warm(steps)]


def drop_warmup(truth: Truth, found: Efficiency, ranges: pd.DataFrame) -> pd.DataFrame:
    """Return the ranges that do not begin in the warm-up of their process."""
    if found.steps is None:
        return ranges
    steps = list_all_steps(truth, found)
    steps = steps[steps["number"] < steps["number"].min() + count_warm(steps)]
    warm = {process: (own["begin"].min(), own["end"].max()) for process, own in steps.groupby("process")}
    inside = [
        process in warm and warm[process][0] <= begin < warm[process][1]
        for process, begin, _ in zip(*(ranges[c] for c in LIMITS), strict=True)
    ]
    return ranges[~np.array(inside, np.bool_)]


LIMITS = ("process", "begin", "end")


def add_up(times: WindowTimes) -> dict[str, int]:
    """Return the time of GPUs as plain loops know it."""
    assert times.devices is not None
    by_class = Counter(times.devices.by_class)
    idle = sum(by_class.pop(name) for name in ("host", "queued", "graph", "unknown", "cut"))
    communication = sum(by_class.pop(name) for name in ("waiting", "moving", "not_split"))
    return {**by_class, "idle": idle, "communication": communication}


def get_trees(window: WindowEfficiency) -> list[tuple[float, ...] | None]:
    """Return the numbers of GPUs in both conventions and of main threads."""
    trees = window.nccl_as_communication.device, window.nccl_as_useful.device, window.nccl_as_communication.host
    assert window.nccl_as_useful.host == window.nccl_as_communication.host
    return [None if tree is None else tuple(vars(tree).values()) for tree in trees]


def check_window(window: WindowEfficiency, times: Times) -> None:
    assert window.window_ns == times.window
    expected = [times.rate_devices(nccl_is_useful=False), times.rate_devices(nccl_is_useful=True), times.rate_hosts()]
    for tree, numbers in zip(get_trees(window), expected, strict=True):
        assert tree is numbers is None or tree == pytest.approx(numbers, rel=1e-12, abs=0)
