"""Estimates what a trace of some reports would cost Paraver, from the number of rows of each source.

The records of a row are rounded means over the reports of 23 jobs (benchmarks/paraver_estimate.py). They include the
records that are derived from an operation, call or range: its state, the line from its launch, GPU activity, waits and
the critical path. docs/development/performance.md compares the estimates with the measured costs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from nsys2prv_ng import source_names
from nsys2prv_ng.paraver.load_cost import LoadCost

_PER_ROW = {
    source_names.KERNELS: LoadCost(states=1, events=7, pairs=24, communications=1),
    source_names.MEMORY_OPERATIONS: LoadCost(states=1, events=7, pairs=15, communications=1),
    source_names.CUDA_GRAPHS: LoadCost(events=1.5, pairs=3.5),
    source_names.CUDA_API: LoadCost(events=2, pairs=2),
    source_names.CUDA_SYNC: LoadCost(events=1.6, pairs=5.2),
    source_names.CUDA_MEMORY: LoadCost(events=0.1, pairs=0.1),
    source_names.GPU_METRICS: LoadCost(events=0.03, pairs=1),
    source_names.NVTX: LoadCost(events=3, pairs=3.5),
    source_names.NCCL: LoadCost(events=7, pairs=14, communications=0.2),
    source_names.MPI: LoadCost(states=2, events=4, pairs=7, communications=0.3),
    source_names.OS_RUNTIME: LoadCost(states=0.5, events=0.7, pairs=0.7),  # most calls are shorter than --osrt-min
    source_names.SCHEDULING: LoadCost(events=0.25, pairs=0.25),
    source_names.CPU_SAMPLES: LoadCost(events=0.6, pairs=1),
}
_OTHERS = LoadCost(events=2, pairs=2.5)
_LAUNCHED = (source_names.KERNELS, source_names.MEMORY_OPERATIONS)


def estimate_load(rows: Mapping[str, int]) -> LoadCost:
    """Estimate the records of a trace of all sources, from the number of rows of each source."""
    return sum((_find_cost(source) * number for source, number in rows.items()), LoadCost())


def estimate_details(rows: Mapping[str, int]) -> dict[str, LoadCost]:
    """Estimate the records of each source. Lines from launches count as a source, not with the launched operations."""
    details = {source: _find_cost(source) * number for source, number in rows.items()}
    lines = sum(details[source].communications for source in _LAUNCHED if source in details)
    launched = {source: replace(details[source], communications=0) for source in _LAUNCHED if source in details}
    return details | launched | {source_names.LAUNCH_LINES: LoadCost(communications=lines)}


def _find_cost(source: str) -> LoadCost:
    return _PER_ROW.get(source, _OTHERS)
