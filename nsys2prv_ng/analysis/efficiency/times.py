"""Times of GPUs and of main threads in windows, by what each does: sums over all of them, and the most that any has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from nsys2prv_ng.analysis.efficiency.windows import Windows
from nsys2prv_ng.analysis.gpus.idle_causes import CAUSES
from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.paraver.value_tables import KERNEL_CLASSES
from nsys2prv_ng.sources.cuda.kernel_classes import WHOLE_GRAPH as GRAPH_CLASS

CLASSES = (
    "compute",
    "whole_graph",
    "waiting",
    "moving",
    "not_split",
    "memory",
    *CAUSES,
    "before_first",
    "after_last",
    "not_captured",
)
"""Names of what a GPU does at a time, by number."""
COMPUTE, WHOLE_GRAPH, WAITING, MOVING, NOT_SPLIT, MEMORY = range(6)
CAUSE = 6
BEFORE, AFTER, NOT_CAPTURED = range(CAUSE + len(CAUSES), len(CLASSES))
KERNELS = MEMORY
"""Classes below this one run kernels, those below the first cause run anything."""

KERNELS_BY_CLASS = (*KERNEL_CLASSES.values(), GRAPH_CLASS, "not selected")
"""What computes: kernels by class, from number 1 of KERNEL_CLASSES on; graphs in which no NCCL can be; kernels of which
nothing is read."""

USEFUL, IN_CUDA, IN_MPI = range(3)
"""What a host thread does at a time."""


class DeviceTimes(NamedTuple):
    """Times (ns) of GPUs in windows: sums over all of them by class, and the most that any has."""

    devices: int
    by_class: dict[str, int]
    most_compute: int
    most_kernels: int
    most_active: int
    compute_by_class: dict[str, int]
    """The part `compute` of `by_class` by KERNELS_BY_CLASS, without zeros: the largest first, then by name."""

    @property
    def compute(self) -> int:
        """Useful time where NCCL is communication, for certain: graphs as a whole may compute besides."""
        return self.by_class[CLASSES[COMPUTE]]

    @property
    def kernels(self) -> int:
        """Useful time where NCCL is useful."""
        return sum(self.by_class[name] for name in CLASSES[:KERNELS])


class HostTimes(NamedTuple):
    """Times (ns) of main threads in windows: sums over all of them, and the most that any has."""

    threads: int
    outside_mpi: int
    most_outside_mpi: int
    useful: int
    """Outside of MPI and of CUDA."""
    node_threads: int
    """Threads of the node whose threads are outside of MPI for most time on average."""
    node_outside_mpi: int
    """Sum over these threads."""


class WindowTimes(NamedTuple):
    """Times of all GPUs and main threads in windows of `ns` each; None where there are no GPUs or no main threads."""

    ns: int
    devices: DeviceTimes | None
    host: HostTimes | None
    idle_by_range: dict[str, int]
    """Idle time (ns) that the host caused, by NVTX range ("": none); empty for windows of single tasks."""


# ---- sums over windows -----------------------------------------------------------------------------------------------


class Totals:
    """Sums over GPUs or threads in sets of windows: arrays of `classes` sums and `most` maxima for each set (ns)."""

    def __init__(self, classes: int, most: int, size: int = 0) -> None:
        self.count = np.zeros(size, np.int64)
        """GPUs or threads with a window."""
        self.longest = np.zeros(size, np.int64)
        self.sums = np.zeros((size, classes), np.int64)
        self.most = np.zeros((size, most), np.int64)

    def grow(self, size: int) -> None:
        """Make room for this many sets."""
        more = size - self.count.size
        if more > 0:
            self.count, self.longest = (np.append(a, np.zeros(more, np.int64)) for a in (self.count, self.longest))
            self.sums, self.most = (np.pad(a, ((0, more), (0, 0))) for a in (self.sums, self.most))

    def merge(self, part: Totals, index: IntArray) -> None:
        """Add the totals of other GPUs or threads, whose sets have the numbers `index` here."""
        self.grow(int(index.max(initial=-1)) + 1)
        self.count[index] += part.count
        self.longest[index] = np.maximum(self.longest[index], part.longest)
        self.sums[index] += part.sums
        self.most[index] = np.maximum(self.most[index], part.most)

    def add(self, windows: Windows, sums: IntArray, most: Sequence[IntArray]) -> None:
        """Add a GPU or thread with these windows and sums (sets x classes)."""
        length = np.zeros(self.count.size, np.int64)
        np.add.at(length, windows.set, windows.end - windows.begin)
        self.count += length > 0
        self.longest = np.maximum(self.longest, length)
        self.sums += sums
        self.most = np.maximum(self.most, np.stack(most, axis=1))


def unite_nodes(nodes: Sequence[Totals], size: int) -> tuple[Totals, IntArray]:
    """Return the totals of the main threads of all nodes, and those of one node for each set (2 x sets).

    These are the number and the time outside of MPI (ns) of the threads of the node where the mean of it is largest.
    """
    whole, chosen = Totals(3, 1, size), np.zeros((2, size), np.int64)
    for own in nodes:
        own.grow(size)
        whole.merge(own, np.arange(size))
        outside = own.sums[:, USEFUL] + own.sums[:, IN_CUDA]
        is_more = (own.count > 0) & (outside / np.maximum(own.count, 1) > chosen[1] / np.maximum(chosen[0], 1))
        chosen[:, is_more] = own.count[is_more], outside[is_more]
    return whole, chosen


def make_times(hosts: Totals, node: IntArray, gpus: Totals, index: int) -> WindowTimes:
    """Return the times in a set of windows: `hosts` and `node` as from `unite_nodes`, `gpus` by CLASSES, then by
    KERNELS_BY_CLASS."""
    devices = host = None
    if gpus.count[index]:
        own = gpus.sums[index].tolist()
        by_class = dict(zip(CLASSES, own, strict=False))
        by_kernel = [(name, ns) for name, ns in zip(KERNELS_BY_CLASS, own[len(CLASSES) :], strict=True) if ns]
        by_kernel.sort(key=lambda item: (-item[1], item[0]))
        compute, kernels, active = gpus.most[index].tolist()
        devices = DeviceTimes(int(gpus.count[index]), by_class, compute, kernels, active, dict(by_kernel))
    if hosts.count[index]:
        useful, in_cuda, _ = hosts.sums[index].tolist()
        most = int(hosts.most[index, 0])
        host = HostTimes(int(hosts.count[index]), useful + in_cuda, most, useful, *node[:, index].tolist())
    return WindowTimes(int(max(hosts.longest[index], gpus.longest[index])), devices, host, {})
