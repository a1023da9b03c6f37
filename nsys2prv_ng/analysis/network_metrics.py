"""Measures the means of rates that nsys sampled at network cards and InfiniBand switches.

A value is in force as that of a GPU is (gpus/metrics.py), but over no gap between samples: the rows of the report end,
so nothing is known there. Reports of one node share cards; their samples do not repeat each other, since
job/dropping.py dropped those that did.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from nsys2prv_ng import source_names
from nsys2prv_ng.analysis.gpus import metrics
from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.paraver import families
from nsys2prv_ng.paraver.event_type import EventType
from nsys2prv_ng.reading.opened_events import load_source_records


def list_network_reports(job: Job) -> list[int]:
    """Return the numbers of the reports with events of network cards or switches."""
    return [n for n, report in enumerate(job.reports) if any(report.runs((source_names.NETWORK_METRICS,)))]


def measure_network_metrics(
    job: Job, is_wanted: Callable[[EventType], bool], part: metrics.PartsOfTime
) -> list[metrics.MetricSums]:
    """Return the wanted metrics of cards and switches, ordered by row, name and unit.

    Each worker has the records of one report in memory.
    """

    def measure(number: int) -> metrics.MetricsByRow:
        found: metrics.MetricsByRow = {}
        for sampled, pattern_of_handle in _list_samples(job, number, is_wanted):
            metrics.add_samples(found, sampled, pattern_of_handle, job.scope.measured, [part])
        return found

    merged: metrics.MetricsByRow = {}
    for found in job.engine.map(measure, list_network_reports(job)):
        metrics.add_sums(merged, found)
    return [merged[key] for key in sorted(merged) if merged[key].ns]


def _list_samples(
    job: Job, number: int, is_wanted: Callable[[EventType], bool]
) -> Iterator[tuple[metrics.Samples, IntArray]]:
    """Yield the samples of each row of a report, and for each of its types 0 if it is wanted, otherwise -1."""
    report = job.reports[number]
    kinds = report.labels.types
    wanted = np.array([kind.family == families.NODE_METRICS and is_wanted(kind) for kind in kinds], np.bool_)
    records = load_source_records(report, source_names.NETWORK_METRICS, job.store)
    has_wanted = np.diff(np.append(0, np.cumsum(wanted[records.handle]))[records.first]) > 0
    rows = job.tree.rows[number][records.place]
    for row in np.unique(rows[has_wanted & (rows >= 0)]).tolist():
        lines = np.flatnonzero(has_wanted & (rows == row))
        lines = lines[np.argsort(records.time[lines], kind="stable")]
        yield metrics.make_samples(job, number, row, records, lines, breaks_at_gaps=True), np.where(wanted, 0, -1)
