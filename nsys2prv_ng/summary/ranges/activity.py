"""Measures what GPU metrics saw while kernels of one class, or launched in one NVTX range, ran.

The metrics are those of SMs, tensor cores, DRAM and NVLink. UnitActivity defines which samples count.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from nsys2prv_ng.analysis.efficiency.measure import load_kernels
from nsys2prv_ng.analysis.efficiency.times import KERNELS_BY_CLASS
from nsys2prv_ng.analysis.gpus.activity import Devices, Times, find_other_kernels
from nsys2prv_ng.analysis.gpus.metrics import NO_VALUES, CoveredValues, MetricSums, PartsOfTime, find_pattern
from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.intervals.device_sweep import MEMORY
from nsys2prv_ng.intervals.states import Groups, find_alone, unite_groups
from nsys2prv_ng.job.counted import CountedEvents
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.paraver import families
from nsys2prv_ng.paraver.event_type import EventType
from nsys2prv_ng.summary.kernels.numbers import KernelActivity, UnitActivity
from nsys2prv_ng.summary.links.counters import FEWEST_SAMPLES
from nsys2prv_ng.summary.ranges.numbers import RangeNode
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
