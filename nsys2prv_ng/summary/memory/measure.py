"""Measures device memory: what is in use on each GPU, what its allocator calls cost, and whether it leaks.

Memory in use at the end of the steps (levels.py) is that at their start, plus what was allocated in them, less
what was freed. Allocator calls are those that start in a step of their task. A call belongs to the only GPU of its
task, or else to the GPU whose memory it changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from nsys2prv_ng import source_names
from nsys2prv_ng.analysis.gpus.activity import Devices
from nsys2prv_ng.analysis.host_activity import load_thread_ranges
from nsys2prv_ng.arrays.groups import Table, drop_columns, make_objects, make_rows, sum_table, take_rows
from nsys2prv_ng.arrays.types import FloatArray, FloatTable, IntArray, pick
from nsys2prv_ng.intervals.nesting import measure_depths
from nsys2prv_ng.intervals.step_functions import NOTHING, find_latest
from nsys2prv_ng.job.counted import CountedEvents, list_counted_steps
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.objects.places import Device
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.reading.opened_events import ABSENT, OpenedEvents, load_opened_events
from nsys2prv_ng.steps.steps import Steps
from nsys2prv_ng.summary.kernels.cells import KernelTimes, find_blocks, join_cells
from nsys2prv_ng.summary.memory import numbers
from nsys2prv_ng.summary.memory.levels import KINDS, MemoryLevel, choose_points, is_leak, measure_growth, measure_levels
from nsys2prv_ng.summary.totals import add_up

_MOST_KEPT = 10


def measure_memory(job: Job, devices: Devices, kernel_times: Sequence[KernelTimes]) -> numbers.MemoryNumbers | None:
    """Return the device memory of a job; None if no report records any. `kernel_times`: of its reports."""
    steps = None if job.scope.counted is None else list_counted_steps(job)
    levels = measure_levels(job, devices)
    if not levels:
        return None
    parts = [*job.engine.sum_up(lambda index: _sum_report(job, index, devices, levels), range(len(job.reports)))]
    sums = _Sums(
        add_up([part.changes for part in parts], ["row"]),
        add_up([part.kept for part in parts], ["row", "range", "call"]),
        add_up([part.calls for part in parts], ["row", "name"]),
        {row: place for part in parts for row, place in part.peaks.items()},
    )
    kernel_ns = _sum_kernel_times(kernel_times)
    return numbers.MemoryNumbers(
        steps=0 if steps is None else steps.number.size,
        step_numbers=[] if steps is None else steps.number[choose_points(steps.number.size)].tolist(),
        gpus=[_make_gpu(job, devices, row, levels[row], sums, steps, kernel_ns) for row in sorted(levels)],
        calls=_list_calls(sums.calls),
    )


class _Sums(NamedTuple):
    """Sums over a report, or over all, as tables by `row` of the GPU.

    `changes`: allocations, frees, and the bytes of both. `kept`: number and bytes of the allocations that stay, by
    `range` and `call`. `calls`: allocator calls by `name`: their number, total and longest time (ns). The row is -1 if
    the GPU is not known. `peaks`: range and call of the allocation that made the peak.
    """

    changes: Table
    kept: Table
    calls: Table
    peaks: dict[int, tuple[str, str]]


def _make_gpu(
    job: Job, devices: Devices, row: int, level: MemoryLevel, sums: _Sums, steps: Steps | None, kernel_ns: FloatTable
) -> numbers.GpuMemory:
    device = devices.rows[row]
    changes, kept, calls = (_list_rows(table, row) for table in (sums.changes, sums.kept, sums.calls))
    places = [numbers.KeptMemory(**each) for each in kept]
    places.sort(key=lambda each: (-each.bytes, each.range, each.call))
    peak_range, peak_call = sums.peaks.get(row, ("", ""))
    return numbers.GpuMemory(
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
        **(changes[0] if changes else dict.fromkeys(drop_columns(sums.changes, "row"), 0)),
        allocator_calls=sum(each["count"] for each in calls),
        allocator_ns=sum(each["total_ns"] for each in calls),
        blocking_ns=sum(each["total_ns"] for each in calls if numbers.is_blocking(each["name"])),
        growth_per_step=measure_growth(level.least),
        leak=is_leak(level.least, _find_kernel_time(kernel_ns, device.tasks, level.steps)),
        least_by_step=level.least[choose_points(level.steps)].tolist() if level.steps else [],
        kept=places[:_MOST_KEPT],
        more_kept_bytes=sum(kept.bytes for kept in places[_MOST_KEPT:]),
    )


def _list_rows(table: Table, row: int) -> list[dict[str, Any]]:
    """Return what a table, sorted by row, has of a GPU."""
    low, high = np.searchsorted(table["row"], [row, row + 1])
    return make_rows(drop_columns(take_rows(table, np.arange(low, high)), "row"))


def _list_calls(calls: Table) -> list[numbers.AllocatorCalls]:
    rows = make_rows(add_up([drop_columns(calls, "row")], ["name"]))
    listed = [numbers.AllocatorCalls(blocking=numbers.is_blocking(row["name"]), **row) for row in rows]
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
    """n allocations and frees of device memory in the steps: place of the thread, time (ns), row of the GPU, bytes.

    `allocated`: ABSENT for frees. `freed`: ABSENT for allocations. `lifetime`: ABSENT if the report shows no free.
    """

    place: IntArray
    time: IntArray
    row: IntArray
    allocated: IntArray
    freed: IntArray
    lifetime: IntArray


def _sum_report(job: Job, index: int, devices: Devices, levels: Mapping[int, MemoryLevel]) -> _Sums:
    """Return the sums over one report."""
    report = job.reports[index]
    changes = _load_changes(job, index, levels)
    is_free = changes.allocated == ABSENT
    changed = {
        "row": changes.row,
        "allocations": ~is_free,
        "allocated_bytes": np.where(is_free, 0, changes.allocated),
        "frees": is_free,
        "freed_bytes": np.where(is_free, changes.freed, 0),
    }
    rows = np.array(sorted(levels), np.int64)
    times = np.array([(levels[row].last, levels[row].peak_time) for row in rows.tolist()], np.int64)
    last, peak_time = times[np.searchsorted(rows, changes.row)].T
    is_freed = (changes.lifetime != ABSENT) & (changes.time + changes.lifetime <= last)
    is_kept, has_peak = ~is_free & ~is_freed & (changes.time <= last), ~is_free & (changes.time == peak_time)
    at = np.flatnonzero(is_kept | has_peak)
    calls = load_opened_events(report, source_names.CUDA_API, job.store)
    range_, call, range_names = _find_places(job, index, calls, changes.place[at], changes.time[at])
    ranges, names = dict(enumerate(range_names)), calls.get_names(types.CUDA_API)
    row, here = changes.row[at], np.flatnonzero(is_kept[at])
    kept = {"row": row, "range": range_, "call": call, "count": np.ones_like(at), "bytes": changes.allocated[at]}
    kept = sum_table(take_rows(kept, here), ["row", "range", "call"])
    for key, texts in ("range", ranges), ("call", names):
        kept[key] = make_objects(texts.get(code, "") for code in kept[key].tolist())
    return _Sums(
        changes=sum_table(changed, ["row"]),
        kept=kept,
        calls=_sum_calls(job, index, devices, levels, calls, changes),
        peaks={
            int(row[n]): (ranges.get(int(range_[n]), ""), names.get(int(call[n]), ""))
            for n in np.flatnonzero(has_peak[at])
        },
    )


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


def _find_places(
    job: Job, index: int, calls: OpenedEvents, thread: IntArray, time: IntArray
) -> tuple[IntArray, IntArray, list[str]]:
    """Return (index of the NVTX range, value of the CUDA call, names of ranges): of times (n, ns) of threads (places).

    Outside of ranges the index is NOTHING, and outside of calls the value is ABSENT.
    """
    inside = np.full(thread.size, NOTHING, np.int64)
    if not thread.size:
        return inside, inside, []
    ranges = load_thread_ranges(job.reports[index], np.unique(thread), job.store)
    for number, steps in ranges.steps.items():
        own = np.flatnonzero(thread == number)
        inside[own] = steps.get_values(time[own])
    at = find_latest(calls.place, calls.begin, thread, time)
    value = pick(calls.get_values(types.CUDA_API), at, ABSENT)
    value[time > pick(calls.end, at, np.iinfo(np.int64).max)] = ABSENT
    return inside, value, ranges.names


def _sum_calls(
    job: Job, index: int, devices: Devices, levels: Mapping[int, MemoryLevel], calls: OpenedEvents, changes: _Changes
) -> Table:
    """Return the allocator calls of a report in the steps, by row of the GPU (-1: not known) and name."""
    value, names = calls.get_values(types.CUDA_API), calls.get_names(types.CUDA_API)
    allocators = [number for number, name in names.items() if name.startswith(numbers.ALLOCATOR_CALLS)]
    line = np.flatnonzero(np.isin(value, allocators))
    line = line[measure_depths(calls.place[line], calls.begin[line], calls.end[line]) == 1]
    line = line[CountedEvents(job, index).mark_host(calls.place[line], calls.begin[line])]
    place, begin, end = calls.place[line], calls.begin[line], calls.end[line]

    at = find_latest(changes.place, changes.time, place, end)
    row = np.where(pick(changes.time, at, ABSENT) >= begin, pick(changes.row, at, -1), -1)
    task = pick(job.tree.task_of_row, job.tree.rows[index][place], -1)
    for number in np.unique(task).tolist():
        used = [gpu for gpu, device in devices.rows.items() if number in device.tasks]
        if len(used) == 1 and used[0] in levels:
            row[task == number] = used[0]
    length = end - begin
    columns = {"row": row, "name": value[line], "count": np.ones_like(row), "total_ns": length, "max_ns": length}
    table = add_up([columns], ["row", "name"])
    return {**table, "name": make_objects(names[call] for call in table["name"].tolist())}
