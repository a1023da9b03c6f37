"""The numbers of an overview, for programs and for the text. Times are ns, sizes bytes, both integers."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from nsys2prv_ng.job.accounts import SkippedReport
from nsys2prv_ng.text.formatting import format_utc

OVERVIEW_VERSION = 1


@dataclass(frozen=True)
class Cause:
    """Idle time of a GPU with one cause (see gap_causes), and in how many gaps it was."""

    cause: str
    range: str
    call: str
    ns: int
    gaps: int


@dataclass(frozen=True)
class GpuNumbers:
    """A physical GPU. The span is from its first operation to its last: what it was busy and idle."""

    node: str
    gpu: int
    name: str
    ranks: list[int]
    tasks: list[str]
    span_ns: int
    busy_ns: int
    compute_ns: int
    communication_ns: int
    overlap_ns: int
    """Compute and communication at once."""
    memory_ns: int
    idle_ns: int
    gaps: int
    longest_gap_ns: int
    longest_gap_at_ns: int | None
    """When it began, from time 0 of the trace."""
    idle_causes: list[Cause] | None
    """None where the reports do not tell."""
    peak_memory_bytes: int | None
    """In use by the processes of the reports, where these tell."""
    peak_memory_at_ns: int | None


@dataclass(frozen=True)
class RangeOfTask:
    """A range as one task ran through it."""

    rank: int | None
    task: str
    count: int
    total_ns: int
    min_ns: int
    max_ns: int

    @property
    def mean_ns(self) -> float:
        return self.total_ns / self.count


@dataclass(frozen=True)
class RepeatedRange:
    """An NVTX range that threads opened several times, at this depth or deeper (1: outermost)."""

    domain: str
    name: str
    depth: int
    tasks: list[RangeOfTask]

    @property
    def count(self) -> int:
        return sum(each.count for each in self.tasks)

    @property
    def total_ns(self) -> int:
        return sum(each.total_ns for each in self.tasks)

    @property
    def slowest(self) -> RangeOfTask:
        return max(self.tasks, key=lambda each: each.mean_ns)

    @property
    def fastest(self) -> RangeOfTask:
        return min(self.tasks, key=lambda each: each.mean_ns)


@dataclass(frozen=True)
class KernelNumbers:
    name: str
    kernel_class: str
    count: int
    total_ns: int
    min_ns: int
    max_ns: int


@dataclass(frozen=True)
class MemoryOperationNumbers:
    """Copies or sets of a kind. `bytes` went in `rated_ns`: those of operations that the chosen time did not cut."""

    operation: str
    count: int
    bytes: int
    total_ns: int
    rated_ns: int


@dataclass(frozen=True)
class NcclNumbers:
    """What NCCL does of a kind: calls of all ranks with their bytes (None if no call told them), kernels, their time.

    `carried_bytes` went in `carried_ns`: those of the kernels whose calls told their bytes.
    """

    function: str
    calls: int
    bytes: int | None
    kernels: int
    kernel_ns: int
    carried_bytes: int
    carried_ns: int


@dataclass(frozen=True)
class MpiNumbers:
    """Calls of all ranks; no call of some kinds tells bytes (None).

    The bytes went in `rated_ns`: the time of calls that tell them, which the chosen time did not cut. 0 for calls that
    return before anything has moved.
    """

    call: str
    count: int
    total_ns: int
    max_ns: int
    sent_bytes: int | None
    received_bytes: int | None
    rated_ns: int


@dataclass(frozen=True)
class JobSummary:
    """The first numbers of a job."""

    reports: int
    nodes: int
    ranks: int
    tasks: int
    start_utc_ns: int
    duration_ns: int
    windows_ns: list[tuple[int, int]]
    """The chosen times, from time 0 of the trace; none for all."""
    gpus: list[GpuNumbers]
    ranges: list[RepeatedRange]
    kernels: list[KernelNumbers]
    memory_operations: list[MemoryOperationNumbers]
    nccl: list[NcclNumbers]
    mpi: list[MpiNumbers]
    absent: list[str]
    """Of what nothing was found in the kinds of event that were read."""
    skipped: list[SkippedReport] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def start_utc(self) -> str:
        return format_utc(self.start_utc_ns)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"version": OVERVIEW_VERSION, "start_utc": self.start_utc, **asdict(self)}
