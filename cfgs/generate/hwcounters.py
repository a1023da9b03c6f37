"""Declares presets of GPU and node metrics. They name the metrics, because numbers differ between kinds of GPU."""

from __future__ import annotations

from cfgs.generate.paraver_cfg import (
    ADDING,
    GRADIENT,
    MAXIMUM,
    NEXT_TYPE,
    PERCENT,
    ROUND,
    SIGN,
    TASK,
    Derived,
    Folder,
    Function,
    Histogram,
    Look,
    View,
    Window,
    at_least,
    codes,
    divided,
    equal_to,
    logarithm,
    matching,
    only,
    power_of,
    product,
)
from cfgs.generate.shared import FLAG, ranks
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver import palette

_ABOUT_RANKS = """\
Values are percent of peak; each sample is drawn until the next one. One row per rank, which shows its busiest GPU. For
one row per GPU choose the level thread in the window's properties, and select the rows Metrics.
Needs --gpu-metrics-devices when profiling.\
"""

_ABOUT_NODES = """\
One row per task. The values are on the node tasks, summed over the node's cards. For one row per card choose the level
thread in the window's properties. Each sample is drawn until the next one.\
"""
_BYTES_RECEIVED = ("IB: Bytes received [*", "Eth: Bytes received [*")
_BYTES_SENT = ("IB: Bytes sent [*", "Eth: Bytes sent [*")


def _make_gpu_metric(name: str, *patterns: str) -> Derived:
    """Sum the metrics with these names, which every GPU has, and show the highest sum among the GPUs of a rank."""
    return _sum_samples(name, PERCENT, patterns, patterns[:1], above=MAXIMUM)


def _make_node_metric(name: str, *patterns: str, top: tuple[Function, ...] = ()) -> Derived:
    """Sum the metrics with these names over all rows of a node. A row may have only some of them."""
    return _sum_samples(name, GRADIENT, patterns, patterns, above=ADDING, top=top)


def _sum_samples(
    name: str,
    look: Look,
    patterns: tuple[str, ...],
    sampled: tuple[str, ...],
    above: Function,
    top: tuple[Function, ...] = (),
) -> Derived:
    """Sum the metrics with these names.

    The last sample would last to the end of the trace, so it is cut off at the last event of the `sampled` metrics.
    """
    values = [Window(pattern.replace("*", ""), look, events=matching(pattern)) for pattern in patterns]
    total: View = values[0]
    for value in values[1:]:
        total = Derived(f"{name}, all samples", look, operation="add", first=total, second=value)
    follows = Window("Another sample follows", FLAG, events=matching(*sampled), thread=NEXT_TYPE, compose=SIGN)
    return product(name, look, total, follows, level=TASK, above=above, top=top)


def _make_nvlink(direction: str, name: str) -> Derived:
    return _make_gpu_metric(name, *(f"NVLink {direction} {kind} User Data [*%]" for kind in ("Requests", "Responses")))


HWCOUNTERS = Folder("hwcounters")
HWCOUNTERS.add(
    "sm_active",
    "Active streaming multiprocessors (SMs Active, %)",
    f"""
Low values while kernels run mean that the kernels have too few blocks for the GPU, or uneven blocks.
{_ABOUT_RANKS}
""",
    _make_gpu_metric("SMs active [%]", "SM* Active [*%]"),
)

HWCOUNTERS.add(
    "sm_issue",
    "Share of cycles in which multiprocessors issued an instruction (SM Issue, %)",
    f"""
Low values while SMs are active mean that warps stall: on memory, or on each other.
{_ABOUT_RANKS}
""",
    _make_gpu_metric("SM issue [%]", "SM Issue* [*%]"),
)

HWCOUNTERS.add(
    "tensor_active",
    "Share of cycles in which tensor cores were active (Tensor Active, %)",
    f"""
100 is the upper bound for training and inference in low precision. Compare with SM issue and DRAM bandwidth to find the
limiter.
{_ABOUT_RANKS}
""",
    _make_gpu_metric("Tensor cores active [%]", "Tensor Active* [*%]"),
)

