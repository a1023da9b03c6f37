"""The NVTX ranges of host threads in a replay: which host time, and which launches, lie in the ranges of a name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from nsys2prv_ng.analysis.host_activity import find_main_threads
from nsys2prv_ng.analysis.path.lanes import Lanes
from nsys2prv_ng.analysis.path.streams import Span
from nsys2prv_ng.arrays.row_keys import find_starts, list_rows, sort_rows, take_groups
from nsys2prv_ng.arrays.types import BoolArray, FloatArray, Int32Array, IntArray, Integers, IntTable
from nsys2prv_ng.intervals.states import FlatStates, flatten, flatten_innermost, overlay
from nsys2prv_ng.intervals.step_functions import StepFunction, fill_steps, make_row_steps
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.reading.opened_events import is_program_domain, load_nvtx_ranges
from nsys2prv_ng.replay.graph import CODE, NETWORK, NONE, ON_HOST, STAGE, Graph, mark_kinds
from nsys2prv_ng.runtime.jit import compiled, search
from nsys2prv_ng.text.formatting import shorten_range_name


class _Ranges(NamedTuple):
    """Ranges in the order of their threads: thread, start and end (ns), and name as an index."""

    thread: IntArray
    begin: IntArray
    end: IntArray
    name: IntArray


class Limits(NamedTuple):
    """Stretches of time that do not overlap, by thread and start: thread t has first[t] .. first[t + 1] - 1 (ns)."""

    first: IntArray
    begin: IntArray
    end: IntArray


class HostRanges:
    """The program's push/pop ranges of each thread of a job. A thread without a range is in those of the main thread.

    (PyTorch launches the backward pass from threads of its own, while a range is open on the main thread.) With a span
    of time (ns), these are only the ranges that are open in it.
    """

    def __init__(self, job: Job, lanes: Lanes, span: Span | None = None) -> None:
        numbers: dict[str, int] = {}
        parts = [(np.zeros(0, np.int64),) * 4]
        threads = np.arange(lanes.thread_row.size)
        self._main = threads.copy()
        for index, report in enumerate(job.reports):
            own = np.flatnonzero(lanes.thread_report == index)
            thread_of_place = np.full(len(report.places.all), NONE, np.int64)
            thread_of_place[lanes.thread_place[own]] = own
            ranges = load_nvtx_ranges(report, job.store, is_program_domain)
            if span is not None:
                ranges = ranges.select((ranges.end >= span[0]) & (ranges.begin <= span[1]))
            texts = [shorten_range_name(*key) for key in ranges.keys]
            number = np.array([numbers.setdefault(text, len(numbers)) for text in texts], np.int64)
            parts.append((thread_of_place[ranges.place], ranges.begin, ranges.end, number[ranges.key]))
            for place, main in find_main_threads(report, lanes.thread_place[own]).items():
                self._main[thread_of_place[place]] = thread_of_place[main]
        self.names = list(numbers)
        self._main = np.where(self._main < 0, threads, self._main)
        every = _Ranges(*(np.concatenate(column) for column in zip(*parts, strict=True)))
        known = np.flatnonzero(every.thread >= 0)
        order = known[np.argsort(every.thread[known], kind="stable")]
        self._own = _Ranges(*(column[order] for column in every))
        self._first = np.searchsorted(self._own.thread, np.append(threads, threads.size))
        has_own = np.diff(self._first) > 0
        self.thread_of = np.where(has_own, threads, self._main)
        """The thread in whose ranges each thread is."""
        self._filled = np.flatnonzero(has_own & (self._main != threads))
        rows = list_rows(self._own.thread, self._filled)
        thread, begin, end, _ = (column[rows] for column in self._own)
        self._covered = flatten(thread, begin, end, np.zeros_like(begin))

    def sum_lengths(self) -> IntArray:
        """Return the time (ns) of the ranges of each name, each thread's added up."""
        total = np.zeros(len(self.names), np.int64)
        np.add.at(total, self._own.name, self._own.end - self._own.begin)
        return total

    def find_innermost(self, thread: int, time: IntArray) -> IntArray:
        """Return the innermost range that a thread is in at each time (ns), as a number of its name; -1 for none."""
        steps, main = self._list_steps(thread), int(self._main[thread])
        if main != thread:
            steps = fill_steps(steps, self._list_steps(main))
        return steps.get_values(time)

    def _list_steps(self, thread: int) -> StepFunction:
        _, begin, end, name = (column[self._first[thread] : self._first[thread + 1]] for column in self._own)
        return make_row_steps(flatten_innermost(np.zeros_like(name), begin, end, name), 0)

    def find_limits(self, names: Sequence[int]) -> Limits:
        """Return when each thread was in a range with one of some names, whatever other ranges were within it.

        Threads without ranges of their own have no rows: those of `thread_of` hold for them.
        """
        which = np.isin(self._own.name, names)
        thread, begin, end, _ = (column[which] for column in self._own)
        found = flatten(thread, begin, end, np.ones_like(begin))
        if self._filled.size:
            limits, rows = take_groups(self._find_first(found), self._main[self._filled])
            of_main = FlatStates(np.repeat(self._filled, np.diff(limits)), *(column[rows] for column in found[1:]))
            shown = overlay(of_main, self._covered)
            outside = np.flatnonzero(shown.state)
            parts = zip(found, (column[outside] for column in shown), strict=True)
            found = flatten(*map(np.concatenate, parts))
        return Limits(self._find_first(found), found.begin, found.end)

    def _find_first(self, flat: FlatStates) -> IntArray:
        """Return the index of the first state of each thread, and the number of states."""
        return np.searchsorted(flat.row, np.arange(self._main.size + 1))


