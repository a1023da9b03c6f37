"""Ends a trace with what a job did, not with the calls in which its idle threads were when all else had ended.

Such a thread waits in a call of the operating system, often for seconds. nsys waits for the call's end too, so that a
trace would be mostly empty.
"""

from __future__ import annotations

from collections.abc import Sequence

from nsys2prv_ng.arrays.types import BoolArray
from nsys2prv_ng.clock.applying import ClockMap
from nsys2prv_ng.job.placement import measure_limits
from nsys2prv_ng.job.read_reports import ReportRecords
from nsys2prv_ng.job.spill import change_records
from nsys2prv_ng.objects.tree import ObjectTree
from nsys2prv_ng.records.clip import clip_ends
from nsys2prv_ng.records.store import Store
from nsys2prv_ng.runtime.engine import Engine
from nsys2prv_ng.sources.host import cpu_samples
from nsys2prv_ng.sources.shared.result import Result

_WORTH = 0.1
"""By which part of the other rows' time idle threads must outlast them, so that something is cut."""
AFTER_ALL_ELSE = "on an idle thread after all else has ended"


def cut_idle_ends(reports: Sequence[ReportRecords], tree: ObjectTree, store: Store, engine: Engine) -> None:
    """Cut what idle threads did when the last event of all other rows has ended, if that is worth it (see _WORTH).

    Expects only records of wanted rows, each result all on one clock. Leaves the results that it changed on the common
    clock.
    """
    idle = [(rows >= 0) & tree.is_idle[rows] for rows in tree.rows]
    last = max(
        (last for report, own in zip(reports, idle, strict=True) if (last := _find_last(report, ~own)) is not None),
        default=None,
    )
    first, end = measure_limits(reports)
    if last is None or end - last <= _WORTH * (last - first):
        return
    changes = [
        (result, report.clock, (report.clock, own, last))
        for report, own in zip(reports, idle, strict=True)
        for result in report.results.values()
        if _ends_later(report, result, own, last)
    ]
    change_records(changes, lambda result, known: _cut(result, *known), store, engine)


def _find_last(report: ReportRecords, places: BoolArray) -> int | None:
    """Return the last time (ns, common clock) of the events on some places, and of samples of any; None without any."""
    first, last = report.spans()
    used = places & (first <= last)
    times = [int(last[used].max())] if used.any() else []
    if samples := report.results.get(cpu_samples.SOURCE.name):  # a thread that is sampled runs, whatever it calls
        times += [report.find_limits(run)[1] for run in samples.runs]
    return max(times, default=None)


def _ends_later(report: ReportRecords, result: Result, places: BoolArray, last: int) -> bool:
    """Return whether an event of a result ends after `last` (ns, common clock) on some of these places."""
    for place, _, end in map(report.find_spans, result.runs):
        if (places[place] & (end > last)).any():
            return True
    return any((places[own.place] & (report.clock(own.begin) > last)).any() for own in result.unended)


def _cut(result: Result, clock: ClockMap, places: BoolArray, last: int) -> None:
    """Cut the intervals on some places that end after `last` (ns), and drop what begins after it."""
    before = result.written
    for i, records in enumerate(result.records):
        result.records[i], shortened = clip_ends(records, places, last)
        result.cut += shortened
    result.drop(AFTER_ALL_ELSE, before - result.written)
    result.drop_unended(lambda own: places[own.place] & (clock(own.begin) > last), AFTER_ALL_ELSE)
