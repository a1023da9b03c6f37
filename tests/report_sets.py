"""Sets of real reports, and the few of them that every push translates.

A test that runs over real reports runs over the covering sets at every push, and over all sets with `--all-sets`
(`just test-all`). The covering sets contain each pair of schema family and kind of event that any set contains, which
tests/test_report_sets.py checks. A long test takes fewer of them at every push (`sets(..., push=...)`), each for
something that the others lack.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import HAS_LARGE_REPORTS, NO_REPORTS, REPORTS, SAMPLES, unpack
from tests.tiers import cases

COVERING = {
    # Schema 3.0 (nsys 2022.4)
    "cpu/2022.4.2-ompi": "MPI in NVTX ranges, of two ranks in two reports",
    "cpu/2022.4.2-nvtx_py": "every form of NVTX, nested processes",
    "public/mapf_report1": "scheduling and CPU samples with their callers",
    # Schema 3.7 (2023.4)
    "cpu/2023.4.4-mpich_all": "messages and collectives of MPI, all ranks in one report, without a GPU",
    # Schema 3.11 (2024.2)
    "cpu/2024.2.3-ompi_all": "the same, of another MPI",
    "cpu/2024.2.3-nccl_mimic": "NCCL with payload, without kernels",
    "cpu/2024.2.3-nvtx_py": "every form of NVTX",
    "cpu/2024.2.3-omp_clang": "OpenMP",
    # Schema 3.13 (2024.5)
    "public/pipit_cloverleaf": "kernels and copies beside scheduling and CPU samples, without NVTX",
    # Schema 3.20 (2025.3)
    "samples/ddp-2x2": "PyTorch on two nodes: NCCL, GPU metrics, CUDA memory, OS runtime",
    "samples/mpi-4": "CUDA with messages and collectives of MPI, a report per rank",
    "samples/single-graph": "CUDA graphs traced as a whole, every form of NVTX",
    "gpu/single-node": "CUDA graphs traced by node",
    "gpu/oneproc-4gpu": "one process with four GPUs, copies between these",
    "gpu/mpi-one-report": "CUDA with MPI, all ranks in one report",
    "gpu/um-1": "managed memory, contexts of GPUs",
    "gpu/autograd-1": "ranges of autograd, metrics of plugins",
    "gpu/sampled-1": "scheduling, CPU and Python samples beside CUDA",
    "exercises/ex3a-pp2": "messages of NCCL between the stages of a pipeline, on two nodes",
    "whatif/jax-1": "JAX: names of NVTX for CUDA devices",
    # Schema 3.25 (2026.2)
    "public/mfu_2gpu_before": "kernels, NCCL without payload",
    "public/h100_2gpu_1s": "overhead of CUPTI, which is in no other report",
}
"""The sets of every push, by schema, and what each is here for."""

QUICK = (
    *("samples/single-graph", "samples/mpi-4", "samples/mpi-4.rank0"),
    *("cpu/2024.2.3-nccl_mimic", "cpu/2024.2.3-nvtx_py"),
)
"""Sets and reports of the quick tests: one with every kind of GPU event, one of MPI, two without a GPU."""

KINDS = ("samples", "gpu", "cpu", "public", "exercises", "bench", "whatif")
"""Folders of real reports. The name of a set is its folder and what its files have in common."""


def name_set(report: Path) -> str:
    """Return the name of the set that a report belongs to."""
    return _drop_rank(f"{report.parent.name}/{report.name}")


@lru_cache(maxsize=1)
def list_sets() -> dict[str, list[Path]]:
    """Return the reports of each set, by its name; of a compressed one, the compressed file."""
    sets: dict[str, list[Path]] = {}
    for folder in (SAMPLES, *(REPORTS / kind for kind in KINDS[1:])):
        for path in sorted(folder.glob("*.sq*")):
            sets.setdefault(name_set(path), []).append(path)
    return sets


def find_set(name: str) -> list[Path]:
    """Return the reports of a set, or a single one, unpacked, in the order of ranks; without them, skip the test."""
    reports = list_sets().get(_drop_rank(name), [])
    if name != _drop_rank(name):
        reports = [path for path in reports if path.name.startswith(f"{name.rpartition('/')[2]}.")]
    if not reports:
        # Where all reports are, one that is missing is a mistyped name.
        (pytest.fail if HAS_LARGE_REPORTS else pytest.skip)(NO_REPORTS)
    return [unpack(path) for path in reports]


def sets(values: Iterable[Any], push: Collection[str] | None = None, quick: Collection[str] = QUICK) -> list[Any]:
    """Return sets of reports, or single ones, as parameters; tests of one set run on one worker (tests/conftest.py).

    Each is given by its name, or as a parameter whose first value or id is that. Every push takes those named, by
    default the covering ones; all, if none of them covers.
    """
    parameters = cases(values)
    names = [_name_case(case) for case in parameters]
    chosen = COVERING if push is None else push
    pushed = [name in chosen or _drop_rank(name) in chosen for name in names]
    assert push is None or any(pushed), push
    if push is None and not any(pushed):
        pushed = [True] * len(names)
    return [
        pytest.param(*case.values, id=case.id, marks=[*case.marks, *_list_marks(name, is_pushed, quick)])
        for case, name, is_pushed in zip(parameters, names, pushed, strict=True)
    ]


def _name_case(case: Any) -> str:
    return str(case.values[0] if isinstance(case.values[0], str) else case.id)


def _drop_rank(name: str) -> str:
    """Return the name of a set by that of one of its reports."""
    return re.sub(r"[._]rank[0-9]+.*|[.]sqlite.*", "", name)


def _list_marks(name: str, is_pushed: bool, quick: Collection[str]) -> list[pytest.MarkDecorator]:
    marks = [pytest.mark.group(name)]
    if not is_pushed:
        marks.append(pytest.mark.all_sets)
    if name not in quick:
        marks.append(pytest.mark.slow)
    return marks