class _Stretches(NamedTuple):
    """Stretches of time (ns) by thread, then in the order of their ends: edges, or operations at their launch.

    Those of thread t are first[t] .. first[t + 1] - 1. `earliest`: the first start of each stretch and those after it.
    """

    first: IntArray
    number: Int32Array
    begin: IntArray
    end: IntArray
    earliest: IntArray

    def find(self, limits: Limits, thread_of: IntArray) -> tuple[IntArray, IntArray]:
        """Return (positions of the stretches with time within limits, how much (ns)).

        `thread_of`: the thread whose limits hold for each thread.
        """
        before = np.append(0, np.cumsum(limits.end - limits.begin))
        found = np.empty((2, self.number.size), np.int64)  # only what is filled takes memory
        count = _find_inside(self, limits, before, thread_of, found)
        return found[0, :count], found[1, :count]


class RangeFinder:
    """Finds what lies in ranges."""

    def __init__(
        self, graph: Graph, lanes: Lanes, edge_thread: Int32Array, edge_call: Int32Array, ranges: HostRanges
    ) -> None:
        operations, threads = lanes.operations, lanes.thread_row.size
        sent = np.flatnonzero((operations.thread >= 0) & (lanes.launch >= 0))
        launched = operations.launched[sent]
        self._ranges = ranges
        edges = mark_kinds(graph.kind, (*ON_HOST, *NETWORK, STAGE)) & (edge_thread >= 0)
        self._edges = _order_edges(graph, edges, edge_thread, edge_call, lanes.calls.begin, threads)
        self._launches = _order(sent, operations.thread[sent], launched, launched + 1, threads)

    def find(self, names: Sequence[int]) -> tuple[Int32Array, FloatArray, Int32Array]:
        """Return what lies in the ranges with some names, whatever other ranges are within them.

        That is: edges with time in them, the share of their time (0 to 1) that is, and the operations launched in them.
        """
        limits, thread_of = self._ranges.find_limits(names), self._ranges.thread_of
        edges, launches = self._edges, self._launches
        at, inside = edges.find(limits, thread_of)
        share = inside / np.maximum(edges.end[at] - edges.begin[at], 1)
        return edges.number[at], share, launches.number[launches.find(limits, thread_of)[0]]


