"""Rows that are alike in several columns of integers, told by one integer for each: far cheaper than tuples."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from nsys2prv_ng.arrays.types import BoolArray, IntArray


def combine_columns(*columns: IntArray) -> IntArray:
    """An integer for each row of one or more columns, equal where the rows are and ordered as they are, by the first
    column first."""
    if len(columns) == 1 or not columns[0].size:
        return columns[0]
    low = [int(column.min()) for column in columns]
    width = [int(column.max()) - lowest + 1 for column, lowest in zip(columns, low, strict=True)]
    if math.prod(width) > np.iinfo(np.int64).max:  # as with NULL among small numbers
        return combine_columns(find_distinct(combine_columns(*columns[:-1]))[0], find_distinct(columns[-1])[0])
    key = columns[0] - low[0]
    for i in range(1, len(columns)):
        key *= width[i]
        key += columns[i] - low[i]
    return key


def find_distinct(values: IntArray) -> tuple[IntArray, IntArray]:
    """(index into the distinct values for each value, distinct values, sorted), as by np.unique; fast where they are
    few."""
    codes, found = pd.factorize(values)
    order = np.argsort(found)
    rank = np.empty(order.size, np.int64)
    rank[order] = np.arange(order.size)
    return rank[codes], found[order]


def encode_rows(*columns: IntArray) -> tuple[IntArray, IntArray]:
    """(dense code of each row, first row of each code): rows that are alike share a code, in the order of the first."""
    codes = pd.factorize(combine_columns(*columns))[0].astype(np.int64, copy=False)
    return codes, np.flatnonzero(np.diff(np.maximum.accumulate(codes), prepend=-1))


def find_distinct_rows(*columns: IntArray) -> tuple[IntArray, list[tuple[int, ...]]]:
    """(index into the distinct rows for each row, distinct rows in the order in which they first occur)."""
    codes, first = encode_rows(*columns)
    return codes, list(zip(*(column[first].tolist() for column in columns), strict=True))


def mark_duplicates(*columns: IntArray) -> BoolArray:
    """Rows that are like an earlier one."""
    return pd.Series(combine_columns(*columns)).duplicated().to_numpy(np.bool_)


def find_rows(rows: Sequence[IntArray], wanted: Sequence[IntArray]) -> IntArray:
    """Index, among some rows that all differ, of the one like each that is wanted; -1 where there is none."""
    both = combine_columns(*(np.concatenate(pair) for pair in zip(rows, wanted, strict=True)))
    index = pd.Index(both[: rows[0].size])
    return index.get_indexer(pd.Index(both[rows[0].size :])).astype(np.int64, copy=False)
