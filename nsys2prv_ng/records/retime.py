"""Moves records to another clock, of all rows or of each: intervals keep their limits, not their length."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from nsys2prv_ng.arrays.row_keys import find_starts
from nsys2prv_ng.arrays.types import BoolArray, Int32Array, IntArray
from nsys2prv_ng.records.clip import find_limits, move_limits
from nsys2prv_ng.records.columns import BEGIN, COMMUNICATION, EMPTY, END, STATE, Records, concatenate, pack_tie
from nsys2prv_ng.runtime.jit import compiled, inlined


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
    at = np.flatnonzero(records.kind == COMMUNICATION)
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
    is_vanished = is_short & np.isin(moved.tie_class, (BEGIN, END))
    is_dropped = is_vanished | (is_short & (moved.kind == STATE))
    if not is_dropped.any():
        return moved
    vanished = _merge_lines(moved, np.flatnonzero(is_vanished), old_begin, old_end)
    return concatenate([moved.take(np.flatnonzero(~is_dropped)), vanished])


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
    opened = lines[records.tie_class[lines] == BEGIN]
    ends = np.full(len(records), -1)
    _find_ends(lines, limits, records.tie_class == BEGIN, records.first, records.handle, ends)
    closed = ends[opened]
    assert (closed >= 0).all()
    in_order = np.argsort(opened)  # the outer interval stays first
    opened, closed = opened[in_order], closed[in_order]
    words = records.take(np.stack([opened, closed], axis=1).ravel())
    return Records(
        records.time[opened],
        np.full(opened.size, pack_tie(EMPTY, 0), np.int64),
        records.place[opened],
        records.kind[opened],
        words.first[::2],
        words.handle,
        words.value,
    )


@compiled
def _find_ends(
    lines: IntArray,
    limits: IntArray,
    opens: BoolArray,
    first: IntArray,
    handle: Int32Array,
    ends: IntArray,
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