def _order_edges(
    graph: Graph, chosen: BoolArray, thread: Int32Array, call: Int32Array, call_begin: IntArray, threads: int
) -> _Stretches:
    """Return the marked edges by thread. They have the order of their ends, as the nodes have that of their times."""
    after = np.cumsum(np.bincount(thread[chosen], minlength=threads))
    size = int(after[-1]) if threads else 0
    stretches = _Stretches(np.append(0, after), np.empty(size, np.int32), *(np.empty(size, np.int64) for _ in range(3)))
    _place_edges(graph, chosen, thread, call, call_begin, after, stretches)
    return stretches


@compiled
def _place_edges(
    graph: Graph,
    chosen: BoolArray,
    thread: Int32Array,
    call: Int32Array,
    call_begin: IntArray,
    after: IntArray,
    placed: _Stretches,
) -> None:
    """Place edges by thread, from the last to the first. `after`: the end of the place of each thread."""
    for edge in range(chosen.size - 1, -1, -1):
        if chosen[edge]:
            own = thread[edge]
            after[own] -= 1
            at = after[own]
            end = graph.time[graph.to[edge]]
            begin = np.int64(0)
            if graph.kind[edge] == CODE:
                begin = end - graph.weight[edge]
            elif call[edge] >= 0:
                begin = call_begin[call[edge]]
            placed.number[at], placed.begin[at], placed.end[at], placed.earliest[at] = edge, begin, end, begin
            if at + 1 < placed.first[own + 1]:
                placed.earliest[at] = min(begin, placed.earliest[at + 1])


def _order(number: IntArray, thread: Integers, begin: IntArray, end: IntArray, threads: int) -> _Stretches:
    """Return n stretches of time (ns) by thread and end. `number`: of what each one is."""
    if (end[1:] < end[:-1]).any():
        by_end = np.argsort(end, kind="stable")
        order = by_end[sort_rows(thread[by_end])]
    else:
        order = sort_rows(thread)
    first = np.searchsorted(thread[order], np.arange(threads + 1))
    begin = begin[order]
    earliest = np.empty_like(begin)
    _find_earliest(first, begin, earliest)
    return _Stretches(first, number[order].astype(np.int32), begin, end[order], earliest)


@compiled
def _find_earliest(first: IntArray, begin: IntArray, earliest: IntArray) -> None:
    """Set the first start of each stretch and all after it on its thread."""
    for thread in range(first.size - 1):
        low, high = first[thread], first[thread + 1]
        for i in range(high - 1, low - 1, -1):
            earliest[i] = begin[i] if i == high - 1 else min(begin[i], earliest[i + 1])


@compiled
def _find_inside(stretches: _Stretches, limits: Limits, before: IntArray, thread_of: IntArray, found: IntTable) -> int:
    """Fill `found` with (position, time (ns) within limits) of stretches; return how many.

    `before`: the time (ns) within all limits before each one, and within all.
    """
    count = 0
    for thread in range(thread_of.size):
        at, after = stretches.first[thread], stretches.first[thread + 1]
        low, high = limits.first[thread_of[thread]], limits.first[thread_of[thread] + 1]
        for k in range(low, high):
            at = search(stretches.end, at, after, limits.begin[k] + 1)
            while at < after and stretches.earliest[at] < limits.end[k]:
                begin, end = stretches.begin[at], stretches.end[at]
                one, last = search(limits.end, k, high, begin + 1), search(limits.begin, k, high, end)
                if one < last:
                    inside = before[last] - before[one]
                    inside -= max(begin - limits.begin[one], 0) + max(limits.end[last - 1] - end, 0)
                    if inside > 0:
                        found[0, count], found[1, count] = at, inside
                        count += 1
                at += 1
    return count


def group_by_thread(thread: Integers, which: BoolArray) -> Iterator[tuple[int, IntArray]]:
    """Yield each thread with the indices that have it among those that are marked."""
    chosen = np.flatnonzero(which)
    order = chosen[sort_rows(thread[chosen])]
    for rows in np.split(order, find_starts(thread[order]))[1:]:
        yield int(thread[rows[0]]), rows
