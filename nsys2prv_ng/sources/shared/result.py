"""Collects what one source makes of one report: records, states, and how many events it read and dropped."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import NamedTuple

import numpy as np

from nsys2prv_ng.arrays.types import BoolArray, IntArray
from nsys2prv_ng.light_dataclass import dataclass
from nsys2prv_ng.operations.parts import Evidence
from nsys2prv_ng.records.columns import Pair, Records, count_events, drop_places, make_intervals, select
from nsys2prv_ng.records.runs import Run
from nsys2prv_ng.records.store import StoredColumns
from nsys2prv_ng.sources.shared.reasons import Reason

NO_END = 2**62
"""End of an interval without an end: far after any time, even once the offset of a clock is added."""


class StateIntervals(NamedTuple):
    """n states that events ask for: place, start and end (ns), state. They may nest; the outermost state wins."""

    place: IntArray
    begin: IntArray
    end: IntArray
    state: IntArray


class Unended(NamedTuple):
    """n intervals without an end, which last until the trace ends: place, start (ns), the types that they open and
    close."""

    place: IntArray
    begin: IntArray
    opening: list[Pair]
    closing: list[int]


@dataclass
class Result:
    """Records of one source in one report.

    Law: `read` is the number of written events and communications plus the number of dropped ones.
    """

    read: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    """Number of dropped events by reason."""
    closed: int = 0
    """Number of intervals without an end, which the end of the trace closes. They count as written."""
    pieces: int = 0
    """Number of additional intervals in the records, because windows of time cut some intervals into pieces."""
    cut: int = 0
    """Number of intervals of idle threads that were shortened, because they outlast all other events. They count as
    written."""
    windows: IntArray = field(default_factory=lambda: np.zeros((0, 2), np.int64))
    """Start and end (ns) of the n ranges that the user wants to see, n x 2; only the source of NVTX finds them."""
    records: list[Records] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    """Records in the store."""
    unended: list[Unended] = field(default_factory=list)
    states: list[StateIntervals] = field(default_factory=list)
    join_data: object = None
    """Input of `Source.join` from this report, in times and places of the report."""
    join_columns: Sequence[IntArray] = ()
    """Further columns of n rows for the join, which are too long for the memory."""
    stored_join_columns: StoredColumns | None = None
    """The same columns in the store."""
    side_columns: Sequence[IntArray] = ()
    """Columns of n rows that analyses read and that no record has, in times and places of the report."""
    stored_side_columns: StoredColumns | None = None
    """The same columns in the store."""
    evidence: Evidence = field(default_factory=Evidence)
    """Evidence on the clock of the report, in times of the report."""

    @property
    def written(self) -> int:
        """Number of events and communications among the records."""
        stored = sum(run.facts.events for run in self.runs)
        return sum(count_events(records) for records in self.records) + stored - self.pieces

    @property
    def accounted(self) -> int:
        """Number of events that are written, that the end of the trace will close, or that are dropped."""
        return self.written + sum(unended.place.size for unended in self.unended) + sum(self.dropped.values())

    def drop(self, reason: Reason, count: int) -> None:
        """Count events that are not written, for one reason."""
        self._count(reason, count)

    def add_dropped(self, other: Result) -> None:
        """Count the events that another result does not write."""
        for reason, count in other.dropped.items():
            self._count(reason, count)

    def _count(self, reason: str, count: int) -> None:
        if count:
            self.dropped[reason] = self.dropped.get(reason, 0) + int(count)

    def drop_rows(self, reasons: Mapping[Reason, BoolArray], counted: BoolArray | bool = True) -> IntArray:
        """Return the rows to which no reason applies, and drop the others. The first reason that applies counts.

        `counted`: mask of the rows that are events; the others do not count as dropped.
        """
        is_sound: BoolArray = np.ones(next(iter(reasons.values())).size, np.bool_)
        for reason, mask in reasons.items():
            self.drop(reason, int((is_sound & mask & counted).sum()))
            is_sound &= ~mask
        return np.flatnonzero(is_sound)

    def add_intervals(
        self, place: IntArray, begin: IntArray, end: IntArray, opening: Sequence[Pair], closing: Sequence[int]
    ) -> None:
        """Add n intervals as `make_intervals` does; an interval with the end NO_END lasts until the trace ends."""
        has_no_end = end == NO_END
        if has_no_end.any():
            rows = np.flatnonzero(has_no_end)
            # If none of these intervals has a pair, its type must not count as used in the trace.
            pairs = [pair for pair in select(opening, rows) if pair.present is None or pair.present.any()]
            self.unended.append(Unended(place[rows], begin[rows], pairs, list(closing)))
            self.closed += rows.size
            rows = np.flatnonzero(~has_no_end)
            place, begin, end, opening = place[rows], begin[rows], end[rows], select(opening, rows)
        if place.size:
            self.records.append(make_intervals(place, begin, end, opening, closing))

    def add_states(self, place: IntArray, begin: IntArray, end: IntArray, state: IntArray | int) -> None:
        """Add the states that n intervals ask for; -1 stands for none."""
        states = StateIntervals(place, begin, end, np.full(place.size, state, np.int64))
        has_state = states.state >= 0
        self.states.append(states if has_state.all() else StateIntervals(*(column[has_state] for column in states)))

    def copy_records(self) -> Result:
        """Return a copy with the records and counts of this result, which others may change."""
        return replace(
            self,
            dropped=dict(self.dropped),
            records=list(self.records),
            runs=list(self.runs),
            unended=list(self.unended),
            states=list(self.states),
            join_data=None,
            stored_join_columns=None,
            evidence=Evidence(),
        )

    def take_records(self, changed: Result) -> None:
        """Take the records and counts of a copy that was changed."""
        self.runs, self.unended, self.dropped = changed.runs, changed.unended, changed.dropped
        self.closed, self.pieces, self.cut = changed.closed, changed.pieces, changed.cut

    def add(self, other: Result) -> None:
        """Add the counts and runs of another result, whose records must all be in the store."""
        self.read += other.read
        self.pieces += other.pieces
        self.runs += other.runs
        self.add_dropped(other)

    def drop_places(self, without: BoolArray, reason: Reason) -> None:
        """Drop everything at the places in `without`, a mask by place."""
        dropped = 0
        for i, records in enumerate(self.records):
            self.records[i] = drop_places(records, without)
            dropped += count_events(records) - count_events(self.records[i])
        self.states = [StateIntervals(*(c[~without[states.place]] for c in states)) for states in self.states]
        self.drop(reason, dropped)
        self.drop_unended(lambda unended: without[unended.place], reason)

    def drop_unended(self, find: Callable[[Unended], BoolArray], reason: Reason) -> None:
        """Drop the intervals without an end that `find` marks."""
        remaining = []
        for unended in self.unended:
            without = find(unended)
            place, begin, opening, closing = unended
            self.closed -= int(without.sum())
            self.drop(reason, int(without.sum()))
            remaining.append(Unended(place[~without], begin[~without], select(opening, ~without), closing))
        self.unended = [unended for unended in remaining if unended.place.size]
