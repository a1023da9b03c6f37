"""Cuts records to time windows, and moves them to another clock, of all rows or of each.

Records that straddle the limit of a window are shortened, and those outside are dropped. On another clock, intervals
keep their limits, not their length.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from nsys2prv_ng.arrays.row_keys import find_starts
from nsys2prv_ng.arrays.types import BoolArray, Int32Array, IntArray
from nsys2prv_ng.intervals.step_functions import match_windows
from nsys2prv_ng.records import columns as rec
from nsys2prv_ng.records.columns import Records
from nsys2prv_ng.runtime.jit import compiled, inlined


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
    is_whole = np.isin(line_class, (rec.EMPTY, rec.POINT, rec.COMMUNICATION_LINE))
    index, window = match_windows(begin, end, windows, touching=is_whole)
    is_counted = is_whole | (line_class == rec.BEGIN)
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
    return rec.concatenate([records.take(np.flatnonzero(~is_late)), cut]), rec.count_events(cut)


def drop_short_intervals(records: Records, shortest: int) -> Records:
    """Return the records without intervals of less than `shortest` ns; points, states and communications stay."""
    is_interval = np.isin(records.tie_class, (rec.BEGIN, rec.END, rec.EMPTY))
    return records.take(np.flatnonzero(~is_interval | (records.length >= shortest)))


def find_limits(records: Records) -> tuple[IntArray, IntArray]:
    """Return the start and end (ns) of the interval, state or communication that each record belongs to."""
    begin, end = records.time.copy(), records.time.copy()
    line_class, length = rec.unpack_tie(records.tie)
    is_begin, is_end = line_class == rec.BEGIN, line_class == rec.END
    end[is_begin] += length[is_begin]
    begin[is_end] -= length[is_end]
    is_state = records.kind == rec.STATE
    end[is_state] = records.value[records.first[:-1][is_state]]
    is_communication = records.kind == rec.COMMUNICATION
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
    is_begin, is_end = records.tie_class == rec.BEGIN, records.tie_class == rec.END
    tie = np.where(is_begin, rec.pack_tie(rec.BEGIN, end - begin), records.tie)
    tie = np.where(is_end, rec.pack_tie(rec.END, end - begin), tie)
    time, value, words = np.where(is_end, end, begin), records.value.copy(), records.first[:-1]
    is_state = records.kind == rec.STATE
    value[words[is_state]] = end[is_state]
    at = np.flatnonzero(records.kind == rec.COMMUNICATION)
    time[at] = move(records.time[at], at)
    for word in range(3):
        value[words[at] + word] = move(value[words[at] + word], at)
    return replace(records, time=time, tie=tie, value=value)


# ---- another clock ---------------------------------------------------------------------------------------------------


def retime_records(records: Records, clock: Callable[[IntArray], IntArray]) -> Records:
    """Return the records with `clock(t)` for each time t (ns). `clock(t)` must not decrease with t.

    Both lines of an interval get its new length. If both limits of an interval become equal, the interval becomes one
    line that opens and closes, as if it had never had a length. A state without length is dropped.
    """
    low, high = find_limits(records)
    begin, end = clock(low), clock(high)
    moved = move_limits(records, begin, end, lambda times, _: clock(times))
    return _drop_vanished(moved, begin, end, low, high)


def retime_rows(records: Records, rows: IntArray, clock: Callable[[IntArray, IntArray, bool], IntArray]) -> Records:
    """Return the records with `clock(row, t, is_end)` for each time t (ns) of each row, as `retime_records` does.

    `rows`: row of each place. No communication that was received after it was sent is received before.
    """
    row = rows[records.place]
    low, high = find_limits(records)
    begin, end = clock(row, low, False), clock(row, high, True)
    end = np.where(low == high, begin, np.maximum(begin, end))
    moved = move_limits(records, begin, end, lambda times, at: clock(row[at], times, False))
    at = np.flatnonzero(records.kind == rec.COMMUNICATION)
    words = records.first[:-1][at]
    receiver = rows[records.handle[words]]
    for word in (1, 2):
        received = clock(receiver, records.value[words + word], False)
        is_forward = records.value[words + word] >= records.time[at]
        moved.value[words + word] = np.where(is_forward, np.maximum(received, moved.time[at]), received)
    return _drop_vanished(moved, begin, end, low, high)


def _drop_vanished(moved: Records, begin: IntArray, end: IntArray, old_begin: IntArray, old_end: IntArray) -> Records:
    """Return records without states and intervals that lost their length; such intervals become one line.

    `begin`, `end`: the limits of what each record belongs to (ns). `old_begin`, `old_end`: before it was moved.
    """
    is_short = begin >= end
    is_vanished = is_short & np.isin(moved.tie_class, (rec.BEGIN, rec.END))
    is_dropped = is_vanished | (is_short & (moved.kind == rec.STATE))
    if not is_dropped.any():
        return moved
    vanished = _merge_lines(moved, np.flatnonzero(is_vanished), old_begin, old_end)
    return rec.concatenate([moved.take(np.flatnonzero(~is_dropped)), vanished])


def _merge_lines(records: Records, lines: IntArray, old_begin: IntArray, old_end: IntArray) -> Records:
    """Merge the two lines of each interval that lost its length: first the pairs that open, then the pairs that close.

    `lines`: indices of all of these lines. On a clock that drifts, only intervals of about a nanosecond lose their
    length; in a prediction, those of a range or call that takes no time.
    """
    columns = records.place[lines].astype(np.int64), old_begin[lines], old_end[lines]
    types = records.first[lines + 1] - records.first[lines]
    order = np.lexsort((lines, -types, *columns))
    lines = lines[order]
    limits = np.append(find_starts(*(column[order] for column in columns)), lines.size)
    opened = lines[records.tie_class[lines] == rec.BEGIN]
    ends = np.full(len(records), -1)
    _find_ends(lines, limits, records.tie_class == rec.BEGIN, records.first, records.handle, ends)
    closed = ends[opened]
    assert (closed >= 0).all()
    in_order = np.argsort(opened)  # the outer interval stays first
    opened, closed = opened[in_order], closed[in_order]
    words = records.take(np.stack([opened, closed], axis=1).ravel())
    return Records(
        records.time[opened],
        np.full(opened.size, rec.pack_tie(rec.EMPTY, 0), np.int64),
        records.place[opened],
        records.kind[opened],
        words.first[::2],
        words.handle,
        words.value,
    )


@compiled
def _find_ends(
    lines: IntArray, limits: IntArray, opens: BoolArray, first: IntArray, handle: Int32Array, ends: IntArray
) -> None:
    """Set the line that ends the interval of each line that opens one. It is -1 at first, and stays so for others.

    The lines limits[g] .. limits[g + 1] - 1 have one place and interval, those with most types first. A line ends the
    interval with fewest types that has all of its own, or without one, any.
    """
    for g in range(limits.size - 1):
        for i in range(limits[g], limits[g + 1]):
            if opens[lines[i]]:
                continue
            found = -1
            for j in range(limits[g + 1] - 1, limits[g] - 1, -1):
                if opens[lines[j]] and ends[lines[j]] < 0:
                    found = lines[j]
                    if _closes(lines[i], found, first, handle):
                        break
            if found >= 0:
                ends[found] = lines[i]


@inlined
def _closes(line: int, opening: int, first: IntArray, handle: Int32Array) -> bool:
    """Return whether a line has only types that another line opens."""
    for i in range(first[line], first[line + 1]):
        found = False
        for j in range(first[opening], first[opening + 1]):
            found |= handle[i] == handle[j]
        if not found:
            return False
    return True
