"""Reads numbers from many small texts of JSON, in which nsys wrote the values of plugins: one object each.

The values of an object are bare or quoted. A value counts if all of it is a number and it is a member of the object
itself, not of one within. If a name occurs twice the last counts, as in Python's json. A text that is no whole object
has no values. Strings are not checked further: nsys writes into them what a plugin gave.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from nsys2prv_ng.arrays.types import BoolArray, ByteArray, FloatArray, IntArray
from nsys2prv_ng.report.table_reader import NULL
from nsys2prv_ng.runtime.jit import compiled, inlined
from nsys2prv_ng.sources.shared.samples import scale_values

_WHOLE, _REAL = 1, 2
_MOST_DIGITS = 18
"""The length of numbers that surely fit into 64 bits."""
_SPACE, _QUOTE, _COMMA, _COLON, _BACKSLASH = (ord(character) for character in ' ",:\\')
_OPEN, _CLOSE, _OPEN_LIST, _CLOSE_LIST = (ord(character) for character in "{}[]")
_TAB, _LINE, _RETURN = (ord(character) for character in "\t\n\r")
_MINUS, _PLUS, _POINT, _ZERO, _NINE = (ord(character) for character in "-+.09")
_LOWER_E, _UPPER_E, _U = (ord(character) for character in "eEu")
_ESCAPED = np.arange(256)
"""The character that each character behind a backslash stands for."""
for _short, _character in zip("bfnrt", "\b\f\n\r\t", strict=True):
    _ESCAPED[ord(_short)] = ord(_character)
_DIGIT = np.full(256, -1)
"""Values of hexadecimal digits."""
for _digit in "0123456789abcdefABCDEF":
    _DIGIT[ord(_digit)] = int(_digit, 16)


class Numbers(NamedTuple):
    """One member in each of n objects: the number as it is written, null for none, and whether it is a real number.

    A real number has a fraction or an exponent.
    """

    written: pa.Array
    real: BoolArray


class Values(NamedTuple):
    """Values of one field, NULL where a text has none, and whether they are real.

    `large`: rows of integers that are too large to be signed and may show as negative.
    """

    value: IntArray
    is_real: bool
    large: IntArray


def find_numbers(texts: pa.Array, rows: IntArray, names: Sequence[str]) -> list[Numbers]:
    """Return the members with these distinct names of the objects in some rows of an array of strings."""
    if texts.null_count:
        texts = texts.fill_null("")
    data = _bytes(texts.buffers()[2])
    offsets = np.frombuffer(texts.buffers()[1], np.int32)[texts.offset : texts.offset + len(texts) + 1]
    encoded = [name.encode("utf-8", "surrogatepass") for name in names]
    starts = np.cumsum([0, *map(len, encoded)])
    shape = (len(names), rows.size)
    begin, length, kind = np.zeros(shape, np.int64), np.zeros(shape, np.int32), np.zeros(shape, np.uint8)
    _find(data, offsets, rows, _bytes(b"".join(encoded)), starts, begin, length, kind)
    return [_copy_numbers(data, *where) for where in zip(begin, length, kind, strict=True)]


def find_values(numbers: Numbers, is_real: bool) -> Values:
    """Return the values of a field in some texts; they are real if that is known, or because one is."""
    written, none = numbers.written, np.zeros(0, np.int64)
    if is_real or bool(numbers.real.any()):
        return Values(scale_values(_parse_reals(written)), True, none)
    long = pc.greater(pc.utf8_length(written), _MOST_DIGITS)
    short = pc.cast(pc.if_else(long, None, written), pa.int64())
    value = np.array(pc.fill_null(short, NULL).to_numpy(zero_copy_only=False), np.int64)
    if not pc.any(long).as_py():
        return Values(value, False, none)
    long_rows = np.flatnonzero(pc.fill_null(long, False).to_numpy(zero_copy_only=False))
    distinct = written.take(pa.array(long_rows)).dictionary_encode()
    signed = [_parse_signed(number) for number in distinct.dictionary.to_pylist()]
    value[long_rows] = np.array(signed, np.int64)[distinct.indices.to_numpy()]
    return Values(value, False, long_rows)


def convert_to_real(values: Values) -> IntArray:
    """Return integers scaled like the real numbers of other blocks; NULL and large ones are too large for that."""
    value = values.value.astype(np.float64)
    value[values.large] = np.nan
    return scale_values(value)


def _parse_reals(written: pa.Array) -> FloatArray:
    try:
        reals = pc.cast(written, pa.float64()).to_numpy(zero_copy_only=False)
    except pa.ArrowInvalid:  # one is out of the range of such numbers
        reals = [np.nan if number is None else float(number) for number in written.to_pylist()]
    return np.asarray(reals, np.float64)


def _parse_signed(number: str) -> int:
    """Return an integer of up to 64 bits as SQLite holds it; NULL for a larger one."""
    value = int(number) if len(number) < 30 else 1 << 64
    if not -(1 << 63) <= value < 1 << 64:
        return int(NULL)
    return value - (1 << 64) if value >= 1 << 63 else value


def _bytes(buffer: pa.Buffer | bytes | None) -> Any:
    return np.frombuffer(buffer or b"\0", np.uint8)


def _copy_numbers(data: Any, begin: IntArray, length: Any, kind: Any) -> Numbers:
    offsets = np.concatenate([[0], np.cumsum(length)]).astype(np.int32)
    copied = np.empty(int(offsets[-1]), np.uint8)
    _copy(data, begin, offsets, copied)
    is_valid = pa.array(kind != 0).buffers()[1]
    written = pa.Array.from_buffers(pa.string(), kind.size, [is_valid, pa.py_buffer(offsets), pa.py_buffer(copied)])
    return Numbers(written, kind == _REAL)


@compiled
def _copy(data: ByteArray, begin: IntArray, offsets: npt.NDArray[np.int32], copied: ByteArray) -> None:
    for i in range(begin.size):
        for k in range(offsets[i + 1] - offsets[i]):
            copied[offsets[i] + k] = data[begin[i] + k]


@compiled
def _find(
    data: ByteArray,
    offsets: npt.NDArray[np.int32],
    rows: IntArray,
    names: ByteArray,
    starts: IntArray,
    begin: IntArray,
    length: npt.NDArray[np.int32],
    kind: ByteArray,
) -> None:
    """Find where numbers are in the data, by name and row: first byte, bytes, and their kind (0: no number)."""
    for i in range(rows.size):
        at, end = np.int64(offsets[rows[i]]), np.int64(offsets[rows[i] + 1])
        if not _find_in(data, at, end, names, starts, begin[:, i], length[:, i], kind[:, i]):
            length[:, i] = 0
            kind[:, i] = 0


@compiled
def _find_in(
    data: ByteArray,
    at: int,
    end: int,
    names: ByteArray,
    starts: IntArray,
    begin: IntArray,
    length: npt.NDArray[np.int32],
    kind: ByteArray,
) -> bool:
    """Do the same for one text; return false for a text that is not a whole object."""
    at = _skip_space(data, at, end)
    if at == end or data[at] != _OPEN:
        return False
    at = _skip_space(data, at + 1, end)
    if at < end and data[at] == _CLOSE:
        return _skip_space(data, at + 1, end) == end
    guess = 0
    while at < end and data[at] == _QUOTE:
        name = at + 1
        name_end = _find_string_end(data, name, end)
        at = _skip_space(data, name_end + 1, end)
        if at >= end or data[at] != _COLON:
            return False
        value = _skip_space(data, at + 1, end)
        value_end = _find_value_end(data, value, end)
        at = _skip_space(data, value_end, end)
        if value_end == value or at >= end or (data[at] != _COMMA and data[at] != _CLOSE):
            return False
        member = _find_name(data, name, name_end, names, starts, guess)
        if member >= 0:
            begin[member], length[member], kind[member] = _read_number(data, value, value_end)
            guess = member + 1
        if data[at] == _CLOSE:
            return _skip_space(data, at + 1, end) == end
        at = _skip_space(data, at + 1, end)
    return False


@inlined
def _is_space(byte: int) -> bool:
    return byte in (_SPACE, _TAB, _LINE, _RETURN)


@compiled
def _skip_space(data: ByteArray, at: int, end: int) -> int:
    while at < end and _is_space(data[at]):
        at += 1
    return min(at, end)


@compiled
def _find_string_end(data: ByteArray, at: int, end: int) -> int:
    """Return where the closing quote is, or the end."""
    while at < end and data[at] != _QUOTE:
        at += 2 if data[at] == _BACKSLASH else 1
    return min(at, end)


@compiled
def _find_value_end(data: ByteArray, at: int, end: int) -> int:
    """Return the position behind a value; the end if it is not closed. Brackets of both kinds count alike."""
    depth = 0
    while at < end:
        byte = data[at]
        if byte == _QUOTE:
            at = min(_find_string_end(data, at + 1, end) + 1, end)
            if depth == 0:
                return at
            continue
        if byte in (_OPEN, _OPEN_LIST):
            depth += 1
        elif depth == 0 and (byte in (_COMMA, _CLOSE, _CLOSE_LIST) or _is_space(byte)):
            return at
        elif byte in (_CLOSE, _CLOSE_LIST):
            depth -= 1
            if depth == 0:
                return at + 1
        at += 1
    return end


@compiled
def _read_number(data: ByteArray, at: int, end: int) -> tuple[int, int, int]:
    """Return (first byte, bytes, kind) of a value that is a number, in quotes or not; zeros for any other value."""
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
def _skip_digits(data: ByteArray, at: int, end: int) -> int:
    while at < end and _ZERO <= data[at] <= _NINE:
        at += 1
    return at


@compiled
def _find_name(data: ByteArray, at: int, end: int, names: ByteArray, starts: IntArray, guess: int) -> int:
    """Return the index of a string in the names, or -1. Members mostly come in one order: the guess is tried first."""
    n = starts.size - 1
    for i in range(n):
        index = (guess + i) % n
        if _is_name(data, at, end, names, starts[index], starts[index + 1]):
            return index
    return -1


@compiled
def _is_name(data: ByteArray, at: int, end: int, names: ByteArray, other: int, other_end: int) -> bool:
    """Return whether a string, which may have escaped characters, is a name in UTF-8."""
    while at < end:
        if data[at] != _BACKSLASH:
            if other == other_end or data[at] != names[other]:
                return False
            at += 1
            other += 1
            continue
        if at + 1 == end:
            return False
        code, at = _read_escaped(data, at, end)
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
def _read_escaped(data: ByteArray, at: int, end: int) -> tuple[int, int]:
    """Return (code point, position of the next character) of an escaped character; -1 for wrong digits."""
    if data[at + 1] != _U:
        return _ESCAPED[data[at + 1]], at + 2
    code = _read_hexadecimal(data, at + 2, end)
    at += 6
    if 0xD800 <= code < 0xDC00 and at + 1 < end and data[at] == _BACKSLASH and data[at + 1] == _U:
        low = _read_hexadecimal(data, at + 2, end)
        if 0xDC00 <= low < 0xE000:
            return 0x10000 + (code - 0xD800 << 10) + (low - 0xDC00), at + 6
    return code, at


@compiled
def _read_hexadecimal(data: ByteArray, at: int, end: int) -> int:
    """Return the value of four hexadecimal digits, or -1."""
    if at + 4 > end:
        return -1
    code = 0
    for i in range(4):
        if _DIGIT[data[at + i]] < 0:
            return -1
        code = code << 4 | _DIGIT[data[at + i]]
    return code
