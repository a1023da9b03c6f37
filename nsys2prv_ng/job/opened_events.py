"""Lists the intervals and points of a report as columns: the lines that open an interval or are a point."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from nsys2prv_ng.arrays.types import BoolArray, IntArray
from nsys2prv_ng.job.read_reports import ReportRecords
from nsys2prv_ng.job.spill import load_on_clock
from nsys2prv_ng.paraver.event_type import EventType
from nsys2prv_ng.paraver.labels import Labels
from nsys2prv_ng.records import columns as rec
from nsys2prv_ng.records.columns import Records, unpack_tie
from nsys2prv_ng.records.store import Store

ABSENT = np.iinfo(np.int64).min
"""Value of a type that a line does not have. (No type that is read here has this value.)"""


class OpenedEvents:
    """Intervals and points of one source of a report, in columns of n: place, begin, length (ns, on the common clock).

    Each piece of an interval that windows of time cut is an interval, as in the trace.
    """

    def __init__(self, records: Records, labels: Labels) -> None:
        self._records, self._labels = records, labels
        lines = np.flatnonzero((records.kind == rec.EVENT) & (records.tie_class != rec.END))
        self._position = np.full(len(records), -1, np.int64)
        self._position[lines] = np.arange(lines.size)
        self.place = records.place[lines].astype(np.int64)
        self.begin = records.time[lines]
        self.length = unpack_tie(records.tie[lines])[1]

    @property
    def end(self) -> IntArray:
        return self.begin + self.length

    def mark_whole(self, windows: Sequence[tuple[int, int]]) -> BoolArray:
        """Mark the intervals (n) that no window cut: only their quantities, such as bytes, refer to all of them."""
        lows, highs = np.array(windows, np.int64).reshape(-1, 2).T
        return ~(np.isin(self.begin, lows) | np.isin(self.end, highs))

    def get_values(self, *event_types: EventType) -> IntArray:
        """Return the value (n) of each line for any of the types; ABSENT if it has none of them.

        A line has at most one of the types.
        """
        values = np.full(self.begin.size, ABSENT, np.int64)
        known = [self._labels.types.index(wanted) for wanted in event_types if wanted in self._labels.types]
        if not known:
            return values
        handle = self._records.handle
        words = np.flatnonzero(handle == known[0] if len(known) == 1 else np.isin(handle, known))
        at = self._position_of_word[words]
        words, at = words[at >= 0], at[at >= 0]
        # A line of an interval without length also closes it, so the first of its words counts.
        values[at[::-1]] = self._records.value[words[::-1]]
        return values

    @cached_property
    def _position_of_word(self) -> IntArray:
        """Index of each word's line among the lines that open an interval or are a point; -1 for other lines."""
        return np.repeat(self._position, np.diff(self._records.first))

    def get_names(self, event_type: EventType) -> dict[int, str]:
        """Return the names of a type's values, by value."""
        if event_type.names:
            return dict(enumerate(self._labels.names.get(event_type.names, {}), 1))
        return dict(event_type.values or {})

    def list_types(self, family: str) -> list[EventType]:
        """Return the types of a family in the report."""
        return [event_type for event_type in self._labels.types if event_type.family == family]


def load_opened_events(report: ReportRecords, source: str, store: Store) -> OpenedEvents:
    """Return the events of a source of a report; no events if the source was not read."""
    return OpenedEvents(load_source_records(report, source, store), report.labels)


def load_source_records(report: ReportRecords, source: str, store: Store) -> Records:
    """Return all records of a source of a report, on the common clock, with the report's own places and values."""
    return rec.concatenate([load_on_clock(run, store, report.clock) for run in report.runs((source,))])
