"""Sums of groups against plain loops over the rows."""

from __future__ import annotations

import numpy as np
import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

from nsys2prv_ng.arrays.groups import sum_groups

_LARGE = 2**62
_ROWS = st.lists(
    st.tuples(
        st.sampled_from(["", "b", "a", "é"]),
        st.sampled_from([-_LARGE, -1, 0, 3, _LARGE]),
        st.integers(-100, 100),
        st.booleans(),
    )
)


@given(_ROWS)
def test_sums_of_groups(rows: list[tuple[str, int, int, bool]]) -> None:
    wanted: dict[tuple[str, int], list[int]] = {}
    for name, number, value, mark in rows:
        group = wanted.setdefault((name, number), [0, 200, -200, 0])
        group[:] = group[0] + value, min(group[1], value), max(group[2], value), group[3] + mark
    text = pd.Series([row[0] for row in rows], dtype=object)
    number, value = (np.array([row[i] for row in rows], np.int64) for i in (1, 2))
    mark = np.array([row[3] for row in rows], np.bool_)
    columns = {"text": text, "number": number, "sum": value, "low": value, "high": value, "marked": mark}
    found = sum_groups(pd.DataFrame(columns), ["text", "number"], {"low": "min", "high": "max"})
    assert list(found.columns) == list(columns)
    assert found.to_numpy().tolist() == [[*key, *wanted[key]] for key in sorted(wanted)]
    assert [str(found[name].dtype) for name in ("number", "sum", "low", "high", "marked")] == ["int64"] * 5


def test_large_integers_stay_exact() -> None:
    value = 2**53 + 1
    found = sum_groups(pd.DataFrame({"key": [1, 1], "ns": [value, value]}), ["key"])
    assert found["ns"].tolist() == [2 * value]
