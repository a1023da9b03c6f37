"""Moves columns to the fields of records and back, in blocks: the fields of a record share lines of the CPU cache."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from nsys2prv_ng.arrays.types import Integers, IntTable, RecordArray

_BLOCK = 4096
"""Records that are moved at once; they fit the cache."""


def fill_fields(records: RecordArray, columns: Mapping[str, Integers]) -> None:
    """Set some fields of n records to columns of n."""
    for low in range(0, records.size, _BLOCK):
        block = records[low : low + _BLOCK]
        for name, column in columns.items():
            block[name] = column[low : low + _BLOCK]


def take_fields(records: RecordArray) -> IntTable:
    """Return the fields of n records, which are all int64, as contiguous columns (fields x n)."""
    fields = len(records.dtype.names or ())
    table = records.view(np.int64).reshape(records.size, fields)
    columns = np.empty((fields, records.size), np.int64)
    for low in range(0, records.size, _BLOCK):
        columns[:, low : low + _BLOCK] = table[low : low + _BLOCK].T
    return columns
