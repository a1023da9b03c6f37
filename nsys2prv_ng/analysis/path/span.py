"""Cuts the operations and calls of a report to a span of time, before all reports are joined."""

from __future__ import annotations

import numpy as np

from nsys2prv_ng.analysis.path import columns as path
from nsys2prv_ng.analysis.path.columns import NONE
from nsys2prv_ng.analysis.path.streams import EventSteps
from nsys2prv_ng.arrays.types import BoolArray, IntArray

Span = tuple[int, int]
"""First and last time (ns)."""


def cut_to_span(
    operations: dict[str, IntArray],
    calls: dict[str, IntArray],
    steps: EventSteps,
    call_of_step: IntArray,
    span: Span,
) -> tuple[EventSteps, IntArray]:
    """Keep only the operations and calls that run in a span, with their whole lengths; return (steps, their calls).

    Indices in the columns are those of what is kept: NONE for what is not. A call that waited for an operation that
    ended before the span waits for nothing.
    """
    kept = _mark_in_span(operations, span)
    launch = operations["launch"][kept]
    kept[launch[launch >= 0]] = True  # the first node of a graph that runs into the span
    operation = _renumber(kept)
    for name, column in operations.items():
        operations[name] = column[kept]
    for name in ("producer", "launch"):
        operations[name] = operation[operations[name]]
    kept = _mark_in_span(calls, span)
    call = _renumber(kept)
    for name, column in calls.items():
        calls[name] = column[kept]
    waits = np.flatnonzero(calls["sync"] == path.SYNC_OPERATION)
    calls["target"][waits] = operation[calls["target"][waits]]
    lost = waits[calls["target"][waits] == NONE]
    calls["sync"][lost] = path.NO_SYNC
    low, high = span
    own = call[call_of_step]
    inside = np.flatnonzero((steps.time >= low) & (steps.time <= high) | (own >= 0))
    return EventSteps(*(column[inside] for column in steps)), own[inside]


def _mark_in_span(columns: dict[str, IntArray], span: Span) -> BoolArray:
    low, high = span
    return np.asarray((columns["end"] >= low) & (columns["begin"] <= high), np.bool_)


def _renumber(kept: BoolArray) -> IntArray:
    """Return the new index of each item; NONE for what is not kept, and, at the end, for NONE."""
    return np.append(np.where(kept, np.cumsum(kept) - 1, NONE), NONE)
