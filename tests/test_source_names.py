"""The names of sources, written down once more: users type them, and their scripts rely on them."""

from __future__ import annotations

from nsys2prv_ng import source_names
from nsys2prv_ng.sources.registry import DERIVED, SOURCES

NAMES = (
    "cuda_api",
    "kernels",
    "memory_operations",
    "cuda_graphs",
    "launch_lines",
    "cuda_sync",
    "cuda_memory",
    "unified_memory",
    "cuda_libraries",
    "video",
    "gpu_contexts",
    "gpu_metrics",
    "mpi",
    "ucx",
    "nvtx",
    "nccl",
    "nvtx_on_gpu",
    "openmp",
    "openacc",
    "os_runtime",
    "system_calls",
    "scheduling",
    "cpu_samples",
    "profiler_overhead",
    "network_metrics",
    "plugin_metrics",
    "cpu_counters",
    "diagnostics",
    "device_activity",
)


def test_names_of_sources_stay_as_they_are() -> None:
    assert tuple(source.name for source in (*SOURCES, *DERIVED)) == NAMES


def test_each_source_has_the_constant_of_its_name() -> None:
    constants = {name: value for name, value in vars(source_names).items() if name.isupper()}
    assert constants == {name.upper(): name for name in NAMES}
