"""Reads the lines of a trace one after the other, follows what is open, and writes those of a window, in numba.

The law of a window [low, high], which is that of `records.clip`: intervals and states that share time with it are cut
to it, points within it stay, limits included, and so do communications of which any part lies within, with their times
moved to the nearest limit. Times that are written count from `low - 1`: Paraver takes only the last of several events
of a type at time 0.

`scan` stops before the first line behind each limit, where the caller writes what is open there: after the points at
`low`, and after the ends at `high`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nsys2prv_ng.arrays.types import BoolArray, ByteArray, IntArray
from nsys2prv_ng.cutting.line_fields import (
    ACTIVITY,
    CLOSES,
    COLON,
    EMPTY,
    HASH,
    NEWLINE,
    OPENS,
    RETURN,
    TIME_AT,
    Pairs,
    Rows,
    find_end,
    find_row,
    get_byte,
    read_head,
    read_pairs,
    read_rest,
)
from nsys2prv_ng.cutting.open_lines import NEXT, TYPE, Stacks, pop, push
from nsys2prv_ng.cutting.open_lines import POSITION as LINE_POSITION
from nsys2prv_ng.cutting.type_roles import ACTIVITY_COLUMNS, IDLE_STRETCH, INTERVAL, QUANTITY
from nsys2prv_ng.paraver.encode import write_number
from nsys2prv_ng.runtime.jit import compiled_uncounted, inlined_uncounted

BLOCK_READ, AT_LOW, AT_HIGH, PAST_END, NOT_SORTED = range(5)
"""Why `scan` stops."""
BEFORE, WITHIN, CLOSED = range(3)
"""Phases: before what is open at `low` is written, before what is open at `high` is closed, after it."""

PHASE, AT, BASE, LINE, TIME, SKIPPED, SKIPPED_LINE, STATES, EVENTS, COMMUNICATIONS = range(10)
"""Columns of the scan's progress: the phase, the next byte of the block, the place of the block in the trace, the lines
and the time read so far, the lines that are no records and the first of them, the lines written by kind."""
PROGRESS = 10
LINES, LATE_STATES, LATE_COMMUNICATIONS = range(3)
"""Parts of what is written: lines in their place, states and communications that begin at `low`."""


class Window(NamedTuple):
    """Limits and time 0 of what is written, in the unit of the trace."""

    low: int
    high: int
    origin: int


class Levels(NamedTuple):
    """Values that hold: the last one, and whether it is known, by row and column; by row whether any is known, the CPU
    of the last line, and when the GPU was last found idle."""

    value: IntArray
    is_known: BoolArray
    has_any: BoolArray
    cpu: IntArray
    idle_since: IntArray


class Texts(NamedTuple):
    """Room for what is written, in three equal parts, and the end of what is used of each."""

    text: ByteArray
    end: IntArray


@compiled_uncounted
def scan(
    text: ByteArray,
    size: int,
    progress: IntArray,
    window: Window,
    rows: Rows,
    keys: IntArray,
    roles: IntArray,
    stacks: Stacks,
    levels: Levels,
    pairs: Pairs,
    texts: Texts,
    fields: IntArray,
) -> int:
    """Read the lines of text[progress[AT]:size] up to a limit of the window; return why it stops."""
    while progress[AT] < size:
        start = progress[AT]
        kind, after = read_head(text, start, fields)
        row = find_row(rows, fields, 2) if kind > 0 else -1
        count = line_class = end = 0
        if row >= 0 and kind == 2:
            count, end, line_class = read_pairs(text, after, keys, roles, pairs)
        elif row >= 0:
            end = read_rest(text, after, kind, fields)
        if end == 0 or (kind == 3 and find_row(rows, fields, 8) < 0):
            end = _skip_line(text, start, progress)
            progress[AT], progress[LINE] = end + 1, progress[LINE] + 1
            continue
        time = fields[6]
        if time < progress[TIME]:
            return NOT_SORTED
        if time > window.low and progress[PHASE] == BEFORE:
            return AT_LOW
        is_end = kind == 2 and line_class == CLOSES
        if time > window.high or (time == window.high and progress[PHASE] == WITHIN and not is_end):
            return PAST_END if progress[PHASE] == CLOSED else AT_HIGH
        if not rows.is_kept[row]:
            pass
        elif kind == 1:
            _take_state(fields, window, rows, progress, texts)
        elif kind == 3:
            _take_communication(fields, window, rows, progress, texts)
        else:
            if line_class <= EMPTY and progress[PHASE] != CLOSED:
                length = end - start - (text[end - 1] == RETURN)
                _follow(stacks, row, pairs, count, line_class, progress[BASE] + start, start, length)
            elif line_class > EMPTY and time < window.high:
                _hold(levels, row, fields, pairs, count)
            if time >= window.low:
                _take_event(
                    text,
                    start,
                    after,
                    end,
                    row,
                    count,
                    line_class,
                    fields,
                    window,
                    rows,
                    progress,
                    levels,
                    pairs,
                    texts,
                )
        progress[TIME] = time
        progress[AT], progress[LINE] = end + 1, progress[LINE] + 1
    return BLOCK_READ


# ---- events ----------------------------------------------------------------------------------------------------------


@inlined_uncounted
def _skip_line(text: ByteArray, start: int, progress: IntArray) -> int:
    """Count a line that is no record, unless it is empty or a remark; return its end."""
    char = get_byte(text, start)
    if char != NEWLINE and char != RETURN and char != HASH:
        progress[SKIPPED_LINE] = progress[SKIPPED_LINE] if progress[SKIPPED] else progress[LINE] + 1
        progress[SKIPPED] += 1
    return find_end(text, start)


@inlined_uncounted
def _follow(
    stacks: Stacks, row: int, pairs: Pairs, count: int, line_class: int, position: int, start: int, length: int
) -> None:
    """Open and close the intervals of a line."""
    key = QUANTITY
    for i in range(count):
        if pairs.role[i] == INTERVAL:
            key = INTERVAL
    for i in range(count):
        if pairs.role[i] != key:
            continue
        number = pairs.number[i]
        is_end = pairs.value[i] == 0
        if is_end and key == QUANTITY and line_class != CLOSES:
            # A quantity of 0 opens where the line gives it first.
            head = stacks.head[row]
            is_end = False
            while head > 0 and stacks.place[head - 1, LINE_POSITION] == position:
                is_end |= stacks.place[head - 1, TYPE] == number
                head = stacks.place[head - 1, NEXT]
        if is_end:
            pop(stacks, row, number)
        else:
            push(stacks, row, number, position, start, length)


@inlined_uncounted
def _take_event(
    text: ByteArray,
    start: int,
    after: int,
    end: int,
    row: int,
    count: int,
    line_class: int,
    fields: IntArray,
    window: Window,
    rows: Rows,
    progress: IntArray,
    levels: Levels,
    pairs: Pairs,
    texts: Texts,
) -> None:
    """Write an event that is in the window."""
    time = fields[6]
    if time == window.low and progress[PHASE] == BEFORE:
        # What opens is written with all that is open; what a GPU does as a whole is written as it is after this time.
        if line_class in (OPENS, CLOSES, ACTIVITY):
            return
        for i in range(count):
            if pairs.role[i] > ACTIVITY_COLUMNS:
                levels.is_known[row, pairs.role[i] - 1] = False
    if time == window.high and line_class in (OPENS, ACTIVITY):
        return
    text_end = end - 1 if text[end - 1] == RETURN else end
    _write_event(text, start, after, text_end, fields, window, rows, pairs, count, line_class, texts)
    progress[EVENTS] += 1


@inlined_uncounted
def _hold(levels: Levels, row: int, fields: IntArray, pairs: Pairs, count: int) -> None:
    """Keep the values that hold from here on."""
    for i in range(count):
        role = pairs.role[i]
        if role > 0:
            levels.value[row, role - 1] = pairs.value[i]
            levels.is_known[row, role - 1] = levels.has_any[row] = True
            levels.cpu[row] = fields[2]
        if role == IDLE_STRETCH or role == 1:
            levels.idle_since[row] = fields[6]


# ---- writing ---------------------------------------------------------------------------------------------------------


@inlined_uncounted
def _write_event(
    text: ByteArray,
    start: int,
    after: int,
    end: int,
    fields: IntArray,
    window: Window,
    rows: Rows,
    pairs: Pairs,
    count: int,
    line_class: int,
    texts: Texts,
) -> None:
    out, at = texts.text, texts.end[LINES]
    if rows.renumbers:
        out[at] = 50
        at = _put_object(out, at + 1, fields, 2, rows)
    else:
        at = _copy(out, at, text, start, fields[TIME_AT])
    at = write_number(out, at, fields[6] - window.origin)
    longest = fields[6] - window.low
    is_long = False
    for i in range(count if line_class == ACTIVITY else 0):
        is_long |= pairs.role[i] == IDLE_STRETCH and pairs.value[i] > longest
    if is_long:  # the stretch began before the window
        for i in range(count):
            value = pairs.value[i]
            at = write_number(out, _put_colon(out, at), pairs.number[i])
            at = write_number(out, _put_colon(out, at), min(value, longest) if pairs.role[i] == IDLE_STRETCH else value)
    else:
        at = _copy(out, at, text, after, end)
    out[at] = NEWLINE
    texts.end[LINES] = at + 1


@inlined_uncounted
def _take_state(fields: IntArray, window: Window, rows: Rows, progress: IntArray, texts: Texts) -> None:
    """Write a state that shares time with the window, cut to it."""
    begin, end = fields[6], fields[7]
    if end <= window.low or begin >= window.high:
        return
    part = LATE_STATES if progress[PHASE] == BEFORE else LINES
    out, at = texts.text, texts.end[part]
    out[at] = 49
    at = _put_object(out, at + 1, fields, 2, rows)
    at = write_number(out, at, max(begin, window.low) - window.origin)
    at = write_number(out, _put_colon(out, at), min(end, window.high) - window.origin)
    at = write_number(out, _put_colon(out, at), fields[8])
    out[at] = NEWLINE
    texts.end[part] = at + 1
    progress[STATES] += 1


@inlined_uncounted
def _take_communication(fields: IntArray, window: Window, rows: Rows, progress: IntArray, texts: Texts) -> None:
    """Write a communication of which any part lies in the window, with its times moved to the nearest limit."""
    first = min(min(fields[6], fields[7]), min(fields[12], fields[13]))
    last = max(max(fields[6], fields[7]), max(fields[12], fields[13]))
    if last < window.low or first > window.high or not rows.is_kept[find_row(rows, fields, 8)]:
        return
    part = LATE_COMMUNICATIONS if progress[PHASE] == BEFORE else LINES
    out, at = texts.text, texts.end[part]
    out[at] = 51
    for side in range(2):
        at = _put_object(out, at + 1 if side == 0 else at, fields, 2 + 6 * side, rows)
        for field in range(6 + 6 * side, 8 + 6 * side):
            time = min(max(fields[field], window.low), window.high) - window.origin
            at = write_number(out, at, time)
            if field % 2 == 0:
                at = _put_colon(out, at)
    for field in range(14, 16):
        at = write_number(out, _put_colon(out, at), fields[field])
    out[at] = NEWLINE
    texts.end[part] = at + 1
    progress[COMMUNICATIONS] += 1


@inlined_uncounted
def _copy(out: ByteArray, at: int, text: ByteArray, first: int, end: int) -> int:
    """Copy text[first:end]; return the place after it."""
    for k in range(end - first):
        out[np.uint64(at + k)] = text[np.uint64(first + k)]
    return at + end - first


@compiled_uncounted
def _put_object(out: ByteArray, at: int, fields: IntArray, first: int, rows: Rows) -> int:
    """Write ':cpu:application:task:thread:' of the object in four fields, with new numbers."""
    cpu, application, task = fields[first], fields[first + 1], fields[first + 2]
    if rows.renumbers:
        task = rows.task[rows.first_task[application - 1] + task - 1] + 1
        application = rows.application[application - 1] + 1
        cpu = rows.cpu[cpu]
    at = write_number(out, _put_colon(out, at), cpu)
    at = write_number(out, _put_colon(out, at), application)
    at = write_number(out, _put_colon(out, at), task)
    at = write_number(out, _put_colon(out, at), fields[first + 3])
    return _put_colon(out, at)


@inlined_uncounted
def _put_colon(out: ByteArray, at: int) -> int:
    out[at] = COLON
    return at + 1
