"""Measures device memory: what is in use on each GPU, what its allocator calls cost, and whether it leaks.

Hosts allocate, so steps are the steps of hosts (job/step_spans.py), on each GPU until the last of its tasks ends the
step: an allocation or free belongs to the first step that ends after it. So memory in use at the end of the steps is
that at their start, plus what was allocated in them, less what was freed. Allocator calls are those that start in a
step of their task. A call belongs to the only GPU of its task, or else to the GPU whose memory it changed.

Another capture of a process lists the memory in use again. GPUs of processes with several captures have no numbers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from nsys2prv_ng import source_names
from nsys2prv_ng.analysis.gpus.activity import Devices, load_memory
from nsys2prv_ng.analysis.host_activity import load_thread_ranges
from nsys2prv_ng.arrays.types import FloatArray, IntArray
from nsys2prv_ng.intervals.as_of import find_latest
from nsys2prv_ng.intervals.nesting import measure_depths
from nsys2prv_ng.intervals.step_functions import NOTHING, StepFunction
from nsys2prv_ng.job.counted import CountedEvents, list_counted_steps
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.job.opened_events import ABSENT, OpenedEvents, load_opened_events
from nsys2prv_ng.job.read_reports import ReportRecords
from nsys2prv_ng.job.steps import Steps
from nsys2prv_ng.objects.places import Device, Stream
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.summary.compute.kernel_cells import KernelTimes, find_blocks
from nsys2prv_ng.summary.compute.memory_leaks import choose_points, is_leak, measure_growth
from nsys2prv_ng.summary.compute.totals import add_up, sum_groups
from nsys2prv_ng.summary.numbers.memory import (
    ALLOCATOR_CALLS,
    AllocatorCalls,
    GpuMemory,
    KeptMemory,
    MemoryNumbers,
    is_blocking,
)

_KINDS = (2, 3)
"""CUPTI's kinds of device memory: device, and array."""
_MOST_KEPT = 10


def measure_memory(job: Job, devices: Devices, kernel_times: Sequence[KernelTimes]) -> MemoryNumbers | None:
    """Return the device memory of a job; None if no report records any. `kernel_times`: of its reports."""
    steps = None if job.counted is None else list_counted_steps(job)
    levels = _measure_levels(job, devices)
    if not levels:
        return None
    parts = job.engine.map(lambda index: _sum_report(job, index, devices, levels), range(len(job.reports)))
    changes, kept, calls, peaks = zip(*parts, strict=True)
    sums = _Sums(
        changes=add_up(changes, ["row"]),
        kept=add_up(kept, ["row", "range", "call"]),
        calls=add_up(calls, ["row", "name"]),
        peaks={row: place for found in peaks for row, place in found.items()},
    )
    return MemoryNumbers(
        steps=0 if steps is None else steps.number.size,
        step_numbers=[] if steps is None else steps.number[choose_points(steps.number.size)].tolist(),
        gpus=[_make_gpu(job, devices, row, levels[row], sums, steps, kernel_times) for row in sorted(levels)],
        calls=_list_calls(sums.calls),
    )


class _Sums(NamedTuple):
    """Sums over reports, in tables."""

    changes: pd.DataFrame
    """The columns _CHANGES by `row` of the GPU."""
    kept: pd.DataFrame
    """`count` and `bytes` of the memory that stays, by `row`, `range` and `call`."""
    calls: pd.DataFrame
    """`count`, `total_ns` and `max_ns` of allocator calls by `row` (-1: not known) and `name`."""
    peaks: dict[int, tuple[str, str]]
    """Range and call of the allocation that made the peak, by row of the GPU."""


def _make_gpu(
    job: Job,
    devices: Devices,
    row: int,
    level: _Levels,
    sums: _Sums,
    steps: Steps | None,
    kernel_times: Sequence[KernelTimes],
) -> GpuMemory:
    device = devices.rows[row]
    changes, kept, calls = (_list_rows(table[table["row"] == row].drop(columns="row")) for table in sums[:3])
    places = sorted((KeptMemory(**own) for own in kept), key=lambda own: (-own.bytes, own.range, own.call))
    range_name, call = sums.peaks.get(row, ("", ""))
    return GpuMemory(
        node=device.node,
        gpu=device.gpu.number,
        ranks=device.list_ranks(job.tree.ranks),
        tasks=[job.tree.model.tasks[task].name for task in sorted(device.tasks)],
        steps=level.steps,
        begin_bytes=int(level.ends[0]),
        end_bytes=int(level.ends[-1]),
        peak_bytes=level.peak,
        peak_at_ns=level.peak_time - job.origin,
        peak_step=None if steps is None or not level.steps else int(steps.number[level.peak_step]),
        peak_range=range_name,
        peak_call=call,
        **(changes[0] if changes else dict.fromkeys(_CHANGES, 0)),
        allocator_calls=sum(own["count"] for own in calls),
        allocator_ns=sum(own["total_ns"] for own in calls),
        blocking_ns=sum(own["total_ns"] for own in calls if is_blocking(own["name"])),
        growth_per_step=measure_growth(level.least),
        leak=is_leak(level.least, _sum_kernel_time(kernel_times, device.tasks, level.steps)),
        least_by_step=level.least[choose_points(level.steps)].tolist() if level.steps else [],
        kept=places[:_MOST_KEPT],
        more_kept_bytes=sum(own.bytes for own in places[_MOST_KEPT:]),
    )


