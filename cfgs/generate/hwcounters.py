"""Declares presets of GPU and node metrics. They name the metrics, because numbers differ between kinds of GPU."""

from __future__ import annotations

from collections.abc import Callable

from cfgs.generate import colours
from cfgs.generate.paraver_cfg import (
    ADDING,
    ANY_DRAW,
    GRADIENT,
    MAXIMUM,
    MILLISECONDS,
    NEXT_TYPE,
    PERCENT,
    SIGN,
    TASK,
    TO_NEXT,
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
    matching,
    only,
    power_of,
    product,
)
from cfgs.generate.shared import FLAG, ranks
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver import families

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


_GPU_METRICS = {
    "SMs active": families.SMS_ACTIVE,
    "SM issue": families.SM_ISSUE,
    "Tensor cores active": families.TENSOR_ACTIVE,
    "DRAM reads": families.DRAM_READS,
    "DRAM writes": families.DRAM_WRITES,
    "DRAM reads and writes": families.DRAM_READS + families.DRAM_WRITES,
    "NVLink received": families.NVLINK_RECEIVED,
    "NVLink transmitted": families.NVLINK_TRANSMITTED,
    "PCIe received": families.PCIE_RECEIVED,
    "PCIe transmitted": families.PCIE_TRANSMITTED,
}


def _make_gpu_metric(name: str) -> Derived:
    """Sum the metrics of a quantity, which every GPU has, and show the highest sum among the GPUs of a rank."""
    patterns = _GPU_METRICS[name]
    return _sum_samples(f"{name} [%]", PERCENT, patterns, patterns[:1], above=MAXIMUM)


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


HWCOUNTERS = Folder("hwcounters")
HWCOUNTERS.add(
    "sm_active",
    "Active streaming multiprocessors (SMs Active, %)",
    f"""
Low values while kernels run mean that the kernels have too few blocks for the GPU, or uneven blocks.
{_ABOUT_RANKS}
""",
    _make_gpu_metric("SMs active"),
    menu="Is the hardware busy?",
)

HWCOUNTERS.add(
    "sm_issue",
    "Share of cycles in which multiprocessors issued an instruction (SM Issue, %)",
    f"""
Low values while SMs are active mean that warps stall: on memory, or on each other.
{_ABOUT_RANKS}
""",
    _make_gpu_metric("SM issue"),
    menu="Is the hardware busy?",
)

HWCOUNTERS.add(
    "tensor_active",
    "Share of cycles in which tensor cores were active (Tensor Active, %)",
    f"""
100 is the upper bound for training and inference in low precision. Compare with SM issue and DRAM bandwidth to find the
limiter.
{_ABOUT_RANKS}
""",
    _make_gpu_metric("Tensor cores active"),
    menu="Is the hardware busy?",
)

HWCOUNTERS.add(
    "dram_bandwidth",
    "GPU memory bandwidth: reads and writes (% of peak)",
    f"""
First window: reads. Second window: writes. If their sum is near 100, the kernel is memory-bound.
{_ABOUT_RANKS}
""",
    _make_gpu_metric("DRAM reads"),
    _make_gpu_metric("DRAM writes"),
    menu="Is the hardware busy?",
)

HWCOUNTERS.add(
    "nvlink",
    "NVLink bandwidth of user data: received and transmitted (% of peak)",
    f"""
First window: received. Second window: transmitted. Each is the sum of user data in requests and in responses.
{_ABOUT_RANKS}
""",
    _make_gpu_metric("NVLink received"),
    _make_gpu_metric("NVLink transmitted"),
    menu="Is the hardware busy?",
)

HWCOUNTERS.add(
    "pcie",
    "PCIe bandwidth: received and transmitted by the GPU (% of peak)",
    f"""
First window: received, for example by copies to the device. Second window: transmitted, for example by copies to the
host and by messages between nodes.
{_ABOUT_RANKS}
""",
    _make_gpu_metric("PCIe received"),
    _make_gpu_metric("PCIe transmitted"),
    menu="Is the hardware busy?",
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
    menu="What is communicated?",
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
    menu="What is communicated?",
)

# ---- by what runs ----------------------------------------------------------------------------------------------------
#
# A metric is sampled on the row of a GPU, and what runs is on other rows, so both are compared by rank. A sample lasts
# until the next one. It counts for a value if its mean over this time is nearly its maximum. The mean is one of powers
# of ten, so that lower values add nothing to it.

_NEARLY_ALL = 0.9
_ALL = 0.999999  # less than 1 for errors of rounding


def _find_samples() -> Window:
    """Show 1 from the first sample of a rank to the last one, with a burst for each sample."""
    events = matching(*_GPU_METRICS["SMs active"])  # all GPUs have it, and sample it with the others
    name = "Between samples of the rank"
    return Window(name, FLAG, events=events, thread=TO_NEXT, compose=SIGN, level=TASK, above=MAXIMUM)


def _reduce(how: str, value: View, *top: Function) -> Derived:
    """Show the mean ("average") or the maximum of a value over each sample of a rank.

    A controlled function does not cut the bursts of its data, so they are cut here. It moves on in its data and in its
    control on its own, so no other window can share them.
    """
    cut = product(f"{value.name}, in samples", GRADIENT, value, _find_samples(), level=TASK)
    name = f"{value.name}, {how} of each sample"
    samples = _find_samples()
    return Derived(name, GRADIENT, operation=f"controlled: {how}", first=cut, second=samples, level=TASK, top=top)


