"""Lists all sources of events, and selects them by name."""

from collections.abc import Iterable

from nsys2prv_ng.errors import UsageError, suggest
from nsys2prv_ng.sources.cuda import cuda_api, cuda_memory, device_activity, stream_operations
from nsys2prv_ng.sources.host import directives, operating_system
from nsys2prv_ng.sources.mpi import mpi, ucx
from nsys2prv_ng.sources.nccl import nccl
from nsys2prv_ng.sources.node import diagnostics, gpu_metrics, hardware_counters, plugin_metrics
from nsys2prv_ng.sources.nvtx import nvtx
from nsys2prv_ng.sources.shared.source import Source

SOURCES: tuple[Source, ...] = (
    cuda_api.SOURCE, stream_operations.KERNELS, stream_operations.MEMORY_OPERATIONS, stream_operations.GRAPHS,
    stream_operations.LAUNCH_LINES, stream_operations.HOST_FUNCTIONS, cuda_api.SYNCHRONIZATION, cuda_memory.SOURCE,
    cuda_memory.PAGE_FAULTS, cuda_api.LIBRARIES, cuda_api.VIDEO, device_activity.CONTEXTS, gpu_metrics.SOURCE,
    mpi.SOURCE, ucx.SOURCE, nvtx.SOURCE, nccl.SOURCE, nvtx.ON_GPU, directives.OPENMP, directives.OPENACC,
    operating_system.OS_RUNTIME, operating_system.SYSTEM_CALLS, operating_system.SCHEDULING,
    operating_system.CPU_SAMPLES, operating_system.PROFILER_OVERHEAD, hardware_counters.NETWORK, plugin_metrics.SOURCE,
    hardware_counters.CPU_COUNTERS, diagnostics.SOURCE,
)  # fmt: skip
"""Every source, in the order in which it is read and reported."""


DERIVED: tuple[Source, ...] = (device_activity.SOURCE,)
"""Sources that are computed from the operations that other sources (`_DERIVED_FROM`) read."""
_DERIVED_FROM = (stream_operations.KERNELS, stream_operations.MEMORY_OPERATIONS, stream_operations.GRAPHS)
GPU_OPERATIONS = tuple(source.name for source in _DERIVED_FROM)
"""Names of the sources of operations on GPUs."""


APART = (
    (gpu_metrics.SOURCE.name,),
    tuple(
        source.name
        for source in (operating_system.OS_RUNTIME, operating_system.SYSTEM_CALLS, operating_system.SCHEDULING,
                       operating_system.CPU_SAMPLES, operating_system.PROFILER_OVERHEAD)
    ),
)  # fmt: skip
"""Names of sources, in groups, that share no events with others: they are read last, in any process. Of all that they
return, only records, states and intervals without an end have ids of places and labels."""


WITH_EVIDENCE = (nccl.SOURCE, mpi.SOURCE)
"""Sources with evidence on clocks: they are read for it even if the user did not select them."""


def select_sources(names: str | Iterable[str] | None, *, derived: bool = True) -> tuple[Source, ...]:
    """Return the sources with these names (a list, or one text with commas); all sources for None.

    `derived`: also return the sources that are computed from the operations that these sources read. Raises UsageError
    for a name that no source has.
    """
    selected = SOURCES if names is None else _find_sources(names.split(",") if isinstance(names, str) else names)
    has_operations = any(source in _DERIVED_FROM for source in selected)
    return selected + DERIVED if derived and has_operations else selected


def _find_sources(names: Iterable[str]) -> tuple[Source, ...]:
    """Return the sources with these names, in the order of SOURCES."""
    known = {source.name: source for source in SOURCES}
    wanted = [name.strip() for name in names if name.strip()]
    unknown = [name for name in wanted if name not in known]
    if unknown or not wanted:
        message = f"no source is called {', '.join(unknown)}" if unknown else "no source is named"
        raise UsageError(f"{message}; {suggest(unknown, known)}", parameter="sources")
    return tuple(source for source in SOURCES if source.name in wanted)
