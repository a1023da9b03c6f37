"""Measures what GPU metrics saw while NVTX ranges or classes of kernels ran, and how long tasks wait in their ranges.

The metrics are those of SMs, tensor cores, DRAM and NVLink. UnitActivity defines which samples count.

A range on the host lasts longer if its thread waits for others: in an MPI call, or in a CUDA call that returns when the
GPU has finished. While the GPU of a task only waits in NCCL kernels, a thread of the task in such a CUDA call can wait
for nothing else: this is waiting too.

A thread that does not wait may still be ahead of the others, while its GPU waits for them. So a task is called the
slowest only if it has the largest mean without the waiting of its GPU as well. If another task, which runs ahead, takes
longer on the host, the slowest task must also be the task for which others wait most.

No task is called the slowest if another one could be slower, because some waiting is not known: in kernels and calls
that are not split, in CUDA graphs that were traced as a whole, in waits below the uncertainty of the clocks, of tasks
with several GPUs, and of GPUs with several tasks.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from nsys2prv_ng import source_names
from nsys2prv_ng.analysis.efficiency.measure import load_kernels
from nsys2prv_ng.analysis.efficiency.times import KERNELS_BY_CLASS
from nsys2prv_ng.analysis.gpus.activity import Devices, Times, find_other_kernels, list_activity_runs, list_devices
from nsys2prv_ng.analysis.gpus.metrics import NO_VALUES, CoveredValues, MetricSums, PartsOfTime, find_pattern
from nsys2prv_ng.analysis.gpus.waiting import UNSPLIT, WAITING, WHOLE_GRAPH, GpuSweep
from nsys2prv_ng.analysis.waits.clocks import get_uncertainty
from nsys2prv_ng.analysis.waits.rules import BELOW_UNCERTAINTY
from nsys2prv_ng.analysis.waits.waits import Waits
from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.intervals.device_sweep import MEMORY
from nsys2prv_ng.intervals.states import Groups, find_alone, unite_groups
from nsys2prv_ng.intervals.step_functions import NO_INTERVALS, CoveredTime, Intervals, find_intervals, join_intervals
from nsys2prv_ng.job.counted import CountedEvents
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver import families
from nsys2prv_ng.paraver.event_type import EventType
from nsys2prv_ng.reading.opened_events import load_opened_events
from nsys2prv_ng.records.runs import Run
from nsys2prv_ng.summary.kernels.numbers import KernelActivity, UnitActivity
from nsys2prv_ng.summary.links.counters import FEWEST_SAMPLES
from nsys2prv_ng.summary.ranges.numbers import RangeNode, RangeOfTask
from nsys2prv_ng.summary.ranges.tree import RangeTree, find_ranges

_METRICS = {
    "sm_active": families.SMS_ACTIVE,
    "sm_issue": families.SM_ISSUE,
    "tensor_active": families.TENSOR_ACTIVE,
    "dram_read": families.DRAM_READS,
    "dram_write": families.DRAM_WRITES,
    "nvlink_received": families.NVLINK_RECEIVED,
    "nvlink_transmitted": families.NVLINK_TRANSMITTED,
}
"""For each field, the patterns of the metrics whose means it adds up."""
_KERNELS = "kernels"
_NOT_SELECTED = len(KERNELS_BY_CLASS) - 1
_Field = tuple[str, int]
"""A field, and the index of the metric among those that it adds up."""
_Sums = dict[int, dict[_Field, CoveredValues]]
"""Values that count, by the number of the class or node."""


class _Kernels(NamedTuple):
    """Kernels by class (an index into KERNELS_BY_CLASS), and again by the node in which they were launched.

    The last number of a node is for none.
    """

    row_of_class: IntArray
    classes: Groups
    row_of_node: IntArray
    nodes: Groups

    def take(self, row: int) -> _Kernels:
        """Return the kernels on a row."""
        of_class, of_node = self.row_of_class == row, self.row_of_node == row
        (kind, begin, end), (node, first, last) = self.classes, self.nodes
        return _Kernels(
            *(self.row_of_class[of_class], (kind[of_class], begin[of_class], end[of_class])),
            *(self.row_of_node[of_node], (node[of_node], first[of_node], last[of_node])),
        )


class KernelTime:
    """When kernels of one class run alone, and when those launched in one range do."""

    def __init__(self, job: Job, devices: Devices, tree: RangeTree) -> None:
        self._job, self._devices, self._tree = job, devices, tree
        self._size = len(tree.nodes) + 1
        numbers = {path: n for n, path in enumerate(tree.paths)}
        around = [numbers[path[:-1]] if len(path) > 1 else -1 for path in tree.paths]
        self._parent = np.array([*around, -1], np.int64)
        """The node around each node; -1 for an outermost one, and for none."""
        self._level = np.array([*(node.depth for node in tree.nodes), 0], np.int64)

    @property
    def part(self) -> PartsOfTime:
        """The parts of the time, for metrics of what kernels use. Each thread keeps the kernels that it loaded last."""
        return PartsOfTime(_KERNELS, lambda kind: _find_field(kind) is not None, partial(self._find, threading.local()))

    def list_classes(self, metrics: Sequence[MetricSums]) -> list[KernelActivity]:
        """Return the activity of each class with enough samples, the class with most sampled time first."""
        sums: _Sums = {}
        for field, part, values in _list_covered(metrics):
            _add(sums, part // self._size - 1, field, values)
        measured = _measure(sums).items()
        found = [KernelActivity(kernel_class=KERNELS_BY_CLASS[number], **vars(each)) for number, each in measured]
        return sorted(found, key=lambda each: (-each.ns, each.kernel_class))

    def list_nodes(self, metrics: Sequence[MetricSums]) -> list[RangeNode]:
        """Return the nodes of the tree, with the activity of those with enough samples."""
        sums: _Sums = {}
        for field, part, values in _list_covered(metrics):
            node = part % self._size - 1
            while node >= 0:
                _add(sums, node, field, values)
                node = int(self._parent[node])
        found = _measure(sums)
        used = {row for row, gpu in self._devices.rows.items() if gpu.tasks}
        if used <= {metric.row for metric in metrics if _find_field(metric.event_type) is not None}:
            found = {n: replace(each, gpu_ns=self._tree.nodes[n].gpu_ns) for n, each in found.items()}
        return [replace(node, activity=found.get(n)) for n, node in enumerate(self._tree.nodes)]

    def _find(self, latest: threading.local, row: int, begin: IntArray, end: IntArray) -> IntArray:
        """Return a number for the class and the innermost node that count for each of n times (ns) on a row.

        `latest`: the kernels that this thread loaded last, since the next row mostly has kernels of the same reports.
        """
        reports = self._devices.find_reports(np.array([row]))
        if getattr(latest, "reports", None) != reports:
            latest.reports, latest.kernels = reports, self._load_kernels(reports)
        kernels: _Kernels = latest.kernels.take(row)
        others = self._find_others(row, kernels)
        if others is None:
            return np.full(begin.size, -1, np.int64)
        kernel_class = find_alone(unite_groups(_join(kernels.classes, others, _NOT_SELECTED)), begin, end)
        kernel_class[kernel_class == _NOT_SELECTED] = -1
        node = self._find_nodes(_join(kernels.nodes, others, self._size - 1), begin, end)
        return np.where((kernel_class < 0) & (node < 0), -1, (kernel_class + 1) * self._size + node + 1)

    def _find_others(self, row: int, kernels: _Kernels) -> Times | None:
        """Return when kernels run on a row that the job does not have, since the user did not select them.

        None if that is not known.
        """
        selection = self._job.scope.selection
        if selection.ranks is None and not selection.shortest:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        return find_other_kernels(self._job, row, *kernels.classes[1:])

    def _find_nodes(self, kernels: Groups, begin: IntArray, end: IntArray) -> IntArray:
        """Return the innermost node whose kernels run alone in each of n times (ns); -1 for none."""
        found = np.full(begin.size, -1, np.int64)
        if not any(self._tree.paths):  # all kernels were launched in no range
            return found
        group, low, high = unite_groups(kernels)
        for level in range(int(self._level[group].max(initial=0)), -1, -1):
            if level < self._level[group].max(initial=0):  # what is within a node counts for the node
                inner = self._level[group] > level
                group, low, high = unite_groups((np.where(inner, self._parent[group], group), low, high))
            alone = find_alone((group, low, high), begin, end)
            found = np.where((found < 0) & (alone < self._size - 1), alone, found)
        return found

    def _load_kernels(self, reports: Sequence[int]) -> _Kernels:
        """Return the kernels of some reports, NCCL's and graphs that were traced as a whole included."""
        kernels = load_kernels(self._job, self._devices, reports, with_others=True)
        parts = [(np.zeros(0, np.int64),) * 4]
        for index in reports:
            counted = CountedEvents(self._job, index)
            path, paths = find_ranges(self._job.reports[index], self._job.store, counted)
            node = np.array([self._number(path) for path in paths], np.int64)[path]
            operations = counted.launched
            row = self._devices.rows_of_reports[index][operations.place]
            at = np.flatnonzero((row >= 0) & (operations.kind & MEMORY == 0))
            parts.append((row[at], node[at], operations.begin[at], operations.end[at]))
        row, node, begin, end = (np.concatenate(column) for column in zip(*parts, strict=True))
        return _Kernels(kernels.row, (kernels.kind, kernels.begin, kernels.end), row, (node, begin, end))

    def _number(self, path: tuple[str, ...]) -> int:
        """Return the number of the node of a path: of the nearest one around it, or else the last number."""
        while len(path) > 1 and path not in self._tree.number:
            path = path[:-1]
        node = self._tree.number.get(path, -1)
        return node if node >= 0 else self._size - 1


