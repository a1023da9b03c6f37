"""Lists the intervals and points of a report as columns, its NVTX ranges, and which of them repeat.

Each report has numbers of its own for names. `number_lines` numbers those of several sources, checksums those of all
reports.

Push/pop ranges nest on their thread. Start/end ranges nest in no other range: they count as outermost.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b

import numpy as np

from nsys2prv_ng import source_names
from nsys2prv_ng.arrays.row_keys import combine_columns, find_distinct, find_rows
from nsys2prv_ng.arrays.types import BoolArray, Int32Array, IntArray, pick
from nsys2prv_ng.errors import TranslationError
from nsys2prv_ng.intervals.nesting import measure_depths
from nsys2prv_ng.paraver import families
from nsys2prv_ng.paraver.event_type import EventType
from nsys2prv_ng.paraver.labels import Labels
from nsys2prv_ng.reading.read_reports import ReportRecords, load_on_clock
from nsys2prv_ng.records import columns as rec
from nsys2prv_ng.records.columns import Records, unpack_tie
from nsys2prv_ng.records.runs import Run
from nsys2prv_ng.records.store import Store, load_columns
from nsys2prv_ng.runtime.jit import compiled
from nsys2prv_ng.text.formatting import shorten_range_name
from nsys2prv_ng.value_class import ValueClass

ABSENT = np.iinfo(np.int64).min
"""Value of a type that a line does not have. (No type that is read here has this value.)"""


class OpenedEvents:
    """Intervals and points of one source of a report, in columns of n: place, begin, length (ns, on the common clock).

    Each piece of an interval that windows of time cut is an interval, as in the trace. Do not change the arrays: others
    get them, too.
    """

    def __init__(self, records: Records, labels: Labels) -> None:
        self._records, self._labels = records, labels
        self._values: dict[tuple[EventType, ...], IntArray] = {}
        self._lines = lines = np.flatnonzero((records.kind == rec.EVENT) & (records.tie_class != rec.END))
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

        A line has at most one of the types. Do not change the array: others get it, too.
        """
        if event_types not in self._values:
            self._values[event_types] = self._find_values(event_types)
        return self._values[event_types]

    def _find_values(self, event_types: Sequence[EventType]) -> IntArray:
        values = np.full(self.begin.size, ABSENT, np.int64)
        known = [handle for handle in map(self._labels.find_handle, event_types) if handle is not None]
        if not known:
            return values
        records, wanted = self._records, np.zeros(max(known) + 1, np.bool_)
        wanted[known] = True
        _take_values(self._lines, records.first, records.handle, records.value, wanted, values)
        names = [len(self._labels.names.get(each.names, {})) for each in event_types if each.names]
        if names and (((values < 1) & (values != ABSENT)) | (values > max(names))).any():  # only in a crafted shard
            raise TranslationError("the names of a shard's events are damaged; read its report again")
        return values

    def get_names(self, event_type: EventType) -> dict[int, str]:
        """Return the names of a type's values, by value."""
        if event_type.names:
            return dict(enumerate(self._labels.names.get(event_type.names, {}), 1))
        return dict(event_type.values or {})

    def list_types(self, family: str) -> list[EventType]:
        """Return the types of a family in the report."""
        return [event_type for event_type in self._labels.types if event_type.family == family]


@compiled
def _take_values(
    lines: IntArray, first: IntArray, handle: Int32Array, value: IntArray, wanted: BoolArray, values: IntArray
) -> None:
    """Set the value of each line to that of its first word whose handle is wanted.

    (A line of an interval without length also closes it, so a later word sets the type to 0.)
    """
    for i in range(lines.size):
        for word in range(first[lines[i]], first[lines[i] + 1]):
            if handle[word] < wanted.size and wanted[handle[word]]:
                values[i] = value[word]
                break


_MOST_KEPT = 32 << 20
"""Most bytes of records that a thread keeps; their events take about as much again."""


class _Kept(threading.local):
    """What a thread keeps, by source, the latest at the end; None if it keeps nothing."""

    sources: dict[str, _Loaded] | None = None

    def keep(self, source: str, loaded: _Loaded) -> None:
        if self.sources is None or loaded.size > _MOST_KEPT:
            return
        self.sources.pop(source, None)
        self.sources[source] = loaded
        size = sum(each.size for each in self.sources.values())
        while size > _MOST_KEPT:
            size -= self.sources.pop(next(iter(self.sources))).size


