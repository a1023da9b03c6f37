"""Compares rows of several integer columns by one integer for each row, which is far cheaper than tuples."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence

import numpy as np

from nsys2prv_ng.arrays.types import BoolArray, Int32Array, IntArray, Integers, ReadOnlyInts
from nsys2prv_ng.runtime.jit import compiled

_LEAST_BITS = 4
"""Least size of a hash table, as a power of two."""

_LONG_RUN = 64
"""Mean number of values in ascending runs from which on they count as nearly in order."""

_MULTIPLIER = np.uint64(0xD6E8FEB86659FD93)
"""Odd, with bits all over. Multiplying by it twice spreads values evenly, in whatever steps they are apart."""

_SEED = int.from_bytes(os.urandom(8), "little", signed=True)
"""No report can be made so that its values share slots. Codes do not depend on it."""


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


def sort_nested(group: IntArray, begin: IntArray, end: IntArray) -> IntArray:
    """Return the stable order of n intervals by group and start, then from the longest to the shortest, as indices.

    No end is the lowest integer, which has no negative.
    """
    order = sort_rows(group, begin)
    group, begin, end = group[order], begin[order], end[order]
    is_tied = (group[1:] == group[:-1]) & (begin[1:] == begin[:-1])
    if (is_tied & (end[1:] > end[:-1])).any():
        tied = np.flatnonzero(np.append(is_tied, False) | np.append(False, is_tied))
        order[tied] = order[tied][np.lexsort((-end[tied], begin[tied], group[tied]))]
    return order


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
    codes, first = encode_rows(values)
    order = np.argsort(values[first])
    rank = np.empty(order.size, np.int64)
    rank[order] = np.arange(order.size)
    return rank[codes], values[first[order]]


def encode_rows(*columns: IntArray) -> tuple[IntArray, IntArray]:
    """Return (dense code of each row, first row of each code): equal rows share a code, by first occurrence."""
    values = np.ascontiguousarray(combine_columns(*columns).astype(np.int64, casting="same_kind", copy=False)).view()
    values.flags.writeable = False  # columns of files cannot be written, and numba compiles for either kind
    assert values.size < np.iinfo(np.int32).max
    bits = max((2 * values.size).bit_length(), _LEAST_BITS)
    codes, first = np.empty_like(values), np.empty_like(values)
    with np.errstate(over="ignore"):  # what is not compiled would warn
        count = _number_values(values, _SEED, 64 - bits, np.full(1 << bits, -1, np.int32), codes, first)
    return codes, first[:count].copy()


@compiled
def _number_values(
    values: ReadOnlyInts, seed: int, shift: int, slots: Int32Array, codes: IntArray, first: IntArray
) -> int:
    """Set the code of each value (n) by first occurrence, and the first index of each code. Return how many there are.

    `slots`: a hash table with room for more than n codes, all -1; 2 ** (64 - shift) of them. `seed`: of the hashes.
    """
    half, bits = np.uint64(32), np.uint64(shift)
    last = slots.size - 1
    count = 0
    for i in range(values.size):
        value = values[i]
        mixed = np.uint64(value ^ seed)
        mixed = (mixed ^ (mixed >> half)) * _MULTIPLIER
        mixed = (mixed ^ (mixed >> half)) * _MULTIPLIER
        slot = np.int64(mixed >> bits)
        while slots[slot] >= 0 and values[first[slots[slot]]] != value:
            slot = (slot + 1) & last
        if slots[slot] < 0:
            slots[slot] = count
            first[count] = i
            count += 1
        codes[i] = slots[slot]
    return count


def find_distinct_rows(*columns: IntArray) -> tuple[IntArray, list[tuple[int, ...]]]:
    """Return (index into the distinct rows for each row, distinct rows in the order in which they first occur)."""
    codes, first = encode_rows(*columns)
    return codes, list(zip(*(column[first].tolist() for column in columns), strict=True))


def mark_duplicates(*columns: IntArray) -> BoolArray:
    """Mark rows that equal an earlier one."""
    _, first = encode_rows(*columns)
    marks = np.ones(columns[0].size, np.bool_)
    marks[first] = False
    return marks


def mark_repeated(*columns: IntArray) -> BoolArray:
    """Mark rows that equal another one, earlier or later."""
    codes, _ = encode_rows(*columns)
    return (np.bincount(codes) > 1)[codes]


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
    codes, first = encode_rows(*(np.concatenate(pair) for pair in zip(rows, wanted, strict=True)))
    known = rows[0].size
    index = first[codes[known:]]
    return np.where(index < known, index, -1)