def _join(groups: Groups, others: Times, number: int) -> Groups:
    """Return the groups and others, which are the group with this number."""
    group, begin, end = groups
    more, last = others
    return np.append(group, np.full(more.size, number)), np.append(begin, more), np.append(end, last)


def _find_field(kind: EventType) -> _Field | None:
    """Return the field to which a metric belongs; None for other metrics."""
    fields = ((field, find_pattern(kind.member, patterns)) for field, patterns in _METRICS.items())
    return next(((field, index) for field, index in fields if index >= 0), None)


def _list_covered(metrics: Sequence[MetricSums]) -> Iterator[tuple[_Field, int, CoveredValues]]:
    """Yield (field, number of the part of the time, values); of a GPU's metrics of a field, of the first by name."""
    chosen: dict[tuple[int, _Field], MetricSums] = {}
    for metric in metrics:  # ordered by row and name
        if (field := _find_field(metric.event_type)) is not None:
            chosen.setdefault((metric.row, field), metric)
    for (_, field), metric in chosen.items():
        yield from ((field, part, values) for (name, part), values in metric.covered.items() if name == _KERNELS)


def _add(sums: _Sums, number: int, field: _Field, values: CoveredValues) -> None:
    if number >= 0:
        fields = sums.setdefault(number, {})
        fields[field] = fields.get(field, NO_VALUES).add(values)


