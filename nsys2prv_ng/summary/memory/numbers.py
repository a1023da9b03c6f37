"""Numbers on device memory: what is in use on each GPU, and whether memory leaks; and copies.

Sizes are bytes and times ns, integers. Device memory is what calls such as cudaMalloc allocate on a GPU: not managed
memory, which may be on the host, not pinned memory of the host, and not the static memory of modules.
"""

from __future__ import annotations

from dataclasses import field

from nsys2prv_ng.value_class import ValueClass

ALLOCATOR_CALLS = (
    *("cudaMalloc", "cudaFree", "cudaHostAlloc", "cudaHostRegister", "cudaHostUnregister", "cudaMemPool"),
    *("cuMemAlloc", "cuMemFree", "cuMemHostAlloc", "cuMemHostRegister", "cuMemHostUnregister", "cuMemPool"),
    *("cuMemCreate", "cuMemRelease", "cuMemMap", "cuMemUnmap", "cuMemSetAccess", "cuMemAddress"),
    *("cuArrayCreate", "cuArray3DCreate", "cuArrayDestroy"),
)
"""Beginnings of the names of CUDA calls that allocate, map or free memory, of hosts too."""


class KeptMemory(ValueClass, kw_only=True):
    """Device memory that was allocated in the steps in one NVTX range, by one call, and stays.

    It is in use when the last step has least memory in use; without steps, at the end.
    """

    range: str
    """Innermost range of the allocating thread, or else of the main thread; "" outside of ranges."""
    call: str
    """"" if the report does not record it."""
    count: int
    bytes: int


class GpuMemory(ValueClass, kw_only=True):
    """Device memory of a GPU in the steps that numbers cover, by the times of hosts; without steps, all this time."""

    node: str
    gpu: int
    ranks: list[int]
    tasks: list[str]
    steps: int
    """Number of steps; 0 if the numbers cover no steps of the processes that use the GPU."""
    begin_bytes: int
    """In use when the first step starts."""
    end_bytes: int
    """In use when the last step ends."""
    peak_bytes: int
    peak_at_ns: int
    """When the peak was reached first, from time 0 of the trace."""
    peak_step: int | None
    """Number of the step in which that was; None without steps."""
    growth_per_step: int | None
    """How much the least memory in use grows with each step: the median slope (Theil-Sen). None below three steps."""
    leak: bool
    """Whether this is a leak, by the rules in docs/reference/summary.md."""
    least_by_step: list[int] = field(default_factory=list)
    """Least memory in use in each of `MemoryNumbers.step_numbers`; empty if `steps` is 0."""
    kept: list[KeptMemory] = field(default_factory=list)
    """Most bytes first."""
    more_kept_bytes: int = 0
    """Bytes that no row of `kept` has."""


class MemoryNumbers(ValueClass, kw_only=True):
    """Device memory of a job."""

    steps: int
    """Number of steps that numbers cover; 0 without steps."""
    step_numbers: list[int]
    """Their numbers; of many, some that are evenly spaced."""
    gpus: list[GpuMemory]
    """The GPUs of which reports record device memory."""

    @property
    def leaks(self) -> list[GpuMemory]:
        """The GPUs whose memory leaks, the fastest leak first."""
        return sorted((gpu for gpu in self.gpus if gpu.leak), key=lambda gpu: -(gpu.growth_per_step or 0))


class MemoryKindNumbers(ValueClass, kw_only=True):
    """Copies or sets of one operation between two kinds of memory, such as Pageable and Device."""

    source: str
    """Empty for sets, and if it is not recorded."""
    destination: str
    count: int
    bytes: int
    total_ns: int
    rated_ns: int


class MemoryOperationNumbers(ValueClass, kw_only=True):
    """Copies or sets of one kind. `bytes` moved in `rated_ns`: both cover only operations that no window cut."""

    operation: str
    count: int
    bytes: int
    total_ns: int
    rated_ns: int
    by_memory: list[MemoryKindNumbers] = field(default_factory=list)
    """Its parts by kind of memory; empty in summaries of older versions."""
