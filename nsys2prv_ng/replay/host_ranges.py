"""The NVTX ranges of host threads in a replay: which host time, and which launches, lie in the ranges of a name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from nsys2prv_ng.analysis.host_activity import find_main_threads
from nsys2prv_ng.analysis.path.lanes import Lanes
from nsys2prv_ng.analysis.path.span import Span
from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.intervals.states import flatten_innermost
from nsys2prv_ng.intervals.step_functions import StepFunction, fill_steps, make_row_steps
from nsys2prv_ng.intervals.windows import unite_windows
from nsys2prv_ng.job.nvtx_ranges import is_program_domain, load_nvtx_ranges
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.text.formatting import shorten_range_name

Limits = tuple[IntArray, IntArray]
"""Starts and ends (ns) of stretches of time, which are sorted and do not touch."""


class _Ranges(NamedTuple):
    """The ranges of a thread: starts and ends (ns), and names as indices."""

    begin: IntArray
    end: IntArray
    name: IntArray


class HostRanges:
    """The program's push/pop ranges of each thread of a job. A thread without a range is in those of the main thread.

    (PyTorch launches the backward pass from threads of its own, while a range is open on the main thread.) With a span
    of time (ns), these are only the ranges that are open in it.
    """

    def __init__(self, job: Job, lanes: Lanes, span: Span | None = None) -> None:
        numbers: dict[str, int] = {}
        self._own: dict[int, _Ranges] = {}
        self._main: dict[int, int] = {}
        for index, report in enumerate(job.reports):
            threads = np.flatnonzero(lanes.thread_report == index)
            thread_of_place = dict(zip(lanes.thread_place[threads].tolist(), threads.tolist(), strict=True))
            ranges = load_nvtx_ranges(report, job.store, is_program_domain)
            if span is not None:
                ranges = ranges.select((ranges.end >= span[0]) & (ranges.begin <= span[1]))
            number = np.array(
                [numbers.setdefault(shorten_range_name(*key), len(numbers)) for key in ranges.keys], np.int64
            )
            order = np.argsort(ranges.place, kind="stable")
            places, first = np.unique(ranges.place[order], return_index=True)
            for place, rows in zip(places.tolist(), np.split(order, first)[1:], strict=True):
                if place in thread_of_place:
                    own = _Ranges(ranges.begin[rows], ranges.end[rows], number[ranges.key[rows]])
                    self._own[thread_of_place[place]] = own
            for place, main in find_main_threads(report, lanes.thread_place[threads]).items():
                if main in thread_of_place:
                    self._main[thread_of_place[place]] = thread_of_place[main]
        self.names = list(numbers)

    def sum_lengths(self) -> IntArray:
        """Return the time (ns) of the ranges of each name, each thread's added up."""
        total = np.zeros(len(self.names), np.int64)
        for own in self._own.values():
            np.add.at(total, own.name, own.end - own.begin)
        return total

    def find_innermost(self, thread: int, time: IntArray) -> IntArray:
        """Return the innermost range that a thread is in at each time (ns), as a number of its name; -1 for none."""
        steps = self._list_steps(thread)
        main = self._main.get(thread, thread)
        if main != thread:
            steps = fill_steps(steps, self._list_steps(main))
        return steps.get_values(time)

    def _list_steps(self, thread: int) -> StepFunction:
        own = self._own.get(thread, _Ranges(*(np.zeros(0, np.int64) for _ in _Ranges._fields)))
        return make_row_steps(flatten_innermost(np.zeros(own.name.size, np.int64), *own), 0)

    def find_limits(self, thread: int, names: Sequence[int]) -> Limits:
        """Return when a thread was in a range with one of some names, whatever other ranges were within it."""
        own = self._own.get(thread)
        found = [] if own is None else _select(own, names)
        main = self._main.get(thread, thread)
        if main != thread and main in self._own:
            outside = _select(self._own[main], names)
            found += outside if own is None else _subtract(outside, unite_windows(own.begin, own.end))
        if not found:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        begin, end = np.array(found, np.int64).T
        united = np.array(unite_windows(begin, end), np.int64)
        return united[:, 0].copy(), united[:, 1].copy()


def _select(ranges: _Ranges, names: Sequence[int]) -> list[tuple[int, int]]:
    which = np.isin(ranges.name, list(names))
    return unite_windows(ranges.begin[which], ranges.end[which])


def _subtract(windows: list[tuple[int, int]], others: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the parts of windows that are in none of the others; both are sorted and do not touch."""
    left, at = [], 0
    for low, high in windows:
        while at < len(others) and others[at][1] <= low:
            at += 1
        k = at
        while k < len(others) and others[k][0] < high:
            if others[k][0] > low:
                left.append((low, others[k][0]))
            low = max(low, others[k][1])
            k += 1
        if low < high:
            left.append((low, high))
    return left


def measure_inside(limits: Limits, begin: IntArray, end: IntArray) -> IntArray:
    """Return how much (ns) of each interval lies within stretches of time."""
    lows, highs = limits
    if not lows.size:
        return np.zeros(begin.size, np.int64)
    before = np.append(0, np.cumsum(highs - lows))

    def measure_until(time: IntArray) -> IntArray:
        k = np.searchsorted(lows, time, "right")
        last = np.maximum(k - 1, 0)
        return before[last] + np.where(k > 0, np.minimum(time, highs[last]) - lows[last], 0)

    inside: IntArray = measure_until(end) - measure_until(begin)
    return inside
