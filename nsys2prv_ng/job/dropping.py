"""Drops what a trace does not show: rows that the user did not choose, repeated samples, short intervals, other times.

The nsys of each rank samples a part of a node, such as a network card, with the same period, but at different times.
The trace has one series for each part and metric. The values of a report that started later fill gaps in the series,
and are dropped elsewhere. Calls of threads that share a row do not nest, so their events are dropped, too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from nsys2prv_ng.arrays.row_keys import encode_rows, find_starts
from nsys2prv_ng.arrays.types import BoolArray, IntArray
from nsys2prv_ng.errors import UsageError
from nsys2prv_ng.objects.places import NodePart
from nsys2prv_ng.objects.tree import ObjectTree
from nsys2prv_ng.paraver.event_type import EventType
from nsys2prv_ng.paraver.families import NODE_METRICS
from nsys2prv_ng.paraver.model import TraceModel
from nsys2prv_ng.reading.open_reports import Selection
from nsys2prv_ng.reading.read_reports import ReportRecords, change_records, spill_records
from nsys2prv_ng.records import columns as rec
from nsys2prv_ng.records.clip import clip_to_windows, drop_short_intervals
from nsys2prv_ng.records.columns import EVENT, Records
from nsys2prv_ng.records.runs import load_records
from nsys2prv_ng.records.store import Store
from nsys2prv_ng.runtime.parallel import Engine
from nsys2prv_ng.sources.shared.reasons import NOT_SELECTED, ON_FOLDED_THREAD, OUTSIDE_CHOSEN_TIME, REPEATED, TOO_SHORT
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


# ---- rows ------------------------------------------------------------------------------------------------------------


def refuse_other_ranks(tree: ObjectTree, ranks: Collection[int]) -> None:
    """Raise UsageError if nothing belongs to any of these ranks."""
    known = sorted({rank for rank in tree.belongs_to.tolist() if rank >= 0})
    if set(ranks).isdisjoint(known):
        held = ", ".join(map(str, known)) or "no ranks"
        raise UsageError(f"none of them is in the reports, which hold {held}", parameter="ranks")


def select_rows(tree: ObjectTree, selection: Selection) -> BoolArray:
    """Mark the rows of the chosen ranks and GPUs. Raises UsageError if there are none.

    The child processes of a rank, and the nodes that it ran on, belong to it.
    """
    kept = np.ones(tree.model.row_count, np.bool_)
    if selection.ranks is not None:
        wanted = np.isin(tree.belongs_to, list(selection.ranks))
        nodes = {task.node for task, is_wanted in zip(tree.model.tasks, wanted, strict=True) if is_wanted}
        for i, task in enumerate(tree.model.tasks):
            wanted[i] |= tree.is_node[i] and task.node in nodes
        kept &= wanted[tree.task_of_row]
        refuse_other_ranks(tree, selection.ranks)
    if selection.gpus is not None:
        kept &= (tree.gpu_of_row < 0) | np.isin(tree.gpu_of_row, list(selection.gpus))
        if not (kept & (tree.gpu_of_row >= 0)).any():
            known = ", ".join(map(str, sorted(set(tree.gpu_of_row[tree.gpu_of_row >= 0].tolist()))))
            held = f"GPU {known}" if known else "no GPU"
            raise UsageError(f"none of them is in the selected reports, which hold {held}", parameter="gpus")
    return kept


def prune_tree(tree: ObjectTree, kept: BoolArray) -> tuple[ObjectTree, IntArray]:
    """Return the tree with only the rows of a mask, and the new row of each old row (-1 for a row that is not kept)."""
    new_row = np.where(kept, np.cumsum(kept) - 1, -1)
    tasks = [i for i in range(len(tree.model.tasks)) if kept[tree.task_of_row == i].any()]
    nodes = sorted({tree.model.tasks[i].node for i in tasks})
    rows = []
    for i in tasks:
        is_row_kept = kept[tree.task_of_row == i]
        names = [name for name, is_kept in zip(tree.model.tasks[i].threads, is_row_kept, strict=True) if is_kept]
        rows.append(replace(tree.model.tasks[i], node=nodes.index(tree.model.tasks[i].node), threads=names))
    host = new_row[tree.host_rows]
    return (
        replace(
            tree,
            model=TraceModel([tree.model.nodes[node] for node in nodes], rows),
            rows=[np.where(rows_of_report >= 0, new_row[rows_of_report], -1) for rows_of_report in tree.rows],
            host_rows=host[host >= 0],
            task_of_row=np.repeat(np.arange(len(rows)), [len(task.threads) for task in rows]),
            ranks=[tree.ranks[i] for i in tasks],
            belongs_to=tree.belongs_to[tasks],
            is_node=[tree.is_node[i] for i in tasks],
            gpu_of_row=tree.gpu_of_row[kept],
            is_idle=tree.is_idle[kept],
        ),
        new_row,
    )


def drop_unselected_rows(
    reports: Sequence[ReportRecords], tree: ObjectTree, kept: BoolArray, store: Store, engine: Engine
) -> None:
    """Drop records on rows that the user did not choose (`kept` is false).

    Expects all records of a result on one clock. Leaves the records that set the limits of the trace. Raises UsageError
    if there are none.
    """

    changes = [
        (result, None, unwanted)
        for report, rows in zip(reports, tree.rows, strict=True)
        if (unwanted := (rows >= 0) & ~kept[rows]).any()
        for result in report.results.values()
    ]
    change_records(changes, lambda result, unwanted: result.drop_places(unwanted, NOT_SELECTED), store, engine)
    if not any(report.limits() for report in reports):
        raise UsageError("no event is left in the trace; choose more ranks or GPUs")


def has_folded_events(result: Result, folded: BoolArray) -> bool:
    """Return whether a result has events on folded threads. `folded`: mask by place."""
    places = np.flatnonzero(folded)
    return any(run.facts.has_events_on(places) for run in result.runs)


def take_folded(result: Result, folded: BoolArray) -> Result:
    """Move the records on folded threads to a new result, and return it. `folded`: mask by place."""
    taken = Result()
    for i, records in enumerate(result.records):
        is_folded = folded[records.place]
        result.records[i] = records.take(np.flatnonzero(~is_folded))
        taken.records.append(records.take(np.flatnonzero(is_folded)))
    return taken


def drop_folded(result: Result, taken: Result) -> None:
    """Count the events of `taken` as dropped: its remaining events are on folded threads."""
    result.add_dropped(taken)
    result.drop(ON_FOLDED_THREAD, taken.written)


# ---- time ------------------------------------------------------------------------------------------------------------


def drop_short(result: Result, shortest: int) -> None:
    """Drop intervals shorter than `shortest` (ns); the nesting of the others, and states, stay as they are."""
    before = result.written
    result.records = [drop_short_intervals(records, shortest) for records in result.records]
    result.drop(TOO_SHORT, before - result.written)


def cut_result(result: Result, windows: Sequence[tuple[int, int]]) -> None:
    """Cut records to windows; events outside count as dropped."""
    before = result.written
    for i, records in enumerate(result.records):
        result.records[i], pieces = clip_to_windows(records, windows)
        result.pieces += pieces
    result.drop(OUTSIDE_CHOSEN_TIME, before - result.written)
