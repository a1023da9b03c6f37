"""States of rows (record kind 1): flat, from what the events of a row ask for.

Paraver's states are no stack: a row has one state at a time, and where it has none it is idle. Of nested events that
each ask for a state the outermost has it. A host thread is running from its first event to its last wherever nothing
else is said.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numba as nb
import numpy as np
import numpy.typing as npt

from nsys2prv_ng.paraver.records import EVENT, Records

IntArray = npt.NDArray[np.int64]


class Flat(NamedTuple):
    """States that do not overlap: row, begin and end (ns), state, of n."""

    row: IntArray
    begin: IntArray
    end: IntArray
    state: IntArray


def flatten(row: IntArray, begin: IntArray, end: IntArray, state: IntArray) -> Flat:
    """States of n without overlaps, ordered by row and begin.

    What lies within an earlier state of its row is left out; what begins within one and ends after it, begins at its
    end.
    """
    order = np.lexsort((-end, begin, row))
    row, begin, end, state = row[order], begin[order], end[order], state[order]
    kept = np.zeros(row.size, np.bool_)
    begin = begin.copy()
    _flatten(row, begin, end, kept)
    return Flat(row[kept], begin[kept], end[kept], state[kept])


@nb.njit(cache=True, nogil=True)
def _flatten(row, begin, end, kept):  # type: ignore[no-untyped-def]
    busy_until = np.int64(0)
    for i in range(row.size):
        if i == 0 or row[i] != row[i - 1]:
            busy_until = begin[i]
        if begin[i] < busy_until:
            begin[i] = busy_until
        if end[i] > begin[i]:
            kept[i] = True
            busy_until = end[i]


def row_limits(runs: Sequence[Records], rows: int) -> tuple[IntArray, IntArray]:
    """First and last time of the events of each row, in resolved records; first > last for a row without any."""
    first = np.full(rows, np.iinfo(np.int64).max, np.int64)
    last = np.full(rows, np.iinfo(np.int64).min, np.int64)
    for run in runs:
        is_event = run.kind == EVENT
        np.minimum.at(first, run.place[is_event], run.time[is_event])
        np.maximum.at(last, run.place[is_event], run.time[is_event])
    return first, last


def fill(flat: Flat, first: IntArray, last: IntArray, filling: int) -> Flat:
    """The gaps between flat states, from first[r] to last[r] of each row r, as states `filling`.

    The states of a row lie within its limits. A row with first[r] > last[r] is not filled.
    """
    filled = np.flatnonzero(first <= last)
    # Around each row's states its limits, so that every gap lies between two neighbours.
    row = np.concatenate([filled, flat.row, filled])
    begin = np.concatenate([first[filled], flat.begin, last[filled]])
    end = np.concatenate([first[filled], flat.end, last[filled]])
    position = np.repeat([0, 1, 2], [filled.size, flat.row.size, filled.size])
    order = np.lexsort((position, begin, row))
    row, begin, end = row[order], begin[order], end[order]
    gap = (row[1:] == row[:-1]) & (begin[1:] > end[:-1]) & (first <= last)[row[1:]]
    return Flat(row[1:][gap], end[:-1][gap], begin[1:][gap], np.full(int(gap.sum()), filling, np.int64))
