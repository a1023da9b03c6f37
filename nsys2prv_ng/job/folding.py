"""Drops the events of threads that share a row: calls of several threads do not nest, so that no row can show them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nsys2prv_ng.job.read_reports import ReportRecords
from nsys2prv_ng.job.spill import change_records
from nsys2prv_ng.objects.tree import ObjectTree
from nsys2prv_ng.records.store import Store
from nsys2prv_ng.runtime.engine import Engine

ON_FOLDED_THREAD = "on a folded thread"


def drop_folded_events(reports: Sequence[ReportRecords], tree: ObjectTree, store: Store, engine: Engine) -> None:
    """Drop the events of folded threads.

    Expects no unended intervals, and the limits of the trace, and the first and last time of the events on each place,
    to be known. Leaves the records of these results on the common clock, and the states that the events ask for.
    """

    changes = [
        (result, report.clock, folded >= 0)
        for report, folded in zip(reports, tree.folded, strict=True)
        for result in report.results.values()
        if any(run.facts.has_events_on(np.flatnonzero(folded >= 0)) for run in result.runs)
    ]
    change_records(changes, lambda result, folded: result.drop_places(folded, ON_FOLDED_THREAD), store, engine)