HWCOUNTERS.add(
    "dram_bandwidth",
    "GPU memory bandwidth: reads and writes (% of peak)",
    f"""
First window: reads. Second window: writes. If their sum is near 100, the kernel is memory-bound.
{_ABOUT_RANKS}
""",
    _make_gpu_metric("DRAM reads [%]", "*RAM Read Bandwidth [*%]"),
    _make_gpu_metric("DRAM writes [%]", "*RAM Write Bandwidth [*%]"),
)

HWCOUNTERS.add(
    "nvlink",
    "NVLink bandwidth of user data: received and transmitted (% of peak)",
    f"""
First window: received. Second window: transmitted. Each is the sum of user data in requests and in responses.
{_ABOUT_RANKS}
""",
    _make_nvlink("RX", "NVLink received [%]"),
    _make_nvlink("TX", "NVLink transmitted [%]"),
)

HWCOUNTERS.add(
    "pcie",
    "PCIe bandwidth: received and transmitted by the GPU (% of peak)",
    f"""
First window: received, for example by copies to the device. Second window: transmitted, for example by copies to the
host and by messages between nodes.
{_ABOUT_RANKS}
""",
    _make_gpu_metric("PCIe received [%]", "PCIe RX Throughput [*%]"),
    _make_gpu_metric("PCIe transmitted [%]", "PCIe TX Throughput [*%]"),
)

HWCOUNTERS.add(
    "network_cards",
    "Network card bandwidth of each node, InfiniBand and Ethernet: received and sent (GB/s)",
    f"""
First window: received. Second window: sent. Values are in GB/s (10^9 bytes per second); nsys samples bytes per ms.
{_ABOUT_NODES}
Needs --nic-metrics when profiling.
""",
    _make_node_metric("Network received [GB/s]", *_BYTES_RECEIVED, top=(divided(1_000_000),)),
    _make_node_metric("Network sent [GB/s]", *_BYTES_SENT, top=(divided(1_000_000),)),
)

HWCOUNTERS.add(
    "network_plugin",
    "Bytes received and sent by the network interfaces of each node, as sampled by the nsys plugin",
    f"""
First window: received. Second window: sent. Values are as reported by the plugin at each sample.
{_ABOUT_NODES}
Needs --enable=network_interface when profiling.
""",
    _make_node_metric("Bytes received, by sample", "Plugin: rx_bytes*"),
    _make_node_metric("Bytes sent, by sample", "Plugin: tx_bytes*"),
)

# ---- by what runs ----------------------------------------------------------------------------------------------------
#
# A metric is sampled on the row of a GPU, and what runs is on other rows, so both are compared by rank. A sample lasts
# until the next one. It counts for a value that holds for nearly all of this time: its mean is nearly its maximum.
# For values 1, 2, 3, ... mean and maximum are of 10, 100, 1000, ..., so that no mixture of lower values is near.

_SAMPLES = ("SM* Active [*%]",)
"""A metric that all GPUs have. All metrics of a GPU are sampled together."""
_NEARLY_ALL = 0.9
_ALL = 0.999999  # less than 1 for errors of rounding


def _find_samples() -> Window:
    """Show 1 from the first sample of a rank to the last one, with a burst for each sample."""
    return Window(
        "Another sample follows", FLAG, events=matching(*_SAMPLES), thread=NEXT_TYPE, compose=SIGN, level=TASK, above=MAXIMUM
    )


def _choose_samples(name: str, look: Look, value: View, least: float) -> Derived:
    """Show the value of each rank that holds for at least this part of a sample, while the sample lasts."""
    samples = _find_samples()
    cut = product(f"{value.name}, within a sample", GRADIENT, value, samples, level=TASK)
    mean, highest = (
        Derived(f"{value.name}, {which} of the sample", GRADIENT, operation=f"controlled: {how}", first=cut, second=samples, level=TASK)
        for which, how in (("mean", "average"), ("highest", "maximum"))
    )
    is_pure = Derived("Sample counts", FLAG, operation="divide", first=mean, second=highest, level=TASK, top=(at_least(least),))
    return product(name, look, highest, is_pure, level=TASK, top=(logarithm(10), ROUND))


def _average(name: str, control: View, data: View, most: int) -> Histogram:
    return Histogram(name, control, "Average value", maximum=most, data=data)
