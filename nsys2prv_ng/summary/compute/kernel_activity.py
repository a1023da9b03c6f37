"""Measures what GPU metrics saw while kernels of one class ran: SMs, tensor cores and DRAM."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nsys2prv_ng.analysis.efficiency.gpus import load_kernels
from nsys2prv_ng.analysis.efficiency.times import KERNELS_BY_CLASS
from nsys2prv_ng.analysis.gpus.activity import Devices
from nsys2prv_ng.analysis.gpus.metrics import NO_VALUES, CoveredValues, MetricSums, PartsOfTime
from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.paraver.event_type import EventType
from nsys2prv_ng.summary.compute.covered_time import CoveredTime
from nsys2prv_ng.summary.compute.link_metrics import FEWEST_SAMPLES
from nsys2prv_ng.summary.numbers.kernel_activity import KernelActivity

_METRICS = {
    "sm_active": ("SMs Active", "SM Active"),
    "sm_issue": ("SM Issue",),
    "tensor_active": ("Tensor Active",),
    "dram_read": ("DRAM Read",),
    "dram_write": ("DRAM Write",),
}
"""Beginnings of the names of the metrics of each field, of GPUs from Turing on."""
_PERCENT = "%"
_MOST, _LEAST = 0.9, 0.1
"""Least part of a sample's time in which kernels of its class run, and most part in which others do."""


def find_kernel_time(job: Job, devices: Devices) -> PartsOfTime:
    """Return when kernels of each class (its index in KERNELS_BY_CLASS) run alone, for metrics of what kernels use."""

    def find(row: int, begin: IntArray, end: IntArray) -> IntArray:
        parts = load_kernels(job, devices, devices.find_reports(np.array([row])))
        here = parts.row == row
        classes, number = np.unique(parts.kind[here], return_inverse=True)
        if not classes.size or not begin.size:
            return np.full(begin.size, -1, np.int64)
        covered = CoveredTime((number, parts.begin[here], parts.end[here]))  # a row for each class
        ns = [covered.measure(np.full(begin.size, n), begin, end) for n in range(classes.size)]
        share = np.stack(ns) / np.maximum(end - begin, 1)
        most = np.argmax(share, axis=0)
        largest = share[most, np.arange(begin.size)]
        share[most, np.arange(begin.size)] = 0
        return np.where((largest >= _MOST) & (share.max(axis=0) <= _LEAST), classes[most], -1)

    return PartsOfTime(lambda kind: bool(_find_field(kind)), find)


def _find_field(kind: EventType) -> str:
    """Return the field of a metric; "" for others."""
    if not kind.unit.endswith(_PERCENT):
        return ""
    return next((field for field, starts in _METRICS.items() if kind.label.startswith(starts)), "")


def list_kernel_activity(metrics: Sequence[MetricSums]) -> list[KernelActivity]:
    """Return the activity of each class with enough samples, the class with most sampled time first."""
    sums: dict[int, dict[str, CoveredValues]] = {}
    for metric in metrics:
        field = _find_field(metric.event_type)
        for number, values in metric.covered.items() if field else ():
            fields = sums.setdefault(number, {})
            fields[field] = fields.get(field, NO_VALUES).add(values)
    found = [_make(KERNELS_BY_CLASS[number], fields) for number, fields in sums.items()]
    return sorted(
        (each for each in found if each.samples >= FEWEST_SAMPLES), key=lambda each: (-each.ns, each.kernel_class)
    )


def _make(kernel_class: str, fields: dict[str, CoveredValues]) -> KernelActivity:
    largest = max(fields.values(), key=lambda values: values.samples)
    means = {
        field: values.mean if (values := fields.get(field, NO_VALUES)).samples >= FEWEST_SAMPLES else None
        for field in _METRICS
    }
    return KernelActivity(kernel_class=kernel_class, ns=largest.ns, samples=largest.samples, **means)
