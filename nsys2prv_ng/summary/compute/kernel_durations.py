"""Counts the kernels of each name by their duration, over all reports."""

from __future__ import annotations

from itertools import chain
from typing import NamedTuple

import numpy as np
import pandas as pd

from nsys2prv_ng.arrays.row_keys import encode_rows
from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.job.opened_events import ABSENT, OpenedEvents, load_opened_events
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver.event_type import EventType
from nsys2prv_ng.sources import source_names
from nsys2prv_ng.sources.cuda.kernel_classes import WHOLE_GRAPH
from nsys2prv_ng.summary.numbers.pictures import KernelDurations

MOST_NAMES = 20
_PER_OCTAVE = 8
EDGES = 2.0 ** (np.arange(63 * _PER_OCTAVE + 1) / _PER_OCTAVE)
"""Limits of the bins (ns)."""
_NAME = ["name", "kernel_class"]


class _Counts(NamedTuple):
    """n bins of names: name, class, bin between EDGES, number of kernels and their time (ns)."""

    name: list[str]
    kernel_class: list[str]
    bin: IntArray
    kernels: IntArray
    ns: IntArray


def count_durations(job: Job) -> list[KernelDurations]:
    """Return the kernels, and graphs that were traced as a whole, with most time, as the summary lists them.

    What takes no time is in the bin of 1 ns. The records of one report are in memory for each worker.
    """
    reports = job.engine.map(lambda index: _count_report(job, index), range(len(job.reports)))
    parts = [part for own in reports for part in own]
    columns = {name: np.concatenate([getattr(part, name) for part in parts]) for name in ("bin", "kernels", "ns")}
    names = {name: list(chain.from_iterable(getattr(part, name) for part in parts)) for name in _NAME}
    table = pd.DataFrame({**names, **columns})
    sums = table.groupby(_NAME, as_index=False)["ns"].sum().sort_values(["ns", *_NAME], ascending=[False, True, True])
    most = table.merge(sums[_NAME][:MOST_NAMES], on=_NAME)
    drawn = {(str(name), str(kernel_class)): own for (name, kernel_class), own in most.groupby(_NAME)}
    listed = sums[_NAME][:MOST_NAMES].astype(str).itertuples(index=False, name=None)
    return [_make_durations(name, kernel_class, drawn[name, kernel_class]) for name, kernel_class in listed]


def _make_durations(name: str, kernel_class: str, table: pd.DataFrame) -> KernelDurations:
    """Return the counts of a name without the empty bins before the first and after the last."""
    bins, count = (table[column].to_numpy(np.int64) for column in ("bin", "kernels"))
    low, high = int(bins.min()), int(bins.max()) + 1
    counts = np.zeros(high - low, np.int64)
    np.add.at(counts, bins - low, count)
    return KernelDurations(name=name, kernel_class=kernel_class, edges_ns=EDGES[low : high + 1], counts=counts)


def _count_report(job: Job, index: int) -> list[_Counts]:
    kernels = load_opened_events(job.reports[index], source_names.KERNELS, job.store)
    graphs = _count_type(
        load_opened_events(job.reports[index], source_names.CUDA_GRAPHS, job.store), types.GRAPH_LAUNCH
    )
    return [
        _count_type(kernels, types.KERNEL),
        _count_type(kernels, types.NCCL_KERNEL),
        graphs._replace(kernel_class=[WHOLE_GRAPH for _ in graphs.name]),
    ]


def _count_type(events: OpenedEvents, event_type: EventType) -> _Counts:
    value, kernel_class = events.get_values(event_type), events.get_values(types.KERNEL_CLASS)
    lines = np.flatnonzero(value != ABSENT)
    length = events.length[lines]
    bins = np.minimum(np.searchsorted(EDGES, np.maximum(length, 1), "right") - 1, EDGES.size - 2)
    columns = value[lines], kernel_class[lines], bins
    code, first = encode_rows(*columns)
    ns = np.zeros(first.size, np.int64)
    np.add.at(ns, code, length)
    own, own_class, own_bin = (column[first] for column in columns)
    names, classes = events.get_names(event_type), events.get_names(types.KERNEL_CLASS)
    return _Counts(
        [names.get(number, f"value {number}") for number in own.tolist()],
        [classes.get(number, f"value {number}") for number in own_class.tolist()],
        own_bin,
        np.bincount(code, minlength=first.size),
        ns,
    )