def _measure(sums: _Sums) -> dict[int, UnitActivity]:
    """Return the activity of each number with enough samples."""
    found = {}
    for number, fields in sums.items():
        largest = max(fields.values(), key=lambda values: values.samples)
        if largest.samples >= FEWEST_SAMPLES:
            means: dict[str, Any] = {field: _add_means(fields, field) for field in _METRICS}
            found[number] = UnitActivity(ns=largest.ns, samples=largest.samples, **means)
    return found


def _add_means(fields: Mapping[_Field, CoveredValues], field: str) -> float | None:
    """Return the sum of the means of a field's metrics; None unless all have enough samples."""
    values = [fields.get((field, index), NO_VALUES) for index in range(len(_METRICS[field]))]
    means = [each.mean for each in values if each.samples >= FEWEST_SAMPLES]
    return sum(mean for mean in means if mean is not None) if len(means) == len(values) else None


_BLOCKING = re.compile("Synchronize|Memcpy")
"""CUDA calls that wait, or may wait, for a GPU; a copy of pageable memory waits even if its name ends in Async."""


class WaitingInRanges:
    """Time in which tasks wait, or may wait, for others in any interval on their threads."""

    def __init__(self, job: Job, waits: Waits) -> None:
        self._task_of_row = job.tree.task_of_row
        users = [(row, task) for row, device in list_devices(job).rows.items() for task in sorted(device.tasks)]
        gpu, task = np.array(users, np.int64).reshape(-1, 2).T
        is_only = (np.bincount(gpu)[gpu] == 1) & (np.bincount(task)[task] == 1)
        waiting, unsplit = _collect_gpus(job, waits)
        on_streams, in_calls = _collect_unknown(job, waits)
        known = _pass_on(waiting, gpu[is_only], task[is_only])
        shared = _pass_on(waiting, gpu[~is_only], task[~is_only])
        streams = self._task_of_row[on_streams[0]], *on_streams[1:]
        unknown = join_intervals([_pass_on(unsplit, gpu, task), shared, streams])
        in_mpi = _collect_waiting_calls(job, waits)
        self._known = _Layers(known, in_mpi, self._task_of_row)
        blocked = _collect_blocked(job, CoveredTime(known), self._task_of_row)
        self._threads = CoveredTime(join_intervals([in_mpi, blocked]))
        self._unknown = _Layers(unknown, in_calls, self._task_of_row)

    def measure_threads(self, row: IntArray, begin: IntArray, end: IntArray) -> IntArray:
        """Return the time (ns) in which the thread waits, in each of n intervals on threads (rows of the trace)."""
        return self._threads.measure(row, begin, end)

    def measure_all(self, row: IntArray, begin: IntArray, end: IntArray) -> IntArray:
        """Return the time (ns) in which the thread or the GPU of its task waits, in each of n intervals."""
        return self._known.measure(row, begin, end)

    def measure_unknown(self, row: IntArray, begin: IntArray, end: IntArray) -> IntArray:
        """Return the time (ns) that may be waiting as well, in each of n intervals."""
        return np.minimum(self._unknown.measure(row, begin, end), end - begin - self.measure_all(row, begin, end))