class _Loaded(ValueClass):
    """The records of a source of a report, and its events if they were asked for."""

    report: ReportRecords
    runs: list[Run]
    records: Records
    size: int
    events: OpenedEvents | None = None


_kept = _Kept()


@contextmanager
def keep_opened_events() -> Iterator[None]:
    """Keep what this thread loads for the next caller: to sum up a report, a dozen functions load the same events."""
    outer, _kept.sources = _kept.sources, {}
    try:
        yield
    finally:
        _kept.sources = outer


def load_opened_events(report: ReportRecords, source: str, store: Store) -> OpenedEvents:
    """Return the events of a source of a report; no events if the source was not read."""
    loaded = _load(report, source, store)
    if loaded.events is None:
        loaded.events = OpenedEvents(loaded.records, report.labels)
    return loaded.events


def load_source_records(report: ReportRecords, source: str, store: Store) -> Records:
    """Return all records of a source of a report, on the common clock, with the report's own places and values.

    Do not change them: others get them, too.
    """
    return _load(report, source, store).records


def _load(report: ReportRecords, source: str, store: Store) -> _Loaded:
    runs = list(report.runs((source,)))
    loaded = (_kept.sources or {}).get(source)
    # Where records of a report change, other runs take the place of theirs.
    if loaded is None or loaded.report is not report or list(map(id, loaded.runs)) != list(map(id, runs)):
        records = rec.concatenate([load_on_clock(run, store, report.clock) for run in runs])
        loaded = _Loaded(report, runs, records, sum(column.nbytes for column in records.columns))
    _kept.keep(source, loaded)
    return loaded


# ---- names -----------------------------------------------------------------------------------------------------------


def find_checksum(text: str) -> int:
    """Return a checksum of 64 bits with a sign: equal texts of different reports have equal ones."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little", signed=True)


class Names:
    """Distinct names, numbered from 0 in the order in which they first occur."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    @property
    def texts(self) -> list[str]:
        """The names, in the order of their numbers."""
        return list(self._numbers)

    def number(self, texts: Sequence[str], index: IntArray) -> IntArray:
        """Return the number of the name of each index into `texts`; -1 stays -1."""
        position, used = find_distinct(index)
        numbers = [self._numbers.setdefault(texts[i], len(self._numbers)) if i >= 0 else -1 for i in used.tolist()]
        return np.array(numbers, np.int64)[position]


def number_lines(
    events: OpenedEvents, event_types: Iterable[EventType], names: list[str]
) -> Iterator[tuple[IntArray, IntArray]]:
    """Yield, for each type, the lines that have it and the index of each line's name in `names`; add the names."""
    for event_type in event_types:
        value = events.get_values(event_type)
        lines = np.flatnonzero(value != ABSENT)
        known = events.get_names(event_type)
        index = np.full(max(known, default=0) + 1, -1, np.int64)
        index[list(known)] = len(names) + np.arange(len(known))
        names += [shorten_range_name(event_type.member, name) for name in known.values()]
        yield lines, index[value[lines]]


FEWEST = 3
"""A range repeats if one thread opened it at least this often."""
DEEPEST = 2
"""The deepest nesting of a range that counts as repeating; deeper ranges are parts of a repeating range."""

RangeKey = tuple[str, str]
"""Domain and name of a range."""


