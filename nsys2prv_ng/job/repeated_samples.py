"""Parts of a node that several reports watched at once, as a network card that each rank's nsys sampled.

Each nsys samples at times of its own, with the same period. The trace has one series for each part and metric: what
reports have that began later is left out where the series has values already, and fills it where it has none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from nsys2prv_ng.arrays.types import BoolArray, IntArray
from nsys2prv_ng.job.read_reports import ReportRecords
from nsys2prv_ng.job.spill import spill_records
from nsys2prv_ng.objects.places import NodePart
from nsys2prv_ng.paraver.event_type import EventType
from nsys2prv_ng.paraver.families import NODE_METRICS
from nsys2prv_ng.records import columns as rec
from nsys2prv_ng.records.columns import EVENT, Records
from nsys2prv_ng.records.runs import load_records
from nsys2prv_ng.records.store import Store
from nsys2prv_ng.runtime.parallel import run_in_threads
from nsys2prv_ng.sources.shared.result import Result

REPEATED = "duplicate sample: another report of this node covers that time"

MOST_PERIODS = 2
"""Neighbouring values of a series that are farther apart have a gap between them."""

_Series = dict[tuple[NodePart, EventType], IntArray]
"""Times (ns, on the common clock, sorted) of the values that the trace has of each metric of each part."""


def drop_repeated_samples(read: Sequence[ReportRecords], store: Store, workers: int) -> None:
    """Drop values that repeat those of reports which began before, by metric and part of the node (see `repeated`).

    Results of `workers` nodes are in memory, one of each.
    """

    def leave_out(shared: list[tuple[ReportRecords, BoolArray]]) -> None:
        series: _Series = {}
        for report, of_parts in shared:
            for result in report.results.values():
                if any(run.facts.has_events_on(np.flatnonzero(of_parts)) for run in result.runs):
                    _leave_out(report, result, of_parts, series, store)

    for _ in run_in_threads(leave_out, _shared(read), workers):
        pass


def mark_repeated(series: IntArray, times: IntArray) -> BoolArray:
    """Which of some times (ns, sorted) are those of a series, or between two of it without a gap.

    A gap is longer than MOST_PERIODS of the median periods of both.
    """
    low, high = np.searchsorted(series, times, "left"), np.searchsorted(series, times, "right")
    is_between = (low > 0) & (low < series.size)
    around = series[np.minimum(low, series.size - 1)] - series[np.maximum(low - 1, 0)]
    return (low < high) | (is_between & (around <= MOST_PERIODS * min(_period(series), _period(times))))


def _period(times: IntArray) -> float:
    """Median of the time from one to the next; 0 of a single one."""
    between = np.diff(times)
    between = between[between > 0]
    return float(np.median(between)) if between.size else 0.0


def _shared(read: Sequence[ReportRecords]) -> Iterator[list[tuple[ReportRecords, BoolArray]]]:
    """Of each node the reports, by the time when they began, of which others watched a part; and these by place."""
    watched: dict[tuple[int, NodePart], list[tuple[int, int]]] = {}
    spans = {}
    for i, report in enumerate(read):
        parts = [(number, place) for number, place in enumerate(report.places.all) if isinstance(place, NodePart)]
        if parts:
            first, last = spans[i] = report.spans()
            for number, place in parts:
                if first[number] <= last[number] and not place.is_own:
                    watched.setdefault((report.node, place), []).append((i, number))
    places: dict[int, dict[int, list[int]]] = {}
    for (node, _), places_of in watched.items():
        if len(places_of) > 1:
            for i, number in places_of:
                places.setdefault(node, {}).setdefault(i, []).append(number)
    for of_node in places.values():
        order = sorted(of_node, key=lambda i: (spans[i][0][of_node[i]].min(), -spans[i][1][of_node[i]].max(), i))
        yield [(read[i], np.isin(np.arange(len(read[i].places.all)), of_node[i])) for i in order]


def _leave_out(report: ReportRecords, result: Result, of_parts: BoolArray, series: _Series, store: Store) -> None:
    """Drop the values of which the series have others, and add the rest to these."""
    records = rec.concatenate([load_records(run, store) for run in result.runs])
    kept = _not_repeated(report, records, of_parts, series)
    if kept.all():
        return
    before = result.written
    # Lines without values, as communications are not, stay.
    first = np.concatenate([[0], np.cumsum(kept)])[records.first]
    lines = np.flatnonzero((np.diff(first) > 0) | (np.diff(records.first) == 0))
    left = records.take(lines)
    result.records = [
        Records(
            left.time,
            left.tie,
            left.place,
            left.kind,
            first[np.append(lines, len(records))],
            records.handle[kept],
            records.value[kept],
        )
    ]
    result.runs = []
    result.drop(REPEATED, before - result.written)
    spill_records(result, store, on_common_clock=False)


def _not_repeated(report: ReportRecords, records: Records, of_parts: BoolArray, series: _Series) -> BoolArray:
    """Whether each value is none that the series have; they are added to them."""
    types = report.labels.types
    is_metric = np.array([each.family == NODE_METRICS for each in types], np.bool_)
    line = np.repeat(np.arange(len(records)), np.diff(records.first))
    candidates = np.flatnonzero((of_parts[records.place] & (records.kind == EVENT))[line])
    candidates = candidates[is_metric[records.handle[candidates]]]
    place, handle = records.place[line[candidates]].astype(np.int64), records.handle[candidates].astype(np.int64)
    time = report.clock(records.time[line[candidates]])
    group = place * len(types) + handle
    order = np.lexsort((time, group))
    time, candidates, group = time[order], candidates[order], group[order]
    kept = np.ones(records.value.size, np.bool_)
    starts = np.flatnonzero(np.diff(group, prepend=-1))
    for low, high in zip(starts.tolist(), [*starts[1:].tolist(), group.size], strict=False):
        number, handle_of = divmod(int(group[low]), len(types))
        part = report.places.all[number]
        assert isinstance(part, NodePart)
        metric, times = (part, types[handle_of]), time[low:high]
        if metric in series:
            is_repeated = mark_repeated(series[metric], times)
            kept[candidates[low:high][is_repeated]] = False
            times = np.sort(np.concatenate([series[metric], times[~is_repeated]]))
        series[metric] = times
    return kept
