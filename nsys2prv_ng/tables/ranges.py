"""Finds the innermost NVTX push/pop range of a thread at a time, and the path of the ranges around it.

Unlike in the tree of the summary, only the ranges of the thread itself count.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from nsys2prv_ng.arrays.row_keys import encode_rows, find_rows, sort_nested, sort_rows
from nsys2prv_ng.arrays.types import IntArray, pick, put
from nsys2prv_ng.intervals.nesting import find_innermost
from nsys2prv_ng.reading.opened_events import load_nvtx_ranges
from nsys2prv_ng.reading.read_reports import ReportRecords
from nsys2prv_ng.records.store import Store

PATH_SEPARATOR = " / "


class NestedRanges:
    """The push/pop ranges of a report, but those of Python's lock, ordered by thread, start and falling end."""

    def __init__(self, report: ReportRecords, store: Store) -> None:
        ranges = load_nvtx_ranges(report, store)
        order = sort_nested(ranges.place, ranges.begin, ranges.end)
        self._line, self._place, self._begin, self._end = (
            column[order] for column in (ranges.line, ranges.place, ranges.begin, ranges.end)
        )
        self._key, self._keys = ranges.key[order], ranges.keys

    def find(self, place: IntArray, time: IntArray) -> IntArray:
        """Return the range around each of n times (ns) of threads, given by their places; -1 for none."""
        order = sort_rows(place, time)
        found = find_innermost(self._place, self._begin, self._end, place[order], time[order]).innermost
        return put(np.where(place[order] >= 0, found, -1), order, place.size)

    def find_around(self, line: IntArray, place: IntArray, begin: IntArray) -> IntArray:
        """Return the range around each of n events of NVTX, which may be a range itself; -1 for none."""
        own = find_rows([self._line], [line])
        return np.where(own >= 0, pick(self._parent, own, -1), self.find(place, begin))

    @cached_property
    def names(self) -> list[str]:
        """Names of ranges by `name_of`."""
        return [name for _, name in self._keys]

    def name_of(self, found: IntArray) -> IntArray:
        """Return the index of the name of each range; -1 for none."""
        return pick(self._key, found, -1)

    @cached_property
    def _parent(self) -> IntArray:
        nothing = np.zeros(0, np.int64)
        return find_innermost(self._place, self._begin, self._end, nothing, nothing).parent

    @cached_property
    def _path(self) -> tuple[IntArray, list[str]]:
        """The path of each range, as an index into their texts: from the outermost ranges inward."""
        path, texts = np.full(self._key.size, -1, np.int64), list[str]()
        left = np.arange(self._key.size)
        while left.size:
            around = pick(path, self._parent[left], -1)
            ready = (self._parent[left] < 0) | (around >= 0)
            here, around = left[ready], around[ready]
            code, first = encode_rows(around, self._key[here])
            path[here] = len(texts) + code
            for outer, key in zip(around[first].tolist(), self._key[here][first].tolist(), strict=True):
                texts.append((texts[outer] + PATH_SEPARATOR if outer >= 0 else "") + self._keys[key][1])
            left = left[~ready]
        return path, texts

    @property
    def paths(self) -> list[str]:
        """Texts of paths by `path_of`."""
        return self._path[1]

    def path_of(self, found: IntArray) -> IntArray:
        """Return the index of the path of each range; -1 for none."""
        return pick(self._path[0], found, -1)
