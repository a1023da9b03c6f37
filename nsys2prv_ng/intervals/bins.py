"""Sums over time bins of equal length: how long rows were in each state, and values that hold over time.

Also makes the states of rows coarse: each of many bins shows the state that covers most of it.
"""

from __future__ import annotations

from typing import Annotated, TypeVar

import numpy as np
import numpy.typing as npt

from nsys2prv_ng.arrays.types import FloatArray, IntArray, IntTable
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


# ---- coarse states ---------------------------------------------------------------------------------------------------

_PIECES = 3
"""Most pieces that one state can add: the bin before it, its first bin, and the bins that it fills."""


def coarsen(flat: FlatStates, origin: int, last: int, length: int) -> FlatStates:
    """Return states in bins of `length` (ns) from `origin` to `last`: the state that covers most of each bin.

    If states cover equal time, the lowest number is shown. Time without a state counts as state 0, which is shown as a
    gap. Neighbouring bins with one state become one state, so a row has at most one state for each bin. The states do
    not overlap, and are ordered by row and start.
    """
    begin, end = np.maximum(flat.begin, origin), np.minimum(flat.end, last)
    inside = begin < end
    flat = FlatStates(flat.row[inside], begin[inside], end[inside], flat.state[inside])
    if not flat.row.size:
        return flat
    rows = 1 + np.count_nonzero(np.diff(flat.row))
    most = min(_PIECES * flat.row.size + 1, rows * -(-(last - origin) // length))
    out = np.empty((4, most), np.int64)
    sums = np.zeros(int(flat.state.max()) + 1, np.int64)
    count = _coarsen(flat, origin, last, length, sums, out)
    return FlatStates(*out[:, :count])


@compiled
def _coarsen(flat: FlatStates, origin: int, last: int, length: int, sums: IntArray, out: IntTable) -> int:
    """Fill `out` with row, start, end and state of each shown state, and return their number."""
    row, begin, end, state = flat
    count = 0
    current = np.int64(-1)  # the bin whose states are summed; none yet
    for i in range(row.size + 1):
        ends = i == row.size or (i > 0 and row[i] != row[i - 1])
        first = np.int64(-1) if i == row.size else (begin[i] - origin) // length
        if current >= 0 and (ends or first != current):
            low, high = origin + current * length, min(origin + (current + 1) * length, last)
            count = _show(out, count, row[i - 1], low, high, _choose(sums, high - low))
            sums[:] = 0
        if i == row.size:
            break
        current = (end[i] - 1 - origin) // length
        if current == first:
            sums[state[i]] += end[i] - begin[i]
            continue
        low, high = origin + first * length, origin + (first + 1) * length
        sums[state[i]] += high - begin[i]
        count = _show(out, count, row[i], low, high, _choose(sums, high - low))
        sums[:] = 0
        whole = origin + current * length  # all bins from `high` to here have only this state
        if whole > high:
            count = _show(out, count, row[i], high, whole, state[i])
        sums[state[i]] += end[i] - whole
    return count


@compiled
def _choose(sums: IntArray, length: int) -> int:
    """Return the state that covers most of a bin of some length (ns); on a tie, the lowest."""
    for state in range(sums.size):
        length -= sums[state]
    sums[0] += length
    best = 0
    for state in range(1, sums.size):
        if sums[state] > sums[best]:
            best = state
    return best


@compiled
def _show(out: IntTable, count: int, row: int, begin: int, end: int, state: int) -> int:
    """Add a shown state, or make the last one longer; return the number of shown states."""
    if state == 0:
        return count
    before = count - 1
    if count > 0 and out[0, before] == row and out[2, before] == begin and out[3, before] == state:
        out[2, before] = end
        return count
    out[0, count], out[1, count], out[2, count], out[3, count] = row, begin, end, state
    return count + 1
