"""What late threads were in, and what it cost, against a look at every ns of random small cases."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys2prv_ng.analysis.waits.late_hosts import SortedWaits, ThreadActivity, find_main_activity, sum_costs
from nsys2prv_ng.analysis.waits.late_origins import DeviceEnds, KernelStarts, _find_ended
from nsys2prv_ng.intervals.step_functions import StepFunction
from tests.examples import examples

EVER = np.iinfo(np.int64).min
TIMES = st.integers(0, 40)
STEPS = st.lists(st.tuples(TIMES, st.integers(0, 5)), max_size=12, unique_by=lambda step: step[0]).map(sorted)
INTERVALS = st.lists(st.tuples(TIMES, st.integers(0, 20)), min_size=1, max_size=6)


def make_activity(steps: list[tuple[int, int]]) -> ThreadActivity:
    """Six pairs of two ranges (or none) and two calls (or none)."""
    time, pair = np.array([(EVER, 0), *steps], np.int64).T
    return ThreadActivity(StepFunction(time, pair), np.array([-1, -1, 0, 0, 1, 1]), np.array([-1, 0, 0, 1, -1, 1]))


def pair_at(steps: list[tuple[int, int]], time: int) -> int:
    return ([0] + [pair for begin, pair in steps if begin <= time])[-1]


@settings(max_examples=examples(100), deadline=None)
@given(STEPS, INTERVALS)
def test_main_range_and_call_cover_most(steps: list[tuple[int, int]], times: list[tuple[int, int]]) -> None:
    activity = make_activity(steps)
    begin, length = np.array(times, np.int64).T
    in_range, in_call = find_main_activity(activity, begin, begin + length)
    for i, (low, ns) in enumerate(times):
        pairs = [pair_at(steps, time) for time in range(low, low + ns)] or [pair_at(steps, low)]
        ranges = Counter(int(activity.range[pair]) for pair in pairs)
        assert ranges[int(in_range[i])] == max(ranges.values())
        calls = Counter(int(activity.call[pair]) for pair in pairs if activity.range[pair] == in_range[i])
        assert calls[int(in_call[i])] == max(calls.values())


LATE = st.lists(st.tuples(INTERVALS, TIMES), min_size=1, max_size=4)


@settings(max_examples=examples(100), deadline=None)
@given(STEPS, LATE)
def test_costs_are_those_of_every_ns(
    steps: list[tuple[int, int]], late: list[tuple[list[tuple[int, int]], int]]
) -> None:
    wanted: Counter[int] = Counter()
    for waits, limit in late:
        for low, ns in waits:
            wanted.update(pair_at(steps, min(time, limit)) for time in range(low, low + ns))
    first = np.cumsum([0, *(len(waits) for waits, _ in late)])
    begin = np.array([low for waits, _ in late for low in sorted(low for low, _ in waits)], np.int64)
    until = np.array([high for waits, _ in late for high in sorted(low + ns for low, ns in waits)], np.int64)
    limits = np.array([limit for _, limit in late], np.int64)
    activity = make_activity(steps)
    columns = sum_costs(activity, SortedWaits(first, begin, until), np.arange(len(late)), limits)
    in_range, in_call = activity.range.tolist(), activity.call.tolist()
    pairs = [pair for pair in range(6) if wanted[pair]]
    assert np.array(columns).T.tolist() == [[in_range[pair], in_call[pair], wanted[pair]] for pair in pairs]


OPERATIONS = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 2), TIMES, st.integers(0, 10)), max_size=12)
KERNELS = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 2), TIMES), min_size=1, max_size=5)


@settings(max_examples=examples(100), deadline=None)
@given(OPERATIONS, KERNELS)
def test_operations_end_just_before(
    operations: list[tuple[int, int, int, int]], kernels: list[tuple[int, int, int]]
) -> None:
    rows = sorted(((d, s, begin, begin + ns) for d, s, begin, ns in operations), key=lambda row: (row[0], row[3]))
    device, stream, begin, end = np.array(rows, np.int64).reshape(-1, 4).T.copy()
    limits = np.searchsorted(device, np.arange(3))
    k_device, k_stream, time = np.array(kernels, np.int64).T.copy()
    found = np.full((2, time.size), -1)
    _find_ended(DeviceEnds(limits, stream, begin, end), KernelStarts(k_device, k_stream, time), 5, 2, *found)
    for column, same in zip(found, (True, False), strict=True):
        for i, (d, s, at) in enumerate(kernels):
            ends = [
                row[3]
                for row in rows
                if row[0] == d and (row[1] == s) == same and row[2] < at and at - 5 <= row[3] <= at + 2
            ]
            assert (int(end[column[i]]) if column[i] >= 0 else None) == max(ends, default=None)
