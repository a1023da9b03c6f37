"""The sweep over a device's operations, against a brute-force look at every instant."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nsys2prv_ng.intervals.device_sweep import (
    COMMUNICATION,
    COMPUTE,
    IDLE,
    IN_FLIGHT,
    MEMORY,
    WHOLE_GRAPH,
    DeviceChanges,
    cut_changes,
    sweep_devices,
)
from tests.examples import examples

KINDS = (COMPUTE, COMMUNICATION, MEMORY, WHOLE_GRAPH, IN_FLIGHT)
LAST = 40

Interval = tuple[int, int, int, int]
intervals_of_devices = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, LAST), st.integers(0, 8), st.sampled_from(KINDS)), max_size=30
)


def sweep(intervals: list[Interval]) -> DeviceChanges:
    """Changes of intervals (device, begin, length, kind)."""
    columns = np.array(intervals, np.int64).reshape(-1, 4).T
    return sweep_devices(columns[0], columns[1], columns[1] + columns[2], columns[3])


def expected_at(of_device: list[Interval], instant: int) -> tuple[int, int, int]:
    """Activity, kernels and flights in [instant, instant + 1): times are integers, so nothing changes within."""
    open_now = [kind for _, begin, length, kind in of_device if begin <= instant < begin + length]
    kernels = sum(map(open_now.count, (COMPUTE, COMMUNICATION, WHOLE_GRAPH)))
    activity = sum({kind for kind in open_now if kind != IN_FLIGHT})
    operations = [(begin, begin + length) for _, begin, length, kind in of_device if kind != IN_FLIGHT]
    if not activity and any(end <= instant for _, end in operations) and any(b > instant for b, _ in operations):
        activity = IDLE
    return activity, kernels, open_now.count(IN_FLIGHT)


def expected_gaps(of_device: list[Interval]) -> list[tuple[int, int]]:
    """(end, length) of each gap, as NVIDIA's gpu_gaps finds them: the i-th end before the (i + 1)-th begin."""
    operations = [(begin, begin + length) for _, begin, length, kind in of_device if kind != IN_FLIGHT]
    begins, ends = sorted(begin for begin, _ in operations), sorted(end for _, end in operations)
    return [(begin, begin - end) for end, begin in zip(ends[:-1], begins[1:], strict=True) if begin > end]


@settings(deadline=None)  # numba compiles in the first example
@given(intervals_of_devices)
def test_every_instant_is_as_a_look_at_all_operations_tells(intervals: list[Interval]) -> None:
    changes = sweep(intervals)
    for device in range(3):
        of_device = [each for each in intervals if each[0] == device]
        mine = changes.device == device
        times = changes.time[mine]
        for instant in range(LAST + 10):
            before = np.searchsorted(times, instant, "right") - 1
            columns = (changes.activity, changes.kernels, changes.in_flight)
            found = tuple(int(column[mine][before]) for column in columns) if before >= 0 else (0, 0, 0)
            assert found == expected_at(of_device, instant), (device, instant)


@settings(deadline=None)  # numba compiles in the first example
@given(intervals_of_devices)
def test_idle_stretches_are_nvidias_gaps(intervals: list[Interval]) -> None:
    changes = sweep(intervals)
    for device in range(3):
        at_end = (changes.device == device) & (changes.idle > 0)
        found = list(zip(changes.time[at_end].tolist(), changes.idle[at_end].tolist(), strict=True))
        assert found == expected_gaps([each for each in intervals if each[0] == device])


@settings(deadline=None)  # numba compiles in the first example
@given(intervals_of_devices)
def test_each_change_changes_what_it_says(intervals: list[Interval]) -> None:
    changes = sweep(intervals)
    for device in range(3):
        mine = changes.device == device
        assert np.all(np.diff(changes.time[mine]) > 0)
        for bit, column in ((1, changes.activity), (2, changes.kernels), (4, changes.in_flight)):
            values = np.concatenate([[0], column[mine]])
            assert np.array_equal(changes.differs(bit)[mine], values[1:] != values[:-1])
            assert not mine.any() or values[-1] == 0
        assert np.all((changes.changed[mine] > 0) | (changes.idle[mine] > 0))


def test_an_operation_without_length_parts_an_idle_stretch() -> None:
    changes = sweep([(0, 0, 10, COMPUTE), (0, 15, 0, MEMORY), (0, 30, 5, COMPUTE)])
    assert changes.time.tolist() == [0, 10, 15, 30, 35]
    assert changes.idle.tolist() == [0, 0, 5, 15, 0]
    assert changes.activity.tolist() == [COMPUTE, IDLE, IDLE, COMPUTE, 0]


def test_nothing_is_nothing() -> None:
    assert sweep([]).time.size == 0


@pytest.mark.slow
@settings(deadline=None, max_examples=examples(300))
@given(intervals_of_devices, st.lists(st.integers(0, LAST + 10), min_size=2, max_size=6, unique=True))
@example([(0, 0, 0, COMPUTE), (0, 0, 1, IN_FLIGHT), (0, 2, 0, COMPUTE)], [0, 1])  # a flight ends with the window
def test_what_windows_show_is_that_of_the_whole(intervals: list[Interval], limits: list[int]) -> None:
    limits = sorted(limits)[: len(limits) // 2 * 2]
    windows = list(zip(limits[::2], limits[1::2], strict=True))
    changes = sweep(intervals)
    cut = cut_changes(changes, windows)
    assert cut.changes.device.size - cut.more + cut.outside == changes.device.size
    for device in range(3):
        of_device = [each for each in intervals if each[0] == device]
        mine = cut.changes.device == device
        times = cut.changes.time[mine]
        assert np.all(np.diff(times) > 0)
        for instant in range(LAST + 12):
            at = np.searchsorted(times, instant, "right") - 1
            columns = (cut.changes.activity, cut.changes.kernels, cut.changes.in_flight)
            found = tuple(int(column[mine][at]) for column in columns) if at >= 0 else (0, 0, 0)
            is_inside = any(low <= instant < high for low, high in windows)
            assert found == (expected_at(of_device, instant) if is_inside else (0, 0, 0)), (device, instant)
        parts = [
            (min(end, high), min(end, high) - max(end - length, low))
            for end, length in expected_gaps(of_device)
            for low, high in windows
            if min(end, high) > max(end - length, low)
        ]
        at_end = mine & (cut.changes.idle > 0)
        assert list(zip(cut.changes.time[at_end].tolist(), cut.changes.idle[at_end].tolist(), strict=True)) == parts
