"""What came last before a time."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nsys2prv_ng.intervals.as_of import find_latest

few = st.integers(0, 3)
times = st.integers(-3, 9) | st.sampled_from([-(2**63), 2**63 - 1])


@given(st.lists(st.tuples(few, times)), st.lists(st.tuples(few, times)))
def test_the_last_of_a_group_that_is_not_later(entries: list[tuple[int, int]], queries: list[tuple[int, int]]) -> None:
    columns = [np.array([row[i] for row in rows], np.int64) for rows in (entries, queries) for i in range(2)]
    expected = []
    for group, at in queries:
        fits = [(time, index) for index, (other, time) in enumerate(entries) if other == group and time <= at]
        expected.append(max(fits)[1] if fits else -1)
    assert find_latest(*columns).tolist() == expected
