"""Pieces of intervals within windows, against a look at every pair."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nsys2prv_ng.intervals.step_functions import cut_to_windows, mark_inside


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 12)), max_size=12),
    st.lists(st.integers(0, 40), min_size=2, max_size=8, unique=True),
)
def test_pieces_are_what_each_interval_and_window_share(intervals: list[tuple[int, int]], limits: list[int]) -> None:
    limits = sorted(limits)[: len(limits) // 2 * 2]
    windows = list(zip(limits[::2], limits[1::2], strict=True))
    begin = np.array([b for b, _ in intervals], np.int64)
    end = begin + np.array([length for _, length in intervals], np.int64)
    found = list(zip(*(column.tolist() for column in cut_to_windows(begin, end, windows)), strict=True))
    expected = []
    for i, (low, length) in enumerate(intervals):
        for w, (first, last) in enumerate(windows):
            piece = max(low, first), min(low + length, last)
            if piece[0] < piece[1] or (length == 0 and piece[0] == piece[1]):
                expected.append((i, w, *piece))
    assert found == expected
    inside = [any(first <= low and low + length <= last for first, last in windows) for low, length in intervals]
    assert mark_inside(begin, end, windows).tolist() == inside
    assert mark_inside(begin, end, []).all()