def _sort_samples(name: str, look: Look, make_value: Callable[..., View], least: float) -> Derived:
    """Show the value that holds for at least this part of a sample, while the sample lasts.

    `make_value` returns a window of the value, with some functions applied.
    """
    mean = _reduce("average", make_value(power_of(10)))
    highest = _reduce("maximum", make_value())
    power = Derived(
        "10 to the power of the maximum",
        GRADIENT,
        operation="maximum",
        first=highest,
        second=highest,
        level=TASK,
        top=(power_of(10),),
    )
    counts = Derived(
        "Sample counts", FLAG, operation="divide", first=mean, second=power, level=TASK, top=(at_least(least),)
    )
    return product(name, look, highest, counts, level=TASK)


def _average(name: str, control: View, data: View, most: int) -> Histogram:
    return Histogram(name, control, "Average value", maximum=most, data=data)


_ABOUT_SAMPLES = """\
A sample lasts until the next one. With a sampling period far above the duration of kernels, few samples count: profile
with a higher --gpu-metrics-frequency. One row per rank, for ranks with one GPU each.
Needs --gpu-metrics-devices when profiling.\
"""


def _make_class(*top: Function) -> Derived:
    """Show the class of a kernel that runs alone on a rank."""
    kernel_class = ranks("Kernel class", GRADIENT, only(types.KERNEL_CLASS), top=top)
    alone = Window("One kernel runs", FLAG, events=only(types.KERNELS_RUNNING), level=TASK, top=(equal_to(1),))
    return product("Class of a kernel alone", GRADIENT, kernel_class, alone, level=TASK)


_class_of_sample = _sort_samples(
    "Kernel class of each sample", codes(colours.KERNEL_CLASSES, ANY_DRAW), _make_class, _NEARLY_ALL
)
_MOST_CLASSES = max(colours.KERNEL_CLASSES)
HWCOUNTERS.add(
    "activity_by_kernel_class",
    "GPU metrics by kernel class: SMs active, SM issue, tensor cores and DRAM while kernels of a class run (%)",
    f"""
Timeline: the class of the kernels (GEMM, attention, elementwise, ...) that run for at least 90 % of a sample, one at a
time. Other samples are dark, and so is a sample in which a class with a higher number takes part, however briefly.
Histograms: the mean of the metric over the other samples, in percent of peak, with a column for each class; a single
sample is enough. A class with busy tensor cores or DRAM (60 % or more) is limited by them. One with neither, and with
few active SMs, has kernels that are too small for the GPU. Choose statistic Time to see for how long samples count,
Maximum for the peak. DRAM is reads and writes together.
{_ABOUT_SAMPLES}
""",
    _class_of_sample,
    *(
        _average(f"{name} by kernel class [%]", _class_of_sample, _make_gpu_metric(name), _MOST_CLASSES)
        for name in ("DRAM reads and writes", "SM issue", "SMs active", "Tensor cores active")
    ),
    hidden_first=(_class_of_sample,),
    menu="Is the hardware busy?",
)

_in_kernels = _reduce(
    "average",
    Window("Any kernel runs", FLAG, events=only(types.KERNELS_RUNNING), level=TASK, top=(SIGN,)),
    at_least(_NEARLY_ALL),
)


def _show_in_kernels(name: str) -> Derived:
    """Show a metric in samples during which kernels run."""
    return product(
        f"{name} while kernels run [%]", PERCENT, _make_gpu_metric(name), _in_kernels, level=TASK, units=MILLISECONDS
    )


def _spread(name: str, view: View) -> Histogram:
    """Return the time (ms) of each rank by value, in bins of ten percent."""
    return Histogram(name, view, "Time", minimum=0.5, maximum=100.5, delta=10)


_sms, _tensor = _show_in_kernels("SMs active"), _show_in_kernels("Tensor cores active")
HWCOUNTERS.add(
    "active_in_kernels",
    "SMs and tensor cores active while kernels run: timelines (%), and time by activity in bins of ten percent (ms)",
    f"""
A GPU counts as busy while any kernel runs. These windows show how busy. First window: SMs active. Second window: tensor
cores active. Samples during which kernels, NCCL's included, run for less than 90 % of the time are dark. Histograms:
time of each rank in the other samples (ms), by value: [0.5..10.5) is 1 to 10 %, [90.5..100.5) is 91 to 100 %. Time with
SMs active below 50 % is time in which half of the GPU has nothing to do, although it is busy. Values of 0 % are not in
the histograms. hwcounters/activity_by_kernel_class has the means by kernel class.
{_ABOUT_SAMPLES}
""",
    _sms,
    _tensor,
    _spread("Time by Tensor cores active [ms]", _tensor),
    _spread("Time by SMs active [ms]", _sms),
    hidden_first=(_in_kernels,),
    menu="Is the hardware busy?",
)

_phase_of_sample = _sort_samples(
    "Communication phase of each sample",
    codes(colours.PARTS, ANY_DRAW),
    lambda *top: ranks("Communication phase", GRADIENT, only(types.OPERATION_PART), top=top),
    _ALL,
)
HWCOUNTERS.add(
    "links_in_transfers",
    "NVLink and PCIe while ranks communicate: mean rates during data transfer and during waits (% of peak)",
    f"""
Timeline: samples during all of which the rank transfers data in NCCL kernels or MPI calls (orange), or only waits for a
straggler (rust); other samples are dark. Histograms: means of NVLink and PCIe over these samples, in percent of peak,
received and transmitted. If a link is far below its peak during the transfer, messages are small, or another link is
the limit, such as the network between nodes.
{_ABOUT_SAMPLES}
""",
    _phase_of_sample,
    *(
        _average(f"{name} by communication phase [%]", _phase_of_sample, _make_gpu_metric(name), types.MOVING_PART)
        for name in ("PCIe transmitted", "PCIe received", "NVLink transmitted", "NVLink received")
    ),
    hidden_first=(_phase_of_sample,),
    menu="Is the hardware busy?",
)
