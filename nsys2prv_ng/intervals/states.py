"""Makes flat states of rows (record kind 1) from the states that the events of a row ask for.

Paraver's states are no stack: a row has one state at a time, and where it has none it is idle. Where nested events each
ask for a state, the outermost gets it; the profiler's own time is laid over all of them. A host thread is running from
its first event to its last wherever no event asks for another state.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nsys2prv_ng.arrays.types import BoolArray, IntArray
from nsys2prv_ng.runtime.jit import compiled


class FlatStates(NamedTuple):
    """n states that do not overlap: row, begin and end (ns), state."""

    row: IntArray
    begin: IntArray
    end: IntArray
    state: IntArray


def flatten(row: IntArray, begin: IntArray, end: IntArray, state: IntArray) -> FlatStates:
    """Return n states without overlaps, ordered by row and begin.

    A state within an earlier state of its row is dropped; one that begins within an earlier state and ends after it
    begins at the end of that.
    """
    order = np.lexsort((-end, begin, row))
    row, begin, end, state = row[order], begin[order], end[order], state[order]
    kept = np.zeros(row.size, np.bool_)
    begin = begin.copy()
    _flatten(row, begin, end, kept)
    return FlatStates(row[kept], begin[kept], end[kept], state[kept])


@compiled
def _flatten(row: IntArray, begin: IntArray, end: IntArray, kept: BoolArray) -> None:
    busy_until = np.int64(0)
    for i in range(row.size):
        if i == 0 or row[i] != row[i - 1]:
            busy_until = begin[i]
        if begin[i] < busy_until:
            begin[i] = busy_until
        if end[i] > begin[i]:
            kept[i] = True
            busy_until = end[i]


def flatten_innermost(row: IntArray, begin: IntArray, end: IntArray, state: IntArray) -> FlatStates:
    """Return n nested states as flat ones: at each time the innermost shows.

    A state that ends after the one that it began within ends with that.
    """
    long = end > begin
    row, begin, end, state = row[long], begin[long], end[long], state[long]
    order = np.lexsort((-end, begin, row))
    row, state = row[order], state[order]
    piece, begin, end = _innermost(row, begin[order], end[order])
    by_time = np.lexsort((begin, row[piece]))
    return FlatStates(row[piece][by_time], begin[by_time], end[by_time], state[piece][by_time])


@compiled
def _innermost(row: IntArray, begin: IntArray, end: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """Return the pieces of each interval in which no other is within it: (its index, begin, end) of each piece."""
    n = row.size
    index = np.empty(2 * n, np.int64)
    piece_begin = np.empty(2 * n, np.int64)
    piece_end = np.empty(2 * n, np.int64)
    pieces = 0
    open_index = np.empty(n, np.int64)
    open_end = np.empty(n, np.int64)
    depth = 0
    at = np.int64(0)
    for i in range(n + 1):
        new_row = i == n or (i > 0 and row[i] != row[i - 1])
        while depth > 0 and (new_row or open_end[depth - 1] <= begin[i]):
            depth -= 1
            if open_end[depth] > at:
                index[pieces], piece_begin[pieces], piece_end[pieces] = open_index[depth], at, open_end[depth]
                pieces += 1
                at = open_end[depth]
        if i == n:
            break
        if depth > 0 and begin[i] > at:
            index[pieces], piece_begin[pieces], piece_end[pieces] = open_index[depth - 1], at, begin[i]
            pieces += 1
        at = begin[i]
        open_index[depth] = i
        open_end[depth] = end[i] if depth == 0 else min(end[i], open_end[depth - 1])
        depth += 1
    return index[:pieces], piece_begin[:pieces], piece_end[:pieces]


def overlay(under: FlatStates, over: FlatStates) -> FlatStates:
    """Return flat states, ordered by row and begin, where those of `over` replace the parts of `under` that they cover.

    Both are ordered by row and begin.
    """
    piece, begin, end = _cut(under.row, under.begin, under.end, over.row, over.begin, over.end)
    left = FlatStates(under.row[piece], begin, end, under.state[piece])
    row, begin, end, state = (np.concatenate(columns) for columns in zip(left, over, strict=True))
    order = np.lexsort((begin, row))
    return FlatStates(row[order], begin[order], end[order], state[order])


@compiled
def _cut(
    row: IntArray, begin: IntArray, end: IntArray, over_row: IntArray, over_begin: IntArray, over_end: IntArray
) -> tuple[IntArray, IntArray, IntArray]:
    """Return what remains of each interval outside `over`: (its index, begin, end) of each piece."""
    # An interval of `over` lies between two pieces of at most one interval, and so adds at most one piece.
    most = row.size + over_row.size
    index = np.empty(most, np.int64)
    left_begin = np.empty(most, np.int64)
    left_end = np.empty(most, np.int64)
    pieces = 0
    j = 0
    for i in range(row.size):
        while j < over_row.size and (over_row[j] < row[i] or (over_row[j] == row[i] and over_end[j] <= begin[i])):
            j += 1
        at = begin[i]
        k = j
        while k < over_row.size and over_row[k] == row[i] and over_begin[k] < end[i]:
            if over_begin[k] > at:
                index[pieces], left_begin[pieces], left_end[pieces] = i, at, over_begin[k]
                pieces += 1
            at = over_end[k]
            k += 1
        if at < end[i]:
            index[pieces], left_begin[pieces], left_end[pieces] = i, at, end[i]
            pieces += 1
    return index[:pieces], left_begin[:pieces], left_end[:pieces]


def fill_gaps(flat: FlatStates, first: IntArray, last: IntArray, filling: int) -> FlatStates:
    """Return the gaps between flat states, from first[r] to last[r] of each row r, as states `filling`.

    The states of a row lie within its limits. A row with first[r] > last[r] is not filled.
    """
    filled = np.flatnonzero(first <= last)
    # The limits of each row are put around its states, so that every gap lies between two neighbours.
    row = np.concatenate([filled, flat.row, filled])
    begin = np.concatenate([first[filled], flat.begin, last[filled]])
    end = np.concatenate([first[filled], flat.end, last[filled]])
    position = np.repeat([0, 1, 2], [filled.size, flat.row.size, filled.size])
    order = np.lexsort((position, begin, row))
    row, begin, end = row[order], begin[order], end[order]
    gap = (row[1:] == row[:-1]) & (begin[1:] > end[:-1]) & (first <= last)[row[1:]]
    return FlatStates(row[1:][gap], end[:-1][gap], begin[1:][gap], np.full(int(gap.sum()), filling, np.int64))


def unite(flat: FlatStates) -> FlatStates:
    """Return states of which several may hold at a time on a row as flat ones: the lowest of them shows.

    They are ordered by row and begin. Neighbouring pieces of one state are one state.
    """
    long = flat.end > flat.begin
    row, begin, end, state = (column[long] for column in flat)
    rows, times = np.tile(row, 2), np.concatenate([begin, end])
    order = np.lexsort((times, rows))
    step = np.repeat(np.array([1, -1]), row.size)
    count = np.zeros(int(state.max(initial=0)) + 1, np.int64)
    out = np.empty((4, rows.size), np.int64)
    pieces = _unite(rows[order], times[order], np.tile(state, 2)[order], step[order], count, out)
    return FlatStates(*out[:, :pieces])


@compiled
def _unite(row: IntArray, time: IntArray, state: IntArray, step: IntArray, count: IntArray, out: IntArray) -> int:
    """Fill `out` with row, begin, end and state of each piece, and return how many there are."""
    pieces = 0
    shown = -1
    for i in range(row.size):
        count[state[i]] += step[i]
        if i + 1 < row.size and row[i + 1] == row[i] and time[i + 1] == time[i]:
            continue
        lowest = -1
        for one in range(count.size):
            if count[one] > 0:
                lowest = one
                break
        if lowest == shown:
            continue
        if shown >= 0:
            out[2, pieces - 1] = time[i]
        if lowest >= 0:
            out[0, pieces], out[1, pieces], out[3, pieces] = row[i], time[i], lowest
            pieces += 1
        shown = lowest
    return pieces
