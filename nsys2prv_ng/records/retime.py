"""Moves records to another clock, of all rows or of each: intervals keep their limits, not their length."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.records.clip import find_limits, move_limits
from nsys2prv_ng.records.columns import BEGIN, COMMUNICATION, EMPTY, END, STATE, Records, concatenate, pack_tie


def retime_records(records: Records, clock: Callable[[IntArray], IntArray]) -> Records:
    """Return the records with `clock(t)` for each time t (ns). `clock(t)` must not decrease with t.

    Both lines of an interval get its new length. If both limits of an interval become equal, the interval becomes one
    line that opens and closes, as if it had never had a length. A state without length is dropped.
    """
    low, high = find_limits(records)
    begin, end = clock(low), clock(high)
    return _drop_vanished(move_limits(records, begin, end, lambda times, _: clock(times)), begin, end, low, high)


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


def _drop_vanished(moved: Records, begin: IntArray, end: IntArray, low: IntArray, high: IntArray) -> Records:
    """Return records without states and intervals that lost their length; such intervals become one line.

    `begin`, `end`: their limits (ns). `low`, `high`: their limits before they were moved (ns).
    """
    is_short = begin >= end
    is_vanished = is_short & np.isin(moved.tie_class, (BEGIN, END))
    is_dropped = is_vanished | (is_short & (moved.kind == STATE))
    if not is_dropped.any():
        return moved
    vanished = _merge_vanished(moved, low, high, np.flatnonzero(is_vanished))
    return concatenate([moved.take(np.flatnonzero(~is_dropped)), vanished])


def _merge_vanished(records: Records, low: IntArray, high: IntArray, lines: IntArray) -> Records:
    """Merge the two lines of each interval that lost its length: first the pairs that open, then the pairs that close.

    On a clock that drifts, only intervals of about a nanosecond lose their length; in a prediction, those of a range or
    call that takes no time.
    """
    open_lines: dict[tuple[int, int, int], list[int]] = {}
    pairs = []
    types = {line: set(_get_words(records, line)[0].tolist()) for line in lines.tolist()}
    for line in sorted(types, key=lambda i: (records.time[i], records.tie_class[i] == END, -len(types[i]))):
        key = int(records.place[line]), int(low[line]), int(high[line])
        if records.tie_class[line] == BEGIN:
            open_lines.setdefault(key, []).append(line)
            continue
        # Of intervals with the same limits, the one that has least besides what is closed.
        candidates = open_lines[key]
        opened = min(reversed(candidates), key=lambda i: (not types[line] <= types[i], len(types[i])))
        candidates.remove(opened)
        pairs.append((opened, line))
    pairs.sort(key=lambda pair: int(low[pair[0]]))
    opened_lines = np.array([opened for opened, _ in pairs], np.int64)
    words = [_get_words(records, line) for pair in pairs for line in pair]
    sizes = [handle.size for handle, _ in words]
    first = np.concatenate([[0], np.cumsum(np.add(sizes[::2], sizes[1::2]))]).astype(np.int64)
    return Records(
        records.time[opened_lines],
        np.full(opened_lines.size, pack_tie(EMPTY, 0), np.int64),
        records.place[opened_lines],
        records.kind[opened_lines],
        first,
        np.concatenate([handle for handle, _ in words]) if words else records.handle[:0],
        np.concatenate([value for _, value in words]) if words else records.value[:0],
    )


def _get_words(records: Records, line: int) -> tuple[npt.NDArray[np.int32], IntArray]:
    words = slice(records.first[line], records.first[line + 1])
    return records.handle[words], records.value[words]
