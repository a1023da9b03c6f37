"""Drops the events of threads that share a row: calls of several threads do not nest, so that no row can show them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nsys2prv_ng.arrays.types import BoolArray
from nsys2prv_ng.clock.applying import ClockMap
from nsys2prv_ng.job.read_reports import ReportRecords
from nsys2prv_ng.job.spill import load_for_change
from nsys2prv_ng.objects.tree import ObjectTree
from nsys2prv_ng.records.store import Store
from nsys2prv_ng.runtime.engine import Engine
from nsys2prv_ng.sources.shared.result import Result

ON_FOLDED_THREAD = "on a folded thread"


def drop_folded_events(reports: Sequence[ReportRecords], tree: ObjectTree, store: Store, engine: Engine) -> None:
    """Drop the events of folded threads.

    Expects no unended intervals, and the limits of the trace, and the first and last time of the events on each place,
    to be known. Leaves the records of these results on the common clock, and the states that the events ask for.
    """

    def drop_events(change: tuple[ClockMap, BoolArray, Result]) -> Result:
        clock, folded, result = change
        with load_for_change(result, store, clock):
            result.drop_places(folded, ON_FOLDED_THREAD)
        return result

    changes = [
        (report.clock, folded >= 0, result)
        for report, folded in zip(reports, tree.folded, strict=True)
        for result in report.results.values()
        if any(run.facts.has_events_on(np.flatnonzero(folded >= 0)) for run in result.runs)
    ]
    copies = [(clock, folded, result.copy_records()) for clock, folded, result in changes]
    for (_, _, result), changed in zip(changes, engine.map(drop_events, copies), strict=True):
        result.take_records(changed)
