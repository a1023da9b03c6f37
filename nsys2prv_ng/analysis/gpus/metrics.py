"""Lists the samples of GPUs, and the times for which their values are in force.

A value is in force until the next value of its metric on the GPU, in its report and its window of the chosen time; the
last value until the last sample there. The time from the start of a window to its first sample does not count. If
several reports sampled a GPU, the samples of a report that started later count only in gaps between the others
(job/dropping.py defines gaps), and no value is in force over a gap.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nsys2prv_ng import source_names
from nsys2prv_ng.arrays.types import BoolArray, IntArray, IntTable
from nsys2prv_ng.job.dropping import MOST_PERIODS, add_to_series, measure_period
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.objects.tree import group_by_shared_rows
from nsys2prv_ng.paraver import families
from nsys2prv_ng.paraver.event_type import EventType
from nsys2prv_ng.reading.opened_events import load_source_records
from nsys2prv_ng.records.columns import Records
from nsys2prv_ng.runtime.jit import compiled
from nsys2prv_ng.text.names import match_patterns

# ---- values over time ------------------------------------------------------------------------------------------------


def find_pattern(name: str, patterns: Sequence[str]) -> int:
    """Return the index of the first pattern that the name of a metric matches; -1 if it matches none."""
    return next((n for n, pattern in enumerate(patterns) if match_patterns(name, pattern)), -1)


def count_sampled(job: Job) -> list[tuple[int, set[EventType]]]:
    """Return (row, types of its metrics) for each GPU and each report that sampled it."""
    return [
        (row, {kind for kind in job.reports[report.number].labels.types if kind.family == families.GPU_METRICS})
        for group in _group_sampled(job)
        for report in group
        for row in report.rows.tolist()
    ]


def list_spans(columns: SampleColumns, flags: IntArray) -> IntTable:
    """Return (begin, end, first word, word after the last, flags) of spans, ordered by `begin`.

    A span has neighbouring words of a sample that are in force until the same time: mostly all metrics. Its flags are
    those of any of their types. It may contain words without flags, which do not count.
    """
    words = columns.first[columns.lines + 1] - columns.first[columns.lines]
    spans = np.empty((5, int(words.sum())), np.int64)
    return spans[:, _set_spans(columns, flags, np.zeros_like(flags), spans) :]


@compiled
def _set_spans(columns: SampleColumns, flags: IntArray, until: IntArray, spans: IntTable) -> int:
    """Set the columns that `list_spans` returns from their end on, and return the first index.

    `until`: room for the time until which an earlier value of each type is in force.
    """
    time, first, handle, _, lines, begins = columns
    at = spans.shape[1]
    for i in range(lines.size - 1, -1, -1):
        now = time[lines[i]]
        if i + 1 == lines.size or begins[i + 1]:  # values are in force until the last sample
            until[:] = now
        is_new = True
        for word in range(first[lines[i] + 1] - 1, first[lines[i]] - 1, -1):
            metric = handle[word]
            if flags[metric]:
                if is_new or until[metric] != spans[1, at]:
                    at -= 1
                    spans[0, at], spans[1, at], spans[3, at], spans[4, at] = now, until[metric], word + 1, 0
                    is_new = False
                spans[2, at] = word
                spans[4, at] |= flags[metric]
                until[metric] = now
    return at


# ---- samples ---------------------------------------------------------------------------------------------------------


_FEWEST_PARTS = 3
"""Fewest workers for each group that make parts of it worthwhile."""


class SampledReport(NamedTuple):
    """A report, when it started to sample (ns), and the rows of the GPUs that it sampled."""

    number: int
    first: int
    rows: IntArray


def _group_sampled(job: Job) -> list[list[SampledReport]]:
    """Return the reports with samples in groups that share GPUs, in the order in which they started to sample."""
    sampled = []
    for index, (report, rows) in enumerate(zip(job.reports, job.tree.rows, strict=True)):
        runs = list(report.runs((source_names.GPU_METRICS,)))
        places = [np.flatnonzero(run.facts.place_first <= run.facts.place_last) for run in runs]
        row = np.unique(rows[np.concatenate([np.zeros(0, np.int64), *places])])
        first = min((report.find_limits(run)[0] for run in runs), default=0)
        sampled.append(SampledReport(index, first, row[row >= 0]))
    groups = [
        sorted((sampled[n] for n in group if sampled[n].rows.size), key=lambda report: (report.first, report.number))
        for group in group_by_shared_rows([report.rows for report in sampled])
    ]
    return [group for group in groups if group]


def split_sampled(job: Job) -> list[list[SampledReport]]:
    """Return the same groups, in the same order; those of one report in parts by GPU if there are many more workers.

    For each part a worker loads all samples of the report, which takes as long as to measure those of two GPUs.
    """
    groups = _group_sampled(job)
    parts = job.engine.workers // max(1, len(groups))
    pieces = []
    for group in groups:
        rows = group[0].rows
        is_split = len(group) == 1 and parts >= _FEWEST_PARTS
        split = np.array_split(rows, min(parts, rows.size)) if is_split else []
        pieces += [[group[0]._replace(rows=some)] for some in split] or [group]
    return pieces


class SampleColumns(NamedTuple):
    """Columns of a report's records, and the lines among them that are samples on one row, by time.

    `begins` marks the samples at which no earlier value is in force.
    """

    time: IntArray
    first: IntArray
    handle: npt.NDArray[np.int32]
    value: IntArray
    lines: IntArray
    begins: BoolArray


class Samples(NamedTuple):
    """The samples of the GPU, or the part of a node, of a row in a report, and the types of their metrics by handle."""

    row: int
    types: Sequence[EventType]
    columns: SampleColumns


def make_samples(
    job: Job, report: int, row: int, records: Records, lines: IntArray, *, breaks_at_gaps: bool
) -> Samples:
    """Return the samples of a row at these lines, by time, of a report's records.

    No earlier value is in force at the first one in a window nor, if the caller says so, after a gap.
    """
    time = records.time[lines]
    window = np.searchsorted(np.array([low for low, _ in job.scope.windows], np.int64), time, "right")
    begins = np.diff(window, prepend=-1) != 0
    if breaks_at_gaps:
        begins |= np.diff(time, prepend=time[:1]) > MOST_PERIODS * measure_period(time)
    columns = SampleColumns(records.time, records.first, records.handle, records.value, lines, begins)
    return Samples(row, job.reports[report].labels.types, columns)


def list_samples(job: Job, group: Sequence[SampledReport]) -> Iterator[Samples]:
    """Yield the samples of GPUs that share reports, without samples that repeat an earlier report's."""
    series: dict[int, IntArray] = {}
    for report in group:
        records = load_source_records(job.reports[report.number], source_names.GPU_METRICS, job.store)
        rows = job.tree.rows[report.number][records.place]
        for row in report.rows.tolist():
            lines = np.flatnonzero(rows == row)
            lines = lines[np.argsort(records.time[lines], kind="stable")]
            is_shared = sum(row in other.rows for other in group) > 1
            if is_shared:
                lines = lines[add_to_series(series, row, records.time[lines])]
            yield make_samples(job, report.number, row, records, lines, breaks_at_gaps=is_shared)
