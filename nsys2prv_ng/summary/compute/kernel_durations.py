"""Counts the kernels of each name by their duration, over all reports."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nsys2prv_ng.arrays.groups import Table
from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.job.counted import CountedEvents
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.job.opened_events import OpenedEvents
from nsys2prv_ng.summary.compute.totals import add_up, sum_kernels
from nsys2prv_ng.summary.numbers.pictures import KernelDurations

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
    table = pd.DataFrame(add_up(parts, [*_NAME, "bin"]))
    bins = {(str(name), str(kernel_class)): rows for (name, kernel_class), rows in table.groupby(_NAME)}
    most = sorted(bins, key=lambda names: (-int(bins[names]["total_ns"].sum()), names))[:MOST_NAMES]
    return [_make_durations(*names, bins[names]) for names in most]


def _find_bins(events: OpenedEvents) -> IntArray:
    return np.minimum(np.searchsorted(EDGES, np.maximum(events.length, 1), "right") - 1, EDGES.size - 2)


def _make_durations(name: str, kernel_class: str, table: pd.DataFrame) -> KernelDurations:
    """Return the counts of a name, without the empty bins before the first kernel and after the last."""
    bins = table["bin"].to_numpy(np.int64)
    low, high = int(bins.min()), int(bins.max()) + 1
    counts = np.zeros(high - low, np.int64)
    counts[bins - low] = table["count"]
    return KernelDurations(name=name, kernel_class=kernel_class, edges_ns=EDGES[low : high + 1], counts=counts)
