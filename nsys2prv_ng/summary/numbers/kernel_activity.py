"""What GPU metrics measured while kernels of one class, or of one NVTX range, ran.

Values are in percent of the peak of the counter.
"""

from __future__ import annotations

from nsys2prv_ng.light_dataclass import dataclass

DRAM, TENSOR, NEITHER = "DRAM", "tensor cores", "neither"
LEAST_SAMPLED = 0.5
"""Share of the GPU time of kernels that samples have seen at least, if they say what limits the kernels."""
LIMIT_PERCENT = 60
"""Activity from which a unit limits kernels: below it Nsight Compute calls a kernel bound by latency.

Source: Nsight Compute, section "GPU Speed Of Light Throughput", rule SOLBottleneck.
"""


@dataclass(frozen=True, kw_only=True)
class UnitActivity:
    """Means over all sampled GPUs while kernels of one class, or of one NVTX range, ran, and hardly any other.

    A sample counts if these kernels run for at least 90% of the time for which it is in force, and all others together
    for at most 10%. Means weight samples by that time; those of fewer than five samples are null.
    """

    ns: int
    """Time for which samples that count are in force, over all GPUs."""
    samples: int
    sm_active: float | None
    """At least one warp is on an SM."""
    sm_issue: float | None
    """An SM issues an instruction."""
    tensor_active: float | None
    dram_read: float | None
    dram_write: float | None
    nvlink_received: float | None = None
    """User data, in requests and responses; null without NVLink counters, and in summaries of older versions."""
    nvlink_transmitted: float | None = None
    gpu_ns: int | None = None
    """GPU time of these kernels, of which samples that count have seen a part; null if some GPUs were not sampled."""

    @property
    def dram(self) -> float | None:
        """Reads and writes."""
        return None if self.dram_read is None or self.dram_write is None else self.dram_read + self.dram_write

    @property
    def nvlink(self) -> float | None:
        """The busier direction."""
        return max((each for each in (self.nvlink_received, self.nvlink_transmitted) if each is not None), default=None)

    @property
    def limited_by(self) -> str:
        """What limits the kernels: the busier of DRAM and tensor cores from LIMIT_PERCENT on; "" if not known.

        It is not known if samples have seen little of the kernels: long ones are in most of them, short ones in none.
        """
        is_rare = self.gpu_ns is not None and self.ns < LEAST_SAMPLED * self.gpu_ns
        if self.dram is None or self.tensor_active is None or is_rare:
            return ""
        most, name = max((self.dram, DRAM), (self.tensor_active, TENSOR))
        return name if most >= LIMIT_PERCENT else NEITHER


@dataclass(frozen=True, kw_only=True)
class KernelActivity(UnitActivity):
    """The activity of GPUs while kernels of one class run; the kernels of each other class are the others."""

    kernel_class: str
