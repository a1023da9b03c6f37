"""Measures device memory: what is in use on each GPU, what its allocator calls cost, and whether it leaks.

Memory in use at the end of the steps (levels.py) is that at their start, plus what was allocated in them, less
what was freed. Allocator calls are those that start in a step of their task. A call belongs to the only GPU of its
task, or else to the GPU whose memory it changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from nsys2prv_ng import source_names
from nsys2prv_ng.analysis.gpus.activity import Devices
from nsys2prv_ng.analysis.host_activity import load_thread_ranges
from nsys2prv_ng.arrays.row_keys import find_distinct_rows
from nsys2prv_ng.arrays.types import BoolArray, FloatArray, FloatTable, IntArray
from nsys2prv_ng.intervals.nesting import measure_depths
from nsys2prv_ng.intervals.step_functions import NOTHING, find_latest
from nsys2prv_ng.job.counted import CountedEvents, list_counted_steps
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.light_dataclass import dataclass
from nsys2prv_ng.objects.places import Device
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.reading.opened_events import ABSENT, OpenedEvents, load_opened_events
from nsys2prv_ng.reading.read_reports import ReportRecords
from nsys2prv_ng.steps.steps import Steps
from nsys2prv_ng.summary.kernels.cells import KernelTimes, find_blocks, join_cells
from nsys2prv_ng.summary.memory.levels import KINDS, MemoryLevel, choose_points, is_leak, measure_growth, measure_levels
from nsys2prv_ng.summary.memory.numbers import (
    ALLOCATOR_CALLS,
    AllocatorCalls,
    GpuMemory,
    KeptMemory,
    MemoryNumbers,
    is_blocking,
)

_MOST_KEPT = 10


def measure_memory(job: Job, devices: Devices, kernel_times: Sequence[KernelTimes]) -> MemoryNumbers | None:
    """Return the device memory of a job; None if no report records any. `kernel_times`: of its reports."""
    steps = None if job.scope.counted is None else list_counted_steps(job)
    levels = measure_levels(job, devices)
    if not levels:
        return None
    sums = _Sums({}, {}, {}, {})
    for part in job.engine.sum_up(lambda index: _sum_report(job, index, devices, levels), range(len(job.reports))):
        sums.add(part)
    kernel_ns = _sum_kernel_times(kernel_times)
    return MemoryNumbers(
        steps=0 if steps is None else steps.number.size,
        step_numbers=[] if steps is None else steps.number[choose_points(steps.number.size)].tolist(),
        gpus=[_make_gpu(job, devices, row, levels[row], sums, steps, kernel_ns) for row in sorted(levels)],
        calls=_list_calls(sums.calls),
    )


@dataclass
class _Calls:
    """Allocator calls: their number, and their total and longest time (ns)."""

    count: int = 0
    total_ns: int = 0
    max_ns: int = 0

    def add(self, other: _Calls) -> None:
        """Add other calls."""
        self.count += other.count
        self.total_ns += other.total_ns
        self.max_ns = max(self.max_ns, other.max_ns)


class _Sums(NamedTuple):
    """Sums over reports, by row of the GPU."""

    changes: dict[int, IntArray]
    """Allocations, their bytes, frees, and their bytes."""
    kept: dict[int, dict[tuple[str, str], IntArray]]
    """Number and bytes of the allocations that stay, by range and call."""
    calls: dict[int, dict[str, _Calls]]
    """By name. The row -1 has the calls whose GPU is not known."""
    peaks: dict[int, tuple[str, str]]
    """Range and call of the allocation that made the peak."""

    def add(self, other: _Sums) -> None:
        """Add the sums of another report."""
        self.peaks.update(other.peaks)
        for row, numbers in other.changes.items():
            self.changes[row] = self.changes.get(row, 0) + numbers
        for row, places in other.kept.items():
            for place, numbers in places.items():
                self.add_kept(row, place, numbers)
        for row, calls in other.calls.items():
            for name, own in calls.items():
                self.calls.setdefault(row, {}).setdefault(name, _Calls()).add(own)

    def add_kept(self, row: int, place: tuple[str, str], numbers: IntArray) -> None:
        """Add memory that stays."""
        kept = self.kept.setdefault(row, {})
        kept[place] = kept.get(place, 0) + numbers


def _make_gpu(
    job: Job, devices: Devices, row: int, level: MemoryLevel, sums: _Sums, steps: Steps | None, kernel_ns: FloatTable
) -> GpuMemory:
    device = devices.rows[row]
    allocations, allocated, frees, freed = sums.changes.get(row, np.zeros(4, np.int64)).tolist()
    calls = sums.calls.get(row, {})
    places = [
        KeptMemory(range=range_, call=call, count=int(count), bytes=int(size))
        for (range_, call), (count, size) in sums.kept.get(row, {}).items()
    ]
    places.sort(key=lambda kept: (-kept.bytes, kept.range, kept.call))
    peak_range, peak_call = sums.peaks.get(row, ("", ""))
    return GpuMemory(
        node=device.node,
        gpu=device.gpu.number,
        ranks=device.list_ranks(job.tree.ranks),
        tasks=[job.tree.model.tasks[task].name for task in sorted(device.tasks)],
        steps=level.steps,
        begin_bytes=int(level.ends[0]),
        end_bytes=int(level.ends[-1]),
        peak_bytes=level.peak,
        peak_at_ns=level.peak_time - job.scope.origin,
        peak_step=None if steps is None or not level.steps else int(steps.number[level.peak_step]),
        peak_range=peak_range,
        peak_call=peak_call,
        allocations=allocations,
        allocated_bytes=allocated,
        frees=frees,
        freed_bytes=freed,
        allocator_calls=sum(own.count for own in calls.values()),
        allocator_ns=sum(own.total_ns for own in calls.values()),
        blocking_ns=sum(own.total_ns for name, own in calls.items() if is_blocking(name)),
        growth_per_step=measure_growth(level.least),
        leak=is_leak(level.least, _find_kernel_time(kernel_ns, device.tasks, level.steps)),
        least_by_step=level.least[choose_points(level.steps)].tolist() if level.steps else [],
        kept=places[:_MOST_KEPT],
        more_kept_bytes=sum(kept.bytes for kept in places[_MOST_KEPT:]),
    )


def _list_calls(by_gpu: Mapping[int, Mapping[str, _Calls]]) -> list[AllocatorCalls]:
    by_name: dict[str, _Calls] = {}
    for calls in by_gpu.values():
        for name, own in calls.items():
            by_name.setdefault(name, _Calls()).add(own)
    listed = [AllocatorCalls(name=name, blocking=is_blocking(name), **vars(own)) for name, own in by_name.items()]
    return sorted(listed, key=lambda calls: (-calls.total_ns, calls.name))


def _sum_kernel_times(parts: Sequence[KernelTimes]) -> FloatTable:
    """Return the kernel time (ns) of each task in each block of steps (kernels/cells.py)."""
    cells = join_cells(parts)
    total = np.zeros((int(cells.task.max(initial=-1)) + 1, int(cells.block.max(initial=-1)) + 1))
    shown = np.flatnonzero(cells.task >= 0)
    np.add.at(total, (cells.task[shown], cells.block[shown]), cells.ns[shown])
    return total


def _find_kernel_time(kernel_ns: FloatTable, tasks: set[int], steps: int) -> FloatArray:
    """Return the mean kernel time (ns) of the steps in each block of steps on some tasks."""
    size = np.bincount(find_blocks(np.arange(steps), steps))
    ns = kernel_ns[[task for task in tasks if task < len(kernel_ns)], : size.size].sum(axis=0)
    return np.append(ns, np.zeros(size.size - ns.size)) / size


# ---- reports ---------------------------------------------------------------------------------------------------------


class _Changes(NamedTuple):
    """n allocations and frees of device memory in the steps: place of the thread, time (ns), row of the GPU, bytes."""

    place: IntArray
    time: IntArray
    row: IntArray
    allocated: IntArray
    """ABSENT for frees."""
    freed: IntArray
    """ABSENT for allocations."""
    lifetime: IntArray
    """ABSENT if the report shows no free."""


def _sum_report(job: Job, index: int, devices: Devices, levels: Mapping[int, MemoryLevel]) -> _Sums:
    """Return the sums over one report."""
    report = job.reports[index]
    changes = _load_changes(job, index, levels)
    is_free = changes.allocated == ABSENT
    columns = (~is_free, np.where(is_free, 0, changes.allocated), is_free, np.where(is_free, changes.freed, 0))

    last, peak_time = _spread(changes.row, {row: (level.last, level.peak_time) for row, level in levels.items()})
    is_freed = (changes.lifetime != ABSENT) & (changes.time + changes.lifetime <= last)
    is_kept, has_peak = ~is_free & ~is_freed & (changes.time <= last), ~is_free & (changes.time == peak_time)
    at = np.flatnonzero(is_kept | has_peak)
    calls = load_opened_events(report, source_names.CUDA_API, job.store)
    places = _find_places(report, job, calls, changes.place[at], changes.time[at])
    row, kept = changes.row[at], np.flatnonzero(is_kept[at])
    sums = _Sums(
        changes={key: numbers for (key,), numbers in _add_up([changes.row], columns)},
        kept={},
        calls=_sum_calls(job, index, devices, levels, calls, changes),
        peaks={int(row[n]): places.name(places.range[n], places.call[n]) for n in np.flatnonzero(has_peak[at])},
    )
    keys = row[kept], places.range[kept], places.call[kept]
    for (key, range_, call), numbers in _add_up(keys, [np.ones_like(kept), changes.allocated[at][kept]]):
        sums.add_kept(key, places.name(range_, call), numbers)
    return sums


def _add_up(
    keys: Sequence[IntArray], values: Sequence[IntArray | BoolArray]
) -> Iterator[tuple[tuple[int, ...], IntArray]]:
    """Yield each distinct row of the keys (columns of n), and the sums of the values (columns of n) in it."""
    code, distinct = find_distinct_rows(*keys)
    sums = np.zeros((len(distinct), len(values)), np.int64)
    for n, column in enumerate(values):
        np.add.at(sums[:, n], code, column)
    yield from zip(distinct, sums, strict=True)


def _spread(row: IntArray, values: Mapping[int, tuple[int, ...]]) -> IntArray:
    """Return the values of each row (k x n), which are given by row."""
    rows = np.array(sorted(values), np.int64)
    return np.array([values[number] for number in rows.tolist()], np.int64)[np.searchsorted(rows, row)].T


def _load_changes(job: Job, index: int, levels: Mapping[int, MemoryLevel]) -> _Changes:
    """Return the changes of a report within the steps on each GPU."""
    report, rows = job.reports[index], job.tree.rows[index]
    row_of_gpu = {
        place.gpu: row
        for place, row in zip(report.places.all, rows.tolist(), strict=True)
        if isinstance(place, Device) and row in levels
    }
    events = load_opened_events(report, source_names.CUDA_MEMORY, job.store)
    kind, gpu = events.get_values(types.ALLOCATION_KIND) - 1, events.get_values(types.ALLOCATION_GPU)
    row = np.full(gpu.size, -1, np.int64)
    for number, gpu_row in row_of_gpu.items():
        edges = levels[gpu_row].edges
        inside = (events.begin > edges[0]) & (events.begin <= edges[-1])
        row[inside & (gpu == number) & np.isin(kind, KINDS)] = gpu_row
    at = np.flatnonzero(row >= 0)
    values = (types.ALLOCATED_BYTES, types.FREED_BYTES, types.ALLOCATION_LIFETIME)
    return _Changes(events.place[at], events.begin[at], row[at], *(events.get_values(value)[at] for value in values))


class _Places(NamedTuple):
    """Where n times of threads were: the index of the NVTX range, the value of the CUDA call, and their names."""

    range: IntArray
    call: IntArray
    ranges: Sequence[str]
    calls: Mapping[int, str]

    def name(self, range_: int, call: int) -> tuple[str, str]:
        """Return the names of a range and of a call; "" for none."""
        return self.ranges[range_] if range_ >= 0 else "", self.calls.get(call, "")


def _find_places(report: ReportRecords, job: Job, calls: OpenedEvents, thread: IntArray, time: IntArray) -> _Places:
    """Return the NVTX range and the CUDA call that each time (n, ns) of a thread (n places) is in."""
    inside = np.full(thread.size, NOTHING, np.int64)
    if not thread.size:
        return _Places(inside, inside, [], {})
    ranges = load_thread_ranges(report, np.unique(thread), job.store)
    for number, steps in ranges.steps.items():
        own = np.flatnonzero(thread == number)
        inside[own] = steps.get_values(time[own])
    at = find_latest(calls.place, calls.begin, thread, time)
    value = np.append(calls.get_values(types.CUDA_API), ABSENT)[at]
    value[time > np.append(calls.end, np.iinfo(np.int64).max)[at]] = ABSENT
    return _Places(inside, value, ranges.names, calls.get_names(types.CUDA_API))


def _sum_calls(
    job: Job, index: int, devices: Devices, levels: Mapping[int, MemoryLevel], calls: OpenedEvents, changes: _Changes
) -> dict[int, dict[str, _Calls]]:
    """Return the allocator calls of a report in the steps, by row of the GPU (-1: not known) and name."""
    names = {value: name for value, name in calls.get_names(types.CUDA_API).items() if name.startswith(ALLOCATOR_CALLS)}
    value = calls.get_values(types.CUDA_API)
    line = np.flatnonzero(np.isin(value, list(names)))
    line = line[measure_depths(calls.place[line], calls.begin[line], calls.end[line]) == 1]
    line = line[CountedEvents(job, index).mark_host(calls.place[line], calls.begin[line])]
    place, begin, end = calls.place[line], calls.begin[line], calls.end[line]

    at = find_latest(changes.place, changes.time, place, end)
    row = np.where(np.append(changes.time, ABSENT)[at] >= begin, np.append(changes.row, -1)[at], -1)
    task = np.append(job.tree.task_of_row, -1)[job.tree.rows[index][place]]
    for number in np.unique(task).tolist():
        used = [gpu for gpu, device in devices.rows.items() if number in device.tasks]
        if len(used) == 1 and used[0] in levels:
            row[task == number] = used[0]
    code, distinct = find_distinct_rows(row, value[line])
    longest = np.zeros(len(distinct), np.int64)
    np.maximum.at(longest, code, end - begin)
    found: dict[int, dict[str, _Calls]] = {}
    sums = _add_up([row, value[line]], [np.ones_like(row), end - begin])
    for ((key, call), (count, ns)), most in zip(sums, longest, strict=True):
        found.setdefault(key, {}).setdefault(names[call], _Calls()).add(_Calls(int(count), int(ns), int(most)))
    return found
