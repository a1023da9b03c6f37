"""Names the GPU metrics of nsys that say how busy a unit is, as patterns of labels, of GPUs from Turing on.

A quantity with several patterns is the sum of these metrics.
"""

from __future__ import annotations

SMS_ACTIVE = ("SM* Active [*%]",)
SM_ISSUE = ("SM Issue* [*%]",)
TENSOR_ACTIVE = ("Tensor Active* [*%]",)
DRAM_READS = ("*RAM Read Bandwidth [*%]",)
DRAM_WRITES = ("*RAM Write Bandwidth [*%]",)
NVLINK_RECEIVED = ("NVLink RX Requests User Data [*%]", "NVLink RX Responses User Data [*%]")
NVLINK_TRANSMITTED = ("NVLink TX Requests User Data [*%]", "NVLink TX Responses User Data [*%]")
PCIE_RECEIVED = ("PCIe RX Throughput [*%]",)
PCIE_TRANSMITTED = ("PCIe TX Throughput [*%]",)
