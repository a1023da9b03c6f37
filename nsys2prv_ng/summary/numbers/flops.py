"""Floating-point operations (FLOPs) of a job by the shapes of operators, and the share of the peak that they reach.

FLOPs are floats, exact up to 2^53: a large job does more than 64-bit integers count.
"""

from __future__ import annotations

from nsys2prv_ng.light_dataclass import dataclass


@dataclass(frozen=True, kw_only=True)
class OperatorFlops:
    """An operator of PyTorch with known shapes that launched kernels of one number type."""

    operator: str
    number_type: str
    """The type of its longest kernel, such as "BF16"; empty if kernel names do not contain it."""
    count: int
    flops: float
    """Of all its calls, on all ranks."""
    kernel_ns: int
    """Time of the kernels that it launched."""


@dataclass(frozen=True, kw_only=True)
class FlopNumbers:
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


@dataclass(frozen=True, kw_only=True)
class MfuNumbers:
    """Model FLOPs utilisation (MFU): FLOPs per step / (time of a step on GPUs x peak of all GPUs)."""

    flops_per_step: float
    """Of the whole job."""
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
