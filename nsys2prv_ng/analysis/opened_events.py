"""What a report's records say once each: the lines that open an interval or are a point, as columns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nsys2prv_ng.arrays.types import BoolArray, IntArray
from nsys2prv_ng.job.read_reports import ReportRecords
from nsys2prv_ng.paraver.event_type import EventType
from nsys2prv_ng.paraver.labels import Labels
from nsys2prv_ng.records import columns as rec
from nsys2prv_ng.records.columns import Records
from nsys2prv_ng.records.runs import load_records
from nsys2prv_ng.records.store import Store

ABSENT = np.iinfo(np.int64).min
"""Value of a type that a line does not have. (Of the types that are asked for here none takes it.)"""


class OpenedEvents:
    """Intervals and points of one source of a report, of n: place, begin and length (ns, on the common clock).

    An interval that windows of time cut into pieces is one for each, as in the trace.
    """

    def __init__(self, records: Records, labels: Labels) -> None:
        self._records, self._labels = records, labels
        of_class = records.tie_class
        opens = (records.kind == rec.EVENT) & np.isin(of_class, (rec.BEGIN, rec.EMPTY, rec.POINT))
        self._lines = np.flatnonzero(opens)
        self._position = np.full(len(records), -1, np.int64)
        self._position[self._lines] = np.arange(self._lines.size)
        self.place = records.place[self._lines].astype(np.int64)
        self.begin = records.time[self._lines]
        self.length = records.length[self._lines]

    @property
    def end(self) -> IntArray:
        return self.begin + self.length

    def whole(self, windows: Sequence[tuple[int, int]]) -> BoolArray:
        """Which intervals no window cut: what they say of themselves, as of bytes, is of all of them."""
        lows, highs = np.array(windows, np.int64).reshape(-1, 2).T
        return ~(np.isin(self.begin, lows) | np.isin(self.end, highs))

    def values(self, *event_types: EventType) -> IntArray:
        """The value that each line gives to any of some types, of which it has one at most; ABSENT without one."""
        found = np.full(self._lines.size, ABSENT, np.int64)
        known = [self._labels.types.index(each) for each in event_types if each in self._labels.types]
        words = np.flatnonzero(np.isin(self._records.handle, known))
        lines = np.searchsorted(self._records.first, words, "right") - 1
        at = self._position[lines]
        words, at = words[at >= 0], at[at >= 0]
        # A line of an interval without length also closes it, at its end: the first of its words counts.
        found[at[::-1]] = self._records.value[words[::-1]]
        return found

    def names(self, event_type: EventType) -> dict[int, str]:
        """Names by the values of a type."""
        if event_type.names:
            return dict(enumerate(self._labels.names.get(event_type.names, {}), 1))
        return dict(event_type.values or {})

    def types(self, family: str) -> list[EventType]:
        """Types of a family that the report knows."""
        return [each for each in self._labels.types if each.family == family]


def load_opened_events(report: ReportRecords, source: str, store: Store) -> OpenedEvents:
    """Those of a source of a report, which may not have been read."""
    return OpenedEvents(load_source_records(report, source, store), report.labels)


def load_source_records(report: ReportRecords, source: str, store: Store) -> Records:
    """All records of a source of a report on the common clock, with its own places and values."""
    runs = report.results[source].runs if source in report.results else []
    parts = [load_records(run, store) for run in runs]
    for run, part in zip(runs, parts, strict=True):
        rec.shift_times(part, 0 if run.on_common_clock else report.clock.offset)
    return rec.concatenate(parts)
