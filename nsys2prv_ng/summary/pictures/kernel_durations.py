"""Counts the kernels of each name by their duration, over all reports."""

from __future__ import annotations

import numpy as np

from nsys2prv_ng.arrays.groups import Table, group_rows
from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.job.counted import CountedEvents
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.reading.opened_events import OpenedEvents
from nsys2prv_ng.summary.pictures.numbers import KernelDurations
from nsys2prv_ng.summary.totals import add_up, sum_kernels

MOST_NAMES = 20
_PER_OCTAVE = 8
EDGES = 2.0 ** (np.arange(63 * _PER_OCTAVE + 1) / _PER_OCTAVE)
"""Limits of the bins (ns)."""
_NAME = ["name", "kernel_class"]


def count_durations(job: Job) -> list[KernelDurations]:
    """Return the kernels with most time, and graphs that were traced as a whole, in the order of the summary.

    A kernel that takes no time counts as 1 ns long. The records of one report are in memory for each worker.
    """

    def count(index: int) -> Table:
        return sum_kernels(job.reports[index], job.store, CountedEvents(job, index), bin=_find_bins)

    parts = list(job.engine.sum_up(count, range(len(job.reports))))
    groups = group_rows(add_up(parts, [*_NAME, "bin"]), *_NAME)
    groups.sort(key=lambda rows: (-int(rows["total_ns"].sum()), *(rows[key][0] for key in _NAME)))
    return [_make_durations(rows) for rows in groups[:MOST_NAMES]]


def _find_bins(events: OpenedEvents) -> IntArray:
    return np.minimum(np.searchsorted(EDGES, np.maximum(events.length, 1), "right") - 1, EDGES.size - 2)


def _make_durations(rows: Table) -> KernelDurations:
    """Return the counts of a name, without the empty bins before the first kernel and after the last."""
    bins = rows["bin"]
    low, high = int(bins.min()), int(bins.max()) + 1
    counts = np.zeros(high - low, np.int64)
    counts[bins - low] = rows["count"]
    name, kernel_class = (rows[key][0] for key in _NAME)
    return KernelDurations(name=name, kernel_class=kernel_class, edges_ns=EDGES[low : high + 1], counts=counts)
