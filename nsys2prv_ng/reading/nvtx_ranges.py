"""NVTX ranges of a report, and which of them repeat.

Push/pop ranges nest on their thread. Start/end ranges nest in no other range: they count as outermost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from nsys2prv_ng import source_names
from nsys2prv_ng.arrays.row_keys import combine_columns, find_distinct, find_rows
from nsys2prv_ng.arrays.types import BoolArray, IntArray, pick
from nsys2prv_ng.errors import TranslationError
from nsys2prv_ng.intervals.nesting import measure_depths
from nsys2prv_ng.paraver import families
from nsys2prv_ng.reading.opened_events import ABSENT, OpenedEvents, load_opened_events
from nsys2prv_ng.reading.read_reports import ReportRecords
from nsys2prv_ng.records.store import Store, load_columns

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
    """Return whether ranges of a domain are ranges of the program: ranges of NCCL are its calls."""
    return domain != families.NCCL_DOMAIN


def load_nvtx_ranges(
    report: ReportRecords,
    store: Store,
    is_wanted: Callable[[str], bool] = lambda domain: True,
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
