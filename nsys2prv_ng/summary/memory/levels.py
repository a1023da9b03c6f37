"""Measures the device memory in use on each GPU over all time that numbers cover and in each step, and finds leaks.

Hosts allocate, so steps are the steps of hosts (steps/spans.py), on each GPU until the last of its tasks ends the
step: an allocation or free belongs to the first step that ends after it.

Another capture of a process lists the memory in use again. GPUs of processes with several captures have no levels.

A leak is memory in use that grows over the steps of a program and stays. The rules, for the least
memory in use in each of the steps after the warm-up:

- There are FEWEST_STEPS or more. From the first to the last, they are divided into PARTS parts of about equal length.
- Steps before the growth begins may not count, up to a quarter: an allocator that caches first gives what it has.
- The *floor* of a step is the least memory in use in it and in all later steps: what never becomes free again. The
  *ceiling* is the most in it and in all earlier steps. A leak raises both in every part. Noise around a level raises
  the ceiling early and the floor late. A cache that grows until it is large enough raises both early.
- The floor grows evenly: it is never further from the straight line between its ends than _BAND of its growth, and
  it grows in the last quarter of the parts at least _LATE times as much as in the first, and so for the halves. What
  grows to ever new maxima, as a cache of many sizes does, grows less and less.
- It grows by LEAST_BYTES or more.
- Kernels do not take longer and longer: those of the last quarter of the steps at least _LONGER times as long as those
  of the first, by median, and both halves of the steps more than _STEADY times as long at their end. Otherwise the
  inputs grow, and memory with them. A change of clocks makes kernels longer once.

Of values in random order, the largest so far is in every part with a probability of 1 / PARTS!.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np

from nsys2prv_ng.analysis.gpus.activity import Devices, load_memory
from nsys2prv_ng.arrays.types import FloatArray, IntArray, find_most_at
from nsys2prv_ng.intervals.step_functions import StepFunction
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.objects.places import Stream
from nsys2prv_ng.paraver import event_types as types

KINDS = (2, 3)
"""CUPTI's kinds of device memory: device, and array."""


class MemoryLevel(NamedTuple):
    """Device memory in use on a GPU over n steps, or one window of time.

    `edges`: the last time (ns) before the first step, then the end of each step (n + 1). `steps`: n; 0 if the window is
    no step. `ends`: in use at these times (bytes, n + 1). `least`: least in use in each step (n). `last`: when the last
    step has least in use (ns); without steps, the end. `peak_step`: index of the step of the peak.
    """

    edges: IntArray
    steps: int
    ends: IntArray
    least: IntArray
    last: int
    peak: int
    peak_time: int
    peak_step: int


def measure_levels(job: Job, devices: Devices) -> dict[int, MemoryLevel]:
    """Return the memory in use on each GPU with known device memory, by its row."""
    levels = {}
    captured = _list_captured_once(job, devices)
    for row, time, level in load_memory(job, devices.rows, [types.MEMORY_LEVELS[kind] for kind in KINDS]):
        for number in np.unique(row).tolist():
            if number in captured:
                low, high = np.searchsorted(row, [number, number + 1])
                edges, count = _find_edges(job, devices.rows[number].tasks)
                function = StepFunction(time[low:high], level[low:high])
                levels[number] = _measure_level(function, edges, count, job.scope.first)
    return levels


def _list_captured_once(job: Job, devices: Devices) -> set[int]:
    """Return the rows of the GPUs none of whose tasks has operations in several reports."""
    reports = Counter[int]()
    for report, rows in zip(job.reports, job.tree.rows, strict=True):
        places = zip(report.places.all, rows.tolist(), strict=True)
        streams = [row for place, row in places if isinstance(place, Stream) and row >= 0]
        reports.update(set(job.tree.task_of_row[streams].tolist()))
    return {row for row, device in devices.rows.items() if all(reports[task] <= 1 for task in device.tasks)}


def _find_edges(job: Job, tasks: set[int]) -> tuple[IntArray, int]:
    """Return (the last time (ns) before the steps of some tasks and the end of each, number of steps).

    The times are those of hosts. If numbers cover no steps, they are the limits of what they cover, and the number is
    0.
    """
    steps, own = job.steps, np.zeros(0, np.int64)
    if steps is not None and job.scope.counted is not None:
        own = np.flatnonzero(np.isin(job.new_task[steps.task], list(tasks)))
    if steps is None or job.scope.counted is None or not own.size:
        windows = job.scope.covered
        return np.array([windows[0][0] - 1, windows[-1][1]], np.int64), 0
    ends = find_most_at(steps.host_end[own], steps.step[own], steps.number.size, steps.host_begin[own].min() - 1)
    first, last = int(job.scope.counted[0]), int(job.scope.counted[-1])
    before = ends[first - 1] if first else steps.host_begin[own].min() - 1
    return np.maximum.accumulate(np.append(before, ends[first : last + 1])), last - first + 1


