"""Moves records to another clock, which may run faster or slower: intervals keep their limits, not their length."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.records.clip import find_limits, move_limits
from nsys2prv_ng.records.columns import BEGIN, EMPTY, END, STATE, Records, concatenate, pack_tie


def retime_records(records: Records, clock: Callable[[IntArray], IntArray]) -> Records:
    """Return the records with `clock(t)` for each time t (ns). `clock(t)` must not decrease with t.

    Both lines of an interval get its new length. If both limits of an interval become equal, the interval becomes one
    line that opens and closes, as if it had never had a length. A state without length is dropped.
    """
    begin, end = map(clock, find_limits(records))
    moved = move_limits(records, begin, end, lambda times, _: clock(times))
    is_short = begin >= end
    is_vanished = is_short & np.isin(moved.tie_class, (BEGIN, END))
    is_dropped = is_vanished | (is_short & (moved.kind == STATE))
    if not is_dropped.any():
        return moved
    vanished = _merge_vanished(moved, records.time, np.flatnonzero(is_vanished))
    return concatenate([moved.take(np.flatnonzero(~is_dropped)), vanished])


def _merge_vanished(records: Records, old_time: IntArray, lines: IntArray) -> Records:
    """Merge the two lines of each interval that lost its length: first the pairs that open, then the pairs that close.

    Only intervals of about a nanosecond can lose their length, and few of them do, so a loop is fast enough.
    """
    open_lines: dict[tuple[int, int], list[int]] = {}
    pairs = []
    for line in sorted(lines.tolist(), key=lambda i: (records.time[i], records.tie_class[i] == END)):
        place = int(records.place[line])
        if records.tie_class[line] == BEGIN:
            open_lines.setdefault((place, int(records.time[line])), []).append(line)
            continue
        closed = set(_get_words(records, line)[0].tolist())
        candidates = open_lines.get((place, int(records.time[line])), [])
        opened = next(i for i in reversed(candidates) if closed <= set(_get_words(records, i)[0].tolist()))
        candidates.remove(opened)
        pairs.append((opened, line))
    pairs.sort(key=lambda pair: int(old_time[pair[0]]))
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