@dataclass(eq=False)
class NvtxRanges:
    """n NVTX ranges of a report, in columns: push/pop ranges first, each type in the order of its records.

    A range that windows of time cut into pieces is one range for each piece, as in the trace.

    `line`: index of each range in the events. `key`: index of each range's domain and name in `keys`.
    """

    events: OpenedEvents
    line: IntArray
    is_push_pop: BoolArray
    key: IntArray
    keys: list[RangeKey]

    @cached_property
    def place(self) -> IntArray:
        return self.events.place[self.line]

    @cached_property
    def begin(self) -> IntArray:
        """Start of each range (ns, on the common clock)."""
        return self.events.begin[self.line]

    @cached_property
    def end(self) -> IntArray:
        """End of each range (ns, on the common clock)."""
        return self.begin + self.events.length[self.line]

    @cached_property
    def number(self) -> IntArray:
        """Number that was cut from each range's text; ABSENT for a range without a number."""
        numbers = (families.make_nvtx_number(domain) for domain in {domain for domain, _ in self.keys})
        return self.events.get_values(*numbers)[self.line]

    def select(self, rows: BoolArray | IntArray) -> NvtxRanges:
        """Return some of the ranges, given by a mask (n) or by their indices."""
        return replace(self, line=self.line[rows], is_push_pop=self.is_push_pop[rows], key=self.key[rows])

    def measure_depths(self) -> IntArray:
        """Return how deep each range nests among these ranges: 1 for an outermost one."""
        depth = np.ones(self.line.size, np.int64)
        nests = self.is_push_pop
        depth[nests] = measure_depths(self.place[nests], self.begin[nests], self.end[nests])
        return depth


def is_program_domain(domain: str) -> bool:
    """Return whether ranges of a domain are the program's: ranges of NCCL are its calls, those of the GIL its waits."""
    return domain not in (families.NCCL_DOMAIN, families.GIL_DOMAIN)


def load_nvtx_ranges(
    report: ReportRecords,
    store: Store,
    is_wanted: Callable[[str], bool] = lambda domain: domain != families.GIL_DOMAIN,
    *,
    with_start_end: bool = False,
) -> NvtxRanges:
    """Return the push/pop ranges, and with `with_start_end` the start/end ranges, of the domains that are wanted."""
    events = load_opened_events(report, source_names.NVTX, store)
    types = [event_type for event_type in events.list_types(families.NVTX) if is_wanted(event_type.member)]
    kinds = [event_type for event_type in types if families.is_push_pop(event_type)]
    nesting = len(kinds)
    if with_start_end:
        kinds += [event_type for event_type in types if families.is_start_end(event_type)]
    keys: dict[RangeKey, int] = {}
    parts = [(np.zeros(0, np.int64), np.zeros(0, np.bool_), np.zeros(0, np.int64))]
    for n, event_type in enumerate(kinds):
        value = events.get_values(event_type)
        line = np.flatnonzero(value != ABSENT)
        position, present = find_distinct(value[line])
        names = events.get_names(event_type)
        numbers = [keys.setdefault((event_type.member, names[text]), len(keys)) for text in present.tolist()]
        parts.append((line, np.full(line.size, n < nesting), np.array(numbers, np.int64)[position]))
    line, is_push_pop, key = (np.concatenate(column) for column in zip(*parts, strict=True))
    return NvtxRanges(events, line, is_push_pop, key, list(keys))


def load_sequence_numbers(report: ReportRecords, store: Store, ranges: NvtxRanges) -> IntArray:
    """Return PyTorch's sequence number of each range of the report (n); ABSENT for a range without one.

    A range that windows of time cut has none.
    """
    result = report.results.get(source_names.NVTX)
    if result is None or result.stored_side_columns is None:
        return np.full(ranges.line.size, ABSENT, np.int64)
    columns = load_columns(result.stored_side_columns, store)
    if len(columns) != 4 or any(column.dtype != np.int64 for column in columns):  # only in a crafted shard
        raise TranslationError("the sequence numbers of a shard are damaged; read its report again")
    place, begin, end, number = columns
    begin, end = report.clock(begin), report.clock(end)
    at = find_rows([place, begin, end], [ranges.place, ranges.begin, ranges.end])
    return pick(number, at, ABSENT)  # an operator and the one that only calls it agree


def load_repeated_ranges(
    report: ReportRecords, store: Store, windows: Sequence[tuple[int, int]]
) -> tuple[NvtxRanges, IntArray]:
    """Return the program's ranges that repeat (see FEWEST and DEEPEST), and how deep each nests.

    Ranges that a window cut do not count.
    """
    ranges = load_nvtx_ranges(report, store, is_program_domain, with_start_end=True)
    depth = ranges.measure_depths()
    kept = np.flatnonzero((depth <= DEEPEST) & ranges.events.mark_whole(windows)[ranges.line])
    key_on_thread, _ = find_distinct(combine_columns(ranges.place[kept], ranges.key[kept]))
    kept = kept[np.bincount(key_on_thread)[key_on_thread] >= FEWEST]
    return ranges.select(kept), depth[kept]
