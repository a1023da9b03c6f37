"""Means of the metrics of each GPU over the time for which their values hold, and these times.

A value holds until the next one of its metric on the GPU, in its report and its window of the chosen time; the last one
until the last sample there. The time from the begin of a window to its first sample does not count. Where several
reports sampled a GPU, the samples of a report that began later count where there were none (job/repeated_samples.py
defines gaps), and no value holds over a gap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nsys2prv_ng.arrays.types import BoolArray, FloatArray, IntArray
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.job.opened_events import load_source_records
from nsys2prv_ng.job.repeated_samples import MOST_PERIODS, mark_repeated, measure_period
from nsys2prv_ng.objects.tree import group_by_shared_rows
from nsys2prv_ng.paraver.event_type import EventType
from nsys2prv_ng.runtime.jit import compiled
from nsys2prv_ng.sources.node.gpu_metrics import SOURCE
from nsys2prv_ng.sources.shared.patterns import match_patterns


@dataclass
class MetricSums:
    """Values of a metric on the GPU of a row (of the trace), in the unit of `event_type`, and the time they hold."""

    row: int
    event_type: EventType
    weighted: float = 0.0
    """Sum of value x ns for which it holds."""
    ns: int = 0
    low: float = float("inf")
    high: float = float("-inf")
    samples: int = 0

    @property
    def mean(self) -> float:
        return self.weighted / self.ns


_Sums = dict[tuple[int, str, str], MetricSums]
"""By row, and name and unit of the metric."""


def measure_gpu_metrics(job: Job) -> list[MetricSums]:
    """Return the metrics whose values hold for any time, by row, name and unit.

    The records of one report are in memory for each worker.
    """
    found: _Sums = {}
    for sums in job.engine.map(lambda group: _measure_group(job, group), _group_sampled(job)):
        found |= sums
    return [found[key] for key in sorted(found) if found[key].ns]


def _measure_group(job: Job, group: Sequence[_SampledReport]) -> _Sums:
    """Measure GPUs that have reports in common."""
    found: _Sums = {}
    for own in _list_samples(job, group):
        weighted, numbers = np.zeros(len(own.types)), np.zeros((4, len(own.types)), np.int64)
        _add_up(own.columns, weighted, numbers)
        for handle in np.flatnonzero(numbers[3]).tolist():
            ns, low, high, samples = numbers[:, handle].tolist()
            kind = own.types[handle]
            sums = found.setdefault((own.row, kind.label, kind.unit), MetricSums(own.row, kind))
            scale = 10**kind.precision
            sums.weighted += float(weighted[handle]) / scale
            sums.ns += ns
            sums.low, sums.high = min(sums.low, low / scale), max(sums.high, high / scale)
            sums.samples += samples
    return found


# ---- values over time ------------------------------------------------------------------------------------------------


class HeldValues(NamedTuple):
    """n values of metrics of a GPU, in their own units: index of the pattern, begin and end (ns) of the time it holds.

    Values are in the order of their begins.
    """

    pattern: IntArray
    begin: IntArray
    end: IntArray
    value: FloatArray


def list_held_values(job: Job, patterns: Sequence[str]) -> Iterator[tuple[int, HeldValues]]:
    """Yield a row and its values of the metrics whose names match patterns, for each GPU and report.

    A metric counts for the first pattern that it matches; of the metrics of a GPU that match one, the first by name
    counts. The records of one report are in memory for each worker.
    """

    @cache
    def match(name: str) -> int:
        return next((n for n, pattern in enumerate(patterns) if match_patterns(name, pattern)), -1)

    return _list_held_values(job, match)


def list_all_held_values(job: Job, names: Sequence[str]) -> Iterator[tuple[int, HeldValues]]:
    """Yield a row and its values of the metrics of these names, likewise; the patterns are the names."""
    index = {name: number for number, name in enumerate(names)}
    return _list_held_values(job, lambda name: index.get(name, -1))


def count_sampled(job: Job) -> list[tuple[int, set[EventType]]]:
    """Return a row and the types of the metrics, for each GPU and report that sampled it."""
    groups = _group_sampled(job)
    types = {
        own.number: {kind for kind in job.reports[own.number].labels.types if kind.family == SOURCE.name}
        for group in groups
        for own in group
    }
    return [(row, types[own.number]) for group in groups for own in group for row in own.rows.tolist()]


def _list_held_values(job: Job, match: Callable[[str], int]) -> Iterator[tuple[int, HeldValues]]:
    """Yield the values of the metrics that `match` gives the index of a pattern, not -1."""

    def load(group: Sequence[_SampledReport]) -> list[tuple[int, HeldValues]]:
        return [(own.row, _hold(own, match)) for own in _list_samples(job, group)]

    for parts in job.engine.map(load, _group_sampled(job)):
        yield from parts


def _hold(own: _Samples, match: Callable[[str], int]) -> HeldValues:
    """Return the values of metrics that `match` gives the index of a pattern, not -1."""
    names = [kind.member for kind in own.types]
    first_match = [match(kind.member) if kind.family == SOURCE.name else -1 for kind in own.types]
    pattern_of = np.array(first_match, np.int64)
    columns = _list_held(own.columns, pattern_of)
    chosen: dict[int, int] = {}
    for number in sorted(np.unique(columns[0]).tolist(), key=names.__getitem__):
        chosen.setdefault(first_match[number], number)
    handle, begin, end, value = (column[np.isin(columns[0], list(chosen.values()))] for column in columns)
    scale = np.array([10.0**kind.precision for kind in own.types])
    return HeldValues(pattern_of[handle], begin, end, value / scale[handle])


@compiled
def _list_held(columns: _SampleColumns, pattern_of: IntArray) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """Return (handle, begin, end, value) of the values of types with a pattern, by begin, that hold for any time."""
    time, first, handle, value, lines, begins = columns
    size = 0
    for line in lines:
        for word in range(first[line], first[line + 1]):
            size += pattern_of[handle[word]] >= 0
    held = np.empty((4, size), np.int64)
    last = np.full(pattern_of.size, -1, np.int64)  # index of the value that holds
    count = 0
    for i in range(lines.size):
        now = time[lines[i]]
        if begins[i]:
            last[:] = -1
        for word in range(first[lines[i]], first[lines[i] + 1]):
            own = handle[word]
            if pattern_of[own] >= 0:
                if last[own] >= 0:
                    held[2, last[own]] = now
                held[0, count], held[1, count], held[2, count], held[3, count] = own, now, now, value[word]
                last[own] = count
                count += 1
        if i + 1 == lines.size or begins[i + 1]:  # what holds ends with the last sample
            for own in range(last.size):
                if last[own] >= 0:
                    held[2, last[own]] = now
    return held[0, :count], held[1, :count], held[2, :count], held[3, :count]


# ---- samples ---------------------------------------------------------------------------------------------------------


class _SampledReport(NamedTuple):
    """A report, when it began to sample (ns), and the rows of the GPUs that it sampled."""

    number: int
    first: int
    rows: IntArray


def _find_sampled(job: Job, index: int) -> _SampledReport:
    report = job.reports[index]
    runs = report.results[SOURCE.name].runs if SOURCE.name in report.results else []
    first = [report.find_limits(run)[0] for run in runs]
    rows = [job.tree.rows[index][np.flatnonzero(run.facts.place_first <= run.facts.place_last)] for run in runs]
    row = np.unique(np.concatenate([np.zeros(0, np.int64), *rows]))
    return _SampledReport(index, min(first, default=0), row[row >= 0])


def _group_sampled(job: Job) -> list[list[_SampledReport]]:
    """Return the reports with samples by group, in the order in which they began: those of a group share GPUs."""
    sampled = [_find_sampled(job, index) for index in range(len(job.reports))]
    groups = [
        sorted((sampled[n] for n in group if sampled[n].rows.size), key=lambda report: (report.first, report.number))
        for group in group_by_shared_rows([report.rows for report in sampled])
    ]
    return [group for group in groups if group]


class _SampleColumns(NamedTuple):
    """Columns of a report's records, and the lines among them that are samples of one GPU, by time."""

    time: IntArray
    first: IntArray
    handle: npt.NDArray[np.int32]
    value: IntArray
    lines: IntArray
    begins: BoolArray
    """Marks the samples over whose begin no value holds."""


