"""Sweeps over the operations of all streams and processes of a device to find what the device does as a whole.

The definitions are those of NVIDIA's recipes. Compute is the union of all kernels that are no communication, and
communication the union of those that are (nccl_gpu_overlap_trace, which knows only NCCL's) and of copies between GPUs,
which are memory operations too (sources/cuda/communication.py). A CUDA graph that was traced as a whole is compute, as
in the recipes, if it cannot contain NCCL; otherwise it is a separate kind. A device is idle from the end of the i-th
operation to end until the start of the (i + 1)-th operation to start, if that is later (gpu_gaps, which takes each
process separately and counts flushes of the profiler as busy). It is never idle before its first operation or after its
last. A kernel is in flight from the start of its launch call to its own end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from nsys2prv_ng.arrays.types import BoolArray, IntArray, IntTable
from nsys2prv_ng.runtime.jit import compiled, inlined

COMPUTE, COMMUNICATION, MEMORY, IDLE = 1, 2, 4, 8
"""The activity of a device is the sum of the kinds that run on it, or IDLE."""
WHOLE_GRAPH = 16
"""Kind of a CUDA graph that was traced as a whole and may contain NCCL kernels: compute, communication or both."""
COMMUNICATING_COPY = COMMUNICATION | MEMORY
"""Kind of a copy between GPUs: both at once."""
IN_FLIGHT = 0
"""Kind of intervals from launch to end."""


def add_communication(kind: IntArray, communicates: BoolArray) -> IntArray:
    """Return the kinds of n operations, given those by their tables, and a mask of what is communication."""
    return np.where(communicates, np.where(kind == MEMORY, COMMUNICATING_COPY, COMMUNICATION), kind)


class DeviceChanges(NamedTuple):
    """The n times at which anything changes on a device, by device and time. A value lasts until the next change.

    `activity`: sum of the kinds of running operations, IDLE between operations, 0 before the first and after the last.
    `kernels`: number of running kernels. `in_flight`: number of kernels that were launched and have not finished.
    `idle`: length (ns) of the idle stretch that ends there, else 0. `changed`: which of activity, kernels and in_flight
    differ from before, as bits 1, 2 and 4.
    """

    device: IntArray
    time: IntArray
    activity: IntArray
    kernels: IntArray
    in_flight: IntArray
    idle: IntArray
    changed: IntArray

    def differs(self, bit: int) -> BoolArray:
        """Return at which changes the column of this bit in `changed` differs from before."""
        return (self.changed & bit) != 0


def sweep_devices(device: IntArray, begin: IntArray, end: IntArray, kind: IntArray) -> DeviceChanges:
    """Return the changes of devices from n operations (kind COMPUTE to WHOLE_GRAPH) and flights (IN_FLIGHT).

    `begin` <= `end` (ns). Times at which nothing changes on a device are left out.
    """
    starts = np.lexsort((begin, device))
    ends = np.lexsort((end, device))
    columns = np.zeros((7, 2 * device.size), np.int64)
    running, shown = np.zeros(WHOLE_GRAPH + 1, np.int64), np.zeros(3, np.int64)
    count = _sweep((device, begin, end, kind), starts, ends, running, shown, columns)
    return DeviceChanges(*columns[:, :count])


@compiled
def _sweep(
    operations: tuple[IntArray, IntArray, IntArray, IntArray],
    starts: IntArray,
    ends: IntArray,
    running: IntArray,
    shown: IntArray,
    columns: IntTable,
) -> int:
    """Fill `columns` (7 x n) with the changes, and return their number.

    `operations`: device, start, end (ns) and kind of each; `starts` and `ends`: their order. `running`: number of
    running intervals by kind, `shown`: activity, kernels and kernels in flight, all 0 at first, as they are at the end
    of each device.
    """
    device, begin, end, kind = operations
    n = device.size
    count = i = j = 0
    while i < n:
        current = device[starts[i]]
        last = i  # past the last operation of the device to start
        high = i
        while high < n and device[starts[high]] == current:
            high += 1
            if kind[starts[high - 1]] != IN_FLIGHT:
                last = high
        idle_since = np.int64(0)
        has_started = False
        while j < high:
            # Every interval that starts also ends, so the next end is never before the time reached so far.
            time = end[ends[j]]
            if i < high and begin[starts[i]] < time:
                time = begin[starts[i]]
            begun = False
            while i < high and begin[starts[i]] == time:
                running[kind[starts[i]]] += 1
                begun = begun or kind[starts[i]] != IN_FLIGHT
                i += 1
            while j < high and end[ends[j]] == time:
                running[kind[ends[j]]] -= 1
                j += 1

            activity = (
                COMPUTE * (running[COMPUTE] > 0)
                + COMMUNICATION * (running[COMMUNICATION] + running[COMMUNICATING_COPY] > 0)
                + MEMORY * (running[MEMORY] + running[COMMUNICATING_COPY] > 0)
                + WHOLE_GRAPH * (running[WHOLE_GRAPH] > 0)
            )
            has_started = has_started or begun
            if activity == 0 and has_started and i < last:
                activity = IDLE
            stretch = time - idle_since if begun and shown[0] == IDLE else 0
            if activity == IDLE and (shown[0] != IDLE or begun):
                idle_since = time
            kernels = running[COMPUTE] + running[COMMUNICATION] + running[WHOLE_GRAPH]
            now = activity, kernels, running[IN_FLIGHT]
            count = _add_line(columns, count, current, time, now, shown, stretch)
    return count


class CutChanges(NamedTuple):
    """Changes within time windows.

    `outside`: number of original changes outside all windows. `more`: number of changes that the limits of the windows
    add.
    """

    changes: DeviceChanges
    outside: int
    more: int


def cut_changes(changes: DeviceChanges, windows: Sequence[tuple[int, int]]) -> CutChanges:
    """Return the changes within windows (ns), limits included. The windows are sorted and do not touch.

    A window starts with the values at that time; at its end all values become 0. An idle stretch that straddles a limit
    is cut there, and so is its length.
    """
    lows, highs = np.array(windows, np.int64).reshape(-1, 2).T
    device_count = np.unique(changes.device).size
    columns = np.zeros((7, changes.device.size + 2 * device_count * lows.size), np.int64)
    count, kept = _cut(np.stack(changes), lows, highs, np.zeros(3, np.int64), columns)
    return CutChanges(DeviceChanges(*columns[:, :count]), outside=changes.device.size - kept, more=count - kept)


@compiled
def _cut(before: IntTable, lows: IntArray, highs: IntArray, shown: IntArray, columns: IntTable) -> tuple[int, int]:
    """Return the number of lines, and the number of original changes among them.

    `before` (7 x n): the changes. `shown`: activity, kernels and kernels in flight, 0 at the end of each window.
    """
    n = before.shape[1]
    count = kept = i = 0
    while i < n:
        current = before[0, i]
        now = np.int64(0), np.int64(0), np.int64(0)  # activity, kernels, in flight
        idle_since = np.int64(0)
        for w in range(lows.size):
            low, high = lows[w], highs[w]
            entered = kept_last = False
            rest = np.int64(0)
            while i < n and before[0, i] == current and before[1, i] <= high:
                time, stretch = before[1, i], before[5, i]
                if time > low and not entered:
                    count = _add_line(columns, count, current, low, now, shown, 0)
                entered = entered or time >= low
                if time == high:  # the window ends here, whatever starts now
                    kept_last = True
                    rest = high - max(idle_since, low) if shown[0] == IDLE else 0
                if before[2, i] == IDLE and (now[0] != IDLE or stretch > 0):
                    idle_since = time
                now = before[2, i], before[3, i], before[4, i]
                if entered and time < high:
                    lines = count
                    count = _add_line(columns, count, current, time, now, shown, min(stretch, time - low))
                    kept += count - lines
                i += 1
            if not entered:  # nothing changes within the window
                count = _add_line(columns, count, current, low, now, shown, 0)
            if not kept_last:
                rest = high - max(idle_since, low) if shown[0] == IDLE else 0
            lines = count
            count = _add_line(columns, count, current, high, (0, 0, 0), shown, rest)
            kept += count - lines if kept_last else 0
        while i < n and before[0, i] == current:
            i += 1
    return count, kept


@inlined
def _add_line(
    columns: IntTable, count: int, device: int, time: int, now: tuple[int, int, int], shown: IntArray, stretch: int
) -> int:
    """Add a line if anything differs from before or an idle stretch ends; return the number of lines."""
    changed = (now[0] != shown[0]) + 2 * (now[1] != shown[1]) + 4 * (now[2] != shown[2])
    if changed or stretch > 0:
        columns[0, count] = device
        columns[1, count] = time
        for k in range(3):
            columns[2 + k, count] = shown[k] = now[k]
        columns[5, count] = stretch
        columns[6, count] = changed
        count += 1
    return count