def _list_rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(name): value for name, value in row.items()} for row in table.to_dict("records")]


def _list_calls(table: pd.DataFrame) -> list[AllocatorCalls]:
    if table.empty:
        return []
    by_name = add_up([table.drop(columns="row")], ["name"]).sort_values(["total_ns", "name"], ascending=[False, True])
    return [AllocatorCalls(**row, blocking=is_blocking(row["name"])) for row in _list_rows(by_name)]


def _sum_kernel_time(parts: Sequence[KernelTimes], tasks: set[int], steps: int) -> FloatArray:
    """Return the mean kernel time (ns) of the steps in each block of steps (kernel_cells.py) on some tasks."""
    block = find_blocks(np.arange(steps), steps)
    size = np.bincount(block)
    ns = np.zeros(size.size)
    for cells in (part.cells for part in parts):
        own = np.flatnonzero(np.isin(cells.task, list(tasks)))
        if size.size:
            ns += np.bincount(cells.block[own], cells.ns[own], size.size)
    return ns / size


# ---- levels ----------------------------------------------------------------------------------------------------------


class _Levels(NamedTuple):
    """Device memory in use on a GPU over n steps, or one window of time."""

    edges: IntArray
    """The last time (ns) before the first step, then the end of each step (n + 1)."""
    steps: int
    """n; 0 if the window is no step."""
    ends: IntArray
    """In use at these times (bytes, n + 1)."""
    least: IntArray
    """Least in use in each step (n)."""
    last: int
    """When the last step has least in use (ns); without steps, the end."""
    peak: int
    peak_time: int
    peak_step: int
    """Index of the step of the peak."""


def _measure_levels(job: Job, devices: Devices) -> dict[int, _Levels]:
    """Return the memory in use on each GPU with known device memory, by its row."""
    levels = {}
    captured = _list_captured_once(job, devices)
    for row, time, level in load_memory(job, devices.rows, [types.MEMORY_LEVELS[kind] for kind in _KINDS]):
        for number in np.unique(row).tolist():
            if number in captured:
                low, high = np.searchsorted(row, [number, number + 1])
                edges, count = _find_edges(job, devices.rows[number].tasks)
                function = StepFunction(time[low:high], level[low:high])
                levels[number] = _measure_level(function, edges, count, job.first)
    return levels


def _list_captured_once(job: Job, devices: Devices) -> set[int]:
    """Return the rows of the GPUs none of whose tasks has operations in several reports."""
    reports = Counter[int]()
    for report, rows in zip(job.reports, job.tree.rows, strict=True):
        streams = [
            row for place, row in zip(report.places.all, rows.tolist(), strict=True) if isinstance(place, Stream)
        ]
        reports.update(set(job.tree.task_of_row[[row for row in streams if row >= 0]].tolist()))
    return {row for row, device in devices.rows.items() if all(reports[task] <= 1 for task in device.tasks)}


def _find_edges(job: Job, tasks: set[int]) -> tuple[IntArray, int]:
    """Return (the last time (ns) before the steps of some tasks and the end of each, number of steps).

    The times are those of hosts. If numbers cover no steps, they are the limits of what they cover, and the number is
    0.
    """
    steps, own = job.steps, np.zeros(0, np.int64)
    if steps is not None and job.counted is not None:
        own = np.flatnonzero(np.isin(job.new_task[steps.task], list(tasks)))
    if steps is None or job.counted is None or not own.size:
        windows = job.measured or [(job.first, job.last)]
        return np.array([windows[0][0] - 1, windows[-1][1]], np.int64), 0
    ends = np.full(steps.number.size, steps.host_begin[own].min() - 1, np.int64)
    np.maximum.at(ends, steps.step[own], steps.host_end[own])
    first, last = job.counted
    before = ends[first - 1] if first else steps.host_begin[own].min() - 1
    return np.maximum.accumulate(np.append(before, ends[first : last + 1])), last - first + 1


