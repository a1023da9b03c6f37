"""Sums over time bins of equal length: how long rows were in each state, and values that hold over time."""

from __future__ import annotations

from typing import Annotated, TypeVar

import numpy as np
import numpy.typing as npt

from nsys2prv_ng.arrays.types import FloatArray, IntArray
from nsys2prv_ng.intervals.states import FlatStates
from nsys2prv_ng.runtime.jit import compiled

Number = TypeVar("Number", np.int64, np.float64)
Cube = Annotated[npt.NDArray[Number], 3]


def make_edges(begin: int, end: int, most: int) -> IntArray:
    """Return the limits (ns) of bins from `begin` to a later `end`: at most `most` bins, all with a length.

    Their lengths differ by at most 1 ns.
    """
    span = end - begin
    bins = max(1, min(most, span))
    return np.array([begin + span * i // bins for i in range(bins + 1)], np.int64)


def sum_states(flat: FlatStates, edges: IntArray, rows: int, states: int) -> IntArray:
    """Return the time (ns, rows x bins x states) in each state. The states of a row are in the order of their starts.

    Time outside the bins does not count.
    """
    sums = np.zeros((rows, edges.size - 1, states), np.int64)
    _add_up(flat, np.ones(flat.row.size, np.int64), edges, sums)
    return sums


def sum_held(flat: FlatStates, value: FloatArray, edges: IntArray, rows: int, columns: int) -> FloatArray:
    """Return the sums of value x ns (rows x bins x columns) of values that hold over time. States are the columns.

    The intervals of a row are in the order of their starts.
    """
    sums = np.zeros((rows, edges.size - 1, columns))
    _add_up(flat, value, edges, sums)
    return sums


@compiled
def _add_up(flat: FlatStates, amount: npt.NDArray[Number], edges: IntArray, sums: Cube[Number]) -> None:
    row, begin, end, column = flat
    bins = edges.size - 1
    first = 0  # the bin in which the previous interval started
    for i in range(row.size):
        low, high = max(begin[i], edges[0]), min(end[i], edges[bins])
        if low >= high:
            continue
        if low < edges[first]:  # another row, or intervals are out of order
            first = 0
        while edges[first + 1] <= low:
            first += 1
        at = first
        while low < high:
            until = min(high, edges[at + 1])
            sums[row[i], at, column[i]] += amount[i] * (until - low)
            low = until
            at += 1
