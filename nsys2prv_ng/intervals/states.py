"""Makes flat states of rows (record kind 1) from what events ask for, and sums them over time bins of equal length.

States in Paraver do not stack: a row has at most one state at any time, and without a state it is idle. If nested
events each ask for a state, the outermost gets it; the time of the profiler covers all of them. A host thread is
running from its first event to its last whenever no event asks for another state.

Also finds the group of intervals that covers times nearly alone, such as the class of the kernels that run.

Also makes the states of rows coarse: each of many bins shows the state that covers most of it.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from nsys2prv_ng.arrays.row_keys import sort_nested
from nsys2prv_ng.arrays.types import FloatArray, IntArray, IntTable
from nsys2prv_ng.runtime.jit import compiled


class FlatStates(NamedTuple):
    """n states that do not overlap: row, start and end (ns), state."""

    row: IntArray
    begin: IntArray
    end: IntArray
    state: IntArray


def flatten(row: IntArray, begin: IntArray, end: IntArray, state: IntArray) -> FlatStates:
    """Return states without overlaps, ordered by row and start.

    A state within an earlier state of its row is dropped; a state that begins within an earlier state and ends after it
    then begins at the end of that state.
    """
    out = FlatStates(*np.empty((4, row.size), np.int64))
    states = FlatStates(*map(np.ascontiguousarray, (row, begin, end, state)))
    return _first(out, _flatten(sort_nested(row, begin, end), states, out))


@compiled
def _flatten(order: IntArray, states: FlatStates, out: FlatStates) -> int:
    """Fill `out` with the rest of each state, and return the number of states."""
    row, begin, end, state = states
    out_row, out_begin, out_end, out_state = out
    pieces = 0
    at_row, busy_until = np.int64(0), np.int64(0)
    for i in order:
        if pieces == 0 or row[i] != at_row:
            at_row, busy_until = row[i], begin[i]
        at = max(begin[i], busy_until)
        if end[i] > at:
            out_row[pieces], out_begin[pieces], out_end[pieces], out_state[pieces] = row[i], at, end[i], state[i]
            pieces += 1
            busy_until = end[i]
    return pieces


def _first(states: FlatStates, count: int) -> FlatStates:
    """Return the first `count` states, as views."""
    return FlatStates(*(column[:count] for column in states))


def flatten_innermost(row: IntArray, begin: IntArray, end: IntArray, state: IntArray) -> FlatStates:
    """Flatten n nested states: at each time the innermost one shows.

    A state that begins within another one and ends after it is cut at the end of the other one.
    """
    long = end > begin
    row, begin, end, state = row[long], begin[long], end[long], state[long]
    order = sort_nested(row, begin, end)
    row, state = row[order], state[order]
    pieces = np.empty((3, 2 * row.size), np.int64)
    open_index, open_end = np.empty((2, row.size), np.int64)
    count = _innermost(row, begin[order], end[order], open_index, open_end, pieces)
    piece, begin, end = pieces[:, :count]
    by_time = np.lexsort((begin, row[piece]))
    return FlatStates(row[piece][by_time], begin[by_time], end[by_time], state[piece][by_time])


@compiled
def _innermost(
    row: IntArray, begin: IntArray, end: IntArray, open_index: IntArray, open_end: IntArray, out: IntTable
) -> int:
    """Set the pieces of each interval outside all intervals within it, and return how many there are.

    `out` (3 x 2 n): index of the interval, start and end. `open_index` and `open_end` (n): room for open intervals.
    """
    n = row.size
    pieces = 0
    depth = 0
    at = np.int64(0)
    for i in range(n + 1):
        new_row = i == n or (i > 0 and row[i] != row[i - 1])
        while depth > 0 and (new_row or open_end[depth - 1] <= begin[i]):
            depth -= 1
            if open_end[depth] > at:
                out[0, pieces], out[1, pieces], out[2, pieces] = open_index[depth], at, open_end[depth]
                pieces += 1
                at = open_end[depth]
        if i == n:
            break
        if depth > 0 and begin[i] > at:
            out[0, pieces], out[1, pieces], out[2, pieces] = open_index[depth - 1], at, begin[i]
            pieces += 1
        at = begin[i]
        open_index[depth] = i
        open_end[depth] = end[i] if depth == 0 else min(end[i], open_end[depth - 1])
        depth += 1
    return pieces


def overlay(under: FlatStates, over: FlatStates) -> FlatStates:
    """Return flat states, ordered by row and start, in which `over` replaces the parts of `under` that it covers.

    Both are ordered by row and start.
    """
    if not over.row.size and (under.end > under.begin).all():
        return under
    # A state in `over` splits at most one state in `under`, and so adds at most one piece besides itself.
    out = FlatStates(*np.empty((4, under.row.size + 2 * over.row.size), np.int64))
    return _first(out, _overlay(under, over, out))


@compiled
def _overlay(under: FlatStates, over: FlatStates, out: FlatStates) -> int:
    """Fill `out` with `over` and the parts of `under` outside it, and return the number of states."""
    row, begin, end, state = under
    over_row, over_begin, over_end, over_state = over
    out_row, out_begin, out_end, out_state = out
    pieces = 0
    j = 0
    for i in range(row.size + 1):
        is_last = i == row.size
        at = np.int64(0) if is_last else begin[i]
        if j > 0 and not is_last and over_row[j - 1] == row[i]:
            at = max(at, over_end[j - 1])
        while j < over_row.size and (
            is_last or over_row[j] < row[i] or (over_row[j] == row[i] and over_begin[j] < end[i])
        ):
            if not is_last and over_row[j] == row[i]:
                if over_begin[j] > at:
                    out_row[pieces], out_begin[pieces] = row[i], at
                    out_end[pieces], out_state[pieces] = over_begin[j], state[i]
                    pieces += 1
                at = max(at, over_end[j])
            out_row[pieces], out_begin[pieces] = over_row[j], over_begin[j]
            out_end[pieces], out_state[pieces] = over_end[j], over_state[j]
            pieces += 1
            j += 1
        if not is_last and at < end[i]:
            out_row[pieces], out_begin[pieces], out_end[pieces], out_state[pieces] = row[i], at, end[i], state[i]
            pieces += 1
    return pieces


def fill_gaps(flat: FlatStates, first: IntArray, last: IntArray, filling: int) -> FlatStates:
    """Return the gaps between flat states, from first[r] to last[r] of each row r, as states `filling`.

    The states of a row lie within its limits. A row with first[r] > last[r] is not filled.
    """
    is_filled = first <= last
    rows = np.flatnonzero(is_filled)
    row, begin, end, _ = (column[is_filled[flat.row]] for column in flat)
    front, back = np.searchsorted(row, rows), np.searchsorted(row, rows, "right")
    gaps = np.insert(row, front, rows), np.insert(end, front, first[rows]), np.insert(begin, back, last[rows])
    row, begin, end = (column[gaps[1] < gaps[2]] for column in gaps)
    return FlatStates(row, begin, end, np.full(row.size, filling, np.int64))


def unite(flat: FlatStates) -> FlatStates:
    """Flatten states of which a row may have several at the same time: the lowest one shows.

    The result is ordered by row and start. Neighbouring pieces of one state become one state.
    """
    united = FlatStates(*np.empty((4, 0), np.int64))
    for state in np.unique(flat.state)[::-1]:
        is_shown = flat.state == state
        united = overlay(united, flatten(*(column[is_shown] for column in flat)))
    row, begin, end, state = united
    goes_on = (row[1:] == row[:-1]) & (begin[1:] == end[:-1]) & (state[1:] == state[:-1])
    is_first, is_last = np.ones((2, row.size), np.bool_)
    is_first[1:], is_last[:-1] = ~goes_on, ~goes_on
    return FlatStates(row[is_first], begin[is_first], end[is_last], state[is_first])


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
