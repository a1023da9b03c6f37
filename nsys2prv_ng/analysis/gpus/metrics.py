"""Measures the mean of each GPU's metrics over the time for which their values are in force, and lists these times.

A value is in force until the next value of its metric on the GPU, in its report and its window of the chosen time; the
last value until the last sample there. The time from the start of a window to its first sample does not count. If
several reports sampled a GPU, the samples of a report that started later count only in gaps between the others
(job/dropping.py defines gaps), and no value is in force over a gap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nsys2prv_ng import source_names
from nsys2prv_ng.arrays.groups import make_rows, sum_table
from nsys2prv_ng.arrays.row_keys import find_starts
from nsys2prv_ng.arrays.types import BoolArray, FloatArray, IntArray, IntTable
from nsys2prv_ng.intervals.states import FlatStates
from nsys2prv_ng.intervals.step_functions import cut_to_windows
from nsys2prv_ng.job.dropping import MOST_PERIODS, add_to_series, measure_period
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.objects.tree import group_by_shared_rows
from nsys2prv_ng.paraver import families
from nsys2prv_ng.paraver.event_type import EventType
from nsys2prv_ng.reading.opened_events import load_source_records
from nsys2prv_ng.records.columns import Records
from nsys2prv_ng.runtime.jit import compiled
from nsys2prv_ng.sources.shared.reasons import UNCHANGED
from nsys2prv_ng.text.names import match_patterns
from nsys2prv_ng.value_class import ValueClass


class CoveredValues(ValueClass):
    """Values in a part of the time: sum of value x ns for which it is in force, the ns, and the number of values."""

    weighted: float = 0.0
    ns: int = 0
    samples: int = 0

    def add(self, more: CoveredValues) -> CoveredValues:
        """Return the sums over these values and more."""
        return CoveredValues(self.weighted + more.weighted, self.ns + more.ns, self.samples + more.samples)

    @property
    def mean(self) -> float | None:
        """The mean; None without values."""
        return self.weighted / self.ns if self.ns else None


NO_VALUES = CoveredValues()


class MetricSums(ValueClass):
    """Values of a metric on a row's GPU (in the trace), in the unit of `event_type`, and how long they are in force.

    `weighted`: sum of value x ns for which it is in force. `covered`: sums over the values in parts of the time, by the
    name of the PartsOfTime and the number of the part.
    """

    row: int
    event_type: EventType
    weighted: float
    ns: int
    low: float
    high: float
    samples: int
    covered: Mapping[tuple[str, int], CoveredValues]

    def add(self, more: MetricSums) -> MetricSums:
        """Return the sums over these values and more values of the same metric."""
        return MetricSums(
            row=self.row,
            event_type=self.event_type,
            weighted=self.weighted + more.weighted,
            ns=self.ns + more.ns,
            low=min(self.low, more.low),
            high=max(self.high, more.high),
            samples=self.samples + more.samples,
            covered={
                part: self.covered.get(part, NO_VALUES).add(more.covered.get(part, NO_VALUES))
                for part in {**self.covered, **more.covered}
            },
        )

    @property
    def mean(self) -> float:
        return self.weighted / self.ns


class PartsOfTime(NamedTuple):
    """Parts of the time, in which some metrics have means of their own: those that it `concerns`.

    `find` returns the number of the part that each of n times on a row (of the trace), from start to end (ns), is in;
    -1 for none.
    """

    name: str
    concerns: Callable[[EventType], bool]
    find: Callable[[int, IntArray, IntArray], IntArray]


MetricsByRow = dict[tuple[int, str, str], MetricSums]
"""By row, and by name and unit of the metric."""


def measure_gpu_metrics(job: Job, parts: Sequence[PartsOfTime] = ()) -> list[MetricSums]:
    """Return the metrics whose values are in force for any time, ordered by row, name and unit.

    `parts`: with names that differ. Each worker has the samples of one report in memory.
    """

    def measure(group: Sequence[_SampledReport]) -> MetricsByRow:
        found: MetricsByRow = {}
        for sampled in _list_samples(job, group):
            add_samples(found, sampled, np.arange(len(sampled.types)), job.scope.measured, parts)
        return found

    sums = {key: sums for found in job.engine.sum_up(measure, _split_sampled(job)) for key, sums in found.items()}
    return [sums[key] for key in sorted(sums) if sums[key].ns]


def add_samples(
    found: MetricsByRow,
    sampled: Samples,
    pattern_of_handle: IntArray,
    windows: Sequence[tuple[int, int]],
    parts: Sequence[PartsOfTime],
) -> None:
    """Add the values of the types with a pattern (not -1) to the sums, those in the windows (ns) if there are any.

    A value belongs to the part that covers its full duration, even if a window cuts it. A value that several windows
    cut is one sample.
    """
    handle, begin, end, value = _hold_values(sampled.columns, pattern_of_handle)
    numbers = {each.name: _find_part(sampled, handle, begin, end, each) for each in parts}
    is_first = np.ones(handle.size, np.int64)
    if windows:
        index, _, begin, end = cut_to_windows(begin, end, windows)
        handle, value, is_first = handle[index], value[index], np.diff(index, prepend=-1).astype(np.bool_)
        numbers = {name: number[index] for name, number in numbers.items()}
    weight = value.astype(np.float64) * (end - begin)
    columns = {"handle": handle, "weight": weight, "ns": end - begin, "samples": is_first}
    covered = _sum_covered(sampled.types, columns, numbers)
    totals = sum_table({**columns, "low": value, "high": value}, ["handle"], {"low": "min", "high": "max"})
    for total in make_rows(totals):
        number, kind = total["handle"], sampled.types[total["handle"]]
        scale = 10**kind.precision
        sums = MetricSums(
            row=sampled.row,
            event_type=kind,
            weighted=total["weight"] / scale,
            ns=total["ns"],
            low=total["low"] / scale,
            high=total["high"] / scale,
            samples=total["samples"],
            covered=covered.get(number, {}),
        )
        add_sums(found, {(sampled.row, kind.label, kind.unit): sums})


def add_sums(found: MetricsByRow, more: MetricsByRow) -> None:
    """Add sums over further values to the sums found so far."""
    for key, sums in more.items():
        before = found.get(key)
        found[key] = sums if before is None else before.add(sums)


def _find_part(sampled: Samples, handle: IntArray, begin: IntArray, end: IntArray, parts: PartsOfTime) -> IntArray:
    """Return the number of the part of the time to which each value belongs; -1 for none.

    A value that is in force for far longer than the others belongs to none: samples after it were lost, so it stands
    for time in which it was not measured.
    """
    found = np.full(handle.size, -1, np.int64)
    at = np.flatnonzero(np.array([parts.concerns(kind) for kind in sampled.types], np.bool_)[handle])
    low, high = begin[at], end[at]
    starts = find_starts(low, high)  # metrics of one sample mostly have the same times
    low, high = low[starts], high[starts]
    length = high - low
    is_gap = length > MOST_PERIODS * (np.median(length[length > 0]) if length.any() else 0)
    numbers = np.where(is_gap, -1, parts.find(sampled.row, low, high))
    found[at] = np.repeat(numbers, np.diff(np.append(starts, at.size)))
    return found


def _sum_covered(
    kinds: Sequence[EventType], values: Mapping[str, npt.NDArray[Any]], numbers: Mapping[str, IntArray]
) -> dict[int, dict[tuple[str, int], CoveredValues]]:
    """Return the sums of the values in parts of the time, by the handle of the metric and the name and number."""
    covered: dict[int, dict[tuple[str, int], CoveredValues]] = {}
    for name, part in numbers.items():
        inside = np.flatnonzero((part >= 0) & (values["ns"] > 0))
        chosen = {key: column[inside] for key, column in values.items()}
        for sums in make_rows(sum_table({**chosen, "part": part[inside]}, ["handle", "part"])):
            metric = sums["handle"]
            scaled = CoveredValues(sums["weight"] / 10 ** kinds[metric].precision, sums["ns"], sums["samples"])
            covered.setdefault(metric, {})[name, sums["part"]] = scaled
    return covered


# ---- values over time ------------------------------------------------------------------------------------------------


def find_pattern(name: str, patterns: Sequence[str]) -> int:
    """Return the index of the first pattern that the name of a metric matches; -1 if it matches none."""
    return next((n for n, pattern in enumerate(patterns) if match_patterns(name, pattern)), -1)


def keeps_samples(job: Job) -> bool:
    """Return whether the job has every sample of GPUs.

    Without the samples that `metrics_changes` drops, the others are in force for longer, and in several parts of time.
    """
    results = [report.results.get(source_names.GPU_METRICS) for report in job.reports]
    return not any(result is not None and UNCHANGED in result.dropped for result in results)


def count_sampled(job: Job) -> list[tuple[int, set[EventType]]]:
    """Return (row, types of its metrics) for each GPU and each report that sampled it."""
    return [
        (row, {kind for kind in job.reports[report.number].labels.types if kind.family == families.GPU_METRICS})
        for group in _group_sampled(job)
        for report in group
        for row in report.rows.tolist()
    ]


_HeldValues = tuple[FlatStates, FloatArray]
"""When n values of a GPU's metrics are in force, ordered by begin, and the values in their own units.

