"""Cut records to a window of time: what straddles a limit is shortened, what lies outside is dropped and counted."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nsys2prv_ng.paraver.records import (
    BEGIN,
    CLASS_SHIFT,
    COMMUNICATION,
    COMMUNICATION_LINE,
    EMPTY,
    END,
    EVENT,
    LONGEST,
    POINT,
    STATE,
    Records,
    concatenate,
    count_events,
)


def clip(records: Records, low: int, high: int) -> Records:
    """Records within [low, high] (ns).

    An interval or state is kept if it shares time with the window and is cut to it. A point is kept if it lies within,
    limits included. A communication is kept if any of it lies within; its times are moved to the nearest limit.
    """
    begin, end = _limits(records)
    is_point = (records.kind == EVENT) & np.isin(records.tie_class, (EMPTY, POINT))
    is_communication = records.kind == COMMUNICATION
    touches = (end >= low) & (begin <= high)
    shares = (end > low) & (begin < high)
    kept = np.flatnonzero(np.where(is_point | is_communication, touches, shares))

    clipped = records.take(kept)
    new_begin, new_end = np.maximum(begin[kept], low), np.minimum(end[kept], high)
    length = new_end - new_begin
    of_class = clipped.tie_class
    is_begin, is_end = of_class == BEGIN, of_class == END
    clipped.tie = np.where(is_begin, (BEGIN << CLASS_SHIFT) | (LONGEST - length), clipped.tie)
    clipped.tie = np.where(is_end, (END << CLASS_SHIFT) | length, clipped.tie)
    clipped.time = np.clip(clipped.time, low, high)

    is_state = clipped.kind == STATE
    clipped.value[clipped.first[:-1][is_state]] = new_end[is_state]
    of_communication = clipped.first[:-1][clipped.kind == COMMUNICATION]
    for word in range(3):
        clipped.value[of_communication + word] = np.clip(clipped.value[of_communication + word], low, high)
    return clipped


def clip_to_windows(records: Records, windows: Sequence[tuple[int, int]]) -> tuple[Records, int]:
    """Records within any of some windows, which are sorted and do not touch, and how many more pieces that makes.

    An interval, state or communication that shares time with several windows becomes a piece in each.
    """
    parts = [clip(records, low, high) for low, high in windows]
    pieces = count_events(concatenate(parts))
    begin, end = _limits(records)
    counted = np.isin(records.tie_class, (BEGIN, EMPTY, POINT, COMMUNICATION_LINE))
    whole = np.isin(records.tie_class, (EMPTY, POINT, COMMUNICATION_LINE))
    kept = np.zeros(len(records), np.bool_)
    for low, high in windows:
        kept |= np.where(whole, (end >= low) & (begin <= high), (end > low) & (begin < high))
    return concatenate(parts), pieces - int((kept & counted).sum())


def without_short(records: Records, shortest: int) -> Records:
    """Records without the intervals that last less than `shortest` ns; points, states and communications stay."""
    is_interval = np.isin(records.tie_class, (BEGIN, END, EMPTY))
    return records.take(np.flatnonzero(~is_interval | (records.length >= shortest)))


def _limits(records: Records) -> tuple[np.ndarray, np.ndarray]:
    """Begin and end of what each record belongs to: of its interval, state or communication."""
    begin, end = records.time.copy(), records.time.copy()
    of_class, length = records.tie_class, records.length
    end[of_class == BEGIN] += length[of_class == BEGIN]
    begin[of_class == END] -= length[of_class == END]
    is_state = records.kind == STATE
    end[is_state] = records.value[records.first[:-1][is_state]]
    is_communication = records.kind == COMMUNICATION
    receive = records.value[records.first[:-1][is_communication] + 1]
    end[is_communication] = np.maximum(end[is_communication], receive)
    begin[is_communication] = np.minimum(begin[is_communication], receive)
    return begin, end
