"""Sums up times of GPUs and main threads in windows, by what each does, and finds the most that any of them has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from nsys2prv_ng.analysis.gpus.times import CAUSES
from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.intervals.states import FlatStates
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
"""Names of what a GPU does, by number."""
COMPUTE, WHOLE_GRAPH, WAITING, MOVING, NOT_SPLIT, MEMORY = range(6)
CAUSE = 6
"""Number of the first class of idle time by its cause."""
BEFORE, AFTER, NOT_CAPTURED = range(CAUSE + len(CAUSES), len(CLASSES))
KERNELS = MEMORY
"""In classes below this one the GPU runs kernels; in classes below CAUSE it runs anything."""

KERNELS_BY_CLASS = (*KERNEL_CLASSES.values(), GRAPH_CLASS, "not selected")
"""What computes: kernels by class, starting with number 1 of KERNEL_CLASSES; graphs that cannot contain NCCL; kernels
that were not read."""

USEFUL, IN_CUDA, IN_MPI = range(3)
"""What a host thread does."""


class DeviceTimes(NamedTuple):
    """Times (ns) of GPUs in windows: sums over all GPUs by class, and the most that any GPU has."""

    devices: int
    by_class: dict[str, int]
    most_compute: int
    most_kernels: int
    most_active: int
    compute_by_class: dict[str, int]
    """The time `compute` of `by_class` split by KERNELS_BY_CLASS, without zeros, ordered by size, then name."""
    copying: int = 0
    """The part of `moving` in which only copies between GPUs run."""

    @property
    def compute(self) -> int:
        """Time that is certainly useful if NCCL counts as communication: graphs traced as a whole may compute, too."""
        return self.by_class[CLASSES[COMPUTE]]

    @property
    def kernels(self) -> int:
        """Useful time if NCCL counts as useful, which copies never are."""
        return sum(self.by_class[name] for name in CLASSES[:KERNELS]) - self.copying


class HostTimes(NamedTuple):
    """Times (ns) of main threads in windows: sums over all threads, and the most that any thread has."""

    threads: int
    outside_mpi: int
    most_outside_mpi: int
    useful: int
    """Outside of MPI and CUDA."""
    node_threads: int
    """Number of threads on the node whose threads are outside of MPI longest on average."""
    node_outside_mpi: int
    """Time outside of MPI, summed over these threads."""


class WindowTimes(NamedTuple):
    """Times of all GPUs and main threads in windows of `ns` each; None without GPUs or without main threads."""

    ns: int
    devices: DeviceTimes | None
    host: HostTimes | None
    idle_by_range: dict[str, int]
    """Idle time (ns) that the host caused, by NVTX range ("": none); empty for windows of single tasks."""


# ---- sums over windows -----------------------------------------------------------------------------------------------


class Totals:
    """Sums over GPUs or threads in sets of windows: `classes` sums and `most` maxima (ns) for each set."""

    def __init__(self, classes: int, most: int, size: int = 0) -> None:
        self.count = np.zeros(size, np.int64)
        """Number of GPUs or threads with a window, for each set."""
        self.longest = np.zeros(size, np.int64)
        self.sums = np.zeros((size, classes), np.int64)
        self.most = np.zeros((size, most), np.int64)

    def grow(self, size: int) -> None:
        """Make room for `size` sets."""
        more = size - self.count.size
        if more > 0:
            self.count, self.longest = (np.append(a, np.zeros(more, np.int64)) for a in (self.count, self.longest))
            self.sums, self.most = (np.pad(a, ((0, more), (0, 0))) for a in (self.sums, self.most))

    def merge(self, part: Totals, index: IntArray) -> None:
        """Add the totals of other GPUs or threads. `index`: the numbers of their sets in this object."""
        self.grow(int(index.max(initial=-1)) + 1)
        self.count[index] += part.count
        self.longest[index] = np.maximum(self.longest[index], part.longest)
        self.sums[index] += part.sums
        self.most[index] = np.maximum(self.most[index], part.most)

    def add(self, windows: FlatStates, sums: IntArray, most: Sequence[IntArray]) -> None:
        """Add a GPU or thread with these windows, sums (sets x classes) and values whose maxima count (sets each).

        `row` of a window is the number of its set.
        """
        length = np.zeros(self.count.size, np.int64)
        np.add.at(length, windows.row, windows.end - windows.begin)
        self.count += length > 0
        self.longest = np.maximum(self.longest, length)
        self.sums += sums
        self.most = np.maximum(self.most, np.stack(most, axis=1))


def unite_nodes(nodes: Sequence[Totals], size: int) -> tuple[Totals, IntArray]:
    """Return (totals of all nodes' main threads, values of one node for each set (2 x sets)).

    The values are the number of threads and their time outside of MPI (ns), on the node where the mean time is largest.
    """
    whole, chosen = Totals(3, 1, size), np.zeros((2, size), np.int64)
    for node in nodes:
        node.grow(size)
        whole.merge(node, np.arange(size))
        outside = node.sums[:, USEFUL] + node.sums[:, IN_CUDA]
        is_more = (node.count > 0) & (outside / np.maximum(node.count, 1) > chosen[1] / np.maximum(chosen[0], 1))
        chosen[:, is_more] = node.count[is_more], outside[is_more]
    return whole, chosen


def make_times(hosts: Totals, node: IntArray, gpus: Totals, index: int) -> WindowTimes:
    """Return the times in a set of windows.

    `hosts` and `node`: the results of `unite_nodes`. `gpus`: sums by CLASSES, by KERNELS_BY_CLASS, and of copying.
    """
    devices = host = None
    if gpus.count[index]:
        *sums, copying = gpus.sums[index].tolist()
        by_class = dict(zip(CLASSES, sums, strict=False))
        by_kernel = [(name, ns) for name, ns in zip(KERNELS_BY_CLASS, sums[len(CLASSES) :], strict=True) if ns]
        by_kernel.sort(key=lambda item: (-item[1], item[0]))
        compute, kernels, active = gpus.most[index].tolist()
        devices = DeviceTimes(int(gpus.count[index]), by_class, compute, kernels, active, dict(by_kernel), copying)
    if hosts.count[index]:
        useful, in_cuda, _ = hosts.sums[index].tolist()
        most = int(hosts.most[index, 0])
        host = HostTimes(int(hosts.count[index]), useful + in_cuda, most, useful, *node[:, index].tolist())
    return WindowTimes(int(max(hosts.longest[index], gpus.longest[index])), devices, host, {})
