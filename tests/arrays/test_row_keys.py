"""Rows alike in several columns, against tuples in Python."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsys2prv_ng.arrays import row_keys
from nsys2prv_ng.arrays.row_keys import (
    combine_columns,
    count_earlier,
    encode_rows,
    find_distinct,
    find_distinct_rows,
    find_rows,
    mark_duplicates,
    mark_repeated,
    sort_nested,
    sort_rows,
)

LOWEST, HIGHEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
SMALL = st.integers(-2, 2)
ANY = st.one_of(SMALL, st.sampled_from([LOWEST, LOWEST + 1, HIGHEST - 1, HIGHEST, 1 << 32]))


@st.composite
def tables(draw, least_rows=0, tables=1):
    """Tables with the same 1 to 4 columns, of small and of any integers."""
    values = draw(st.lists(st.sampled_from([SMALL, ANY]), min_size=1, max_size=4))
    some = [draw(st.lists(st.tuples(*values), min_size=least_rows, max_size=12)) for _ in range(tables)]
    return [list(np.array(rows, np.int64).reshape(len(rows), len(values)).T) for rows in some]


def tuples(columns):
    return list(zip(*(column.tolist() for column in columns), strict=True))


@given(tables())
def test_combined_integers_compare_as_the_rows_do(table):
    (columns,) = table
    key, rows = combine_columns(*columns).tolist(), tuples(columns)
    for i in range(len(rows)):
        for j in range(len(rows)):
            assert (key[i] < key[j], key[i] == key[j]) == (rows[i] < rows[j], rows[i] == rows[j])


@pytest.mark.parametrize("widths", [(1 << 31, 1 << 32), (1 << 32, 1 << 32), (1 << 21, 1 << 21, 1 << 21)])
def test_the_widest_ranges_neither_overflow_nor_collide(widths):
    rng = np.random.default_rng(1)
    columns = [np.append(rng.integers(0, width, 300), [0, width - 1]) - width // 2 for width in widths]
    order = np.lexsort(columns[::-1])
    assert (np.argsort(combine_columns(*columns), kind="stable") == order).all()


@given(tables())
def test_rows_are_sorted_as_tuples_and_equal_ones_stay_in_their_order(table):
    (columns,) = table
    rows = tuples(columns)
    assert sort_rows(*columns).tolist() == sorted(range(len(rows)), key=rows.__getitem__)


@pytest.mark.parametrize("width", [20, 1 << 40, 1 << 62], ids=["16 bits", "with an index", "columns"])
@pytest.mark.parametrize("rows", [3, 20_000])
def test_intervals_are_sorted_by_group_start_and_length(rows, width):
    rng = np.random.default_rng(1)
    group, begin = rng.integers(-2, 2, rows), rng.integers(0, width, rows)
    end = begin + rng.integers(0, 3, rows)
    for order in (np.arange(rows), np.argsort(begin)):
        columns = group[order], begin[order], end[order]
        keys = list(zip(columns[0].tolist(), columns[1].tolist(), (-columns[2]).tolist(), strict=True))
        assert sort_nested(*columns).tolist() == sorted(range(rows), key=keys.__getitem__)
        assert sort_rows(*columns[:2]).tolist() == sorted(range(rows), key=lambda row: keys[row][:2])


@pytest.mark.parametrize("low", [LOWEST, -5, 0, 10**9, HIGHEST - 65535])
@pytest.mark.parametrize("width", [65535, 65536])
def test_narrow_columns_are_sorted_wherever_they_are(low, width):
    if low + width > HIGHEST:
        low = HIGHEST - width
    values = low + np.append(np.random.default_rng(1).integers(0, width, 500), [0, width])
    assert sort_rows(values).tolist() == np.argsort(values, kind="stable").tolist()


@given(tables())
def test_equal_rows_are_counted_and_marked_as_in_a_list(table):
    (columns,) = table
    rows = tuples(columns)
    assert count_earlier(*columns).tolist() == [rows[:i].count(row) for i, row in enumerate(rows)]
    assert mark_repeated(*columns).tolist() == [rows.count(row) > 1 for row in rows]


@given(tables())
def test_codes_and_tuples_are_in_the_order_of_the_first_rows(table):
    (columns,) = table
    rows = tuples(columns)
    kinds = list(dict.fromkeys(rows))
    codes, first = encode_rows(*columns)
    assert codes.tolist() == [kinds.index(row) for row in rows]
    assert first.tolist() == [rows.index(kind) for kind in kinds]
    of_tuples, found = find_distinct_rows(*columns)
    assert (of_tuples.tolist(), found) == (codes.tolist(), kinds)
    assert codes.dtype == first.dtype == np.int64


@given(tables())
def test_duplicated_rows_are_those_that_came_before(table):
    (columns,) = table
    rows = tuples(columns)
    assert mark_duplicates(*columns).tolist() == [row in rows[:i] for i, row in enumerate(rows)]


@pytest.mark.parametrize("shift", range(0, 63, 7))
@pytest.mark.parametrize("step", [1, -1, 3, 1 << 40])
def test_codes_of_values_that_differ_in_few_bits(shift, step):
    values = np.random.default_rng(1).permutation(np.repeat(np.arange(300) * step << shift, 3))
    for column in (values, values[::-1], np.repeat(values, 2)[::2]):
        column.flags.writeable = False
        kinds = list(dict.fromkeys(column.tolist()))
        codes, first = encode_rows(column)
        assert codes.tolist() == [kinds.index(value) for value in column.tolist()]
        assert column[first].tolist() == kinds


@pytest.mark.parametrize("step", [1, 1000, 24157817, 102334155, 7540113804746346429, 1 << 40, -(1 << 44)])
def test_values_in_equal_steps_do_not_share_slots(step):
    """With one multiplication by the golden ratio, such values form one long row in the table, for some steps."""
    values = np.arange(2048, dtype=np.int64) * step
    slots = CountedSlots([-1] * (1 << 13))
    with np.errstate(over="ignore"):
        row_keys._number_values.py_func(values, 12345, 64 - 13, slots, values.copy(), values.copy())
    assert slots.reads < 4 * 2048  # three for each value, and one for each that shares a slot


class CountedSlots(np.ndarray):
    """A hash table that counts how often it is read."""

    def __new__(cls, values):
        table = np.array(values, np.int32).view(cls)
        table.reads = 0
        return table

    def __getitem__(self, index):
        self.reads += 1
        return int(super().__getitem__(index))


@given(tables(tables=2))
def test_find_gives_the_row_that_is_alike(two):
    rows = tuples(two[0])
    assert find_rows(*two).tolist() == [rows.index(row) if row in rows else -1 for row in tuples(two[1])]


@given(st.lists(ANY))
def test_distinct_is_numpy_unique(values):
    array = np.array(values, np.int64)
    index, found = find_distinct(array)
    expected, inverse = np.unique(array, return_inverse=True)
    assert (found.tolist(), index.tolist()) == (expected.tolist(), inverse.tolist())


@pytest.mark.parametrize("count", [10, 4_000, 20_000])
@pytest.mark.parametrize("highest", [60, 1_000])
@pytest.mark.parametrize("order", ["none", "known", "wanted", "both"])
def test_rows_are_found_among_few_and_among_many(count, highest, order):
    rng = np.random.default_rng(count)
    known, wanted = (
        table[np.lexsort(table.T[::-1])] if order in (name, "both") else table
        for name, table in zip(("known", "wanted"), rng.integers(0, highest, (2, count, 2)), strict=True)
    )
    index = {}
    for i, row in enumerate(known.tolist()):
        index.setdefault(tuple(row), i)
    found = find_rows(list(known.T), list(wanted.T))
    assert found.tolist() == [index.get(tuple(row), -1) for row in wanted.tolist()]


@pytest.mark.parametrize("count", [10, 20_000])
@pytest.mark.parametrize("order", ["ascending", "shuffled"])
def test_marks_of_equal_rows_among_few_and_among_many(count, order):
    values = np.random.default_rng(count).integers(0, count, count)
    values = np.sort(values) if order == "ascending" else values
    seen, times = set(), {}
    for value in values.tolist():
        times[value] = times.get(value, 0) + 1
    assert mark_repeated(values).tolist() == [times[value] > 1 for value in values.tolist()]
    assert mark_duplicates(values).tolist() == [
        value in seen or seen.add(value) is not None for value in values.tolist()
    ]
