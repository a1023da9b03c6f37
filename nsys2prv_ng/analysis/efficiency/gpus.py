"""Measures what GPUs do in windows of time: each ns of a GPU has one class (see analysis/efficiency/efficiency.py)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from nsys2prv_ng import source_names
from nsys2prv_ng.analysis.efficiency import times
from nsys2prv_ng.analysis.efficiency.windows import (
    WindowPlan,
    load_repeated,
    sum_in_windows,
)
from nsys2prv_ng.analysis.gpus import waiting as gpu
from nsys2prv_ng.analysis.gpus.activity import NO_GAPS, Devices, Gaps, list_activity_runs, load_gaps
from nsys2prv_ng.analysis.gpus.idle_causes import IdlePieces, split_gaps
from nsys2prv_ng.analysis.gpus.times import GpuTime, sum_gpu_times
from nsys2prv_ng.analysis.gpus.waiting import GpuSweep, GpuWaits
from nsys2prv_ng.analysis.waits.waits import Waits
from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.intervals.states import FlatStates, flatten
from nsys2prv_ng.intervals.step_functions import StepFunction, make_row_steps
from nsys2prv_ng.intervals.windows import cut_to_windows, unite_windows
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.reading.nvtx_ranges import RangeKey
from nsys2prv_ng.reading.opened_events import ABSENT, load_opened_events
from nsys2prv_ng.records.runs import Run
from nsys2prv_ng.sources.cuda.kernel_classes import WHOLE_GRAPH as GRAPH_CLASS

_CLASS_OF_VALUE = np.full(gpu.WHOLE_GRAPH + 1, times.COMPUTE, np.int64)
_CLASS_OF_VALUE[[0, gpu.WAITING, gpu.MOVING, gpu.UNSPLIT, gpu.MEMORY_ALONE, gpu.WHOLE_GRAPH]] = (
    times.AFTER,
    times.WAITING,
    times.MOVING,
    times.NOT_SPLIT,
    times.MEMORY,
    times.WHOLE_GRAPH,
)


class GpuGroup(NamedTuple):
    """GPUs that share reports: what they do over time, and when they do nothing."""

    rows: IntArray
    changes: GpuWaits
    gaps: Gaps


class GpuPart(NamedTuple):
    """Totals of some GPUs, with the ranges of their reports, their idle time (ns) by range, and all their time."""

    totals: times.Totals
    keys: list[RangeKey]
    idle_by_range: list[dict[str, int]]
    """In the whole time, and in the work in it."""
    times: dict[int, GpuTime]
    """By row, of the GPUs with any activity."""


def measure_all_gpus(job: Job, waits: Waits, devices: Devices, plan: WindowPlan) -> Iterator[GpuPart]:
    """Measure the groups of GPUs; each GPU that does nothing in the chosen time is a group at the end.

    Each worker has the records of one group in memory.
    """
    if source_names.DEVICE_ACTIVITY not in job.reports[0].results:
        return
    sweep = GpuSweep(job, waits)

    def measure(run: Run) -> tuple[list[int], GpuPart]:
        changes = sweep.find_changes(run)
        group = GpuGroup(np.unique(changes.row), changes, load_gaps(job, run))
        return group.rows.tolist(), measure_gpus(job, devices, group, plan, run)

    others = {row for row, device in devices.rows.items() if device.tasks}
    for rows, part in job.engine.sum_up(measure, list_activity_runs(job)):
        others.difference_update(rows)
        yield part
    for row in sorted(others):
        nothing = GpuWaits(*(np.zeros(0, np.int64) for _ in range(3)))
        yield measure_gpus(job, devices, GpuGroup(np.array([row], np.int64), nothing, NO_GAPS), plan)


def measure_gpus(job: Job, devices: Devices, group: GpuGroup, plan: WindowPlan, run: Run | None = None) -> GpuPart:
    """Measure the GPUs of a group. `run`: their activity; None if they have none."""
    reports = devices.find_reports(group.rows)
    ranges = load_repeated(job, reports)
    size = plan.first_range + len(ranges.keys)
    totals = times.Totals(len(times.CLASSES) + len(times.KERNELS_BY_CLASS), 3, size)
    pieces = split_gaps(job, devices, reports, group.gaps)
    kernels = flatten(*load_kernels(job, devices, reports if group.changes.row.size else []))
    for row in group.rows.tolist():
        captures = plan.unite_captures(devices.find_reports(np.array([row])))
        steps = _find_classes(group, pieces, row, captures)
        windows = plan.list_windows(sorted(devices.rows[row].tasks), ranges)
        sums = sum_in_windows(steps, times.NOT_CAPTURED, windows, size, len(times.CLASSES))
        by_kernel = _sum_kernels(kernels, row, windows, sums[:, times.COMPUTE])
        totals.add(
            windows,
            np.hstack([sums, by_kernel]),
            [sums[:, :last].sum(axis=1) for last in (times.COMPUTE + 1, times.KERNELS, times.CAUSE)],
        )
    idle_by_range = [_sum_by_range(pieces, spans) for spans in (plan.whole, plan.work)]
    gpu_times = {} if run is None else sum_gpu_times(job, run, group.gaps, pieces)
    return GpuPart(totals, ranges.keys, idle_by_range, gpu_times)


def _find_classes(group: GpuGroup, pieces: IdlePieces, row: int, captures: Sequence[tuple[int, int]]) -> StepFunction:
    """Return the class of a GPU over time, from its first capture on."""
    changes = group.changes
    known = np.flatnonzero((changes.row == row) & (changes.value != gpu.NOTHING))
    idle = np.flatnonzero(group.gaps.row[pieces.gap] == row)
    # A graph may still run when everything else in the capture has ended.
    ends = np.flatnonzero(changes.value[known] == 0)
    starts = np.append(0, ends + 1)[: ends.size]
    stretches = zip(changes.time[known[starts]].tolist(), changes.time[known[ends]].tolist(), strict=True)
    known_times = np.array([*captures, *stretches], np.int64).reshape(-1, 2)
    lows, highs = np.array(unite_windows(*known_times.T), np.int64).reshape(-1, 2).T
    parts = [
        (lows, np.full(lows.size, times.BEFORE)),
        (changes.time[known], _CLASS_OF_VALUE[changes.value[known]]),
        (pieces.begin[idle], times.CAUSE + pieces.cause[idle]),
        (highs, np.full(highs.size, times.NOT_CAPTURED)),
    ]
    time, value = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.argsort(time, kind="stable")
    return StepFunction(time[order], value[order])


class Kernels(NamedTuple):
    """What computes on GPUs: the row of each GPU, when, and the kernel class as an index into KERNELS_BY_CLASS."""

    row: IntArray
    begin: IntArray
    end: IntArray
    kind: IntArray


def load_kernels(job: Job, devices: Devices, reports: Sequence[int], *, with_nccl: bool = False) -> Kernels:
    """Return what computes on the GPUs of some reports, and NCCL's kernels and graphs that may contain any `with_nccl`.

    Other graphs that were traced as a whole count as kernels. Where kernels overlap, `flatten`
    keeps the earliest; on a tie, the longest.
    """
    parts = [(np.zeros(0, np.int64),) * 4]
    for index in reports:
        report = job.reports[index]
        events = load_opened_events(report, source_names.KERNELS, job.store)
        is_kernel = events.get_values(types.KERNEL) != ABSENT
        if with_nccl:
            is_kernel |= events.get_values(types.NCCL_KERNEL) != ABSENT
        kernel_lines = np.flatnonzero(is_kernel)
        kernel_class = events.get_values(types.KERNEL_CLASS)[kernel_lines] - 1
        graphs = load_opened_events(report, source_names.CUDA_GRAPHS, job.store)
        is_graph = graphs.get_values(types.GRAPH_LAUNCH) != ABSENT
        graph_lines = np.flatnonzero(is_graph & (with_nccl or not job.hides_nccl))
        graph_class = np.full(graph_lines.size, times.KERNELS_BY_CLASS.index(GRAPH_CLASS))
        for source, lines, kind in ((events, kernel_lines, kernel_class), (graphs, graph_lines, graph_class)):
            row = devices.rows_of_reports[index][source.place[lines]]
            parts.append((row, source.begin[lines], source.end[lines], kind))
    return Kernels(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _sum_kernels(kernels: FlatStates, row: int, windows: FlatStates, compute: IntArray) -> IntArray:
    """Return how long (ns, sets x KERNELS_BY_CLASS) each class computes on a GPU in windows; rows add up to `compute`.

    Kernels that the user did not choose compute, too, if they share the GPU with others: they are the last class.
    """
    others = len(times.KERNELS_BY_CLASS) - 1
    steps = make_row_steps(kernels, row, others)
    sums = sum_in_windows(steps, others, windows, compute.size, others + 1)
    sums[:, others] = compute - sums[:, :others].sum(axis=1)
    return sums


def _sum_by_range(pieces: IdlePieces, windows: Sequence[tuple[int, int]]) -> dict[str, int]:
    """Return the idle time (ns) in windows that the host caused, by range."""
    host = np.flatnonzero(pieces.cause == 0)
    if not windows or not host.size:
        return {}
    piece, _, begin, end = cut_to_windows(pieces.begin[host], pieces.end[host], windows)
    sums = np.zeros(len(pieces.names) + 1, np.int64)
    np.add.at(sums, pieces.range[host][piece], end - begin)
    return {name: ns for name, ns in zip([*pieces.names, ""], sums.tolist(), strict=True) if ns}
