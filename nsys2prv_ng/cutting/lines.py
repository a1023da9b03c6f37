"""Reads the lines of a trace one after the other, follows what is open, and writes the lines of a window, in numba.

A window [low, high] follows the rules of `records.clip`. Intervals and states that share time with it are cut to it.
Points within it stay, limits included. So do communications with any part within it, and their times move to the
nearest limit. Written times count from `low - 1`, because Paraver takes only the last of several events of a type at
time 0.

`scan` stops before the first line after each limit, so that the caller can write what is open there: after the points
at `low`, and after the ends at `high`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nsys2prv_ng.arrays.types import BoolArray, BoolTable, ByteArray, IntArray, IntTable
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
from nsys2prv_ng.cutting.type_roles import ACTIVITY_COLUMNS, IDLE_STRETCH, INTERVAL, QUANTITY, RoleTable
from nsys2prv_ng.paraver.encode import write_number
from nsys2prv_ng.runtime.jit import compiled, inlined

BLOCK_READ, AT_LOW, AT_HIGH, PAST_END, NOT_SORTED = range(5)
"""Reasons why `scan` stops."""
BEFORE, WITHIN, CLOSED = range(3)
"""Phases: before the lines at `low` are written, before the lines at `high` are written, and after them."""

PHASE, AT, BASE, LINE, TIME, SKIPPED, SKIPPED_LINE, STATES, EVENTS, COMMUNICATIONS = range(10)
"""Columns of a scan's progress: the phase, the next byte of the block, the position of the block in the trace, the
lines and the time read so far, the number of lines that are not records and the first of them, the lines written by
kind."""
PROGRESS = 10
LINES, LATE_STATES, LATE_COMMUNICATIONS = range(3)
"""Parts of the written text: lines in their place, and states and communications that start at `low`."""


class Window(NamedTuple):
    """The limits of a window and time 0 of the cut, in the unit of the trace."""

    low: int
    high: int
    origin: int


class Levels(NamedTuple):
    """Values in force: by row and column, the last value and whether it is known; by row, whether any value is known,
    the CPU of the last line, and when the GPU was last found idle."""

    value: IntTable
    is_known: BoolTable
    has_any: BoolArray
    cpu: IntArray
    idle_since: IntArray


class Texts(NamedTuple):
    """Room for the written text, in three equal parts, and the end of the used text of each."""

    text: ByteArray
    end: IntArray


class Scan(NamedTuple):
    """Everything a scan reads and updates: its progress, the window, the objects, the roles of types, and its state.

    `fields` (16) has the fields of the line, numbered from 1 (see `read_head`).
    """

    progress: IntArray
    window: Window
    rows: Rows
    roles: RoleTable
    stacks: Stacks
    levels: Levels
    pairs: Pairs
    texts: Texts
    fields: IntArray


class Line(NamedTuple):
    """An event line: its start, the position after its sixth field, its end, row, number of pairs and class."""

    start: int
    after: int
    end: int
    row: int
    pairs: int
    line_class: int


@compiled
def scan(text: ByteArray, size: int, state: Scan) -> int:
    """Read the lines of text[progress[AT]:size] up to a limit of the window; return why it stops."""
    progress, window, rows, fields = state.progress, state.window, state.rows, state.fields
    while progress[AT] < size:
        start = progress[AT]
        kind, after = read_head(text, start, fields)
        row = find_row(rows, fields, 2) if kind > 0 else -1
        count = line_class = end = 0
        if row >= 0 and kind == 2:
            count, end, line_class = read_pairs(text, after, state.roles, state.pairs)
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
            _take_state(state)
        elif kind == 3:
            _take_communication(state)
        else:
            line = Line(start, after, end - (text[end - 1] == RETURN), row, count, line_class)
            if line_class <= EMPTY and progress[PHASE] != CLOSED:
                _follow(state, line)
            elif line_class > EMPTY and time < window.high:
                _keep_levels(state, line)
            if time >= window.low:
                _take_event(text, state, line)
        progress[TIME] = time
        progress[AT], progress[LINE] = end + 1, progress[LINE] + 1
    return BLOCK_READ


# ---- events ----------------------------------------------------------------------------------------------------------


@inlined
def _skip_line(text: ByteArray, start: int, progress: IntArray) -> int:
    """Count a line that is not a record, unless it is empty or a comment; return its end."""
    char = get_byte(text, start)
    if char != NEWLINE and char != RETURN and char != HASH:
        progress[SKIPPED_LINE] = progress[SKIPPED_LINE] if progress[SKIPPED] else progress[LINE] + 1
        progress[SKIPPED] += 1
    return find_end(text, start)


@inlined
def _follow(state: Scan, line: Line) -> None:
    """Open and close the intervals of a line."""
    stacks, pairs, row = state.stacks, state.pairs, line.row
    position = state.progress[BASE] + line.start
    key = QUANTITY
    for i in range(line.pairs):
        if pairs.role[i] == INTERVAL:
            key = INTERVAL
    for i in range(line.pairs):
        if pairs.role[i] != key:
            continue
        number = pairs.number[i]
        is_end = pairs.value[i] == 0
        if is_end and key == QUANTITY and line.line_class != CLOSES:
            # A quantity of 0 opens when the line gives it first.
            head = stacks.head[row]
            is_end = False
            while head > 0 and stacks.place[head - 1, LINE_POSITION] == position:
                is_end |= stacks.place[head - 1, TYPE] == number
                head = stacks.place[head - 1, NEXT]
        if is_end:
            pop(stacks, row, number)
        else:
            push(stacks, row, number, position, line.start, line.end - line.start)


@inlined
def _keep_levels(state: Scan, line: Line) -> None:
    """Keep the values that are in force from this line."""
    levels, row = state.levels, line.row
    for i in range(line.pairs):
        role = state.pairs.role[i]
        if role > 0:
            levels.value[row, role - 1] = state.pairs.value[i]
            levels.is_known[row, role - 1] = levels.has_any[row] = True
            levels.cpu[row] = state.fields[2]
        if role == IDLE_STRETCH or role == 1:
            levels.idle_since[row] = state.fields[6]


# ---- writing ---------------------------------------------------------------------------------------------------------


@inlined
def _take_event(text: ByteArray, state: Scan, line: Line) -> None:
    """Write an event that is in the window."""
    time, window, pairs = state.fields[6], state.window, state.pairs
    if time == window.low and state.progress[PHASE] == BEFORE:
        # What opens is written with everything that is open; the activity of a GPU is written as it is after this time.
        if line.line_class in (OPENS, CLOSES, ACTIVITY):
            return
        for i in range(line.pairs):
            if pairs.role[i] > ACTIVITY_COLUMNS:
                state.levels.is_known[line.row, pairs.role[i] - 1] = False
    if time == window.high and line.line_class in (OPENS, ACTIVITY):
        return
    out, at = state.texts.text, state.texts.end[LINES]
    if state.rows.renumbers:
        out[at] = 50
        at = _put_object(out, at + 1, state.fields, 2, state.rows)
    else:
        at = _copy(out, at, text, line.start, state.fields[TIME_AT])
    at = write_number(out, at, time - window.origin)
    longest = time - window.low
    is_long = False
    for i in range(line.pairs if line.line_class == ACTIVITY else 0):
        is_long |= pairs.role[i] == IDLE_STRETCH and pairs.value[i] > longest
    if is_long:  # the stretch began before the window
        for i in range(line.pairs):
            value = pairs.value[i]
            at = _put_field(out, at, pairs.number[i])
            at = _put_field(out, at, min(value, longest) if pairs.role[i] == IDLE_STRETCH else value)
    else:
        at = _copy(out, at, text, line.after, line.end)
    _end_line(state, LINES, at, EVENTS)


@inlined
def _take_state(state: Scan) -> None:
    """Write a state that shares time with the window, cut to it."""
    fields, window = state.fields, state.window
    begin, end = fields[6], fields[7]
    if end <= window.low or begin >= window.high:
        return
    part = LATE_STATES if state.progress[PHASE] == BEFORE else LINES
    out, at = state.texts.text, state.texts.end[part]
    out[at] = 49
    at = _put_object(out, at + 1, fields, 2, state.rows)
    at = write_number(out, at, max(begin, window.low) - window.origin)
    at = _put_field(out, at, min(end, window.high) - window.origin)
    at = _put_field(out, at, fields[8])
    _end_line(state, part, at, STATES)


@inlined
def _take_communication(state: Scan) -> None:
    """Write a communication if any part of it lies in the window. Its times move to the nearest limit."""
    fields, window = state.fields, state.window
    first = min(min(fields[6], fields[7]), min(fields[12], fields[13]))
    last = max(max(fields[6], fields[7]), max(fields[12], fields[13]))
    if last < window.low or first > window.high or not state.rows.is_kept[find_row(state.rows, fields, 8)]:
        return
    part = LATE_COMMUNICATIONS if state.progress[PHASE] == BEFORE else LINES
    out, at = state.texts.text, state.texts.end[part]
    out[at] = 51
    at += 1
    for side in range(2, 14, 6):
        at = _put_object(out, at, fields, side, state.rows)
        at = write_number(out, at, min(max(fields[side + 4], window.low), window.high) - window.origin)
        at = _put_field(out, at, min(max(fields[side + 5], window.low), window.high) - window.origin)
    at = _put_field(out, at, fields[14])
    at = _put_field(out, at, fields[15])
    _end_line(state, part, at, COMMUNICATIONS)


@inlined
def _end_line(state: Scan, part: int, at: int, kind: int) -> None:
    """End a line that was written up to `at`, and count it."""
    state.texts.text[at] = NEWLINE
    state.texts.end[part] = at + 1
    state.progress[kind] += 1


@inlined
def _copy(out: ByteArray, at: int, text: ByteArray, first: int, end: int) -> int:
    """Copy text[first:end]; return the position after it."""
    for k in range(end - first):
        out[np.uint64(at + k)] = text[np.uint64(first + k)]
    return at + end - first


@compiled
def _put_object(out: ByteArray, at: int, fields: IntArray, first: int, rows: Rows) -> int:
    """Write ':cpu:application:task:thread:' for the object in four fields, with new numbers."""
    cpu, application, task = fields[first], fields[first + 1], fields[first + 2]
    if rows.renumbers:
        task = rows.task[rows.first_task[application - 1] + task - 1] + 1
        application = rows.application[application - 1] + 1
        cpu = rows.cpu[cpu]
    at = _put_field(out, at, cpu)
    at = _put_field(out, at, application)
    at = _put_field(out, at, task)
    at = _put_field(out, at, fields[first + 3])
    out[at] = COLON
    return at + 1


@inlined
def _put_field(out: ByteArray, at: int, number: int) -> int:
    """Write a colon and a number; return the position after them."""
    out[at] = COLON
    return write_number(out, at + 1, number)
