"""Presets of GPU metrics, found by their names: their numbers differ between kinds of GPU."""

from __future__ import annotations

from cfgs.generate.paraver_cfg import NEXT_TYPE, PERCENT, SIGN, TASK, Derived, Preset, View, Window, matching, product
from cfgs.generate.shared import FLAG

_UNITS = """
Percent of the peak, of each sample; it lasts until the next. A row for each rank: that of its busiest GPU. For a row
for each GPU choose the level thread in the window's properties, and select the rows Metrics.
Needs --gpu-metrics-devices when profiling.
"""


def _metric(name: str, *patterns: str) -> Derived:
    """The sum of the metrics of these names. The last sample would last to the end of the trace: it is cut off."""
    values = [Window(pattern.replace("*", ""), PERCENT, events=matching(pattern)) for pattern in patterns]
    total: View = values[0]
    for value in values[1:]:
        total = Derived(f"{name}, all samples", PERCENT, operation="add", first=total, second=value)
    sampled = Window("Another sample follows", FLAG, events=matching(patterns[0]), thread=NEXT_TYPE, compose=SIGN)
    return product(name, PERCENT, total, sampled, level=TASK, above="Maximum")


def _nvlink(direction: str, name: str) -> Derived:
    return _metric(name, *(f"NVLink {direction} {kind} User Data [*%]" for kind in ("Requests", "Responses")))


def _preset(name: str, summary: str, description: str, *shown: View) -> Preset:
    return Preset("hwcounters", name, summary, description.rstrip() + _UNITS, shown)


PRESETS = [
    _preset(
        "sm_active",
        "Streaming multiprocessors that had work, in percent (SMs Active)",
        """
Low values while kernels run are kernels with too few blocks for the GPU, or uneven ones.
""",
        _metric("SMs active [%]", "SM* Active [*%]"),
    ),
    _preset(
        "sm_issue",
        "Cycles in which multiprocessors issued an instruction, in percent (SM Issue)",
        """
Low values while SMs are active are warps that wait: for memory, or for each other.
""",
        _metric("SM issue [%]", "SM Issue* [*%]"),
    ),
    _preset(
        "tensor_active",
        "Cycles in which tensor cores worked, in percent (Tensor Active)",
        """
The roof of training and inference in low precision. Compare with SM issue and DRAM bandwidth for what limits it.
""",
        _metric("Tensor cores active [%]", "Tensor Active* [*%]"),
    ),
    _preset(
        "dram_bandwidth",
        "Bandwidth of the GPU's memory, in percent: reads and writes",
        """
First window: reads. Second window: writes. Their sum near 100 is a kernel that memory limits.
""",
        _metric("DRAM reads [%]", "*RAM Read Bandwidth [*%]"),
        _metric("DRAM writes [%]", "*RAM Write Bandwidth [*%]"),
    ),
    _preset(
        "nvlink",
        "Bandwidth of NVLink for user data, in percent: received and transmitted",
        """
First window: received. Second window: transmitted. Each is the sum of user data in requests and in responses.
""",
        _nvlink("RX", "NVLink received [%]"),
        _nvlink("TX", "NVLink transmitted [%]"),
    ),
    _preset(
        "pcie",
        "Bandwidth of PCIe, in percent: received and transmitted by the GPU",
        """
First window: received, as by copies to the device. Second window: transmitted, as by copies to the host, and by
messages between nodes.
""",
        _metric("PCIe received [%]", "PCIe RX Throughput [*%]"),
        _metric("PCIe transmitted [%]", "PCIe TX Throughput [*%]"),
    ),
]
