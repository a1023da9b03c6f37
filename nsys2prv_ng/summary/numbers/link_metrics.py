"""What hardware counters of links measured: NVLink and PCIe of GPUs, and the ports of network cards and switches."""

from __future__ import annotations

from nsys2prv_ng.light_dataclass import dataclass

NVLINK, PCIE, INFINIBAND, ETHERNET, NETWORK = "NVLink", "PCIe", "InfiniBand", "Ethernet", "network"
TRANSFER, KERNELS = "transfer", "kernels"


@dataclass(frozen=True, kw_only=True)
class LinkMetric:
    """A counter of one link: its mean over the chosen time, and its mean while NCCL transfers data.

    Means weight samples by how long each is in force. GPU counters are in percent and network counters in bytes/s; the
    other unit is null. Reports do not contain the speed of links, so no percentage becomes a rate. A mean of fewer
    than five samples is null.
    """

    link: str
    """NVLink, PCIe, InfiniBand, Ethernet, or network if the counter does not tell."""
    node: str
    gpu: int | None
    """Number of the GPU on its node; None for a network card or switch."""
    device: str
    """The GPU, or the card or switch with its port."""
    metric: str
    percent: float | None
    bytes_per_s: int | None
    samples: int
    nccl: str
    """What the second mean covers: "transfer" of NCCL kernels, or all the time of NCCL "kernels" if none is classified;
    empty without NCCL kernels."""
    nccl_percent: float | None
    nccl_bytes_per_s: int | None
    nccl_samples: int
    """Samples that are in force while NCCL transfers data all the time."""

    @property
    def mean(self) -> float | None:
        """The mean in its unit."""
        return self.bytes_per_s if self.percent is None else self.percent

    @property
    def nccl_mean(self) -> float | None:
        """The mean during NCCL, in its unit."""
        return self.nccl_bytes_per_s if self.nccl_percent is None else self.nccl_percent
