"""The outcome of reading one source in one report: records, states, and a count of what was read and dropped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from nsys2prv_ng.arrays.types import BoolArray, IntArray
from nsys2prv_ng.clock.collectives import Evidence
from nsys2prv_ng.records.columns import Pair, Records, count_events, drop_places, make_intervals, select
from nsys2prv_ng.records.runs import Run

NO_END = 2**62
"""End of an interval that has none: far beyond any time, and still so when a clock is added to it."""


class StateIntervals(NamedTuple):
    """States that events ask for: place, begin and end (ns), state, of n. They may nest; the outermost will win."""

    place: IntArray
    begin: IntArray
    end: IntArray
    state: IntArray


class Unended(NamedTuple):
    """Intervals of n that have no end and last until the trace ends: place, begin (ns), what they open and close."""

    place: IntArray
    begin: IntArray
    opening: list[Pair]
    closing: list[int]


@dataclass
class Result:
    """What a source made of one report. Law: `read` equals the events or communications written plus those dropped."""

    read: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    """Number of events that were left out, by reason."""
    closed: int = 0
    """Number of intervals without an end, which the end of the trace closes. They are written."""
    pieces: int = 0
    """How many more intervals the records hold because windows of time cut some into several pieces."""
    windows: IntArray = field(default_factory=lambda: np.zeros((0, 2), np.int64))
    """Begin and end (ns) of the ranges that the user wants to see, n x 2; only NVTX knows them."""
    records: list[Records] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    """Records that were put away."""
    unended: list[Unended] = field(default_factory=list)
    states: list[StateIntervals] = field(default_factory=list)
    join_data: object = None
    """What `Source.join` needs of this report, in its own times and places."""
    evidence: Evidence = field(default_factory=Evidence)
    """What the source tells of the report's clock, in the report's own times."""

    @property
    def written(self) -> int:
        """Events and communications among the records."""
        away = sum(run.facts.events for run in self.runs)
        return sum(count_events(records) for records in self.records) + away - self.pieces

    def drop(self, reason: str, count: int) -> None:
        if count:
            self.dropped[reason] = self.dropped.get(reason, 0) + int(count)

    def drop_rows(self, reasons: Mapping[str, BoolArray]) -> IntArray:
        """Rows for which no reason holds; the others are counted as dropped. The masks do not overlap."""
        for reason, mask in reasons.items():
            self.drop(reason, int(mask.sum()))
        return np.flatnonzero(~np.logical_or.reduce(list(reasons.values())))

    def add_intervals(
        self, place: IntArray, begin: IntArray, end: IntArray, opening: Sequence[Pair], closing: Sequence[int]
    ) -> None:
        """Add intervals of n as `make_intervals` takes them; one whose end is NO_END lasts until the trace ends."""
        has_no_end = end == NO_END
        if has_no_end.any():
            rows = np.flatnonzero(has_no_end)
            # A pair that none of them has would make its type one that is used.
            pairs = [pair for pair in select(opening, rows) if pair.present is None or pair.present.any()]
            self.unended.append(Unended(place[rows], begin[rows], pairs, list(closing)))
            self.closed += rows.size
            rows = np.flatnonzero(~has_no_end)
            place, begin, end, opening = place[rows], begin[rows], end[rows], select(opening, rows)
        if place.size:
            self.records.append(make_intervals(place, begin, end, opening, closing))

    def add(self, other: Result) -> None:
        """Count what is in another result, which has put its records away, and have its runs."""
        self.read += other.read
        self.pieces += other.pieces
        self.runs += other.runs
        for reason, count in other.dropped.items():
            self.drop(reason, count)

    def drop_places(self, without: BoolArray, reason: str) -> None:
        """Leave out all that happened at some places: a mask by place."""
        dropped = 0
        for i, records in enumerate(self.records):
            self.records[i] = drop_places(records, without)
            dropped += count_events(records) - count_events(self.records[i])
        self.states = [StateIntervals(*(c[~without[each.place]] for c in each)) for each in self.states]
        lasting = []
        for place, begin, opening, closing in self.unended:
            kept = ~without[place]
            dropped += int((~kept).sum())
            self.closed -= int((~kept).sum())
            lasting.append(Unended(place[kept], begin[kept], select(opening, kept), closing))
        self.unended = [each for each in lasting if each.place.size]
        self.drop(reason, dropped)
