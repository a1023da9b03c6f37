"""Moves records to another clock, which may run faster or slower: intervals keep their limits, not their length."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.records.columns import (
    BEGIN,
    COMMUNICATION,
    EMPTY,
    END,
    STATE,
    Records,
    concatenate,
    pack_tie,
)


def retime_records(records: Records, clock: Callable[[IntArray], IntArray]) -> Records:
    """Return the records with `clock(t)` for each time t (ns). `clock(t)` must not decrease with t.

    Both lines of an interval get its new length. If both limits of an interval become equal, the interval becomes one
    line that opens and closes, as if it had never had a length. A state without length is dropped.
    """
    length = records.length
    is_begin, is_end = records.tie_class == BEGIN, records.tie_class == END
    time = clock(records.time)
    new_length = np.zeros(len(records), np.int64)
    new_length[is_begin] = clock((records.time + length)[is_begin]) - time[is_begin]
    new_length[is_end] = time[is_end] - clock((records.time - length)[is_end])
    tie = np.where(is_begin, pack_tie(BEGIN, new_length), records.tie)
    tie = np.where(is_end, pack_tie(END, new_length), tie)

    value = records.value.copy()
    words = records.first[:-1]
    is_state = records.kind == STATE
    value[words[is_state]] = clock(value[words[is_state]])
    communications = words[records.kind == COMMUNICATION]
    for word in range(3):
        value[communications + word] = clock(value[communications + word])

    moved = Records(time, tie, records.place, records.kind, records.first, records.handle, value)
    vanished = (is_begin | is_end) & (new_length == 0)
    no_state = is_state.copy()
    no_state[is_state] = value[words[is_state]] <= time[is_state]
    if not (vanished | no_state).any():
        return moved
    rest = moved.take(np.flatnonzero(~vanished & ~no_state))
    return concatenate([rest, _merge_vanished(moved, records.time, np.flatnonzero(vanished))])


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
