"""Sums of groups against plain loops over the rows."""

from __future__ import annotations

import statistics

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nsys2prv_ng.arrays.groups import (
    encode_key,
    find_medians,
    group_rows,
    make_objects,
    make_rows,
    map_unambiguous,
    sum_table,
)

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
    text = make_objects(row[0] for row in rows)
    number, value = (np.array([row[i] for row in rows], np.int64) for i in (1, 2))
    mark = np.array([row[3] for row in rows], np.bool_)
    columns = {"text": text, "number": number, "sum": value, "low": value, "high": value, "marked": mark}
    found = sum_table(columns, ["text", "number"], {"low": "min", "high": "max"})
    assert list(found) == list(columns)
    assert [list(row.values()) for row in make_rows(found)] == [[*key, *wanted[key]] for key in sorted(wanted)]
    assert [str(found[name].dtype) for name in ("number", "sum", "low", "high", "marked")] == ["int64"] * 5


def test_large_integers_stay_exact() -> None:
    value = 2**53 + 1
    found = sum_table({"key": np.array([1, 1]), "ns": np.array([value, value])}, ["key"])
    assert found["ns"].tolist() == [2 * value]


@given(st.lists(st.text(max_size=2)))
def test_codes_of_texts_are_in_their_order(texts: list[str]) -> None:
    distinct = sorted(set(texts))
    assert encode_key(make_objects(texts)).tolist() == [distinct.index(text) for text in texts]


_PAIRS = st.lists(st.tuples(st.integers(0, 3), st.integers(-(2**40), 2**40)), min_size=0, max_size=30)


@given(_PAIRS)
def test_rows_and_medians_of_groups(pairs: list[tuple[int, int]]) -> None:
    groups: dict[int, list[int]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    key, value = np.array(pairs, np.int64).reshape(-1, 2).T
    found = [
        (set(rows["key"].tolist()), rows["value"].tolist()) for rows in group_rows({"key": key, "value": value}, "key")
    ]
    assert found == [({key}, groups[key]) for key in sorted(groups)]
    distinct, medians = find_medians(key, value)
    assert list(zip(distinct.tolist(), medians.tolist(), strict=True)) == [
        (key, statistics.median(groups[key])) for key in sorted(groups)
    ]


def test_only_keys_with_one_distinct_value_are_mapped() -> None:
    assert map_unambiguous([("a", 1), ("b", 2), ("a", 1), ("b", 3), ("c", 4)]) == {"a": 1, "c": 4}
