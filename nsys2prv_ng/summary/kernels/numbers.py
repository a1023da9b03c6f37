"""Numbers on kernels: their time, what GPUs use while they run, slow ones, and their floating-point operations (FLOPs).

Times are ns. Activity is in percent of the peak of the counter. FLOPs are floats, exact up to 2^53: a large job does
more than 64-bit integers count.
"""

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


class OperatorFlops(ValueClass, kw_only=True):
    """An operator of PyTorch with known shapes that launched kernels of one number type."""

    operator: str
    number_type: str
    """The type of its longest kernel, such as "BF16"; empty if kernel names do not contain it."""
    count: int
    flops: float
    """Sum over all its calls, on all ranks."""
    kernel_ns: int
    """Time of the kernels that it launched."""


class FlopNumbers(ValueClass, kw_only=True):
    """FLOPs of operators by the shapes in their NVTX texts. Work without such texts, as in CUDA graphs, does not count.

    The definitions are in sources/nvtx/flops.py.
    """

    tasks: int
    """Number of tasks with such operators."""
    steps: int
    """Number of steps that the numbers cover; 0 if they cover other times."""
    operators: list[OperatorFlops]
    """The most FLOPs first."""
    explained_ns: int
    """Time of kernels for matrix products, attention and convolutions that these operators launched."""
    of_ns: int
    """Time of all such kernels."""

    @property
    def flops(self) -> float:
        """FLOPs of all operators."""
        return sum(each.flops for each in self.operators)

    @property
    def kernel_ns(self) -> int:
        """Time of all kernels that the operators launched."""
        return sum(each.kernel_ns for each in self.operators)


class MfuNumbers(ValueClass, kw_only=True):
    """Model FLOPs utilisation (MFU): FLOPs per step / (time of a step on GPUs x peak of all GPUs)."""

    flops_per_step: float
    """FLOPs of all ranks in a step."""
    is_given: bool
    """Whether the user gave the FLOPs. If not, they follow from shapes, and the MFU is a lower bound."""
    step_ns: float
    """Mean time of a step."""
    gpus: int
    number_type: str
    """The number type of most of the work; empty if the user gave the peak, or if it is not known."""
    peak_flops_per_s: float | None
    """Dense peak of all GPUs; None if it is not known."""
    source: str
    """Where the peak is published; empty if the user gave it, or if it is not known."""
    mfu: float | None
    """From 0 to 1; None if it is not known or more than the peak."""
    refused: str
    """Why there is no MFU, in words; empty if there is one."""
