"""Ends a trace with the work of a job, not with calls of idle threads that last longer than everything else.

Such a thread waits in an OS runtime call, often for seconds. nsys waits for the end of the call too, so the trace would
be mostly empty.
"""

from __future__ import annotations

from collections.abc import Sequence

from nsys2prv_ng import source_names
from nsys2prv_ng.arrays.types import BoolArray
from nsys2prv_ng.clock.applying import ClockMap
from nsys2prv_ng.job.placement import measure_limits
from nsys2prv_ng.job.read_reports import ReportRecords
from nsys2prv_ng.job.spill import change_records
from nsys2prv_ng.objects.tree import ObjectTree
from nsys2prv_ng.records.clip import clip_ends
from nsys2prv_ng.records.store import Store
from nsys2prv_ng.runtime.engine import Engine
from nsys2prv_ng.sources.shared.reasons import AFTER_ALL_ELSE
from nsys2prv_ng.sources.shared.source import Result

_WORTH = 0.1
"""Calls are cut if idle threads outlast the other rows by more than this share of the other rows' time."""


def cut_idle_ends(reports: Sequence[ReportRecords], tree: ObjectTree, store: Store, engine: Engine) -> None:
    """Cut the events of idle threads after the last event of all other rows, if that is worth it (see _WORTH).

    Expects only records on chosen rows, all records of a result on one clock. Leaves the changed results on the common
    clock.
    """
    idle = [(rows >= 0) & tree.is_idle[rows] for rows in tree.rows]
    last = max(
        (last for report, mask in zip(reports, idle, strict=True) if (last := _find_last(report, ~mask)) is not None),
        default=None,
    )
    first, end = measure_limits(reports)
    if last is None or end - last <= _WORTH * (last - first):
        return
    changes = [
        (result, report.clock, (report.clock, mask, last))
        for report, mask in zip(reports, idle, strict=True)
        for result in report.results.values()
        if _ends_later(report, result, mask, last)
    ]
    change_records(changes, lambda result, known: _cut(result, *known), store, engine)


def _find_last(report: ReportRecords, places: BoolArray) -> int | None:
    """Return the last time of events on some places and samples on any place (ns, common clock); None without any."""
    first, last = report.spans()
    used = places & (first <= last)
    times = [int(last[used].max())] if used.any() else []
    # A sampled thread is running, even within a call.
    times += [report.find_limits(run)[1] for run in report.runs((source_names.CPU_SAMPLES,))]
    return max(times, default=None)


def _ends_later(report: ReportRecords, result: Result, places: BoolArray, last: int) -> bool:
    """Return whether an event of a result ends after `last` (ns, common clock) on some of these places."""
    spans = map(report.find_spans, result.runs)
    ended = any((places[place] & (end > last)).any() for place, _, end in spans)
    return ended or any((places[part.place] & (report.clock(part.begin) > last)).any() for part in result.unended)


def _cut(result: Result, clock: ClockMap, places: BoolArray, last: int) -> None:
    """Cut the intervals on some places that end after `last` (ns), and drop events that start after it."""
    before = result.written
    for i, records in enumerate(result.records):
        result.records[i], shortened = clip_ends(records, places, last)
        result.cut += shortened
    result.drop(AFTER_ALL_ELSE, before - result.written)
    result.drop_unended(lambda part: places[part.place] & (clock(part.begin) > last), AFTER_ALL_ELSE)
