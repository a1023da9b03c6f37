"""Finds what held up a kernel on the device: its launch, and the operations that ended just as it started."""

from __future__ import annotations

import numpy as np

from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.reading.device_operations import DeviceOperations, number_streams
from nsys2prv_ng.reading.read_reports import ReportRecords
from nsys2prv_ng.runtime.jit import compiled
from nsys2prv_ng.runtime.kernels import search

ENDED_BEFORE_NS, ENDED_AFTER_NS = 10_000, 2_000
"""How long (ns) before and after a kernel's start an operation may end that the kernel waited for.

In real reports of H200 GPUs (2,000 NCCL kernels that had been launched in advance), the gap to the preceding operation
on the stream is 1.2 to 6 us. An operation on another stream that the kernel waited for through an event ends between
3 us before and 1.2 us after the kernel's start.
"""

PROMPT_NS = 20_000
"""Longest time (ns) from a launch call to a kernel that waited for nothing: 8 to 13 us in real reports."""


def find_ended(
    report: ReportRecords, operations: DeviceOperations, place: IntArray, begin: IntArray
) -> tuple[IntArray, IntArray]:
    """Return the operations that ended just as kernels started: (the last on its stream, the last on another stream).

    `place` and `begin` (ns): n kernels. The results are indices of operations, -1 without one. Only other streams of
    the kernel's process and device count. The lanes of a stream are one stream.
    """
    device, stream = number_streams(report)
    order = np.lexsort((operations.end, device[operations.place]))
    by_device = device[operations.place][order]
    limits = np.searchsorted(by_device, np.arange(int(device.max(initial=-1)) + 2))
    columns = (stream[operations.place][order], operations.begin[order], operations.end[order])
    kernels = (device[place], stream[place], begin)
    ended = np.full((2, begin.size), -1)
    _find_ended(limits, *columns, *kernels, ENDED_BEFORE_NS, ENDED_AFTER_NS, *ended)
    on_stream, on_other = (np.where(index >= 0, np.append(order, -1)[index], -1) for index in ended)
    return on_stream, on_other


@compiled
def _find_ended(
    limits: IntArray,
    stream: IntArray,
    begin: IntArray,
    end: IntArray,
    kernel_device: IntArray,
    kernel_stream: IntArray,
    time: IntArray,
    before: int,
    after: int,
    on_stream: IntArray,
    on_other: IntArray,
) -> None:
    """Set the result of `find_ended`, -1 at first. Operations are sorted by device and end: d has limits[d:d + 2]."""
    for i in range(time.size):
        low, high = limits[kernel_device[i]], limits[kernel_device[i] + 1]
        k = search(end, low, high, time[i] - before)
        while k < high and end[k] <= time[i] + after:
            if begin[k] < time[i]:
                if stream[k] == kernel_stream[i]:
                    on_stream[i] = k
                else:
                    on_other[i] = k
            k += 1
