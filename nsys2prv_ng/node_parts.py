"""Parts of a node that several reports watched at once, as a network card that each rank's nsys sampled."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nsys2prv_ng.objects.places import IntArray, NodePart
from nsys2prv_ng.paraver.store import Store
from nsys2prv_ng.reading import ReportRecords
from nsys2prv_ng.sources.base import Result
from nsys2prv_ng.stored import in_memory
from nsys2prv_ng.workers import in_threads

REPEATED = "of a time of which another report of the node has them"

_NEVER = np.iinfo(np.int64).min


def leave_out_repeated(read: Sequence[ReportRecords], store: Store, at_once: int) -> None:
    """Drop values of a part of the time until which a report that began before, or lasts longer, has them.

    So each is there once, whatever the reports have in common; `at_once` results are in memory.
    """
    covered = _covered(read)
    changes = (
        (report, result, until)
        for report, until in zip(read, covered, strict=True)
        if until is not None
        for result in report.results.values()
        if any(run.facts.has_events_on(np.flatnonzero(until != _NEVER)) for run in result.runs)
    )

    def leave_out(change: tuple[ReportRecords, Result, IntArray]) -> None:
        report, result, until = change
        with in_memory(result, store):
            before = result.written
            for i, records in enumerate(result.records):
                late = report.clock(records.time) > until[records.place]
                result.records[i] = records.take(np.flatnonzero(late))
            result.drop(REPEATED, before - result.written)

    for _ in in_threads(leave_out, changes, at_once):
        pass


def _covered(read: Sequence[ReportRecords]) -> list[IntArray | None]:
    """Of each report the time (ns, on the common clock) by place until which others have its values; None where they
    have none of them."""
    reports_of: dict[tuple[int, NodePart], list[tuple[int, int, int, int]]] = {}
    for i, report in enumerate(read):
        parts = [(number, place) for number, place in enumerate(report.places.all) if isinstance(place, NodePart)]
        if parts:
            first, last = report.spans()
            for number, place in parts:
                if first[number] <= last[number]:
                    found = int(first[number]), -int(last[number]), i, number
                    reports_of.setdefault((report.node, place), []).append(found)
    covered: list[IntArray | None] = [None] * len(read)
    for watched in reports_of.values():
        end = None
        for _, negative_last, i, number in sorted(watched):
            if end is not None:
                own = covered[i]
                if own is None:
                    own = covered[i] = np.full(len(read[i].places.all), _NEVER, np.int64)
                own[number] = end
            end = -negative_last if end is None else max(end, -negative_last)
    return covered