class _Samples(NamedTuple):
    """The samples of the GPU of a row in a report, and the types of their metrics by handle."""

    row: int
    types: Sequence[EventType]
    columns: _SampleColumns


def _list_samples(job: Job, group: Sequence[_SampledReport]) -> Iterator[_Samples]:
    """Yield the samples of GPUs that have reports in common, without those that repeat an earlier report's."""
    series: dict[int, IntArray] = {}
    for own in group:
        records = load_source_records(job.reports[own.number], SOURCE.name, job.store)
        rows = job.tree.rows[own.number][records.place]
        for row in own.rows.tolist():
            lines = np.flatnonzero(rows == row)
            lines = lines[np.argsort(records.time[lines], kind="stable")]
            is_shared = sum(row in other.rows for other in group) > 1
            if row in series:
                lines = lines[~mark_repeated(series[row], records.time[lines])]
            if is_shared:
                series[row] = np.sort(np.concatenate([series.get(row, lines[:0]), records.time[lines]]))
            begins = _mark_begins(records.time[lines], [low for low, _ in job.windows], breaks_at_gaps=is_shared)
            columns = _SampleColumns(records.time, records.first, records.handle, records.value, lines, begins)
            yield _Samples(row, job.reports[own.number].labels.types, columns)


def _mark_begins(time: IntArray, lows: Sequence[int], *, breaks_at_gaps: bool) -> BoolArray:
    """Mark the samples (of n times, sorted) over whose begin no value holds: in a new window, after a gap."""
    window = np.searchsorted(np.array(lows, np.int64), time, "right")
    begins = np.diff(window, prepend=-1) != 0
    if breaks_at_gaps:
        begins |= np.diff(time, prepend=time[:1]) > MOST_PERIODS * measure_period(time)
    return begins


@compiled
def _add_up(columns: _SampleColumns, weighted: FloatArray, numbers: IntArray) -> None:
    """Add to (sum of value x ns) and (ns, least value, largest value, samples) of each metric, by handle."""
    time, first, handle, value, lines, begins = columns
    last = np.zeros(weighted.size, np.int64)
    since = np.zeros(weighted.size, np.int64)
    holds = np.zeros(weighted.size, np.bool_)
    for i in range(lines.size):
        now = time[lines[i]]
        if begins[i]:
            holds[:] = False
        for word in range(first[lines[i]], first[lines[i] + 1]):
            metric, own = handle[word], value[word]
            if holds[metric]:
                weighted[metric] += float(last[metric]) * (now - since[metric])
                numbers[0, metric] += now - since[metric]
            if numbers[3, metric] == 0 or own < numbers[1, metric]:
                numbers[1, metric] = own
            if numbers[3, metric] == 0 or own > numbers[2, metric]:
                numbers[2, metric] = own
            numbers[3, metric] += 1
            last[metric], since[metric], holds[metric] = own, now, True
        if i + 1 == lines.size or begins[i + 1]:  # what holds ends with the last sample
            for metric in range(holds.size):
                if holds[metric]:
                    weighted[metric] += float(last[metric]) * (now - since[metric])
                    numbers[0, metric] += now - since[metric]
