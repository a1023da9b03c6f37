"""Splits the lines of a .prv into columns of integers, and checks the form of each line.

Fields of a record are counted from 1, also in messages:
    1:cpu:appl:task:thread:begin:end:state
    2:cpu:appl:task:thread:time:type:value[:type:value...]
    3:cpu:appl:task:thread:send:physical send:cpu:appl:task:thread:receive:physical receive:size:tag

Kernels record broken rules in an array of notes, int64 and of a fixed size, independent of the trace.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from nsys2prv_ng.arrays.types import ByteArray, IntArray, IntTable
from nsys2prv_ng.paraver.read.problems import SHOWN_LINES, Problem, aggregate_problems
from nsys2prv_ng.runtime.jit import compiled

(
    LONG_LINE, EMPTY_LINE, CARRIAGE_RETURN, TRAILING_COLON, UNKNOWN_KIND, KIND_4, COMMUNICATOR_LINE,
    NOT_INTEGER, OVERFLOW, NEGATIVE, FIELD_COUNT, NO_PAIR, ODD_FIELDS,
) = range(13)  # fmt: skip
RULES = 13

LINE_RULES = {
    LONG_LINE: "a line of more than {0} bytes is not checked",
    EMPTY_LINE: "empty line",
    CARRIAGE_RETURN: "carriage return: lines must end with a line feed alone",
    TRAILING_COLON: "the line ends with a colon",
    UNKNOWN_KIND: "a line which starts with '{0:c}' is not a record: its kind must be 1, 2 or 3",
    KIND_4: "record of kind 4: Paraver ignores it",
    COMMUNICATOR_LINE: "communicator line which the header does not count",
    NOT_INTEGER: "field {0} is not an integer",
    OVERFLOW: "field {0} does not fit 64 bits",
    NEGATIVE: "field {0} must not be negative",
    FIELD_COUNT: "a record of kind {0} needs {2} fields, this line has {1}",
    NO_PAIR: "event without a type:value pair",
    ODD_FIELDS: "event type {0} has no value: the line has an odd number of fields",
}

# Forms of a field before its position in a record is known; NOT_INTEGER and OVERFLOW are forms as well.
_UNSIGNED, _SIGNED = range(RULES, RULES + 2)

LINE = 0
"""Column of the line number. Columns 1 to 15 are the fields of a record; field 1 is its kind."""
COLUMNS = 16
RECORD, TYPE, VALUE = range(3)
"""Columns of the pairs; RECORD is the index of the event to which a pair belongs."""
STATE, EVENT, COMMUNICATION = 1, 2, 3


class Fields(NamedTuple):
    """Room for the fields of a block, as `split_fields` fills it."""

    values: IntArray
    forms: ByteArray
    line_end: IntArray
    line_field: IntArray


class Records(NamedTuple):
    """The readable records of a block: columns (COLUMNS, records) and pairs (3, pairs)."""

    columns: IntTable
    pairs: IntTable


_INT64_MAX_TENTH = (2**63 - 1) // 10
_NEWLINE, _RETURN, _COLON, _MINUS, _HASH, _ZERO = 10, 13, 58, 45, 35, 48


@compiled
def split_fields(
    text: ByteArray, size: int, values: IntArray, forms: ByteArray, line_end: IntArray, line_field: IntArray
) -> None:
    """Split text[:size], which consists of whole lines, at colons and newlines.

    A check spends most of its time here, so this is one loop without calls. It fills:
    values and forms (colons and newlines): each field as an integer, and its form (_UNSIGNED, _SIGNED, NOT_INTEGER,
    OVERFLOW). line_end (lines): position of the newline. line_field (lines + 1): first field of each line.
    A carriage return before a newline does not belong to a field.
    """
    value = np.int64(0)
    digits = fields = lines = 0
    signed = wrong = overflow = False
    for position in range(size):
        char = np.int64(text[position])
        digit = char - _ZERO
        if 0 <= digit <= 9:
            if digits >= 18:
                # -2^63 wraps to itself here, which is right; one more digit makes it negative.
                highest = 8 if signed else 7
                overflow |= not 0 <= value <= _INT64_MAX_TENTH or (value == _INT64_MAX_TENTH and digit > highest)
            value = value * 10 + digit
            digits += 1
        elif char in (_COLON, _NEWLINE):
            values[fields] = -value if signed else value
            if wrong or digits == 0:
                forms[fields] = NOT_INTEGER
            elif overflow:
                forms[fields] = OVERFLOW
            else:
                forms[fields] = _SIGNED if signed else _UNSIGNED
            fields += 1
            value = np.int64(0)
            digits = 0
            signed = wrong = overflow = False
            if char == _NEWLINE:
                line_end[lines] = position
                lines += 1
                line_field[lines] = fields
        elif char == _MINUS and digits == 0 and not signed:
            signed = True
        elif char != _RETURN or text[position + 1] != _NEWLINE:
            wrong = True


@compiled
def _find_record_kind(text: ByteArray, start: int, end: int, line: int, max_line: int, notes: IntTable) -> int:
    """Return the kind of the record on a line; 0 if there is none. The newline is at `end`."""
    if end - start > max_line:
        note(notes, LONG_LINE, line, max_line)
        return 0
    if end > start and text[end - 1] == _RETURN:
        note(notes, CARRIAGE_RETURN, line)
        end -= 1
    if end == start:
        note(notes, EMPTY_LINE, line)
        return 0
    kind = np.int64(text[start])
    if kind == _HASH:
        return 0
    if kind in (67, 73, 99, 105):  # C I c i
        note(notes, COMMUNICATOR_LINE, line)
        return 0
    if kind < 49 or kind > 52 or (end > start + 1 and text[start + 1] != _COLON):
        note(notes, UNKNOWN_KIND, line, kind)
        return 0
    if kind == 52:
        note(notes, KIND_4, line)
        return 0
    if end > start + 1 and text[end - 1] == _COLON:
        note(notes, TRAILING_COLON, line)
    return int(kind - _ZERO)


@compiled
def _check_forms(
    forms: ByteArray, first: int, count: int, wanted: int, unsigned: int, line: int, kind: int, notes: IntTable
) -> bool:
    """Return whether a line has `wanted` fields (an event: at least) that are integers, not negative up to `unsigned`.

    `count` is the number of its fields.
    """
    right = True
    for field in range(2, min(count, wanted) + 1):
        form = np.int64(forms[first + field - 1])
        if form in (NOT_INTEGER, OVERFLOW):
            note(notes, form, line, field)
            return False
        if form == _SIGNED and field <= unsigned:
            note(notes, NEGATIVE, line, field)
            right = False
    if count < wanted or (count > wanted and kind != EVENT):
        note(notes, FIELD_COUNT, line, kind, count, wanted)
        right = False
    return right


@compiled
def _count_pairs(
    values: IntArray, forms: ByteArray, first: int, count: int, line: int, notes: IntTable
) -> tuple[int, bool]:
    """Return the number of pairs before the first error (Paraver reads these), and whether there is no error.

    `count` is the number of fields of the event.
    """
    if count == 6:
        note(notes, NO_PAIR, line)
        return 0, False
    for field in range(7, count + 1):
        form = np.int64(forms[first + field - 1])
        if form in (NOT_INTEGER, OVERFLOW):
            note(notes, form, line, field)
            return (field - 7) // 2, False
    if count % 2:
        note(notes, ODD_FIELDS, line, values[first + count - 1])
    return (count - 6) // 2, count % 2 == 0


@compiled
def read_records(
    text: ByteArray, lines_before: int, max_line: int, fields: Fields, notes: IntTable, room: Records, counts: IntArray
) -> tuple[int, int]:
    """Sort the fields of lines into the columns and pairs of `room`, from the left.

    counts[kind] counts well-formed records. Return the number of used columns (records without errors before their
    pairs) and the number of used pairs.
    """
    values, forms, line_end, line_field = fields
    columns, pairs = room
    records = n_pairs = start = 0
    for index in range(line_end.size):
        line = lines_before + index + 1
        end = line_end[index]
        kind = _find_record_kind(text, start, end, line, max_line, notes)
        start = end + 1
        if kind == 0:
            continue
        first = line_field[index]
        count = line_field[index + 1] - first
        if count > 1 and forms[first + count - 1] == NOT_INTEGER:
            last = end - 1 if text[end - 1] == _RETURN else end
            if text[last - 1] == _COLON:  # trailing: no field follows it
                count -= 1
        wanted, unsigned = (8, 8) if kind == STATE else ((6, 6) if kind == EVENT else (15, 13))
        if not _check_forms(forms, first, count, wanted, unsigned, line, kind, notes):
            continue
        right = True
        if kind == EVENT:
            count_right, right = _count_pairs(values, forms, first, count, line, notes)
            for pair in range(count_right):
                pairs[RECORD, n_pairs] = records
                pairs[TYPE, n_pairs] = values[first + 6 + 2 * pair]
                pairs[VALUE, n_pairs] = values[first + 7 + 2 * pair]
                n_pairs += 1
        columns[LINE, records] = line
        for field in range(1, wanted + 1):
            columns[field, records] = values[first + field - 1]
        records += 1
        counts[kind] += right
    return records, n_pairs


DETAILS = 4
"""Number of values kept for the message of the first occurrence of a rule."""
_LINES = 1 + DETAILS


def new_notes(rules: int) -> IntArray:
    """Return empty notes, (rules, 1 + DETAILS + SHOWN_LINES).

    A row has the number of occurrences, the values for the message of the first one, and the first lines, or 0.
    """
    return np.zeros((rules, _LINES + SHOWN_LINES), np.int64)


@compiled
def note(notes: IntTable, rule: int, line: int, a: int = 0, b: int = 0, c: int = 0, d: int = 0) -> None:
    """Count an occurrence of a broken rule; a to d are the values for its message."""
    entry = notes[rule]
    if entry[0] == 0:
        entry[1] = a
        entry[2] = b
        entry[3] = c
        entry[4] = d
    entry[0] += 1
    for shown in range(_LINES, entry.size):
        if entry[shown] == line:
            break
        if entry[shown] == 0:
            entry[shown] = line
            break


def read_notes(path: Path, notes: IntTable, messages: dict[int, str]) -> list[Problem]:
    """Return one problem per broken rule, in the order of `messages`.

    The values of the first occurrence fill in a message.
    """
    problems = []
    for rule, message in messages.items():
        count, *numbers = notes[rule].tolist()
        if count:
            lines = [line for line in numbers[DETAILS:] if line]
            problems.append(aggregate_problems(path, message.format(*numbers[:DETAILS]), count, lines))
    return problems