The state is the index of the metric's pattern; the row is always 0.
"""


def list_held_values(job: Job, match: Callable[[str], int]) -> Iterator[tuple[int, _HeldValues]]:
    """Yield (row, values of the metrics for which `match` returns the index of a pattern, not -1) for each GPU and
    report.

    If several metrics of a GPU have one pattern, the first by name counts. Each worker has the records of one report in
    memory.
    """

    def load(group: Sequence[_SampledReport]) -> list[tuple[int, _HeldValues]]:
        return [(sampled.row, _hold(sampled, match)) for sampled in _list_samples(job, group)]

    for parts in job.engine.map(load, _split_sampled(job)):
        yield from parts


def _hold(sampled: Samples, match: Callable[[str], int]) -> _HeldValues:
    """Return the values of the metrics for which `match` returns the index of a pattern, not -1."""
    names = [(kind.label, kind.unit) for kind in sampled.types]
    first_match = [match(kind.member) if kind.family == families.GPU_METRICS else -1 for kind in sampled.types]
    pattern_of_handle = np.array(first_match, np.int64)
    columns = _hold_values(sampled.columns, pattern_of_handle)
    chosen: dict[int, int] = {}
    for number in sorted(np.unique(columns[0]).tolist(), key=names.__getitem__):
        chosen.setdefault(first_match[number], number)
    handle, begin, end, value = (column[np.isin(columns[0], list(chosen.values()))] for column in columns)
    scale = np.array([10.0**kind.precision for kind in sampled.types])
    return FlatStates(np.zeros_like(begin), begin, end, pattern_of_handle[handle]), value / scale[handle]


def _hold_values(columns: SampleColumns, pattern_of_handle: IntArray) -> IntArray:
    """Return (handle, begin, end, value) of the values of types with a pattern, ordered by `begin`."""
    words = columns.first[columns.lines + 1] - columns.first[columns.lines]
    held = np.empty((4, int(words.sum())), np.int64)
    return held[:, : _list_held(columns, pattern_of_handle, np.full(pattern_of_handle.size, -1), held)]


@compiled
def _list_held(columns: SampleColumns, pattern_of_handle: IntArray, last: IntArray, held: IntTable) -> int:
    """Set the columns that `_hold_values` returns, and return their length.

    `last`: index of the value of each type in force, -1 at first.
    """
    time, first, handle, value, lines, begins = columns
    count = 0
    for i in range(lines.size):
        now = time[lines[i]]
        if begins[i]:
            for metric in range(last.size):
                last[metric] = -1
        for word in range(first[lines[i]], first[lines[i] + 1]):
            metric = handle[word]
            if pattern_of_handle[metric] >= 0:
                if last[metric] >= 0:
                    held[2, last[metric]] = now
                held[0, count] = metric
                held[1, count] = held[2, count] = now
                held[3, count] = value[word]
                last[metric] = count
                count += 1
        if i + 1 == lines.size or begins[i + 1]:  # values are in force until the last sample
            for metric in range(last.size):
                if last[metric] >= 0:
                    held[2, last[metric]] = now
    return count


# ---- samples ---------------------------------------------------------------------------------------------------------


_FEWEST_PARTS = 3
"""Fewest workers for each group that make parts of it worthwhile."""


class _SampledReport(NamedTuple):
    """A report, when it started to sample (ns), and the rows of the GPUs that it sampled."""

    number: int
    first: int
    rows: IntArray


def _group_sampled(job: Job) -> list[list[_SampledReport]]:
    """Return the reports with samples in groups that share GPUs, in the order in which they started to sample."""
    sampled = []
    for index, (report, rows) in enumerate(zip(job.reports, job.tree.rows, strict=True)):
        runs = list(report.runs((source_names.GPU_METRICS,)))
        places = [np.flatnonzero(run.facts.place_first <= run.facts.place_last) for run in runs]
        row = np.unique(rows[np.concatenate([np.zeros(0, np.int64), *places])])
        first = min((report.find_limits(run)[0] for run in runs), default=0)
        sampled.append(_SampledReport(index, first, row[row >= 0]))
    groups = [
        sorted((sampled[n] for n in group if sampled[n].rows.size), key=lambda report: (report.first, report.number))
        for group in group_by_shared_rows([report.rows for report in sampled])
    ]
    return [group for group in groups if group]


def _split_sampled(job: Job) -> list[list[_SampledReport]]:
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


def _list_samples(job: Job, group: Sequence[_SampledReport]) -> Iterator[Samples]:
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
