"""Numbers on kernels: their time, and slow ones. Times are ns."""

from __future__ import annotations

from dataclasses import field

from nsys2prv_ng.value_class import ValueClass


class SlowKernel(ValueClass, kw_only=True):
    """Kernels of one name and launch shape in a slow mode."""

    name: str
    grid: list[int]
    block: list[int]
    count: int
    """The number of slow kernels."""
    usual_ns: int
    """Mean time of a kernel if it took as long as usual."""
    ns: int
    """Time of the slow kernels."""
    lost_ns: int
    """The part of `ns` that kernels of usual speed would not take."""


class SlowTask(ValueClass, kw_only=True):
    """A task whose kernels are slow, and how much time it loses."""

    rank: int | None
    task: str
    lost_ns: int


class SlowMode(ValueClass, kw_only=True):
    """Kernels that are slow on the same tasks and in the same steps."""

    tasks: list[SlowTask]
    """The most time lost first."""
    steps: list[int]
    """Numbers of the slow steps, ascending."""
    all_steps: bool
    """Whether the kernels are slow in all steps in which they are compared: only other tasks show what is usual."""
    ratio: float
    """Time of the slow kernels / their usual time."""
    lost_ns: int
    step_share: float
    """`lost_ns` as a part of the time of the slow steps, on the GPUs of `tasks`."""
    kernel_share: float
    """The slow kernels' part of all kernel time of these tasks in these steps, without NCCL."""
    kernels: list[SlowKernel]
    """The most time lost first, at most 20."""
    more_kernels: int = 0
    """The number of further names and launch shapes."""
    more_lost_ns: int = 0
    """What they lose: it and the times of `kernels` add up to `lost_ns`, and so do those of `tasks`."""


class SlowModeNumbers(ValueClass, kw_only=True):
    """Slow modes of kernels, without NCCL, and how much of the kernel time was judged."""

    steps: int
    """Number of steps that were looked at."""
    kernel_ns: int
    """Time of all kernels in them, without NCCL."""
    judged_ns: int
    """The part of it in kernels that several steps or tasks have in common."""
    modes: list[SlowMode] = field(default_factory=list)
    """The most time lost first."""


class KernelNumbers(ValueClass, kw_only=True):
    """Kernels of one name, over all GPUs."""

    name: str
    kernel_class: str
    count: int
    total_ns: int
    min_ns: int
    max_ns: int
    busiest_task: str = ""
    """The task with most of their time; empty in summaries of older versions."""
    busiest_ns: int = 0
