"""The steps of real programs, compared with the steps that NVTX ranges mark, or with SQL over their reports."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from nsys2prv_ng.job.open_job import open_job
from nsys2prv_ng.reading.open_reports import ReadOptions
from nsys2prv_ng.runtime.progress import Progress
from nsys2prv_ng.steps.repetition import Repetitions, find_repetitions
from tests.analysis.path.path_reports import Capture
from tests.conftest import Unpacked
from tests.report_sets import sets
from tests.report_truth import Report, split_name

MARKED = {
    "exercises/ex1a-fast": ("step", 4, 8),
    "exercises/ex1a-slow": ("step", 4, 8),
    "exercises/ex1b-fp32": ("step", 4, 8),
    "exercises/ex1c-accum": ("step", 4, 4),
    "exercises/ex2a-zero2": ("step", 4, 3),
    "exercises/ex2a-zero3": ("step", 4, 3),
    "exercises/ex2b-manual": ("step", 4, 6),
    "exercises/ex2b-overlap": ("step", 4, 6),
    "exercises/ex3a-pp1": ("iteration", 4, 4),
    "exercises/ex3a-pp2": ("iteration", 4, 4),
    "exercises/ex3a-pp2-plain": ("iteration", 4, 4),
    "exercises/tpgraph-1x4": ("token", 4, 64),
    "gpu/autograd-1": ("iter", 0, 12),
    "gpu/ddp-2x2": ("step", 4, 6),
    "gpu/oneproc-4gpu": ("step", 0, 8),
    "gpu/sampled-1": ("iter", 0, 12),
    "whatif/m-base": ("step", 4, 12),
    "whatif/m-big": ("step", 4, 12),
    "whatif/m-late": ("step", 4, 12),
    "whatif/w-base": ("step", 1, 12),
    "whatif/w-compiled": ("step", 1, 12),
    "whatif/w-gemm": ("step", 1, 12),
    "whatif/w-load": ("step", 1, 12),
    "whatif/w-shapes": ("step", 1, 6),
    "whatif/w-sync": ("step", 1, 12),
    "whatif/x-uneven": ("step", 1, 30),
}
"""Name of the ranges that mark the steps, ranks (0: one report without a rank in its name), and steps."""
WITHOUT = {
    "gpu/mpi-4": "one kernel, one to three times an iteration",
    "gpu/mpi-one-report": "one kernel, twelve times",
    "gpu/single-graph": "phases that have nothing in common",
    "gpu/single-node": "a replayed graph, 3 % of the GPU time, among other phases",
    "gpu/um-1": "one kernel a step",
    "public/h100_2gpu_1s": "layers of a part of a step",
    "public/mfu_2gpu_before": "layers of a part of a step",
    "public/mapf_report1": "no kernels",
    "cpu/2024.2.3-nvtx_py": "no GPU",
}
"""Reports without steps that their kernels show, and why."""


def list_reports(name: str, ranks: int, reports: Path, unpacked: Unpacked) -> list[Path]:
    ends = [f".rank{rank}" for rank in range(ranks)] or [""]
    return [unpacked(reports / f"{name}{end}.sqlite") for end in ends]


def find_steps(paths: Sequence[Path], folder: Path) -> tuple[Repetitions | None, int]:
    """Return the steps of a job, and UTC (ns) at time 0."""
    with open_job(paths, folder, ReadOptions(align="utc"), Progress()) as job:
        return find_repetitions(job.reports, job.whole, job.store, 3, job.engine), job.alignment.utc_base


def list_launched(report: Report) -> pd.DataFrame:
    """Return the launch (UTC) and the name of each kernel and whole graph, in order of launch."""
    own = report.operations[report.operations["table"].isin(["KERNEL", "GRAPH_TRACE"])]
    calls = (
        report.calls.assign(process=report.calls["tid"] // (1 << 24)).groupby(["process", "correlation"])["begin"].min()
    )
    joined = own.join(calls.rename("launched"), on=["process", "correlation"]).sort_values(["launched", "begin"])
    return joined.assign(launched=joined["launched"] + report.utc)[["launched", "name"]].reset_index(drop=True)


def list_marked(report: Report, name: str) -> list[tuple[int, int]]:
    """Return begin and end (UTC) of the ranges of a name with a number."""
    own = report.nvtx[[split_name(text)[0] == name and split_name(text)[1] is not None for text in report.nvtx["text"]]]
    return sorted(zip(own["begin"] + report.utc, own["end"] + report.utc, strict=True))


# ---- real programs ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", sets(MARKED))
def test_steps_that_ranges_mark(name: str, shared_reports: Path, unpacked: Unpacked, tmp_path: Path) -> None:
    """Each step has nearly the operations that were launched in one marked step, and these follow each other."""
    mark, ranks, steps = MARKED[name]
    paths = list_reports(name, ranks, shared_reports, unpacked)
    found, base = find_steps(paths, tmp_path)
    assert found is not None and 0.8 <= found.similarity <= 1
    by_task = [own for _, own in pd.DataFrame(found.table).groupby("task")]
    assert [own["number"].tolist() for own in by_task] == [list(range(1, steps + 1))] * len(paths)
    begins = {(own["begin"].iloc[0] + base): own for own in by_task}
    for path in paths:
        report = Report(path)
        launched = list_launched(report)["launched"]
        [own] = [own for begin, own in begins.items() if (launched == begin).any()]
        starts = [begin for begin, _ in list_marked(report, mark)]
        numbers = []
        for begin, end in zip(own["begin"] + base, own["end"] + base, strict=True):
            inside = launched[(launched >= begin) & (launched < end)]
            [(number, count)] = Counter(np.searchsorted(starts, inside, "right").tolist()).most_common(1)
            assert count >= 0.9 * len(inside)
            numbers.append(number)
        assert all(later == earlier + 1 for earlier, later in pairwise(numbers))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["whatif/hf-base", "whatif/hf-emptycache"])
def test_optimizers_end_steps(name: str, shared_reports: Path, unpacked: Unpacked, tmp_path: Path) -> None:
    """Nothing marks them; every fourth prints its loss. Seven kernels of the optimizer end each."""
    [path] = list_reports(name, 1, shared_reports, unpacked)
    launched = list_launched(Report(path))
    optimizer = np.flatnonzero(launched["name"] == "multi_tensor_apply_kernel")
    last = [at for at, after in zip(optimizer, [*optimizer[1:], len(launched) + 99], strict=True) if after > at + 50]
    assert len(last) == 14 and len(optimizer) == 14 * 7
    begins = launched["launched"].iloc[[0, *(at + 1 for at in last[:-1])]].tolist()
    ends = [*begins[1:], launched["launched"].iloc[-1] + 1]
    found, base = find_steps([path], tmp_path)
    assert found is not None and found.name == "multi_tensor_apply_kernel"
    assert [*zip(found.table["begin"] + base, found.table["end"] + base, strict=True)] == [
        *zip(begins, ends, strict=True)
    ]


@pytest.mark.slow
def test_graphs_after_a_start_up(shared_reports: Path, unpacked: Unpacked, tmp_path: Path) -> None:
    [path] = list_reports("whatif/jax-1", 1, shared_reports, unpacked)
    launched = list_launched(Report(path))
    graphs = launched["launched"][launched["name"].str.startswith("graph")].tolist()
    found, base = find_steps([path], tmp_path)
    assert found is not None and found.name == "CUDA graph" and len(graphs) == 30
    assert (found.table["begin"] + base).tolist() == graphs
    assert (found.table["end"] + base).tolist() == [*graphs[1:], graphs[-1] + 1]


@pytest.mark.slow
@pytest.mark.parametrize("name", sets(WITHOUT))
def test_programs_without_steps(name: str, shared_reports: Path, unpacked: Unpacked, tmp_path: Path) -> None:
    paths = list_reports(name, 4 if name == "gpu/mpi-4" else 0, shared_reports, unpacked)
    assert find_steps(paths, tmp_path)[0] is None


@pytest.mark.slow
def test_an_hydrodynamics_code(shared_reports: Path, unpacked: Unpacked, tmp_path: Path) -> None:
    """Nothing marks its steps. Their length is the shortest distance at which nearly all names come again."""
    [path] = list_reports("public/pipit_cloverleaf", 0, shared_reports, unpacked)
    launched = list_launched(Report(path))
    names = launched["name"].to_numpy()
    same = [float((names[:-period] == names[period:]).mean()) for period in range(1, len(names) // 3)]
    period = 1 + next(index for index, share in enumerate(same) if share > 0.95)
    found, base = find_steps([path], tmp_path)
    assert found is not None
    starts = np.searchsorted(launched["launched"], found.table["begin"] + base)
    assert set(np.diff(starts[1:]).tolist()) == {period} and len(starts) == len(names) // period


# ---- ranks -----------------------------------------------------------------------------------------------------------


def make_rank(rank: int, steps: int, first: int = 10_000, names: Sequence[str] = ("gemm", "relu", "adam")) -> Capture:
    """Return a capture with three kernels a step, 1,000 ns each, and a pause of 5,000 ns before each step."""
    capture = Capture(rank, 2)
    begin = first
    for _ in range(steps):
        for name in names:
            capture.kernel(capture.call("cudaLaunchKernel", begin - 500, begin - 400), begin, begin + 1_000, name=name)
            begin += 1_100
        begin += 5_000
    return capture


STEP = 8_300
"""Length of its steps (ns)."""


def find(tmp_path: Path, *captures: Capture) -> list[list[tuple[int, int, int]]] | None:
    """Return number, begin and length of the steps of each task."""
    paths = [capture.write(tmp_path / f"rank{capture.rank}.sqlite") for capture in captures]
    for path in paths:
        with closing(sqlite3.connect(path)) as database, database:
            database.execute("UPDATE ANALYSIS_DETAILS SET duration = 1000000")
    with open_job(paths, tmp_path, ReadOptions(align="none"), Progress()) as job:
        found = find_repetitions(job.reports, job.whole, job.store, 3, job.engine)
        assert (job.steps is None) == (found is None)
    if found is None:
        return None
    first = found.table["begin"].min()
    return [
        [
            *zip(
                own["number"].tolist(),
                (own["begin"] - first).tolist(),
                (own["end"] - own["begin"]).tolist(),
                strict=True,
            )
        ]
        for _, own in pd.DataFrame(found.table).groupby("row")
    ]


def list_steps(steps: int, begin: int = 0) -> list[tuple[int, int, int]]:
    """Return number, begin and length of steps: a step ends where the next one begins, the last after its launches."""
    lengths = [STEP] * (steps - 1) + [2 * 1_100 + 1]
    return [(number, begin + (number - 1) * STEP, length) for number, length in enumerate(lengths, 1)]


@pytest.mark.slow
def test_a_step_ends_where_the_next_begins(tmp_path: Path) -> None:
    assert find(tmp_path, make_rank(0, 4)) == [list_steps(4)]


@pytest.mark.slow
def test_ranks_with_other_kernels(tmp_path: Path) -> None:
    """They have equally many steps, which overlap."""
    other = make_rank(1, 4, 11_000, ["conv", "add", "sgd"])
    assert find(tmp_path, make_rank(0, 4), other) == [list_steps(4), list_steps(4, 1_000)]


@pytest.mark.slow
@pytest.mark.parametrize("missing", [0, 1])
def test_a_step_that_some_ranks_have(missing: int, tmp_path: Path) -> None:
    """It does not count, whether it is the first (missing: 1) or the last one."""
    found = find(tmp_path, make_rank(0, 5), make_rank(1, 4, 10_000 + missing * STEP))
    assert found is not None
    assert [[own[:2] for own in task] for task in found] == [[own[:2] for own in list_steps(4)]] * 2


@pytest.mark.slow
@pytest.mark.parametrize(("skipped", "steps"), [(3, 7), (0, 5), (3, 4)])
def test_captures_begin_and_end_within_different_steps(skipped: int, steps: int, tmp_path: Path) -> None:
    """The steps that all ranks have: rank 1 shows `steps` of ten, after those that were before its capture."""
    found = find(tmp_path, make_rank(0, 10), make_rank(1, steps, 10_000 + skipped * STEP))
    assert found is not None
    assert [[own[:2] for own in task] for task in found] == [[own[:2] for own in list_steps(steps)]] * 2


@pytest.mark.slow
@pytest.mark.parametrize("other", [(7, 10_000), (4, 100_000)])
def test_ranks_that_do_not_agree(tmp_path: Path, other: tuple[int, int]) -> None:
    """One repeats more often while both are captured, or at another time."""
    captures = [make_rank(0, 4), make_rank(1, *other)]
    captures[0].call("cudaDeviceSynchronize", 50_000, 100_000)
    assert find(tmp_path, *captures) is None


@pytest.mark.slow
def test_a_rank_that_repeats_nothing(tmp_path: Path) -> None:
    other = make_rank(1, 1, names=[f"kernel {number}" for number in range(40)])
    assert find(tmp_path, make_rank(0, 4), other) is None


def test_one_kernel_is_no_step(tmp_path: Path) -> None:
    capture = Capture()
    for begin in range(1_000, 20_000, 1_000):
        capture.kernel(capture.call("cudaLaunchKernel", begin - 50, begin - 40), begin, begin + 900)
    assert find(tmp_path, capture) is None
