"""Sums tables by keys. Many tables have few rows, for which pandas' groups take ten times as long."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from nsys2prv_ng.arrays.row_keys import find_starts, sort_rows
from nsys2prv_ng.arrays.types import IntArray

_REDUCTIONS: dict[str, np.ufunc] = {"sum": np.add, "min": np.minimum, "max": np.maximum}


def sum_groups(table: pd.DataFrame, keys: Sequence[str], how: Mapping[str, str] | None = None) -> pd.DataFrame:
    """Return one row for each distinct row of the key columns, sorted by these: the sum of each other column.

    `how`: "min" or "max" for columns that are not to be summed. Keys are integers or texts, none of them missing.
    """
    return sum_columns({str(name): table[name].to_numpy() for name in table.columns}, keys, how)


def sum_columns(
    columns: Mapping[str, npt.NDArray[Any]], keys: Sequence[str], how: Mapping[str, str] | None = None
) -> pd.DataFrame:
    """Return the same as `sum_groups` for the columns of a table."""
    order, starts = sort_groups([columns[name] for name in keys])
    sums = {
        name: reduce_groups(column, order, starts, (how or {}).get(name, "sum"))
        for name, column in columns.items()
        if name not in keys
    }
    return pd.DataFrame({**{name: columns[name][order[starts]] for name in keys}, **sums})


def sort_groups(keys: Sequence[npt.NDArray[Any]]) -> tuple[IntArray, IntArray]:
    """Return (order of the n rows, first position in it of each group): groups of rows with equal keys, sorted."""
    codes = [key if key.dtype == np.int64 else _encode(key) for key in keys]
    order = sort_rows(*codes)
    return order, find_starts(*(code[order] for code in codes))


def reduce_groups(column: npt.NDArray[Any], order: IntArray, starts: IntArray, how: str = "sum") -> npt.NDArray[Any]:
    """Return the sum, "min" or "max" of a column in each group of `sort_groups`."""
    values = column.astype(np.int64) if column.dtype == np.bool_ else column
    return values[order] if starts.size == order.size else _REDUCTIONS[how].reduceat(values[order], starts)


def count_earlier(codes: IntArray) -> IntArray:
    """Return for each row the number of earlier rows with the same code."""
    order = np.argsort(codes, kind="stable")
    starts = find_starts(codes[order])
    count = np.empty(codes.size, np.int64)
    count[order] = np.arange(codes.size) - np.repeat(starts, np.diff(np.append(starts, codes.size)))
    return count


def _encode(key: npt.NDArray[Any]) -> IntArray:
    codes: IntArray = pd.factorize(key, sort=True)[0].astype(np.int64, copy=False)
    return codes
