"""Finds what a late host thread was in: the range and call that cover most of a time, and what each cost others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from nsys2prv_ng import source_names
from nsys2prv_ng.analysis.host_activity import find_main_threads, load_calls, load_thread_ranges
from nsys2prv_ng.arrays.groups import reduce_groups, sort_groups
from nsys2prv_ng.arrays.row_keys import find_distinct_rows, find_starts
from nsys2prv_ng.arrays.types import BoolArray, IntArray
from nsys2prv_ng.intervals.step_functions import StepFunction, make_row_steps, split_at_steps
from nsys2prv_ng.paraver.value_tables import HANDS_OVER
from nsys2prv_ng.reading.opened_events import load_opened_events
from nsys2prv_ng.reading.read_reports import ReportRecords
from nsys2prv_ng.records.store import Store
from nsys2prv_ng.runtime.jit import compiled

_EVER = np.iinfo(np.int64).min


class ThreadActivity(NamedTuple):
    """What a thread was in at any time, as a step function of indices into pairs of a range and a call.

    `range` and `call`: indices of each pair's innermost range and outermost call; NOTHING outside of ranges, and in
    host code between calls.
    """

    steps: StepFunction
    range: IntArray
    call: IntArray


class HostActivity(NamedTuple):
    """What threads of a report were in, by their places, and the names of the ranges and calls."""

    threads: dict[int, ThreadActivity]
    range_names: list[str]
    call_names: list[str]


def load_host_activity(report: ReportRecords, threads: IntArray, store: Store) -> HostActivity:
    """Return what some threads (places) were in.

    The ranges come from `load_thread_ranges`. While a thread waits for another one, the call of its process's main
    thread counts.
    """
    main_threads = find_main_threads(report, threads)
    needed = np.union1d(threads, list(main_threads.values())).astype(np.int64)
    ranges = load_thread_ranges(report, threads, store)
    calls = load_calls(report, load_opened_events(report, source_names.CUDA_API, store), needed, store)
    hands_over = np.isin(np.array([*calls.names, ""]), HANDS_OVER)
    activities = {}
    for thread in np.unique(threads).tolist():
        main = main_threads.get(thread, thread)
        steps = [ranges.steps[thread], *(make_row_steps(calls.flat, number) for number in (thread, main))]
        activities[thread] = _join_steps(steps, hands_over)
    return HostActivity(activities, ranges.names, calls.names)


def _join_steps(steps: Sequence[StepFunction], hands_over: BoolArray) -> ThreadActivity:
    """Join three step functions: range, call, and the main thread's call.

    Before the first step, the thread is in neither a range nor a call. `hands_over`: whether the thread waits for
    another one, by index of the call; the last value is for no call.
    """
    time = np.sort(np.concatenate([[_EVER], *(part.time for part in steps)]), kind="stable")  # three sorted runs
    time = time[np.append(True, time[1:] != time[:-1])]
    in_range, thread_call, main_call = (part.get_values(time) for part in steps)
    in_call = np.where(hands_over[thread_call], main_call, thread_call)
    pair, distinct = find_distinct_rows(in_range, in_call)
    range_of_pair, call_of_pair = np.array(distinct, np.int64).T
    return ThreadActivity(StepFunction(time, pair), range_of_pair, call_of_pair)


def find_main_activity(activity: ThreadActivity, begin: IntArray, end: IntArray) -> tuple[IntArray, IntArray]:
    """Return (range, call) of a thread in each interval, from begin to end (ns).

    They are the range that covers most of the interval, and the call that covers most of that range's part. In an
    interval of length 0, the range and call at that time count.
    """
    pair = activity.steps.get_values(end)
    in_range, in_call = activity.range[pair], activity.call[pair]
    long = np.flatnonzero(end > begin)
    pieces = split_at_steps(begin[long], end[long], activity.steps)
    time, length = pieces.interval, pieces.end - pieces.begin
    piece_range, piece_call = activity.range[pieces.value], activity.call[pieces.value]
    in_range[long] = _find_longest(time, piece_range, length)
    kept = np.flatnonzero(piece_range == in_range[long][time])
    in_call[long] = _find_longest(time[kept], piece_call[kept], length[kept])
    return in_range, in_call


def _find_longest(group: IntArray, value: IntArray, length: IntArray) -> IntArray:
    """Return the value with the largest sum of lengths in each group 0 .. n - 1; on a tie, the lowest value."""
    order, starts = sort_groups([group, value])
    total = reduce_groups(length, order, starts)
    group, value = group[order[starts]], value[order[starts]]
    longest_first = np.lexsort((value, -total, group))
    return value[longest_first][find_starts(group[longest_first])]


class SortedWaits(NamedTuple):
    """When others waited for n late kernels or calls: the waits for i are at first[i] .. first[i + 1] - 1.

    For each i, the two columns of times (ns) are sorted independently of each other.
    """

    first: IntArray
    begin: IntArray
    until: IntArray


def sort_waits(n: int, index: IntArray, begin: IntArray, until: IntArray) -> SortedWaits:
    """Return the waits for n late kernels or calls, given the late one, begin and end (ns) of each wait."""
    counts = np.bincount(index, minlength=n)
    first = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return SortedWaits(first, _sort_within(index, begin, counts), _sort_within(index, until, counts))


def _sort_within(group: IntArray, value: IntArray, counts: IntArray) -> IntArray:
    """Return values sorted by group (0 .. n - 1) and value. `counts` (n): the size of each group."""
    if not value.size:
        return value
    low = int(value.min())
    width = int(value.max()) - low + 1
    if width * counts.size > np.iinfo(np.int64).max:
        return value[np.lexsort((value, group))]
    key = np.sort(group * width + (value - low))  # ten times as fast as sorting by two columns
    return key - np.repeat(np.arange(counts.size) * width, counts) + low


def sum_costs(
    activity: ThreadActivity, waits: SortedWaits, late: IntArray, limit: IntArray
) -> tuple[IntArray, IntArray, IntArray]:
    """Return (range, call, how long (ns) others waited because of it) of each pair of a thread with a cost.

    `late` (n): the kernels or calls that the thread was late with. `limit` (n): the time (ns) from which the pair in
    force at that time causes all the waiting.
    """
    cost = np.zeros(activity.range.size, np.int64)
    start = np.searchsorted(activity.steps.time, waits.begin[waits.first[late]], "right") - 1
    _add_costs(waits, late, limit, activity.steps.get_values(limit), activity.steps, start, cost)
    pair = np.flatnonzero(cost)
    return activity.range[pair], activity.call[pair], cost[pair]


@compiled
def _add_costs(
    waits: SortedWaits,
    late: IntArray,
    limit: IntArray,
    at_limit: IntArray,
    steps: StepFunction,
    start: IntArray,
    cost: IntArray,
) -> None:
    """`start`: the step in force when others began to wait for each late kernel or call."""
    first, begin, until = waits
    time, pair = steps
    for i in range(late.size):
        low, high = first[late[i]], first[late[i] + 1]
        left = np.int64(0)
        for k in range(low, high):
            left += until[k] - begin[k]
        now = begin[low]
        step = start[i]
        started, ended = low, low
        while now < limit[i]:
            while started < high and begin[started] <= now:
                started += 1
            while ended < high and until[ended] <= now:
                ended += 1
            while step + 1 < time.size and time[step + 1] <= now:
                step += 1
            then = limit[i]
            if step + 1 < time.size:
                then = min(then, time[step + 1])
            if started < high:
                then = min(then, begin[started])
            if ended < high:
                then = min(then, until[ended])
            waited = (started - ended) * (then - now)  # of all ranks that wait
            cost[pair[step]] += waited
            left -= waited
            now = then
        cost[at_limit[i]] += left
