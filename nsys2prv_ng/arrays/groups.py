"""Adds up tables, which are dicts of columns, by keys, and makes mappings of keys with one value.

Importing pandas takes longer than adding up most tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from nsys2prv_ng.arrays.row_keys import find_starts, sort_rows
from nsys2prv_ng.arrays.types import BoolArray, FloatArray, IntArray

Table = dict[str, npt.NDArray[Any]]
"""A small table: its columns by name, of equal length, with integers, truth values or objects such as texts."""

_REDUCTIONS: dict[str, np.ufunc] = {"sum": np.add, "min": np.minimum, "max": np.maximum}


def sum_table(
    columns: Mapping[str, npt.NDArray[Any]], keys: Sequence[str], how: Mapping[str, str] | None = None
) -> Table:
    """Return one row for each distinct row of the key columns, sorted by these: the sum of each other column.

    `how`: "min" or "max" for columns that are not to be summed. Keys are integers or texts, none of them missing.
    """
    order, starts = sort_groups([columns[name] for name in keys])
    sums = {
        name: reduce_groups(column, order, starts, (how or {}).get(name, "sum"))
        for name, column in columns.items()
        if name not in keys
    }
    return {**{name: columns[name][order[starts]] for name in keys}, **sums}


def join_tables(parts: Sequence[Table]) -> Table:
    """Return the rows of all tables, which have the same columns."""
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def drop_columns(table: Table, *names: str) -> Table:
    """Return a table without some of its columns."""
    return {name: column for name, column in table.items() if name not in names}


def take_rows(table: Table, which: IntArray | BoolArray) -> Table:
    """Return the rows of a table that indices or a mask select."""
    return {name: column[which] for name, column in table.items()}


def group_rows(table: Table, *keys: str) -> list[Table]:
    """Return the rows of each distinct row of the key columns, sorted by these. Rows stay in their order."""
    order, starts = sort_groups([table[key] for key in keys])
    return [take_rows(table, rows) for rows in np.split(order, starts)[1:]]


def make_rows(table: Table) -> list[dict[str, Any]]:
    """Return each row of a table as a dict."""
    columns = (column.tolist() for column in table.values())
    return [dict(zip(table, row, strict=True)) for row in zip(*columns, strict=True)]


def make_objects(values: Iterable[object]) -> npt.NDArray[Any]:
    """Return texts or tuples as a column."""
    return np.fromiter(values, object)


def sort_groups(keys: Sequence[npt.NDArray[Any]]) -> tuple[IntArray, IntArray]:
    """Return (order of the n rows, first position in it of each group): groups of rows with equal keys, sorted."""
    codes = [encode_key(key) for key in keys]
    order = sort_rows(*codes)
    return order, find_starts(*(code[order] for code in codes))


def reduce_groups(column: npt.NDArray[Any], order: IntArray, starts: IntArray, how: str = "sum") -> npt.NDArray[Any]:
    """Return the sum, "min" or "max" of a column in each group of `sort_groups`."""
    values = column.astype(np.int64) if column.dtype == np.bool_ else column
    return values[order] if starts.size == order.size else _REDUCTIONS[how].reduceat(values[order], starts)


def find_medians(group: IntArray, value: IntArray) -> tuple[IntArray, FloatArray]:
    """Return (the distinct groups of n values, sorted, the median of the values of each)."""
    order = sort_rows(group, value)
    starts = find_starts(group[order])
    last = np.append(starts[1:], order.size) - 1
    low, high = (value[order[middle]].astype(np.float64) for middle in ((starts + last) // 2, (starts + last + 1) // 2))
    return group[order[starts]], (low + high) / 2


def encode_key(key: npt.NDArray[Any]) -> IntArray:
    """Return integers in the order of the values of a column: integers as they are."""
    if key.dtype.kind in "biu":
        return key.astype(np.int64, copy=False)
    values = key.tolist()
    ranks = {value: rank for rank, value in enumerate(sorted(set(values)))}
    return np.array([ranks[value] for value in values], np.int64)


Key = TypeVar("Key")
Value = TypeVar("Value")


def map_unambiguous(pairs: Iterable[tuple[Key, Value]]) -> dict[Key, Value]:
    """Return the value of each key that has only one distinct value."""
    values: dict[Key, set[Value]] = {}
    for key, value in pairs:
        values.setdefault(key, set()).add(value)
    return {key: found.pop() for key, found in values.items() if len(found) == 1}
