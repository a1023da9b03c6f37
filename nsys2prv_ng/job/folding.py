"""Drops the events of threads that share a row: calls of different threads do not nest, so no row can show them."""

from __future__ import annotations

import numpy as np

from nsys2prv_ng.arrays.types import BoolArray
from nsys2prv_ng.sources.shared.reasons import ON_FOLDED_THREAD
from nsys2prv_ng.sources.shared.source import Result


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
