"""Cuts records to time windows: records that straddle a limit are shortened, records outside are dropped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from nsys2prv_ng.arrays.types import BoolArray, IntArray
from nsys2prv_ng.intervals.windows import match_windows
from nsys2prv_ng.records.columns import (
    BEGIN,
    COMMUNICATION,
    COMMUNICATION_LINE,
    EMPTY,
    END,
    POINT,
    STATE,
    Records,
    concatenate,
    count_events,
    pack_tie,
    unpack_tie,
)


def clip_to_windows(records: Records, windows: Sequence[tuple[int, int]]) -> tuple[Records, int]:
    """Return the records within any of the windows (ns), and the number of pieces beyond one for each record.

    `windows` are sorted and do not touch. An interval or state is cut to each window that it shares time with, and
    becomes a piece in each of them. A point is kept if it is within a window, limits included. A communication is kept
    if any part of it is within a window; its times move to the nearest limit.
    """
    # In the order of starts: if intervals are cut to the same limits, the outer one stays first.
    records = records.sorted()
    begin, end = find_limits(records)
    line_class = records.tie_class
    is_whole = np.isin(line_class, (EMPTY, POINT, COMMUNICATION_LINE))
    index, window = match_windows(begin, end, windows, touching=is_whole)
    is_counted = is_whole | (line_class == BEGIN)
    more = int(is_counted[index[1:]][index[1:] == index[:-1]].sum())
    low, high = (limits[window] for limits in np.array(windows, np.int64).T)
    cut = move_limits(
        records.take(index),
        np.maximum(begin[index], low),
        np.minimum(end[index], high),
        lambda times, at: np.clip(times, low[at], high[at]),
    )
    return cut, more


def clip_ends(records: Records, places: BoolArray, last: int) -> tuple[Records, int]:
    """Return the records, cut at `last` (ns) on some places, and the number of events that became shorter.

    `places`: mask by place. On these places, records that begin at `last` or later and end after it are dropped.
    """
    begin, end = find_limits(records)
    is_late = places[records.place] & (end > last)
    if not is_late.any():
        return records, 0
    # Records that begin at the limit would touch the window.
    cut, _ = clip_to_windows(records.take(np.flatnonzero(is_late & (begin < last))), [(int(begin.min()), last)])
    return concatenate([records.take(np.flatnonzero(~is_late)), cut]), count_events(cut)


def drop_short_intervals(records: Records, shortest: int) -> Records:
    """Return the records without intervals of less than `shortest` ns; points, states and communications stay."""
    is_interval = np.isin(records.tie_class, (BEGIN, END, EMPTY))
    return records.take(np.flatnonzero(~is_interval | (records.length >= shortest)))


def find_limits(records: Records) -> tuple[IntArray, IntArray]:
    """Return the start and end (ns) of the interval, state or communication that each record belongs to."""
    begin, end = records.time.copy(), records.time.copy()
    line_class, length = unpack_tie(records.tie)
    is_begin, is_end = line_class == BEGIN, line_class == END
    end[is_begin] += length[is_begin]
    begin[is_end] -= length[is_end]
    is_state = records.kind == STATE
    end[is_state] = records.value[records.first[:-1][is_state]]
    is_communication = records.kind == COMMUNICATION
    receive = records.value[records.first[:-1][is_communication] + 1]
    end[is_communication] = np.maximum(end[is_communication], receive)
    begin[is_communication] = np.minimum(begin[is_communication], receive)
    return begin, end


def move_limits(
    records: Records, begin: IntArray, end: IntArray, move: Callable[[IntArray, IntArray], IntArray]
) -> Records:
    """Return the records with other limits (ns) of the interval, state or point that each record belongs to.

    Each of the four times of a communication becomes `move(times, at)`; `at`: indices of the records.
    """
    is_begin, is_end = records.tie_class == BEGIN, records.tie_class == END
    tie = np.where(is_begin, pack_tie(BEGIN, end - begin), records.tie)
    tie = np.where(is_end, pack_tie(END, end - begin), tie)
    time, value, words = np.where(is_end, end, begin), records.value.copy(), records.first[:-1]
    is_state = records.kind == STATE
    value[words[is_state]] = end[is_state]
    at = np.flatnonzero(records.kind == COMMUNICATION)
    time[at] = move(records.time[at], at)
    for word in range(3):
        value[words[at] + word] = move(value[words[at] + word], at)
    return replace(records, time=time, tie=tie, value=value)
