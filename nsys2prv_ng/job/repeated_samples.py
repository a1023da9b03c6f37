"""Drops samples of a part of a node, such as a network card, that another report contains too.

The nsys of each rank samples the card with the same period, but at different times. The trace has one series for each
part and metric. The values of a report that started later fill gaps in the series, and are dropped elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from nsys2prv_ng.arrays.row_keys import encode_rows, find_starts
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
from nsys2prv_ng.runtime.engine import Engine
from nsys2prv_ng.sources.shared.reasons import REPEATED
from nsys2prv_ng.sources.shared.source import Result

MOST_PERIODS = 2
"""If neighbouring values of a series are more periods apart than this, there is a gap between them."""

Key = TypeVar("Key")

_Series = dict[tuple[NodePart, EventType], IntArray]
"""Times (ns, on the common clock, sorted) of the values in the trace, by part and metric."""


def drop_repeated_samples(reports: Sequence[ReportRecords], store: Store, engine: Engine) -> None:
    """Drop values that repeat values of reports which started earlier, by metric and part of the node.

    Expects all records with the times of their reports. `_mark_repeated` defines which values repeat others. For each
    node in progress, one result is in memory.
    """

    def drop_on_node(sharing: list[tuple[int, BoolArray]]) -> list[tuple[int, str, Result]]:
        series: _Series = {}
        changed = []
        for index, is_shared in sharing:
            for name, result in reports[index].results.items():
                if any(run.facts.has_events_on(np.flatnonzero(is_shared)) for run in result.runs):
                    copy = result.copy_records()
                    _drop_repeated(reports[index], copy, is_shared, series, store)
                    changed.append((index, name, copy))
        return changed

    sharing = list(_find_sharing_reports(reports))
    if sharing:
        for changed in engine.map(drop_on_node, sharing):
            for index, name, result in changed:
                reports[index].results[name].take_records(result)


def add_to_series(series: dict[Key, IntArray], key: Key, times: IntArray) -> BoolArray:
    """Add times (ns, sorted) to a series unless they repeat its times; return a mask of those that were added."""
    before = series.get(key)
    is_new = np.ones(times.size, np.bool_) if before is None else ~_mark_repeated(before, times)
    series[key] = times if before is None else np.sort(np.concatenate([before, times[is_new]]))
    return is_new


def _mark_repeated(series: IntArray, times: IntArray) -> BoolArray:
    """Mark the times (ns, sorted) that are in a series, or between two of its times without a gap.

    A gap is longer than MOST_PERIODS of the shorter of the two median periods.
    """
    low, high = np.searchsorted(series, times, "left"), np.searchsorted(series, times, "right")
    is_between = (low > 0) & (low < series.size)
    gap = series[np.minimum(low, series.size - 1)] - series[np.maximum(low - 1, 0)]
    return (low < high) | (is_between & (gap <= MOST_PERIODS * min(measure_period(series), measure_period(times))))


def measure_period(times: IntArray) -> float:
    """Return the median difference between consecutive times (ns); 0 for a single time."""
    between = np.diff(times)
    between = between[between > 0]
    return float(np.median(between)) if between.size else 0.0


def _find_sharing_reports(reports: Sequence[ReportRecords]) -> Iterator[list[tuple[int, BoolArray]]]:
    """Yield for each node the reports that sampled the same parts as others, each with a mask of such parts by place.

    Reports are given by number, in the order in which they started to sample these parts.
    """
    sampled: dict[tuple[int, NodePart], list[tuple[int, int]]] = {}
    spans = [report.spans() for report in reports]
    for i, (report, (first, last)) in enumerate(zip(reports, spans, strict=True)):
        for number, place in enumerate(report.places.all):
            if isinstance(place, NodePart) and first[number] <= last[number] and not place.is_local:
                sampled.setdefault((report.node, place), []).append((i, number))
    places: dict[int, dict[int, list[int]]] = {}
    for (node, _), report_places in sampled.items():
        if len(report_places) > 1:
            for i, number in report_places:
                places.setdefault(node, {}).setdefault(i, []).append(number)
    for shared in places.values():
        order = sorted(shared, key=lambda i: (spans[i][0][shared[i]].min(), -spans[i][1][shared[i]].max(), i))
        yield [(i, np.isin(np.arange(len(reports[i].places.all)), shared[i])) for i in order]


def _drop_repeated(report: ReportRecords, result: Result, is_shared: BoolArray, series: _Series, store: Store) -> None:
    """Drop the values of shared parts that the series contain already, and add the rest to the series."""
    records = rec.concatenate([load_records(run, store) for run in result.runs])
    kept = _add_to_series(report, records, is_shared, series)
    if kept.all():
        return
    before = result.written
    # Lines without values stay. (Communications are not such lines.)
    first = np.concatenate([[0], np.cumsum(kept)])[records.first]
    lines = np.flatnonzero((np.diff(first) > 0) | (np.diff(records.first) == 0))
    left = records.take(lines)
    first = first[np.append(lines, len(records))]
    result.records = [replace(left, first=first, handle=records.handle[kept], value=records.value[kept])]
    result.runs = []
    result.drop(REPEATED, before - result.written)
    spill_records(result, store, on_common_clock=False)


def _add_to_series(report: ReportRecords, records: Records, is_shared: BoolArray, series: _Series) -> BoolArray:
    """Add the values of shared parts to the series unless these contain them; return a mask of the values to keep."""
    types = report.labels.types
    is_metric = np.array([event_type.family == NODE_METRICS for event_type in types], np.bool_)
    line = np.repeat(np.arange(len(records)), np.diff(records.first))
    candidates = np.flatnonzero((is_shared[records.place] & (records.kind == EVENT))[line])
    candidates = candidates[is_metric[records.handle[candidates]]]
    place, handle = records.place[line[candidates]].astype(np.int64), records.handle[candidates].astype(np.int64)
    time = report.clock(records.time[line[candidates]])
    group, _ = encode_rows(place, handle)
    order = np.lexsort((time, group))
    kept = np.ones(records.value.size, np.bool_)
    for rows in np.split(order, find_starts(group[order]))[1:]:
        part = report.places.all[place[rows[0]]]
        assert isinstance(part, NodePart)
        metric = part, types[handle[rows[0]]]
        kept[candidates[rows]] = add_to_series(series, metric, time[rows])
    return kept
