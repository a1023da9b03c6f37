"""Reports that share rows of the trace, against a plain search."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nsys2prv_ng.objects.tree import group_by_shared_rows

ROWS = st.lists(st.lists(st.integers(-1, 12), max_size=5), max_size=8)


@given(ROWS)
def test_groups_are_the_connected_ones(rows):
    sets = [set(of) - {-1} for of in rows]
    expected = []
    left = set(range(len(rows)))
    while left:
        group = {min(left)}
        while True:
            more = {i for i in left - group if any(sets[i] & sets[j] for j in group)}
            if not more:
                break
            group |= more
        expected.append(sorted(group))
        left -= group
    assert group_by_shared_rows([np.array(of, np.int64) for of in rows]) == expected