def _measure_level(level: StepFunction, edges: IntArray, count: int, first: int) -> _Levels:
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
    return _Levels(
        edges=edges,
        steps=count,
        ends=ends,
        least=least if count else least[:0],
        last=last if count else int(edges[-1]),
        peak=int(value[at]) if is_later else int(ends[0]),
        peak_time=int(time[at]) if is_later else max(int(edges[0]) + 1, first),
        peak_step=int(step[at]) if is_later else 0,
    )


# ---- reports ---------------------------------------------------------------------------------------------------------

_CHANGES = ("allocations", "allocated_bytes", "frees", "freed_bytes")


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


def _sum_report(
    job: Job, index: int, devices: Devices, levels: Mapping[int, _Levels]
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame, dict[int, tuple[str, str]]]:
    """Return sums over one report: changes by GPU, memory that stays by GPU and place, allocator calls by GPU.

    The last one is where each GPU has its peak: the range and the call of the allocation, by the row of the GPU.
    """
    report = job.reports[index]
    changes = _load_changes(job, index, levels)
    is_free = changes.allocated == ABSENT
    columns = [~is_free, np.where(is_free, 0, changes.allocated), is_free, np.where(is_free, changes.freed, 0)]
    sums = dict(zip(_CHANGES, (column.astype(np.int64) for column in columns), strict=True))
    table = pd.DataFrame({"row": changes.row, **sums}).groupby("row", as_index=False).sum()

    last, peak_time = _spread(changes.row, {row: (level.last, level.peak_time) for row, level in levels.items()})
    is_freed = (changes.lifetime != ABSENT) & (changes.time + changes.lifetime <= last)
    is_kept, has_peak = ~is_free & ~is_freed & (changes.time <= last), changes.time == peak_time
    at = np.flatnonzero(is_kept | (has_peak & ~is_free))
    calls = load_opened_events(report, source_names.CUDA_API, job.store)
    ranges, names = _find_places(report, job, calls, changes.place[at], changes.time[at])
    peaks = {
        int(changes.row[line]): place
        for line, place in zip(at.tolist(), zip(ranges, names, strict=True), strict=True)
        if has_peak[line]
    }
    places = pd.DataFrame({"row": changes.row[at], "range": ranges, "call": names, "bytes": changes.allocated[at]})
    places = places[is_kept[at]]
    kept = places.groupby(["row", "range", "call"], as_index=False).agg(count=("bytes", "size"), bytes=("bytes", "sum"))
    return table, kept, _sum_calls(job, index, devices, levels, calls, changes), peaks


def _spread(row: IntArray, values: Mapping[int, tuple[int, ...]]) -> IntArray:
    """Return the values of each row (k x n), which are given by row."""
    rows = np.array(sorted(values), np.int64)
    return np.array([values[number] for number in rows.tolist()], np.int64)[np.searchsorted(rows, row)].T


def _load_changes(job: Job, index: int, levels: Mapping[int, _Levels]) -> _Changes:
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
        row[inside & (gpu == number) & np.isin(kind, _KINDS)] = gpu_row
    at = np.flatnonzero(row >= 0)
    values = (types.ALLOCATED_BYTES, types.FREED_BYTES, types.ALLOCATION_LIFETIME)
    return _Changes(events.place[at], events.begin[at], row[at], *(events.get_values(value)[at] for value in values))


def _find_places(
    report: ReportRecords, job: Job, calls: OpenedEvents, thread: IntArray, time: IntArray
) -> tuple[list[str], list[str]]:
    """Return (NVTX range, CUDA call) that each time (n, ns) of a thread (n places) is in; "" for none."""
    if not thread.size:
        return [], []
    ranges = load_thread_ranges(report, np.unique(thread), job.store)
    inside = np.full(thread.size, NOTHING, np.int64)
    for number, steps in ranges.steps.items():
        own = np.flatnonzero(thread == number)
        inside[own] = steps.get_values(time[own])
    at = find_latest(calls.place, calls.begin, thread, time)
    value = np.append(calls.get_values(types.CUDA_API), ABSENT)[at]
    value[time > np.append(calls.end, np.iinfo(np.int64).max)[at]] = ABSENT
    names = calls.get_names(types.CUDA_API)
    return [ranges.names[n] if n >= 0 else "" for n in inside.tolist()], [names.get(n, "") for n in value.tolist()]


def _sum_calls(
    job: Job, index: int, devices: Devices, levels: Mapping[int, _Levels], calls: OpenedEvents, changes: _Changes
) -> pd.DataFrame:
    """Return the allocator calls of a report in the steps, by `row` of the GPU (-1 for unknown) and `name`."""
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
    table = sum_groups({"row": row, "name": value[line]}, end - begin).drop(columns="min_ns")
    return table.assign(name=[names[value] for value in table["name"].tolist()])
