"""Sets of real reports, and the few of them that every push translates.

A test that runs over real reports runs over the covering sets at every push, and over all sets with `--all-sets`
(`just test-all`). The covering sets contain each pair of schema family and kind of event that any set contains, which
tests/test_report_sets.py checks. A long test takes fewer of them at every push (`push_sets`, `push_cases`,
tests/conftest.py), each for something that the others lack.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path

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

KINDS = ("samples", "gpu", "cpu", "public", "exercises", "bench", "whatif")
"""Folders of real reports. The name of a set is its folder and what its files have in common."""


def name_set(report: Path) -> str:
    """Return the name of the set that a report belongs to."""
    return f"{report.parent.name}/{re.sub(r'[._]rank[0-9]+[.].*|[.]sqlite.*', '', report.name)}"


@lru_cache(maxsize=1)
def list_sets(samples: Path, reports: Path) -> dict[str, list[Path]]:
    """Return the reports of each set, by its name; of a compressed one, the compressed file."""
    sets: dict[str, list[Path]] = {}
    for folder in (samples, *(reports / kind for kind in KINDS[1:])):
        for path in sorted(folder.glob("*.sq*")):
            sets.setdefault(name_set(path), []).append(path)
    return sets


class SetFinder:
    """`find_set(test)`: the name of the set whose reports a test has as its parameter, by the test's id."""

    def __init__(self, names: Iterable[str]) -> None:
        longest_first = sorted({*names, *COVERING}, key=len, reverse=True)
        self._pattern = re.compile(rf"[\[-]({'|'.join(map(re.escape, longest_first))})(?=[\]._-])")

    def __call__(self, test: str) -> str | None:
        found = self._pattern.search(test)
        return found and found[1]


def find_further_cases(tests: Iterable[str], find_set: Callable[[str], str | None]) -> set[str]:
    """Return the ids of tests of other sets than the covering ones.

    All cases of a test without a covering set among them are kept: its sets were chosen for it alone.
    """
    cases: dict[str, list[tuple[str, bool]]] = {}
    for test in tests:
        name = find_set(test)
        if name is not None:
            cases.setdefault(test.partition("[")[0], []).append((test, name in COVERING))
    return {
        test
        for of_function in cases.values()
        if any(is_covering for _, is_covering in of_function)
        for test, is_covering in of_function
        if not is_covering
    }
