"""What operations show of clocks that violate causality, compared with plain loops."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys2prv_ng.analysis.waits.clocks import Entries, measure_errors
from tests.examples import examples

pytestmark = pytest.mark.slow

part = st.tuples(st.integers(0, 2), st.integers(0, 30), st.integers(0, 30), st.booleans(), st.booleans())
bound = st.sampled_from([0.0, 2.0, 10.0, np.inf])


@settings(deadline=None, max_examples=examples(400))
@given(st.lists(st.lists(part, min_size=1, max_size=5), max_size=6), st.tuples(bound, bound, bound))
def test_errors_by_their_definition(
    operations: list[list[tuple[int, int, int, bool, bool]]], bounds: tuple[float, float, float]
) -> None:
    """`part`: node, begin, duration, whether others wait for it, whether it waits."""
    expected = [0.0] * 3
    for parts in operations:
        entering = [row for row in parts if row[3]]
        leaving = [row for row in parts if row[4]]
        if not entering or not leaving:
            continue
        late = max(entering, key=lambda row: row[1])
        early = min(leaving, key=lambda row: row[1] + row[2])
        violation = late[1] - (early[1] + early[2])
        if late[0] != early[0] and violation > bounds[late[0]] + bounds[early[0]]:
            left = min(row[1] + row[2] for row in parts if row[0] == late[0])
            for node in (late[0], early[0]):
                expected[node] = max(expected[node], violation, left - (early[1] + early[2]))
    columns = [list(column) for column in zip(*(row for parts in operations for row in parts), strict=True)] or [[]] * 5
    node, begin, duration = (np.array(column, np.int64) for column in columns[:3])
    enters, leaves = (np.array(column, np.bool_) for column in columns[3:])
    first = np.cumsum([0, *(len(parts) for parts in operations)])
    got = measure_errors(first, Entries(node, begin, begin + duration, enters, leaves), np.array(bounds))
    assert got.tolist() == expected