def choose_slowest(tasks: Sequence[RangeOfTask], caused: Mapping[str, int]) -> str | None:
    """Return the name of the slowest task in a range; None if it is not certain.

    `caused`: how long (ns) others waited for each task, by the name of the task.
    """
    slowest = max(tasks, key=lambda task: task.needed_mean_ns)
    longest = max(tasks, key=lambda task: task.own_mean_ns)
    if any(task.needed_mean_ns > slowest.least_needed_mean_ns for task in tasks if task is not slowest):
        return None
    most = max(caused.values(), default=0)
    is_waited_for = most > 0 and caused.get(slowest.task, 0) == most
    return slowest.task if slowest is longest or is_waited_for else None


class _Layers:
    """Intervals of whole tasks, which apply to all their threads, and intervals of single threads; they may overlap."""

    def __init__(self, task_intervals: Intervals, thread_intervals: Intervals, task_of_row: IntArray) -> None:
        self._task_of_row = task_of_row
        self._tasks = CoveredTime(task_intervals)
        self._threads = np.unique(thread_intervals[0])
        inherited = _pass_on(self._tasks.intervals, task_of_row[self._threads], self._threads)
        self._with_tasks = CoveredTime(join_intervals([thread_intervals, inherited]))

    def measure(self, row: IntArray, begin: IntArray, end: IntArray) -> IntArray:
        """Return how much (ns) of each of n intervals on threads is covered."""
        return np.where(
            np.isin(row, self._threads),
            self._with_tasks.measure(row, begin, end),
            self._tasks.measure(self._task_of_row[row], begin, end),
        )


