"""The numbers of the critical path, for programs and for the text. Times are ns."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class PathOfRank:
    """Time of the critical path on a task."""

    rank: int | None
    task: str
    ns: int


@dataclass(frozen=True, kw_only=True)
class PathPart:
    """Time of the critical path in one thing: a class, and the name of the operation or call ("": host code).

    `range` is the innermost NVTX range of the host thread; "" for operations, and outside of all ranges.
    """

    path_class: str
    name: str
    range: str
    count: int
    """Operations and calls; stretches of host code."""
    ns: int
    ranks: list[PathOfRank]
    """The tasks on which the path was in it, with most time first."""


@dataclass(frozen=True, kw_only=True)
class PathName:
    """Operations of one name on the critical path, and their imbalance (CriticalPath.pattern of Scalasca 2.5).

    `imbalance_ns`: time on the path less the mean time of such operations over the GPUs, 0 if that is more. It is what
    would be won if all GPUs had the mean.
    """

    path_class: str
    name: str
    count: int
    ns: int
    imbalance_ns: int


@dataclass(frozen=True, kw_only=True)
class PathRange:
    """Time of the critical path in one NVTX range, or outside of all ("")."""

    range: str
    ns: int


@dataclass(frozen=True, kw_only=True)
class PathStep:
    """A step of the program on the critical path: its time and the classes of that."""

    number: int
    ns: int
    classes: dict[str, int]


@dataclass(frozen=True, kw_only=True)
class PathNumbers:
    """The critical path: what must get faster for the job to get faster. All times add up to `window_ns`.

    What a class or a name has on the path is a bound of what the job can gain by it: another path may then be longer.
    """

    window_ns: int
    windows_ns: list[tuple[int, int]]
    """Begin and end of each window, from time 0 of the trace."""
    step_name: str | None
    """NVTX range of the steps in the window; None where the user chose the time, or no steps were found."""
    steps: list[PathStep]
    classes: dict[str, int]
    ranks: list[PathOfRank]
    names: list[PathName]
    ranges: list[PathRange]
    parts: list[PathPart]
    switches: int
    """How often the path changes tasks."""
    followed: int
    """Waits for other ranks, within kernels of NCCL, that the path follows to the last one."""
    unsure: int
    """How many of these follow the rank that seems to be the last, within the uncertainty of the clocks."""
