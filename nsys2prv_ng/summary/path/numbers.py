"""The numbers of the critical path, for programs and for the text. Times are ns."""

from __future__ import annotations

from dataclasses import field

from nsys2prv_ng.value_class import ValueClass


class PathOfRank(ValueClass, kw_only=True):
    """Time of the critical path on a task."""

    rank: int | None
    task: str
    ns: int


class PathPart(ValueClass, kw_only=True):
    """Time of the critical path in one class and one operation or call ("": host code).

    `range` is the innermost NVTX range of the host thread; "" for operations, and outside all ranges.
    """

    path_class: str
    name: str
    range: str
    count: int
    """The number of operations, calls, or stretches of host code."""
    ns: int
    ranks: list[PathOfRank]
    """The tasks with this part of the path, the longest time first."""


class PathName(ValueClass, kw_only=True):
    """Operations of one name on the critical path, and their imbalance (CriticalPath.pattern of Scalasca 2.5).

    `imbalance_ns`: time on the path less the mean time of such operations over the GPUs, at least 0. It is the time
    that the job would gain if all GPUs took the mean time.
    """

    path_class: str
    name: str
    count: int
    ns: int
    imbalance_ns: int


class PathStep(ValueClass, kw_only=True):
    """A step of the program on the critical path: its time, and its time by class."""

    number: int
    ns: int
    classes: dict[str, int]


class PathNumbers(ValueClass, kw_only=True):
    """The critical path: what must get faster for the job to get faster. All times add up to `length_ns`.

    The time of a class or a name on the path bounds what the job can gain by it: another path may then be longer.
    """

    length_ns: int = field(metadata={"earlier": "window_ns"})
    windows_ns: list[tuple[int, int]]
    """Start and end of each window, from time 0 of the trace."""
    step_name: str | None
    """NVTX range of the steps in the window; None if the user chose the time, or no steps were found."""
    steps: list[PathStep]
    classes: dict[str, int]
    ranks: list[PathOfRank]
    names: list[PathName]
    parts: list[PathPart]
    switches: int
    """How often the path changes tasks."""
    followed: int
    """Waits for other ranks, within NCCL kernels, that the path follows to the last rank."""
    unsure: int
    """How many of these waits follow a rank that may not be the last, within the uncertainty of the clocks."""