def _measure_level(level: StepFunction, edges: IntArray, count: int, first: int) -> MemoryLevel:
    """Measure the memory in use between edges (n + 1). `first`: start of the trace, with what was allocated before."""
    ends = np.maximum(level.get_values(np.maximum(edges, first)), 0)  # nothing before the first allocation
    low, high = np.searchsorted(level.time, [max(int(edges[0]), first), edges[-1]], "right")
    time, value = level.time[low:high], level.value[low:high]
    step = np.searchsorted(edges, time, "left") - 1
    least = ends[:-1].copy()
    np.minimum.at(least, step, value)
    in_last = np.flatnonzero(step == count - 1)
    lowest = in_last[np.argmin(value[in_last])] if in_last.size else -1
    last = int(time[lowest]) if in_last.size and value[lowest] < ends[-2] else int(edges[-2])
    at = int(np.argmax(value)) if value.size else 0
    is_later = bool(value.size) and value[at] > ends[0]
    return MemoryLevel(
        edges=edges,
        steps=count,
        ends=ends,
        least=least if count else least[:0],
        last=last if count else int(edges[-1]),
        peak=int(value[at]) if is_later else int(ends[0]),
        peak_time=int(time[at]) if is_later else max(int(edges[0]) + 1, first),
        peak_step=int(step[at]) if is_later else 0,
    )


FEWEST_STEPS = 20
PARTS = 8
LEAST_BYTES = 8_000_000
_BAND = 0.1
_LATE = 0.8
_LONGER = 1.1
_STEADY = 1.01
_QUARTERS = 4
_FEWEST_VALUES = 3
"""Numbers of the rules above. docs/reference/summary.md has what they find and miss in random programs."""
MOST_POINTS = 256
"""Most steps that are listed and between which slopes are computed; of more, evenly spaced ones."""


def is_leak(least: IntArray, kernel_ns: FloatArray) -> bool:
    """Return whether memory leaks, by the rules above.

    `least` (n): least memory in use in each step. `kernel_ns`: kernel time of each step, or block of steps; may be
    empty.
    """
    if least.size < FEWEST_STEPS or _have_longer_kernels(kernel_ns):
        return False
    floor = np.minimum.accumulate(least[::-1])[::-1]
    flat = int(np.searchsorted(floor, floor[0], "right")) - 1  # the last step before the growth
    return _grows(least) or (0 < flat <= least.size // 4 and _grows(least[flat:]))


def _grows(least: IntArray) -> bool:
    """Return whether floor and ceiling of some steps rise in every part, evenly and enough."""
    floor, ceiling = np.minimum.accumulate(least[::-1])[::-1], np.maximum.accumulate(least)
    edges = np.linspace(0, least.size - 1, PARTS + 1).round().astype(np.int64)
    growth = np.diff(floor[edges])
    whole = int(growth.sum())
    if (growth <= 0).any() or (np.diff(ceiling[edges]) <= 0).any() or whole < LEAST_BYTES:
        return False
    line = np.linspace(floor[0], floor[-1], floor.size)
    is_late = all(growth[-n:].sum() >= _LATE * growth[:n].sum() for n in (PARTS // 4, PARTS // 2))
    return is_late and bool((abs(floor - line) <= _BAND * whole).all())


def _have_longer_kernels(ns: FloatArray) -> bool:
    """Return whether kernels take longer and longer."""
    if ns.size < _QUARTERS:
        return False
    first, second, third, last = (float(np.median(part)) for part in np.array_split(ns, _QUARTERS))
    return last >= _LONGER * first and second > _STEADY * first and last > _STEADY * third


def measure_growth(values: IntArray) -> int | None:
    """Return the median slope of n values per step, between all pairs of them (Theil and Sen); None below three."""
    if values.size < _FEWEST_VALUES:
        return None
    at = choose_points(values.size)
    first, second = np.triu_indices(at.size, 1)
    return round(float(np.median((values[at[second]] - values[at[first]]) / (at[second] - at[first]))))


def choose_points(count: int) -> IntArray:
    """Return the indices of at most MOST_POINTS of `count` steps, with the first and the last one."""
    return np.unique(np.linspace(0, count - 1, min(count, MOST_POINTS)).round().astype(np.int64))
