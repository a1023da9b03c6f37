"""Compares rows of several integer columns by one integer for each row, which is far cheaper than tuples."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from nsys2prv_ng.arrays.types import BoolArray, IntArray, Integers

_SMALL = 1 << 13
"""Number of values below which pandas takes longer to begin with a hash table than numpy to sort them."""

_LONG_RUN = 64
"""Mean number of values in ascending runs from which on they count as nearly in order."""


def sort_rows(*columns: Integers) -> IntArray:
    """Return the order of rows by the first column, then by the next ones; equal rows stay in their order.

    The result is that of np.lexsort with the columns in reverse, but fast for rows that are nearly in order, for few
    distinct values, and for values that fit into 64 bits together with an index.
    """
    if not columns[0].size:
        return np.zeros(0, np.int64)
    low, width = _measure(columns)
    if math.prod(width) > np.iinfo(np.int64).max:
        return np.lexsort(columns[::-1])
    key = _pack(columns, low, width)
    if math.prod(width) <= np.iinfo(np.uint16).max:
        return np.argsort(key.astype(np.uint16), kind="stable")  # numpy sorts 16 bits by counting
    bits = key.size.bit_length()
    if (math.prod(width) << bits) > np.iinfo(np.int64).max or _is_nearly_sorted(key):
        return np.argsort(key, kind="stable")
    # No two numbers are equal, so numpy may sort them in its fastest way.
    key <<= bits
    key |= np.arange(key.size)
    key.sort()
    key &= (1 << bits) - 1
    return key


def combine_columns(*columns: IntArray) -> IntArray:
    """Return an integer for each row of one or more columns: equal for equal rows, and in the same order as the rows.

    The first column decides the order first.
    """
    if len(columns) == 1 or not columns[0].size:
        return columns[0]
    low, width = _measure(columns)
    if math.prod(width) > np.iinfo(np.int64).max:  # for instance with NULL among small numbers
        return combine_columns(find_distinct(combine_columns(*columns[:-1]))[0], find_distinct(columns[-1])[0])
    return _pack(columns, low, width)


def _measure(columns: Sequence[Integers]) -> tuple[list[int], list[int]]:
    """Return the lowest value of each column, and how many values there are from it to the highest one."""
    low = [int(column.min()) for column in columns]
    return low, [int(column.max()) - lowest + 1 for column, lowest in zip(columns, low, strict=True)]


def _pack(columns: Sequence[Integers], low: Sequence[int], width: Sequence[int]) -> IntArray:
    """Return an integer from 0 for each row. The product of the widths fits into 64 bits."""
    key = np.subtract(columns[0], low[0], dtype=np.int64)
    for i in range(1, len(columns)):
        key *= width[i]
        key += np.subtract(columns[i], low[i], dtype=np.int64)
    return key


def find_distinct(values: IntArray) -> tuple[IntArray, IntArray]:
    """Return (index into the distinct values for each value, sorted distinct values).

    The result is the same as with np.unique, but fast if there are few distinct values.
    """
    codes, distinct = pd.factorize(values)
    order = np.argsort(distinct)
    rank = np.empty(order.size, np.int64)
    rank[order] = np.arange(order.size)
    return rank[codes], distinct[order]


def encode_rows(*columns: IntArray) -> tuple[IntArray, IntArray]:
    """Return (dense code of each row, first row of each code): equal rows share a code, by first occurrence."""
    codes = pd.factorize(combine_columns(*columns))[0].astype(np.int64, copy=False)
    return codes, np.flatnonzero(np.diff(np.maximum.accumulate(codes), prepend=-1))


def find_distinct_rows(*columns: IntArray) -> tuple[IntArray, list[tuple[int, ...]]]:
    """Return (index into the distinct rows for each row, distinct rows in the order in which they first occur)."""
    codes, first = encode_rows(*columns)
    return codes, list(zip(*(column[first].tolist() for column in columns), strict=True))


def mark_duplicates(*columns: IntArray) -> BoolArray:
    """Mark rows that equal an earlier one."""
    values = combine_columns(*columns)
    if not _sorts_fast(values):
        return pd.Series(values).duplicated().to_numpy(np.bool_)
    order = np.argsort(values, kind="stable")
    marks = np.ones(order.size, np.bool_)
    marks[order[find_starts(values[order])]] = False
    return marks


def mark_repeated(*columns: IntArray) -> BoolArray:
    """Mark rows that equal another one, earlier or later."""
    values = combine_columns(*columns)
    if not _sorts_fast(values):
        return pd.Series(values).duplicated(keep=False).to_numpy(np.bool_)
    order = np.argsort(values, kind="stable")
    count = np.diff(find_starts(values[order]), append=order.size)
    marks = np.empty(order.size, np.bool_)
    marks[order] = np.repeat(count > 1, count)
    return marks


def _sorts_fast(values: IntArray) -> bool:
    """Return whether sorting beats pandas' hash tables: it does for few values, and for values nearly in order."""
    return values.size < _SMALL or _is_nearly_sorted(values)


