"""Formats resolved records as the text of a .prv, in numba: eight digits at once, computed in one word."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt

from nsys2prv_ng.arrays.types import ByteArray, ByteTable, IntArray, IntTable
from nsys2prv_ng.records.columns import COMMUNICATION, STATE, ColumnTuple, Records
from nsys2prv_ng.runtime.jit import compiled, inlined
from nsys2prv_ng.value_class import ValueClass

# Most bytes of a line: kind, object, a time of at most 20 bytes and the end of the line; for each word a handle of at
# most 11 bytes, a value of at most 20 and two colons. The words of a communication leave room for its other object.
_LINE_BYTES = 56
_WORD_BYTES = 34
_OBJECT_BYTES = 32
_TYPE_BYTES = 16
_TYPES = 256
_NO_TYPE = np.iinfo(np.int64).min
_EIGHT_DIGITS = 100_000_000


class RowNumbers(ValueClass):
    """CPU, task and thread (1-based) of each row: int64 arrays of equal length."""

    cpu: IntArray
    task: IntArray
    thread: IntArray

    @cached_property
    def texts(self) -> tuple[IntArray, IntArray]:
        """Texts of the rows in words of 8 bytes (n x 4), and their lengths (n). They are made once for a whole
        trace."""
        text, size = np.empty((self.cpu.size, _OBJECT_BYTES), np.uint8), np.empty(self.cpu.size, np.int64)
        _objects(text, size, self.cpu, self.task, self.thread)
        return text.view(np.int64), size


def encode(records: Records, order: IntArray, rows: RowNumbers, origin: int) -> npt.NDArray[np.uint8]:
    """Return the lines of the records at these indices, in this order, with times relative to `origin` (ns)."""
    # Texts are written in whole words, which may reach past their ends. All arrays are made here, because numba takes
    # much longer to compile functions that make arrays.
    words = int((records.first[1:][order] - records.first[:-1][order]).sum())
    buffer = np.empty(_LINE_BYTES * order.size + _WORD_BYTES * words + _OBJECT_BYTES, np.uint8)
    types, type_size = np.empty((_TYPES, _TYPE_BYTES), np.uint8), np.empty(_TYPES, np.int64)
    type_of_slot = np.full(_TYPES, _NO_TYPE)
    type_texts = types, types.view(np.int64), type_size, type_of_slot
    used = _encode(buffer, order, records.columns, origin, rows.texts, type_texts)
    return buffer[:used]


@compiled
def _encode(
    buffer: ByteArray,
    order: IntArray,
    columns: ColumnTuple,
    origin: int,
    row_texts: tuple[IntTable, IntArray],
    type_texts: tuple[ByteTable, IntTable, IntArray, IntArray],
) -> int:
    time, _, place, kind, first, handle, value = columns
    objects, object_size = row_texts
    types, type_words, type_size, type_of_slot = type_texts
    p = 0
    for at in range(order.size):
        i = np.uint64(order[at])  # numba tests signed indices for counting from the end
        w = first[i]
        buffer[p] = 48 + kind[i]
        p = _object(buffer, p + 1, objects, object_size, place[i])
        p = write_number(buffer, p, time[i] - origin)
        if kind[i] == STATE:
            p = write_number(buffer, _colon(buffer, p), value[w] - origin)
            p = write_number(buffer, _colon(buffer, p), np.int64(handle[w]))
        elif kind[i] == COMMUNICATION:
            p = write_number(buffer, _colon(buffer, p), value[w] - origin)
            p = _object(buffer, p, objects, object_size, handle[w])
            p = write_number(buffer, p, value[w + 1] - origin)
            p = write_number(buffer, _colon(buffer, p), value[w + 2] - origin)
            p = write_number(buffer, _colon(buffer, p), value[w + 3])
            p = write_number(buffer, _colon(buffer, p), np.int64(handle[w + 3]))
        else:
            for j in range(w, first[i + np.uint64(1)]):
                # The texts ':type:' of the latest types are kept, because few types make up most of a trace.
                number = np.int64(handle[j])
                slot = number & (_TYPES - 1)
                if type_of_slot[slot] != number:
                    type_of_slot[slot] = number
                    text = types[slot]
                    type_size[slot] = _colon(text, write_number(text, _colon(text, 0), number))
                _eight_bytes(buffer, p, type_words[slot, 0])
                _eight_bytes(buffer, p + 8, type_words[slot, 1])
                p = _number_here(buffer, p + type_size[slot], value[j])
        buffer[p] = 10
        p += 1
    return p


@compiled
def _objects(texts: ByteTable, size: IntArray, cpu: IntArray, task: IntArray, thread: IntArray) -> None:
    """Write ':cpu:1:task:thread:' of each row; there is one application."""
    for row in range(cpu.size):
        text = texts[row]
        p = write_number(text, _colon(text, 0), cpu[row])
        text[p] = 58
        text[p + 1] = 49
        p = write_number(text, _colon(text, p + 2), task[row])
        p = write_number(text, _colon(text, p), thread[row])
        size[row] = _colon(text, p)


@inlined
def _object(buffer: ByteArray, p: int, objects: IntArray, size: IntArray, row: int) -> int:
    for k in range(_OBJECT_BYTES // 8):
        _eight_bytes(buffer, p + 8 * k, objects[row, k])
    return p + size[row]


@inlined
def _colon(buffer: ByteArray, p: int) -> int:
    buffer[p] = 58
    return p + 1


@compiled
def write_number(buffer: ByteArray, p: int, x: int) -> int:
    """Write the digits of an int64 at p and return the position after them; the 7 bytes from there are overwritten."""
    return _number_here(buffer, p, x)


@inlined
def _number_here(buffer: ByteArray, p: int, x: int) -> int:
    """Do the same inline, for the calls that write most numbers. Others do not: each inlined copy takes time to
    compile."""
    if 0 <= x < _EIGHT_DIGITS:
        return _leading(buffer, p, x)
    return _long_number(buffer, p, x)


@compiled
def _long_number(buffer: ByteArray, p: int, x: int) -> int:
    if x < 0:
        buffer[p] = 45
        p += 1
        high = x // -_EIGHT_DIGITS  # in range for every x, unlike -x
        low = -(x + high * _EIGHT_DIGITS)
    else:
        high = x // _EIGHT_DIGITS
        low = x - high * _EIGHT_DIGITS
    if high == 0:
        return _leading(buffer, p, low)
    if high < _EIGHT_DIGITS:
        p = _leading(buffer, p, high)
    else:
        top = high // _EIGHT_DIGITS
        p = _leading(buffer, p, top)
        _eight_bytes(buffer, p, _digits(high - top * _EIGHT_DIGITS))
        p += 8
    _eight_bytes(buffer, p, _digits(low))
    return p + 8


@inlined
def _leading(buffer: ByteArray, p: int, x: int) -> int:
    """Write the digits of 0 <= x < 10^8 without leading zeros."""
    zeros = (x < 10) + (x < 100) + (x < 1000) + (x < 10_000) + (x < 100_000) + (x < 1_000_000) + (x < 10_000_000)
    _eight_bytes(buffer, p, _digits(x) >> (8 * zeros))
    return p + 8 - zeros


@inlined
def _digits(x: int) -> int:
    """Return the eight digits of 0 <= x < 10^8, the first in the lowest byte.

    Split x into halves, the halves into halves, and these into digits, all parts at once.
    """
    high = x // 10_000
    x = high | ((x - high * 10_000) << 32)
    high = ((x * 10_486) >> 20) & 0x0000_007F_0000_007F  # each // 100
    x = high | ((x - high * 100) << 16)
    high = ((x * 103) >> 10) & 0x000F_000F_000F_000F  # each // 10
    x = high | ((x - high * 10) << 8)
    return x | 0x3030_3030_3030_3030


@inlined
def _eight_bytes(buffer: ByteArray, p: int, word: int) -> None:
    """Write the bytes of a word, lowest first. With unsigned positions the compiler makes a single store of them."""
    q = np.uint64(p)
    for k in range(8):
        buffer[q + np.uint64(k)] = (word >> (8 * k)) & 255
