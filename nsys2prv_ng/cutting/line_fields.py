"""Reads the fields of a line, and finds what an event does to the intervals of its row, in numba.

Fields of a record are counted from 1, as in `paraver.checker.trace_lines`. That module splits a whole block into
columns. This one reads line by line, because a cut copies most of each line as it is.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nsys2prv_ng.arrays.types import BoolArray, ByteArray, IntArray
from nsys2prv_ng.cutting.type_roles import (
    ACTIVITY_COLUMNS,
    IDLE_STRETCH,
    INTERVAL,
    NO_ROLE,
    QUANTITY,
    RoleTable,
    look_up_role,
)
from nsys2prv_ng.runtime.jit import compiled, inlined

NEWLINE, RETURN, COLON, _MINUS, HASH, _ZERO, _NINE = 10, 13, 58, 45, 35, 48, 57
TIME_AT = 1
"""Index in the fields of a line for the position of its time in the block. Field 1, the kind, needs no place there."""
MOST_DIGITS = 18
"""Highest number of digits of a time or of an object's number; values may have more."""
OPENS, CLOSES, EMPTY, POINT, ACTIVITY = range(5)
"""What lines do: open intervals, close some, open and close all that they name, give points, or a GPU's activity."""


class Rows(NamedTuple):
    """Objects of the trace: first task of each application, first row of each task, rows to keep, and new numbers.

    `cpu`, `task` and `application` map old numbers to new ones. CPUs count from 1, tasks and applications from 0.
    """

    first_task: IntArray
    first_row: IntArray
    is_kept: BoolArray
    cpu: IntArray
    task: IntArray
    application: IntArray
    renumbers: bool


class Pairs(NamedTuple):
    """Room for the pairs of one line: types, values and roles."""

    number: IntArray
    value: IntArray
    role: IntArray


@inlined
def get_byte(text: ByteArray, at: int) -> int:
    """Return a byte. An unsigned position needs no test for negative ones."""
    return np.int64(text[np.uint64(at)])


@inlined
def find_end(text: ByteArray, at: int) -> int:
    while get_byte(text, at) != NEWLINE:
        at += 1
    return at


@inlined
def _read_number(text: ByteArray, at: int) -> tuple[int, int]:
    """Return the number at a position and the position after it; the latter is 0 if there is no number.

    Numbers that do not fit 64 bits are cut to them, as in Paraver.
    """
    char = get_byte(text, at)
    is_negative = False
    if char == _MINUS:
        is_negative = True
        at += 1
        char = get_byte(text, at)
    first = at
    value = np.int64(0)
    while char >= _ZERO and char <= _NINE:  # a chained comparison takes four times as long
        value = value * 10 + (char - _ZERO)
        at += 1
        char = get_byte(text, at)
    if at == first:
        at = 0
    if is_negative:
        value = -value
    return value, at


@inlined
def read_head(text: ByteArray, start: int, fields: IntArray) -> tuple[int, int]:
    """Read the first six fields of a line; return its kind (0 if it is not a record) and the position after them."""
    kind = np.int64(text[start]) - _ZERO
    if kind < 1 or kind > 3:
        return 0, 0
    at = start + 1
    for field in range(2, 7):
        if get_byte(text, at) != COLON:
            return 0, 0
        fields[TIME_AT] = at + 1
        fields[field], at = _read_number(text, at + 1)
        if at == 0 or fields[field] < 0 or at - fields[TIME_AT] > MOST_DIGITS:
            return 0, 0
    return kind, at


@inlined
def read_rest(text: ByteArray, at: int, kind: int, fields: IntArray) -> int:
    """Read a state or communication from its 7th field; return the end of the line, 0 if its fields are wrong."""
    for field in range(7, 9 if kind == 1 else 16):
        if get_byte(text, at) != COLON:
            return 0
        fields[field], at = _read_number(text, at + 1)
        if at == 0 or (fields[field] < 0 and field < 14):
            return 0
    if get_byte(text, at) == RETURN:
        at += 1
    return at if get_byte(text, at) == NEWLINE else 0


@inlined
def read_pairs(text: ByteArray, at: int, roles: RoleTable, pairs: Pairs) -> tuple[int, int, int]:
    """Read the pairs of an event; return their number, the end of the line (0 if it is not an event), and its class."""
    count = intervals = ends = quantities = activities = 0
    while get_byte(text, at) == COLON:
        number, at = _read_number(text, at + 1)
        if at == 0 or get_byte(text, at) != COLON:
            return 0, 0, 0
        value, at = _read_number(text, at + 1)
        if at == 0:
            return 0, 0, 0
        role = look_up_role(roles, number)
        pairs.number[count], pairs.value[count], pairs.role[count] = number, value, role
        count += 1
        if role != NO_ROLE:
            intervals += role == INTERVAL
            ends += role == INTERVAL and value == 0
            quantities += role == QUANTITY
            activities += role == IDLE_STRETCH or (role > 0 and role <= ACTIVITY_COLUMNS)
    if get_byte(text, at) == RETURN:
        at += 1
    if count == 0 or get_byte(text, at) != NEWLINE:
        return 0, 0, 0
    if intervals:
        line_class = CLOSES if ends == intervals else (OPENS if ends == 0 else _classify_mixed(pairs, count))
    elif quantities:
        line_class = _classify_quantities(pairs, count)
    else:
        line_class = ACTIVITY if activities == count else POINT
    return count, at, line_class


@inlined
def find_row(rows: Rows, fields: IntArray, first: int) -> int:
    """Return the row of the object in four fields, from field `first`; -1 if the header does not have it."""
    application, task, thread = fields[first + 1] - 1, fields[first + 2] - 1, fields[first + 3] - 1
    if fields[first] >= rows.cpu.size or application < 0 or application >= rows.first_task.size - 1:
        return -1
    task += rows.first_task[application]
    if task < rows.first_task[application] or task >= rows.first_task[application + 1]:
        return -1
    row = rows.first_row[task] + thread
    if row < rows.first_row[task] or row >= rows.first_row[task + 1]:
        return -1
    return row


# ---- what an event does ----------------------------------------------------------------------------------------------


@compiled
def _classify_mixed(pairs: Pairs, count: int) -> int:
    """Return OPENS if any interval stays open after a line with both starts and ends, else EMPTY."""
    for i in range(count):
        if pairs.role[i] == INTERVAL and pairs.value[i] != 0:
            later = i + 1
            while later < count and (pairs.number[later] != pairs.number[i] or pairs.value[later] != 0):
                later += 1
            if later == count:
                return OPENS
    return EMPTY


@compiled
def _classify_quantities(pairs: Pairs, count: int) -> int:
    """Return the class of a line with quantities and without intervals. A line that ends quantities has only zeros.

    A quantity may be 0 when it starts. If a line gives a quantity twice, the quantity ends with the line.
    """
    closes = True
    opens = False
    for i in range(count):
        closes &= pairs.role[i] == QUANTITY and pairs.value[i] == 0
        same = 0
        for j in range(count):
            same += pairs.number[j] == pairs.number[i] and (j <= i or pairs.value[j] == 0)
        opens |= pairs.role[i] == QUANTITY and same == 1
    return CLOSES if closes else (OPENS if opens else EMPTY)