def _is_nearly_sorted(values: IntArray) -> bool:
    """Return whether values consist of few ascending runs, which a stable sort merges."""
    return int(np.count_nonzero(values[1:] < values[:-1])) * _LONG_RUN < values.size


def count_earlier(*columns: IntArray) -> IntArray:
    """Return for each row how many earlier rows equal it."""
    key = combine_columns(*columns)
    order = sort_rows(key)
    first = find_starts(key[order])
    count = np.empty(order.size, np.int64)
    count[order] = np.arange(order.size) - np.repeat(first, np.diff(first, append=order.size))
    return count


def find_starts(*columns: Integers) -> IntArray:
    """Return the indices of the rows that differ from the row before in any column."""
    new = np.ones(columns[0].size, np.bool_)
    new[1:] = np.logical_or.reduce([column[1:] != column[:-1] for column in columns])
    return np.flatnonzero(new)


def list_rows(column: IntArray, values: IntArray) -> IntArray:
    """Return the indices of the rows of an ascending column that have one of some values, which are ascending, too."""
    first, after = (np.searchsorted(column, values, side) for side in ("left", "right"))
    return list_indices(first, after - first)


def list_indices(first: IntArray, count: IntArray) -> IntArray:
    """Return first[i] .. first[i] + count[i] - 1 for each i, one after the other."""
    return np.arange(count.sum()) + np.repeat(first - np.cumsum(count) + count, count)


def take_groups(first: IntArray, groups: Integers) -> tuple[IntArray, IntArray]:
    """Return (limits, rows) of some of the groups with the rows first[i] .. first[i + 1] - 1, one after the other."""
    count = np.diff(first)[groups]
    return np.append(0, np.cumsum(count)), list_indices(first[groups], count)


def find_rows(rows: Sequence[IntArray], wanted: Sequence[IntArray]) -> IntArray:
    """Return the index of each wanted row among rows, of equal ones the first; -1 if it is not among them."""
    if not wanted[0].size:
        return np.zeros(0, np.int64)
    both = combine_columns(*(np.concatenate(pair) for pair in zip(rows, wanted, strict=True)))
    known, values = both[: rows[0].size], both[rows[0].size :]
    # A binary search for values in no order misses the caches at each step.
    sorts = both.size < _SMALL or (_sorts_fast(known) and (values.size * _LONG_RUN < known.size or _sorts_fast(values)))
    if known.size > 0 and sorts:
        order = np.argsort(known, kind="stable")
        index = order[np.minimum(np.searchsorted(known, values, sorter=order), known.size - 1)]
        return np.where(known[index] == values, index, -1)
    table = pd.Index(known)
    if table.is_unique:
        return table.get_indexer(pd.Index(values)).astype(np.int64, copy=False)
    first = np.flatnonzero(~mark_duplicates(known))
    return np.append(first, -1)[pd.Index(known[first]).get_indexer(pd.Index(values))]
