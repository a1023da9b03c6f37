"""Numbers that show who waits for whom, and the time in NCCL and MPI. Times are ns, sizes bytes, both integers."""

from __future__ import annotations

from dataclasses import field

from nsys2prv_ng.summary.links.numbers import LinkNumbers, PipelineNumbers
from nsys2prv_ng.value_class import ValueClass


class TaskWaits(ValueClass, kw_only=True):
    """How a task waits, and how long others wait for it: in NCCL kernels, or in MPI calls."""

    wait_ns: int
    transfer_ns: int
    unsplit_ns: int
    collectives: int
    """Collectives in which the task takes part."""
    last: int
    """Collectives in which others waited for the task."""
    caused_wait_ns: int
    """Time that others waited for the task."""
    caused_in_messages_ns: int
    """The part of `caused_wait_ns` in sends and receives."""


class MpiWaits(TaskWaits, kw_only=True):
    """MPI calls of a task that carry out collectives and messages, the sum of waiting, moving and unsplit time."""

    mpi_ns: int


class LongestWait(ValueClass, kw_only=True):
    """The uninterrupted stretch of time in which others waited longest for a task."""

    ns: int
    """Sum of the waits of all others in it."""
    from_ns: int
    """Its start, in the time of the option `time`: from the start of the trace of all time."""
    to_ns: int
    """Its end, in the same time."""


class RankWaits(TaskWaits, kw_only=True):
    """Time of a task in NCCL kernels, the sum of its waiting, moving and unsplit time."""

    rank: int | None
    task: str
    nccl_ns: int
    exposed_wait_ns: int | None
    """Waiting while its GPU computes nothing; None if GPU activity was not read."""
    reason: str | None
    """The reason for its lateness that cost most; None if nobody waited for it."""
    longest_wait: LongestWait | None
    """In NCCL and in MPI; None if nobody waited for it."""
    mpi: MpiWaits | None

    @property
    def all_caused_ns(self) -> int:
        """Time that others waited for the task, in NCCL and in MPI."""
        return self.caused_wait_ns + (self.mpi.caused_wait_ns if self.mpi is not None else 0)


class Lateness(ValueClass, kw_only=True):
    """The fields that Culprit and LateCost share; Culprit describes them."""

    rank: int | None
    task: str
    reason: str
    range: str
    call: str
    operation: str


class Culprit(Lateness, kw_only=True):
    """Why a task was late, how often, and how long others waited for it.

    `range` and `call` are what its thread was in for most of the time, or what it was in when it launched the late
    operation. `operation` is what ended late on the GPU. They are empty without one. `origin_task` is the task that
    delayed this one: the task that it had waited for itself, directly or through others. It is empty if there is no
    such task, or if it is not known.
    """

    origin_rank: int | None
    origin_task: str
    times: int
    ns: int


class LateCost(Lateness, kw_only=True):
    """How long others waited for a task, by what the task was in at each time, with the fields of Culprit.

    Each part of a wait counts by itself. The costs of a task add up to the time that others waited for it.
    """

    ns: int


class Bandwidth(ValueClass, kw_only=True):
    """Collectives of one function and size in a communicator; `ns` is the time in which they moved data."""

    function: str
    communicator: str
    ranks: int
    bytes: int
    count: int
    ns: int
    algorithm_bytes_per_s: int
    bus_bytes_per_s: int
    communicator_name: str = ""
    """The name of the communicator, else what it is for; empty if neither is known."""
    communicator_label: str = ""
    """Its number, name and members in words."""


class Excess(ValueClass, kw_only=True):
    """An NVTX range or call for which the task that others waited for longest took longer than the others (ns)."""

    kind: str
    """"range" or "call"."""
    domain: str
    name: str
    ns: int
    """Time of that task, without waiting for other ranks."""
    others_ns: int
    """Mean time of the other tasks."""


class WaitNumbers(ValueClass, kw_only=True):
    """Who waits for whom. `split`, `below_uncertainty` and `not_split` (by reason) count kernels and calls."""

    operations: int
    """Collectives and messages between ranks."""
    nccl_collectives: int
    mpi_collectives: int
    split: int
    below_uncertainty: int
    """Kernels and calls whose wait is below the uncertainty of the clocks: all their time counts as moving."""
    not_split: dict[str, int]
    reports_without_payload: int
    """The number of reports in which NCCL calls have no payload."""
    ranks: list[RankWaits]
    culprits: list[Culprit]
    costs: list[LateCost]
    bandwidth: list[Bandwidth]
    excess: list[Excess] = field(default_factory=list)
    """What takes longer on the task for which the others waited longest, the largest excess first."""
    links: LinkNumbers | None = None
    """Messages by pair; None without any, and in summaries of older versions."""
    pipeline: PipelineNumbers | None = None
    """Stages and their bubble; None without a certain pipeline, and in summaries of older versions."""
    payload_remedy: str = ""
    """How to export reports with payload; empty if no report lacks it."""


class NcclNumbers(ValueClass, kw_only=True):
    """One NCCL function over all ranks: its calls, their bytes (None if no call recorded a size) and its kernels.

    `carried_bytes` moved in `carried_ns`: both cover only kernels whose calls recorded a size.
    """

    function: str
    calls: int
    bytes: int | None
    kernels: int
    kernel_ns: int
    carried_bytes: int
    carried_ns: int
    wait_ns: int = 0
    """The part of `kernel_ns` in which kernels waited for other ranks; 0 in summaries of older versions."""


class MpiNumbers(ValueClass, kw_only=True):
    """One MPI call over all ranks. The bytes are None if no call recorded a size.

    They moved in `rated_ns`: the time of the calls that record a size and that no window cut. It is 0 for calls that
    return before anything has moved.
    """

    call: str
    count: int
    total_ns: int
    max_ns: int
    sent_bytes: int | None
    received_bytes: int | None
    rated_ns: int
