"""Measures device memory: what is in use on each GPU (levels.py), where it was allocated, and whether it leaks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from nsys2prv_ng import source_names
from nsys2prv_ng.analysis.gpus.activity import Devices
from nsys2prv_ng.analysis.host_activity import load_thread_ranges
from nsys2prv_ng.arrays.groups import Table, drop_columns, make_objects, make_rows, sum_table, take_rows
from nsys2prv_ng.arrays.types import FloatArray, FloatTable, IntArray, pick
from nsys2prv_ng.intervals.step_functions import NOTHING, find_latest
from nsys2prv_ng.job.counted import list_counted_steps
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
    parts = [*job.engine.sum_up(lambda index: _sum_report(job, index, levels), range(len(job.reports)))]
    kept = add_up(parts, ["row", "range", "call"])
    kernel_ns = _sum_kernel_times(kernel_times)
    return numbers.MemoryNumbers(
        steps=0 if steps is None else steps.number.size,
        step_numbers=[] if steps is None else steps.number[choose_points(steps.number.size)].tolist(),
        gpus=[_make_gpu(job, devices, row, levels[row], kept, steps, kernel_ns) for row in sorted(levels)],
    )


def _make_gpu(
    job: Job, devices: Devices, row: int, level: MemoryLevel, kept: Table, steps: Steps | None, kernel_ns: FloatTable
) -> numbers.GpuMemory:
    device = devices.rows[row]
    places = [numbers.KeptMemory(**each) for each in _list_rows(kept, row)]
    places.sort(key=lambda each: (-each.bytes, each.range, each.call))
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
        growth_per_step=measure_growth(level.least),
        leak=is_leak(level.least, _find_kernel_time(kernel_ns, device.tasks, level.steps)),
        least_by_step=level.least[choose_points(level.steps)].tolist() if level.steps else [],
        kept=places[:_MOST_KEPT],
        more_kept_bytes=sum(place.bytes for place in places[_MOST_KEPT:]),
    )


def _list_rows(table: Table, row: int) -> list[dict[str, Any]]:
    """Return what a table, sorted by row, has of a GPU."""
    low, high = np.searchsorted(table["row"], [row, row + 1])
    return make_rows(drop_columns(take_rows(table, np.arange(low, high)), "row"))


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

    `allocated`: ABSENT for frees. `lifetime`: ABSENT if the report shows no free.
    """

    place: IntArray
    time: IntArray
    row: IntArray
    allocated: IntArray
    lifetime: IntArray


def _sum_report(job: Job, index: int, levels: Mapping[int, MemoryLevel]) -> Table:
    """Return the number and bytes of the allocations of a report that stay, by `row` of the GPU, `range` and `call`."""
    report = job.reports[index]
    changes = _load_changes(job, index, levels)
    is_free = changes.allocated == ABSENT
    rows = np.array(sorted(levels), np.int64)
    last = np.array([levels[row].last for row in rows.tolist()], np.int64)[np.searchsorted(rows, changes.row)]
    is_freed = (changes.lifetime != ABSENT) & (changes.time + changes.lifetime <= last)
    at = np.flatnonzero(~is_free & ~is_freed & (changes.time <= last))
    calls = load_opened_events(report, source_names.CUDA_API, job.store)
    range_, call, range_names = _find_places(job, index, calls, changes.place[at], changes.time[at])
    ranges, names = dict(enumerate(range_names)), calls.get_names(types.CUDA_API)
    places = {"row": changes.row[at], "range": range_, "call": call}
    kept = sum_table({**places, "count": np.ones_like(at), "bytes": changes.allocated[at]}, [*places])
    for key, texts in ("range", ranges), ("call", names):
        kept[key] = make_objects(texts.get(code, "") for code in kept[key].tolist())
    return kept


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
    values = (types.ALLOCATED_BYTES, types.ALLOCATION_LIFETIME)
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