def _pass_on(intervals: Intervals, giver: IntArray, taker: IntArray) -> Intervals:
    """Return the intervals (sorted by row) of each giver as intervals of its taker. `giver`, `taker`: n pairs of rows.

    A row is that of a GPU or a thread, or the number of a task.
    """
    parts = []
    for row, number in zip(giver.tolist(), taker.tolist(), strict=True):
        low, high = np.searchsorted(intervals[0], [row, row + 1])
        parts.append((np.full(high - low, number, np.int64), intervals[1][low:high], intervals[2][low:high]))
    return join_intervals(parts)


def _collect_gpus(job: Job, waits: Waits) -> tuple[Intervals, Intervals]:
    """Return (when GPUs, by row, only wait in NCCL kernels, when they may wait).

    They may wait in kernels that are not split and in graphs that were traced as a whole.
    """
    sweep = GpuSweep(job, waits)

    def find(run: Run) -> tuple[Intervals, Intervals]:
        row, time, value = sweep.find_changes(run)
        may_wait = (value == UNSPLIT) | (value == WHOLE_GRAPH)
        return find_intervals(row, time, value == WAITING), find_intervals(row, time, may_wait)

    parts = [(NO_INTERVALS, NO_INTERVALS), *job.engine.sum_up(find, list_activity_runs(job))]
    waiting, unsplit = (CoveredTime(join_intervals(each)).intervals for each in zip(*parts, strict=True))
    return waiting, unsplit


def _collect_waiting_calls(job: Job, waits: Waits) -> Intervals:
    """Return when threads, by row, wait in MPI calls."""
    at = np.flatnonzero(waits.is_mpi & (waits.wait > 0) & (job.new_row[waits.row] >= 0))
    return job.new_row[waits.row[at]], waits.begin[at], waits.until[at]


def _collect_blocked(job: Job, waiting: CoveredTime, task_of_row: IntArray) -> Intervals:
    """Return when threads, by row, are in a call that waits for a GPU while the GPU of their task waits."""

    def intersect(report: int) -> Intervals:
        events = load_opened_events(job.reports[report], source_names.CUDA_API, job.store)
        blocking = [value for value, name in events.get_names(types.CUDA_API).items() if _BLOCKING.search(name)]
        row = job.tree.rows[report][events.place]
        lines = np.flatnonzero(np.isin(events.get_values(types.CUDA_API), blocking) & (row >= 0))
        row, begin, end = row[lines], events.begin[lines], events.end[lines]
        call, low, high = waiting.intersect(task_of_row[row], begin, end)
        return row[call], low, high

    return join_intervals(job.engine.sum_up(intersect, range(len(job.reports))))


def _collect_unknown(job: Job, waits: Waits) -> tuple[Intervals, Intervals]:
    """Return (when kernels on streams may wait as well, when calls on threads may), by row.

    Kernels that are not split are left to `_collect_gpus`.
    """
    bounds = np.sort(get_uncertainty(job))
    apart = bounds[-2:].sum()
    below = waits.verdict == BELOW_UNCERTAINTY
    length = (waits.end - waits.begin).astype(np.float64)
    until = waits.begin + np.where(below, np.minimum(length, apart), length).astype(np.int64)
    shown = job.new_row[waits.row] >= 0
    kernels = np.flatnonzero(shown & below & ~waits.is_mpi)
    calls = np.flatnonzero(shown & waits.is_mpi & ~waits.is_split)
    on_streams, in_calls = ((job.new_row[waits.row[at]], waits.begin[at], until[at]) for at in (kernels, calls))
    return on_streams, in_calls
