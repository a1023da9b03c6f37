"""Times of GPUs and main threads that the efficiencies of POP are made of, over windows of time.

Each ns of a GPU is of one class, so that the classes add up to the window times the GPUs:

- it runs a kernel other than NCCL's, or a graph that was traced as a whole (COMPUTE);
- else it runs kernels of NCCL, of which some move data (MOVING), some are not split (NOT_SPLIT), or all wait for other
  ranks (WAITING); analysis/gpu_waits.py says in which order these count;
- else it copies or sets memory (MEMORY);
- else it is idle between two operations, by the causes of analysis/idle_causes.py;
- or it is before the first operation of a capture or after its last (BEFORE, AFTER);
- or no report captured it (NOT_CAPTURED).

A GPU is one that ran an operation in the capture, over all processes. The host is the main thread of each process with
events of GPUs, MPI or NCCL, of any process if none has these: it is in MPI, else in CUDA, else useful.

Windows are: the chosen time, or else the capture (from its begin in the first report to its end in the last one); the
steps from the first begin to the last end; and the own ranges of each task, of one step or of one name. Own ranges are
those of the tasks that use a GPU, all together; the window is then the longest time of any GPU or thread, and what the
others lack to it is of no class. Definitions: POP; TALP of DLB 3.7 (perf_metrics.c); BasicAnalysis 2026.10
(nsys2prvmetrics.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from nsys2prv_ng.analysis import gpu_waits as gpu
from nsys2prv_ng.analysis.efficiency_windows import (
    FIRST_STEP,
    IN_STEPS,
    WHOLE,
    RangeKey,
    StepWindows,
    WindowPlan,
    Windows,
    list_steps,
    load_repeated,
    make_plan,
    sum_in_windows,
    unite_spans,
)
from nsys2prv_ng.analysis.gpu_activity import NO_GAPS, Devices, Gaps, list_activity_runs, list_devices, measure_activity
from nsys2prv_ng.analysis.gpu_waits import GpuWaits, sweep_gpu_waits
from nsys2prv_ng.analysis.idle_pieces import CAUSES, IdlePieces, split_gaps
from nsys2prv_ng.analysis.waits import Waits
from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.intervals.states import flatten, overlay
from nsys2prv_ng.intervals.step_functions import NOTHING, StepFunction, make_steps
from nsys2prv_ng.intervals.windows import cut_to_windows
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.job.opened_events import ABSENT, load_opened_events
from nsys2prv_ng.objects.places import Thread
from nsys2prv_ng.objects.tree import group_by_shared_rows
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.report.metadata import PID_MASK
from nsys2prv_ng.runtime.parallel import run_in_threads
from nsys2prv_ng.sources.cuda import device_activity

CLASSES = (
    "compute",
    "waiting",
    "moving",
    "not_split",
    "memory",
    *CAUSES,
    "before_first",
    "after_last",
    "not_captured",
)
"""Names of what a GPU does at a time, by number."""
_COMPUTE, _WAITING, _MOVING, _NOT_SPLIT, _MEMORY = range(5)
_CAUSE = 5
_BEFORE, _AFTER, _NOT_CAPTURED = range(_CAUSE + len(CAUSES), len(CLASSES))
_KERNELS = _MEMORY
"""Classes below this one run kernels, those below the first cause run anything."""

_CLASS_OF_VALUE = np.full(gpu.COMPUTE_OVER_UNSPLIT + 1, _COMPUTE, np.int64)
_CLASS_OF_VALUE[[0, gpu.WAITING, gpu.MOVING, gpu.UNSPLIT, gpu.MEMORY_ALONE]] = (
    _AFTER,
    _WAITING,
    _MOVING,
    _NOT_SPLIT,
    _MEMORY,
)

_USEFUL, _IN_CUDA, _IN_MPI = range(3)
"""What a host thread does at a time."""


class DeviceTimes(NamedTuple):
    """Times (ns) of GPUs in windows: sums over all of them by class, and the most that any has."""

    devices: int
    by_class: dict[str, int]
    most_compute: int
    most_kernels: int
    most_active: int

    @property
    def compute(self) -> int:
        """Useful time where NCCL is communication."""
        return self.by_class[CLASSES[_COMPUTE]]

    @property
    def kernels(self) -> int:
        """Useful time where NCCL is useful."""
        return sum(self.by_class[name] for name in CLASSES[:_KERNELS])


class HostTimes(NamedTuple):
    """Times (ns) of main threads in windows: sums over all of them, and the most that any has."""

    threads: int
    outside_mpi: int
    most_outside_mpi: int
    useful: int
    """Outside of MPI and of CUDA."""
    node_threads: int
    """Threads of the node whose threads are outside of MPI for most time on average."""
    node_outside_mpi: int
    """Sum over these threads."""


class WindowTimes(NamedTuple):
    """Times of all GPUs and main threads in windows of `ns` each; None where there are no GPUs or no main threads."""

    ns: int
    devices: DeviceTimes | None
    host: HostTimes | None
    idle_by_range: dict[str, int]
    """Idle time (ns) that the host caused, by NVTX range ("": none); empty for windows of single tasks."""


class RangeTimes(NamedTuple):
    """A range that repeats: how often it counts, on how many tasks, and its times."""

    domain: str
    name: str
    occurrences: int
    tasks: int
    times: WindowTimes


class Efficiency(NamedTuple):
    """The times of a job that its efficiencies are made of."""

    windows: list[tuple[int, int]]
    """The chosen time, or the capture (ns, on the common clock)."""
    whole: WindowTimes
    steps: StepWindows | None
    in_steps: WindowTimes | None
    """From the first begin of a step that counts to the last end."""
    by_step: list[WindowTimes]
    ranges: list[RangeTimes]
    """Those with most time first."""


def compute_efficiency(job: Job, waits: Waits) -> Efficiency:
    """Measure GPUs and main threads over all windows.

    The records of one report (of its main threads) or of one group of GPUs are in memory for each worker.
    """
    plan = make_plan(job, list_steps(job))
    nodes = [_Totals(3, 1) for _ in job.tree.model.nodes]
    gpus = _Totals(len(CLASSES), 3)
    keys: dict[RangeKey, int] = {}
    counted: list[tuple[IntArray, IntArray, IntArray]] = []
    main = _list_main_threads(job)
    for part in run_in_threads(lambda group: _measure_hosts(job, group, main, plan), _group_reports(job), job.workers):
        index = plan.number_sets(part.keys, keys)
        if part.node is not None:
            nodes[part.node].merge(part.totals, index)
        counted.append((index[plan.first_range :] - plan.first_range, part.occurrences, part.tasks))
    idle_by_range: list[Counter[str]] = [Counter(), Counter()]
    devices = list_devices(job)
    groups = _list_groups(job, waits, devices)
    for own in run_in_threads(lambda group: _measure_gpus(job, devices, group, plan), groups, job.workers):
        gpus.merge(own.totals, plan.number_sets(own.keys, keys))
        for sums, more in zip(idle_by_range, own.idle_by_range, strict=True):
            sums.update(more)
    size = plan.first_range + len(keys)
    gpus.grow(size)
    hosts = _unite_nodes(nodes, size)
    times = [_make_times(*hosts, gpus, index) for index in range(size)]
    return Efficiency(
        windows=plan.whole,
        whole=times[WHOLE]._replace(idle_by_range=dict(idle_by_range[0])),
        steps=plan.steps,
        in_steps=None if plan.steps is None else times[IN_STEPS]._replace(idle_by_range=dict(idle_by_range[1])),
        by_step=times[FIRST_STEP : plan.first_range],
        ranges=_list_ranges(list(keys), times[plan.first_range :], counted),
    )


def _list_ranges(
    keys: Sequence[RangeKey], times: Sequence[WindowTimes], counted: Sequence[tuple[IntArray, IntArray, IntArray]]
) -> list[RangeTimes]:
    """Return the ranges of GPUs or main threads, by their time; `counted`: ranges, their occurrences and tasks."""
    occurrences, tasks = np.zeros((2, len(keys)), np.int64)
    for index, own_occurrences, own_tasks in counted:
        occurrences[index] += own_occurrences
        tasks[index] += own_tasks
    listed = [
        RangeTimes(*key, int(occurrences[n]), int(tasks[n]), times[n])
        for n, key in enumerate(keys)
        if times[n].devices is not None or times[n].host is not None
    ]
    return sorted(listed, key=lambda row: (-row.times.ns, row.domain, row.name))


# ---- sums over windows -----------------------------------------------------------------------------------------------


class _Totals:
    """Sums over GPUs or threads in sets of windows: arrays of `classes` sums and `most` maxima for each set (ns)."""

    def __init__(self, classes: int, most: int, size: int = 0) -> None:
        self.count = np.zeros(size, np.int64)
        """GPUs or threads with a window."""
        self.longest = np.zeros(size, np.int64)
        self.sums = np.zeros((size, classes), np.int64)
        self.most = np.zeros((size, most), np.int64)

    def grow(self, size: int) -> None:
        """Make room for this many sets."""
        more = size - self.count.size
        if more > 0:
            self.count, self.longest = (np.append(a, np.zeros(more, np.int64)) for a in (self.count, self.longest))
            self.sums, self.most = (np.pad(a, ((0, more), (0, 0))) for a in (self.sums, self.most))

    def merge(self, part: _Totals, index: IntArray) -> None:
        """Add the totals of other GPUs or threads, whose sets have the numbers `index` here."""
        self.grow(int(index.max(initial=-1)) + 1)
        self.count[index] += part.count
        self.longest[index] = np.maximum(self.longest[index], part.longest)
        self.sums[index] += part.sums
        self.most[index] = np.maximum(self.most[index], part.most)

    def add(self, windows: Windows, sums: IntArray, most: Sequence[IntArray]) -> None:
        """Add a GPU or thread with these windows and sums (sets x classes)."""
        length = np.zeros(self.count.size, np.int64)
        np.add.at(length, windows.set, windows.end - windows.begin)
        self.count += length > 0
        self.longest = np.maximum(self.longest, length)
        self.sums += sums
        self.most = np.maximum(self.most, np.stack(most, axis=1))


def _unite_nodes(nodes: Sequence[_Totals], size: int) -> tuple[_Totals, IntArray]:
    """Return the totals of the main threads of all nodes, and those of one node for each set (2 x sets).

    These are the number and the time outside of MPI (ns) of the threads of the node where the mean of it is largest.
    """
    whole, chosen = _Totals(3, 1, size), np.zeros((2, size), np.int64)
    for own in nodes:
        own.grow(size)
        whole.merge(own, np.arange(size))
        outside = own.sums[:, _USEFUL] + own.sums[:, _IN_CUDA]
        is_more = (own.count > 0) & (outside / np.maximum(own.count, 1) > chosen[1] / np.maximum(chosen[0], 1))
        chosen[:, is_more] = own.count[is_more], outside[is_more]
    return whole, chosen


def _make_times(hosts: _Totals, node: IntArray, gpus: _Totals, index: int) -> WindowTimes:
    devices = host = None
    if gpus.count[index]:
        by_class = dict(zip(CLASSES, gpus.sums[index].tolist(), strict=True))
        devices = DeviceTimes(int(gpus.count[index]), by_class, *gpus.most[index].tolist())
    if hosts.count[index]:
        useful, in_cuda, _ = hosts.sums[index].tolist()
        most = int(hosts.most[index, 0])
        host = HostTimes(int(hosts.count[index]), useful + in_cuda, most, useful, *node[:, index].tolist())
    return WindowTimes(int(max(hosts.longest[index], gpus.longest[index])), devices, host, {})


# ---- main threads ----------------------------------------------------------------------------------------------------


class _HostPart(NamedTuple):
    """Totals of some main threads, with the ranges of their reports: how often each counts, on how many tasks."""

    node: int | None
    """That of the threads; None if there are none."""
    totals: _Totals
    keys: list[RangeKey]
    occurrences: IntArray
    tasks: IntArray


def _group_reports(job: Job) -> list[list[int]]:
    """Return the reports by index, those of one task together."""
    tasks = []
    for report, rows in zip(job.reports, job.tree.rows, strict=True):
        is_thread = np.array([isinstance(place, Thread) for place in report.places.all], np.bool_)
        row = rows[is_thread]
        tasks.append(np.unique(job.tree.task_of_row[row[row >= 0]]))
    return group_by_shared_rows(tasks)


def _list_main_threads(job: Job) -> list[IntArray]:
    """Return the places of the main threads of each report that count; none where their calls were not read."""
    if any(source not in job.reports[0].results for source in ("cuda_api", "mpi")):
        return [np.zeros(0, np.int64) for _ in job.reports]
    listed = []
    for report, rows in zip(job.reports, job.tree.rows, strict=True):
        shown = [(n, place) for n, place in enumerate(report.places.all) if isinstance(place, Thread) and rows[n] >= 0]
        main = [(n, place) for n, place in shown if place.global_tid & PID_MASK == place.process & PID_MASK]
        listed.append((main, [(n, place) for n, place in main if place.process in report.places.application]))
    has_application = any(application for _, application in listed)
    return [
        np.array([n for n, _ in (application if has_application else main)], np.int64) for main, application in listed
    ]


def _measure_hosts(job: Job, group: Sequence[int], main_threads: Sequence[IntArray], plan: WindowPlan) -> _HostPart:
    """Measure the main threads of some reports."""
    ranges = load_repeated(job, group, plan.steps)
    totals = _Totals(3, 1, plan.first_range + len(ranges.keys))
    parts = [_load_calls(job, index, main_threads[index]) for index in group]
    row, begin, end, value = (np.concatenate(column) for column in zip(*parts, strict=True))
    in_cuda, in_mpi = (flatten(*(column[value == kind] for column in (row, begin, end, value))) for kind in (1, 2))
    flat = overlay(in_cuda, in_mpi)
    rows = np.unique(np.concatenate([job.tree.rows[index][main_threads[index]] for index in group]))
    for number in rows.tolist():
        low, high = np.searchsorted(flat.row, [number, number + 1])
        steps = make_steps(flat.begin[low:high], flat.end[low:high], flat.state[low:high])
        steps = steps._replace(value=np.where(steps.value == NOTHING, _USEFUL, steps.value))
        windows = plan.list_windows([int(job.tree.task_of_row[number])], ranges)
        sums = sum_in_windows(steps, _USEFUL, windows, totals.count.size, 3)
        totals.add(windows, sums, [sums[:, _USEFUL] + sums[:, _IN_CUDA]])
    size = len(ranges.keys)
    pairs = np.unique(np.stack([ranges.key, ranges.task]), axis=1)
    node = job.tree.model.tasks[int(job.tree.task_of_row[rows[0]])].node if rows.size else None
    return _HostPart(
        node, totals, ranges.keys, np.bincount(ranges.key, minlength=size), np.bincount(pairs[0], minlength=size)
    )


def _load_calls(job: Job, index: int, threads: IntArray) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """Return row, begin, end (ns) and kind (_IN_CUDA or _IN_MPI) of the calls of some threads (places) of a report."""
    parts = [(np.zeros(0, np.int64),) * 4]
    kinds = ("cuda_api", _IN_CUDA, [types.CUDA_API]), ("mpi", _IN_MPI, list(types.MPI_CALLS.values()))
    for source, kind, event_types in kinds:
        events = load_opened_events(job.reports[index], source, job.store)
        lines = np.flatnonzero(np.isin(events.place, threads) & (events.get_values(*event_types) != ABSENT))
        row = job.tree.rows[index][events.place[lines]]
        parts.append((row, events.begin[lines], events.end[lines], np.full(lines.size, kind, np.int64)))
    row, begin, end, kind_of = (np.concatenate(column) for column in zip(*parts, strict=True))
    return row, begin, end, kind_of


# ---- GPUs ------------------------------------------------------------------------------------------------------------


class _GpuGroup(NamedTuple):
    """GPUs that share reports: what they do over time, and when nothing."""

    rows: IntArray
    changes: GpuWaits
    gaps: Gaps


class _GpuPart(NamedTuple):
    totals: _Totals
    keys: list[RangeKey]
    idle_by_range: list[dict[str, int]]
    """Of the whole time and of the steps."""


def _list_groups(job: Job, waits: Waits, devices: Devices) -> Iterator[_GpuGroup]:
    """Yield one group of GPUs after the other, at last those that do nothing in the chosen time."""
    if device_activity.NAME not in job.reports[0].results:
        return
    others = {row for row, device in devices.rows.items() if device.tasks}
    for run, changes in zip(list_activity_runs(job), sweep_gpu_waits(job, waits), strict=True):
        rows = np.unique(changes.row)
        others.difference_update(rows.tolist())
        yield _GpuGroup(rows, changes, measure_activity(job, run)[1])
    for row in sorted(others):
        nothing = GpuWaits(*(np.zeros(0, np.int64) for _ in range(3)))
        yield _GpuGroup(np.array([row], np.int64), nothing, NO_GAPS)


def _measure_gpus(job: Job, devices: Devices, group: _GpuGroup, plan: WindowPlan) -> _GpuPart:
    """Measure the GPUs of a group."""
    reports = devices.find_reports(group.rows)
    ranges = load_repeated(job, reports, plan.steps)
    totals = _Totals(len(CLASSES), 3, plan.first_range + len(ranges.keys))
    pieces = split_gaps(job, devices, reports, group.gaps)
    for row in group.rows.tolist():
        captures = plan.unite_captures(devices.find_reports(np.array([row])))
        steps = _classify(group.changes, pieces, row, captures)
        windows = plan.list_windows(sorted(devices.rows[row].tasks), ranges)
        sums = sum_in_windows(steps, _NOT_CAPTURED, windows, totals.count.size, len(CLASSES))
        totals.add(windows, sums, [sums[:, :last].sum(axis=1) for last in (_COMPUTE + 1, _KERNELS, _CAUSE)])
    return _GpuPart(totals, ranges.keys, [_sum_by_range(pieces, own) for own in (plan.whole, plan.in_steps)])


def _classify(changes: GpuWaits, pieces: IdlePieces, row: int, captures: Sequence[tuple[int, int]]) -> StepFunction:
    """Return the class of a GPU over time, from its first capture on."""
    own = np.flatnonzero((changes.row == row) & (changes.value != gpu.NOTHING))
    idle = np.flatnonzero(pieces.row == row)
    # A graph may run when what else the capture has has ended.
    ends = np.flatnonzero(changes.value[own] == 0)
    begins = np.append(0, ends + 1)[: ends.size]
    stretches = zip(changes.time[own[begins]].tolist(), changes.time[own[ends]].tolist(), strict=True)
    lows, highs = np.array(unite_spans([*captures, *stretches]), np.int64).reshape(-1, 2).T
    parts = [
        (lows, np.full(lows.size, _BEFORE)),
        (changes.time[own], _CLASS_OF_VALUE[changes.value[own]]),
        (pieces.begin[idle], _CAUSE + pieces.cause[idle]),
        (highs, np.full(highs.size, _NOT_CAPTURED)),
    ]
    time, value = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.argsort(time, kind="stable")
    return StepFunction(time[order], value[order])


def _sum_by_range(pieces: IdlePieces, windows: Sequence[tuple[int, int]]) -> dict[str, int]:
    """Return the time (ns) that the host let GPUs be idle in windows, by range."""
    host = np.flatnonzero(pieces.cause == 0)
    if not windows or not host.size:
        return {}
    piece, _, begin, end = cut_to_windows(pieces.begin[host], pieces.end[host], windows)
    sums = np.zeros(len(pieces.names) + 1, np.int64)
    np.add.at(sums, pieces.range[host][piece], end - begin)
    return {name: ns for name, ns in zip([*pieces.names, ""], sums.tolist(), strict=True) if ns}
