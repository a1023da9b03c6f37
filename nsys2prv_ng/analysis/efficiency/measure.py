"""Measures what GPUs and main threads do in windows of time: each ns has one class (efficiency/efficiency.py)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from nsys2prv_ng import source_names
from nsys2prv_ng.analysis.efficiency import times
from nsys2prv_ng.analysis.efficiency.times import IN_CUDA, IN_MPI, USEFUL, Totals
from nsys2prv_ng.analysis.efficiency.windows import WindowPlan, load_repeated, sum_in_windows
from nsys2prv_ng.analysis.gpus import waiting as gpu
from nsys2prv_ng.analysis.gpus.activity import NO_GAPS, Devices, Gaps, get_values, list_activity_runs, load_gaps
from nsys2prv_ng.analysis.gpus.times import GpuTime, IdlePieces, split_gaps, sum_gpu_times
from nsys2prv_ng.analysis.gpus.waiting import GpuSweep, GpuWaits
from nsys2prv_ng.analysis.host_activity import map_main_threads
from nsys2prv_ng.analysis.waits.waits import Waits
from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.intervals.states import FlatStates, flatten, overlay
from nsys2prv_ng.intervals.step_functions import StepFunction, cut_to_windows, make_row_steps, unite_windows
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver.value_tables import KERNEL_CLASSES
from nsys2prv_ng.reading.device_operations import has_copies_between, mark_communication
from nsys2prv_ng.reading.opened_events import ABSENT, RangeKey, load_opened_events
from nsys2prv_ng.records.runs import Run, load_records
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
    """Totals of some GPUs, with the ranges of their reports.

    `idle_by_range`: their idle time (ns) by range, in the whole time and in the work in it. `times`: of the GPUs with
    any activity, by row.
    """

    totals: times.Totals
    keys: list[RangeKey]
    idle_by_range: list[dict[str, int]]
    times: dict[int, GpuTime]


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
    totals = times.Totals(len(times.CLASSES) + len(times.KERNELS_BY_CLASS) + 1, 3, size)
    pieces = split_gaps(job, devices, reports, group.gaps)
    kernels = flatten(*load_kernels(job, devices, reports if group.changes.row.size else []))
    for row in group.rows.tolist():
        captures = plan.unite_captures(devices.find_reports(np.array([row])))
        steps = _find_classes(group, pieces, row, captures)
        windows = plan.list_windows(sorted(devices.rows[row].tasks), ranges)
        sums = sum_in_windows(steps, times.NOT_CAPTURED, windows, size, len(times.CLASSES))
        by_kernel = _sum_kernels(kernels, row, windows, sums[:, times.COMPUTE])
        copying = np.zeros(size, np.int64)
        if run is not None and any(has_copies_between(job.reports[index]) for index in reports):
            copying = sum_in_windows(_find_copying(job, run, row, steps), 0, windows, size, 2)[:, 1]
        computes, runs, works = (sums[:, :last].sum(axis=1) for last in (times.COMPUTE + 1, times.KERNELS, times.CAUSE))
        totals.add(windows, np.hstack([sums, by_kernel, copying[:, None]]), [computes, runs - copying, works])
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


def _find_copying(job: Job, run: Run, row: int, steps: StepFunction) -> StepFunction:
    """Return when a GPU moves data without a kernel (1, else 0). `steps`: its class over time."""
    rows, time, count = get_values(load_records(run, job.store), types.KERNELS_RUNNING.number)
    kernels = StepFunction(time[rows == row], count[rows == row])
    both = np.union1d(steps.time, kernels.time)
    copies = (steps.get_values(both) == times.MOVING) & (kernels.get_values(both) <= 0)
    return StepFunction(both, copies.astype(np.int64))


class Kernels(NamedTuple):
    """What computes on GPUs: the row of each GPU, when, and the kernel class as an index into KERNELS_BY_CLASS."""

    row: IntArray
    begin: IntArray
    end: IntArray
    kind: IntArray


def load_kernels(job: Job, devices: Devices, reports: Sequence[int]) -> Kernels:
    """Return what computes on the GPUs of some reports.

    Graphs that were traced as a whole and cannot communicate count as kernels. Where kernels overlap, `flatten`
    keeps the earliest; on a tie, the longest.
    """
    parts = [(np.zeros(0, np.int64),) * 4]
    for index in reports:
        report = job.reports[index]
        events = load_opened_events(report, source_names.KERNELS, job.store)
        number = events.get_values(types.KERNEL_CLASS)
        kernel_lines = np.flatnonzero((number != ABSENT) & ~mark_communication(events))
        number = number[kernel_lines]
        kernel_class = np.where(np.isin(number, list(KERNEL_CLASSES)), number - 1, len(times.KERNELS_BY_CLASS) - 1)
        graphs = load_opened_events(report, source_names.CUDA_GRAPHS, job.store)
        is_graph = graphs.get_values(types.GRAPH_LAUNCH) != ABSENT
        graph_lines = np.flatnonzero(is_graph & (not job.hides_nccl))
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


# ---- main threads ----------------------------------------------------------------------------------------------------


class HostPart(NamedTuple):
    """Totals of some main threads, with the ranges of their reports: how often each occurs, on how many tasks.

    `node`: that of the threads; None without threads.
    """

    node: int | None
    totals: Totals
    keys: list[RangeKey]
    occurrences: IntArray
    tasks: IntArray


def list_main_threads(job: Job) -> list[IntArray]:
    """Return the places of the main threads that count, for each report; none if their calls were not read."""
    if any(source not in job.reports[0].results for source in (source_names.CUDA_API, source_names.MPI)):
        return [np.zeros(0, np.int64) for _ in job.reports]
    listed = []
    for report, rows in zip(job.reports, job.tree.rows, strict=True):
        main = {process: thread for process, thread in map_main_threads(report).items() if rows[thread] >= 0}
        application = [thread for process, thread in main.items() if process in report.places.application]
        listed.append((list(main.values()), application))
    has_application = any(application for _, application in listed)
    return [np.array(application if has_application else main, np.int64) for main, application in listed]


def measure_hosts(job: Job, group: Sequence[int], main_threads: Sequence[IntArray], plan: WindowPlan) -> HostPart:
    """Measure the main threads of a group of reports. `main_threads`: their places, for each report of the job."""
    ranges = load_repeated(job, group)
    totals = Totals(3, 1, plan.first_range + len(ranges.keys))
    flat = load_host_calls(job, group, main_threads)
    rows = np.unique(np.concatenate([job.tree.rows[index][main_threads[index]] for index in group]))
    for number in rows.tolist():
        steps = make_row_steps(flat, number, USEFUL)
        windows = plan.list_windows([int(job.tree.task_of_row[number])], ranges)
        sums = sum_in_windows(steps, USEFUL, windows, totals.count.size, 3)
        totals.add(windows, sums, [sums[:, USEFUL] + sums[:, IN_CUDA]])
    size = len(ranges.keys)
    pairs = np.unique(np.stack([ranges.key, ranges.task]), axis=1)
    node = job.tree.model.tasks[int(job.tree.task_of_row[rows[0]])].node if rows.size else None
    return HostPart(
        node, totals, ranges.keys, np.bincount(ranges.key, minlength=size), np.bincount(pairs[0], minlength=size)
    )


def load_host_calls(job: Job, group: Sequence[int], main_threads: Sequence[IntArray]) -> FlatStates:
    """Return when the main threads of a group of reports are in CUDA or MPI (IN_CUDA, IN_MPI), by row of the trace."""
    kinds = (  # being in MPI counts before being in CUDA
        (source_names.CUDA_API, IN_CUDA, [types.CUDA_API]),
        (source_names.MPI, IN_MPI, list(types.MPI_CALLS.values())),
    )
    layers = []
    for source, kind, event_types in kinds:
        parts = []
        for index in group:
            events = load_opened_events(job.reports[index], source, job.store)
            is_call = np.isin(events.place, main_threads[index]) & (events.get_values(*event_types) != ABSENT)
            row = job.tree.rows[index][events.place]
            parts.append([column[is_call] for column in (row, events.begin, events.end)])
        row, begin, end = (np.concatenate(column) for column in zip(*parts, strict=True))
        layers.append(flatten(row, begin, end, np.full(row.size, kind, np.int64)))
    return overlay(*layers)
