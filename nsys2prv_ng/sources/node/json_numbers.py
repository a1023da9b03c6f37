"""Numbers out of many small texts of JSON, as nsys wrote what plugins told: one object each, its values bare or quoted.

A value counts where all of it is a number, of a member of the object itself and not of one within. Where a name occurs
twice the last counts, as in Python's json. A text that is no whole object has no values. Strings are not checked
further: nsys writes into them what a plugin gave.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nsys2prv_ng.arrays.types import BoolArray, IntArray
from nsys2prv_ng.report.table_reader import NULL, RealArray
from nsys2prv_ng.runtime.jit import compiled, inlined
from nsys2prv_ng.sources.shared.samples import scale_values

_WHOLE, _REAL = 1, 2
_MOST_DIGITS = 18
"""Of numbers that surely fit 64 bits."""
_SPACE, _QUOTE, _COMMA, _COLON, _BACKSLASH = (ord(each) for each in ' ",:\\')
_OPEN, _CLOSE, _OPEN_LIST, _CLOSE_LIST = (ord(each) for each in "{}[]")
_TAB, _LINE, _RETURN = (ord(each) for each in "\t\n\r")
_MINUS, _PLUS, _POINT, _ZERO, _NINE = (ord(each) for each in "-+.09")
_LOWER_E, _UPPER_E, _U = (ord(each) for each in "eEu")
_ESCAPED = np.arange(256)
"""What a character behind a backslash stands for."""
for _short, _meant in zip("bfnrt", "\b\f\n\r\t", strict=True):
    _ESCAPED[ord(_short)] = ord(_meant)
_DIGIT = np.full(256, -1)
"""Values of hexadecimal digits."""
for _each in "0123456789abcdefABCDEF":
    _DIGIT[ord(_each)] = int(_each, 16)


class Numbers(NamedTuple):
    """What a member is in each of n objects: the number as it is written, null for none, and whether it has a fraction
    or an exponent."""

    written: pa.Array
    real: BoolArray


class Values(NamedTuple):
    """Values of one field, NULL where a text has none, whether they are real, and the rows of integers so large that
    they may be negative, as they are not signed."""

    value: IntArray
    is_real: bool
    large: IntArray


def find_numbers(texts: pa.Array, rows: IntArray, names: Sequence[str]) -> list[Numbers]:
    """The members of these distinct names, in the objects in some rows of an array of strings."""
    if texts.null_count:
        texts = texts.fill_null("")
    data = _bytes(texts.buffers()[2])
    offsets = np.frombuffer(texts.buffers()[1], np.int32)[texts.offset : texts.offset + len(texts) + 1]
    encoded = [name.encode("utf-8", "surrogatepass") for name in names]
    starts = np.cumsum([0, *map(len, encoded)])
    shape = (len(names), rows.size)
    begin, length, kind = np.zeros(shape, np.int64), np.zeros(shape, np.int32), np.zeros(shape, np.uint8)
    _find(data, offsets, rows, _bytes(b"".join(encoded)), starts, begin, length, kind)
    return [_written(data, *each) for each in zip(begin, length, kind, strict=True)]


def find_values(found: Numbers, is_real: bool) -> Values:
    """Values of a field in some texts; they are real if that is known, or because one is."""
    written, none = found.written, np.zeros(0, np.int64)
    if is_real or bool(found.real.any()):
        return Values(scale_values(_reals(written)), True, none)
    long = pc.greater(pc.utf8_length(written), _MOST_DIGITS)
    short = pc.cast(pc.if_else(long, None, written), pa.int64())
    value = np.array(pc.fill_null(short, NULL).to_numpy(zero_copy_only=False), np.int64)
    if not pc.any(long).as_py():
        return Values(value, False, none)
    of_long = np.flatnonzero(pc.fill_null(long, False).to_numpy(zero_copy_only=False))
    distinct = written.take(pa.array(of_long)).dictionary_encode()
    signed = [_signed(number) for number in distinct.dictionary.to_pylist()]
    value[of_long] = np.array(signed, np.int64)[distinct.indices.to_numpy()]
    return Values(value, False, of_long)


def convert_to_real(of: Values) -> IntArray:
    """Integers as other blocks have real numbers. Of those, NULL and large ones are too large."""
    value = of.value.astype(np.float64)
    value[of.large] = np.nan
    return scale_values(value)


def _reals(written: pa.Array) -> RealArray:
    try:
        found = pc.cast(written, pa.float64()).to_numpy(zero_copy_only=False)
    except pa.ArrowInvalid:  # one is out of the range of such numbers
        found = [np.nan if each is None else float(each) for each in written.to_pylist()]
    return np.asarray(found, np.float64)


def _signed(number: str) -> int:
    """A number of up to 64 bits as SQLite holds it; NULL for what is larger."""
    value = int(number) if len(number) < 30 else 1 << 64
    if not -(1 << 63) <= value < 1 << 64:
        return int(NULL)
    return value - (1 << 64) if value >= 1 << 63 else value


def _bytes(of: pa.Buffer | bytes | None) -> Any:
    return np.frombuffer(of or b"\0", np.uint8)


def _written(data: Any, begin: IntArray, length: Any, kind: Any) -> Numbers:
    offsets = np.concatenate([[0], np.cumsum(length)]).astype(np.int32)
    copied = np.empty(int(offsets[-1]), np.uint8)
    _copy(data, begin, offsets, copied)
    there = pa.array(kind != 0).buffers()[1]
    written = pa.Array.from_buffers(pa.string(), kind.size, [there, pa.py_buffer(offsets), pa.py_buffer(copied)])
    return Numbers(written, kind == _REAL)


@compiled
def _copy(data, begin, offsets, copied):  # type: ignore[no-untyped-def]
    for i in range(begin.size):
        for k in range(offsets[i + 1] - offsets[i]):
            copied[offsets[i] + k] = data[begin[i] + k]


@compiled
def _find(data, offsets, rows, names, starts, begin, length, kind):  # type: ignore[no-untyped-def]
    """Where the numbers are in the data, by name and row: first byte, bytes, and what they are (0: there is none)."""
    for i in range(rows.size):
        at, end = np.int64(offsets[rows[i]]), np.int64(offsets[rows[i] + 1])
        if not _find_in(data, at, end, names, starts, begin[:, i], length[:, i], kind[:, i]):
            length[:, i] = 0
            kind[:, i] = 0


@compiled
def _find_in(data, at, end, names, starts, begin, length, kind):  # type: ignore[no-untyped-def]
    """The same for one text; false for one that is no whole object."""
    at = _skip_space(data, at, end)
    if at == end or data[at] != _OPEN:
        return False
    at = _skip_space(data, at + 1, end)
    if at < end and data[at] == _CLOSE:
        return _skip_space(data, at + 1, end) == end
    guess = 0
    while at < end and data[at] == _QUOTE:
        name = at + 1
        name_end = _end_of_string(data, name, end)
        at = _skip_space(data, name_end + 1, end)
        if at >= end or data[at] != _COLON:
            return False
        value = _skip_space(data, at + 1, end)
        value_end = _end_of_value(data, value, end)
        at = _skip_space(data, value_end, end)
        if value_end == value or at >= end or (data[at] != _COMMA and data[at] != _CLOSE):
            return False
        of = _index_of(data, name, name_end, names, starts, guess)
        if of >= 0:
            begin[of], length[of], kind[of] = _number(data, value, value_end)
            guess = of + 1
        if data[at] == _CLOSE:
            return _skip_space(data, at + 1, end) == end
        at = _skip_space(data, at + 1, end)
    return False


@inlined
def _is_space(each):  # type: ignore[no-untyped-def]
    return each in (_SPACE, _TAB, _LINE, _RETURN)


@compiled
def _skip_space(data, at, end):  # type: ignore[no-untyped-def]
    while at < end and _is_space(data[at]):
        at += 1
    return min(at, end)


@compiled
def _end_of_string(data, at, end):  # type: ignore[no-untyped-def]
    """Where the closing quote is, or the end."""
    while at < end and data[at] != _QUOTE:
        at += 2 if data[at] == _BACKSLASH else 1
    return min(at, end)


@compiled
def _end_of_value(data, at, end):  # type: ignore[no-untyped-def]
    """Behind a value; the end where it is not closed. Brackets within are counted, not told apart."""
    depth = 0
    while at < end:
        each = data[at]
        if each == _QUOTE:
            at = min(_end_of_string(data, at + 1, end) + 1, end)
            if depth == 0:
                return at
            continue
        if each in (_OPEN, _OPEN_LIST):
            depth += 1
        elif depth == 0 and (each in (_COMMA, _CLOSE, _CLOSE_LIST) or _is_space(each)):
            return at
        elif each in (_CLOSE, _CLOSE_LIST):
            depth -= 1
            if depth == 0:
                return at + 1
        at += 1
    return end


@compiled
def _number(data, at, end):  # type: ignore[no-untyped-def]
    """(first byte, bytes, what it is) of a value that is a number, in quotes or not, or zeros."""
    if data[at] == _QUOTE:
        at = _skip_space(data, at + 1, end)
        end -= 1
        while end > at and _is_space(data[end - 1]):
            end -= 1
    begin, kind = at, _WHOLE
    if at < end and data[at] == _MINUS:
        at += 1
    digits = at
    at = _skip_digits(data, at, end)
    sound = at > digits
    if at < end and data[at] == _POINT:
        digits, kind = at + 1, _REAL
        at = _skip_digits(data, digits, end)
        sound &= at > digits
    if at < end and (data[at] == _LOWER_E or data[at] == _UPPER_E):
        digits, kind = at + 1, _REAL
        if digits < end and (data[digits] == _MINUS or data[digits] == _PLUS):
            digits += 1
        at = _skip_digits(data, digits, end)
        sound &= at > digits
    if sound and at == end:
        return begin, end - begin, kind
    return 0, 0, 0


@compiled
def _skip_digits(data, at, end):  # type: ignore[no-untyped-def]
    while at < end and _ZERO <= data[at] <= _NINE:
        at += 1
    return at


@compiled
def _index_of(data, at, end, names, starts, guess):  # type: ignore[no-untyped-def]
    """Which of the names a string is, -1: none. Members mostly come in one order, so the guess is tried first."""
    n = starts.size - 1
    for i in range(n):
        of = (guess + i) % n
        if _is_name(data, at, end, names, starts[of], starts[of + 1]):
            return of
    return -1


@compiled
def _is_name(data, at, end, names, other, other_end):  # type: ignore[no-untyped-def]
    """Whether a string, whose characters may be escaped, is a name in UTF-8."""
    while at < end:
        if data[at] != _BACKSLASH:
            if other == other_end or data[at] != names[other]:
                return False
            at += 1
            other += 1
            continue
        if at + 1 == end:
            return False
        code, at = _escaped(data, at, end)
        size = 1 if code < 0x80 else 2 if code < 0x800 else 3 if code < 0x10000 else 4
        if code < 0 or other + size > other_end:
            return False
        for i in range(size):
            bits = code >> 6 * (size - 1 - i)
            byte = code if size == 1 else bits | (0xF00 >> size) & 0xFF if i == 0 else bits & 0x3F | 0x80
            if names[other + i] != byte:
                return False
        other += size
    return other == other_end


@compiled
def _escaped(data, at, end):  # type: ignore[no-untyped-def]
    """(code point, where the next character is) of a backslash and what follows; -1 for digits that are none."""
    if data[at + 1] != _U:
        return _ESCAPED[data[at + 1]], at + 2
    code = _hexadecimal(data, at + 2, end)
    at += 6
    if 0xD800 <= code < 0xDC00 and at + 1 < end and data[at] == _BACKSLASH and data[at + 1] == _U:
        low = _hexadecimal(data, at + 2, end)
        if 0xDC00 <= low < 0xE000:
            return 0x10000 + (code - 0xD800 << 10) + (low - 0xDC00), at + 6
    return code, at


@compiled
def _hexadecimal(data, at, end):  # type: ignore[no-untyped-def]
    """Value of four digits, -1 for what is none."""
    if at + 4 > end:
        return -1
    code = 0
    for i in range(4):
        if _DIGIT[data[at + i]] < 0:
            return -1
        code = code << 4 | _DIGIT[data[at + i]]
    return code
