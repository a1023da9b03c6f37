"""Measures the mean of each GPU's metrics over the time for which their values are in force, and lists these times.

A value is in force until the next value of its metric on the GPU, in its report and its window of the chosen time; the
last value until the last sample there. The time from the start of a window to its first sample does not count. If
several reports sampled a GPU, the samples of a report that started later count only in gaps between the others
(job/dropping.py defines gaps), and no value is in force over a gap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nsys2prv_ng import source_names
from nsys2prv_ng.arrays.row_keys import find_starts
from nsys2prv_ng.arrays.types import BoolArray, FloatArray, IntArray, IntTable, put
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

    def measure(group: Sequence[SampledReport]) -> MetricsByRow:
        found: MetricsByRow = {}
        for sampled in list_samples(job, group):
            add_samples(found, sampled, np.arange(len(sampled.types)), job.scope.measured, parts)
        return found

    sums = {key: sums for found in job.engine.sum_up(measure, split_sampled(job)) for key, sums in found.items()}
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
    kinds = sampled.types
    concerned = np.array([*([each.concerns(kind) for kind in kinds] for each in parts), [True] * len(kinds)], np.int64)
    flags = (1 << np.arange(len(concerned))) @ concerned * (pattern_of_handle >= 0)
    begin, end, first, after, flag = list_spans(sampled.columns, flags)
    names: list[tuple[str, int]] = []
    codes = np.empty((len(concerned), begin.size), np.int64)
    for n, each in enumerate(parts):
        number = _find_part(sampled.row, begin, end, np.flatnonzero(flag >> n & 1), each)
        distinct, index = np.unique(number, return_inverse=True)
        codes[n] = np.where(number < 0, -1, index + len(names))
        names += [(each.name, part) for part in distinct.tolist()]
    codes[-1] = len(names)
    span = np.arange(begin.size)
    if windows:
        span, _, begin, end = cut_to_windows(begin, end, windows)
    pieces = np.stack([first[span], after[span], end - begin, np.diff(span, prepend=-1) > 0])
    covered: dict[int, dict[tuple[str, int], CoveredValues]] = {}
    for group, weight, (ns, samples, *limits) in _sum_groups(sampled.columns, flags, pieces, codes.take(span, axis=1)):
        code, handle = divmod(group, len(kinds))
        kind, scale = kinds[handle], 10 ** kinds[handle].precision
        sums = CoveredValues(weight / scale, ns, samples)
        if code < len(names):
            covered.setdefault(handle, {})[names[code]] = sums
        else:
            low, high = (limit / scale for limit in limits)
            total = MetricSums(sampled.row, kind, weight / scale, ns, low, high, samples, covered.get(handle, {}))
            add_sums(found, {(sampled.row, kind.label, kind.unit): total})


def add_sums(found: MetricsByRow, more: MetricsByRow) -> None:
    """Add sums over further values to the sums found so far."""
    for key, sums in more.items():
        before = found.get(key)
        found[key] = sums if before is None else before.add(sums)


def _find_part(row: int, begin: IntArray, end: IntArray, at: IntArray, parts: PartsOfTime) -> IntArray:
    """Return the number of the part of the time to which the values of each span belong; -1 for none.

    `at`: the spans with values that it concerns. A value that is in force for far longer than the others belongs to
    none: samples after it were lost, so it stands for time in which it was not measured.
    """
    low, high = begin[at], end[at]
    starts = find_starts(low, high)
    low, high = low[starts], high[starts]
    length = high - low
    is_gap = length > MOST_PERIODS * (np.median(length[length > 0]) if length.any() else 0)
    numbers = np.where(is_gap | (length == 0), -1, parts.find(row, low, high))
    return put(np.repeat(numbers, np.diff(np.append(starts, at.size))), at, begin.size)


def _sum_groups(
    columns: SampleColumns, flags: IntArray, pieces: IntTable, codes: IntTable
) -> Iterator[tuple[int, float, list[int]]]:
    """Yield (group, sum of value x ns, [ns, samples, least, largest value]) of the groups of `_add_up`, in order.

    numpy adds up the floats in pairs, with smaller errors than a plain loop has.
    """
    limits = np.iinfo(np.int64)
    sums = np.repeat([[0, 0, limits.max, limits.min, 0]], (codes.max(initial=-1) + 1) * flags.size, axis=0)
    _add_up(columns, flags, pieces, codes, sums, np.empty(0))
    count = sums[:, 4].copy()
    sums[:, 4] = start = np.cumsum(count) - count
    weights, used = np.empty(count.sum()), np.flatnonzero(count)
    _add_up(columns, flags, pieces, codes, sums, weights)
    weighted = np.add.reduceat(weights, start[used])
    yield from zip(used.tolist(), weighted.tolist(), sums[used, :4].tolist(), strict=True)


@compiled
def _add_up(
    columns: SampleColumns, flags: IntArray, pieces: IntTable, codes: IntTable, sums: IntTable, weights: FloatArray
) -> None:
    """Add up values by group: a code x the number of types + the handle of the type.

    `pieces` (4 x n): first word, word after the last, ns, and 1 for the first piece of its span. `codes`: of each piece
    for each flag of types; -1 for none. `sums`: as `_sum_groups` yields them, and the index of the next of the weights,
    which are in the order of groups. Without weights, only count them there.
    """
    _, _, handle, value, _, _ = columns
    for i in range(pieces.shape[1]):
        for bit in range(codes.shape[0]):
            if codes[bit, i] >= 0:
                for word in range(pieces[0, i], pieces[1, i]):
                    if flags[handle[word]] >> bit & 1:
                        group = sums[codes[bit, i] * flags.size + handle[word]]
                        if weights.size:
                            weights[group[4]] = float(value[word]) * pieces[2, i]
                            group[0] += pieces[2, i]
                            group[1] += pieces[3, i]
                            group[2] = min(group[2], value[word])
                            group[3] = max(group[3], value[word])
                        group[4] += 1


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
