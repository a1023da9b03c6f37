"""Takes pages of a table's b-tree apart: child pages of interior pages, integers of leaf pages.

https://www.sqlite.org/fileformat2.html describes the layout (1.6 "B-tree Pages", 2.1 "Record Format"). Numbers in a
file are big-endian. `data` is whole pages, one after the other, and `SLACK` bytes. Offsets count from the start of a
page, positions (`at`, `start`, `end`) from the start of `data`. All numbers are int64: numba makes floats of uint64
mixed with int64.

A damaged page can contain any bytes, so no number in it becomes a position unchecked: pointers must lie in the cell
area of their page, and records and values end before their page does. Only the end of a varint is checked after reading
it, which `SLACK` makes safe. Anything unexpected ends a kernel with `NOT_READ`, and sqlite3 reads the table instead.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nsys2prv_ng.arrays.types import BoolArray, ByteArray, IntArray, IntCube, IntTable
from nsys2prv_ng.runtime.jit import compiled, inlined

LEAF, INTERIOR = 13, 5
"""First byte of a page of a table's b-tree."""

NOT_READ = -1
"""Replaces a number of rows or pages if a page is damaged, or a case that is left to sqlite3."""

SLACK = 48
"""Bytes after the last page: a varint (at most 9), an integer (8) or a header that starts in a page is read whole."""

_REAL, _RESERVED, _BLOB = 7, 10, 12
_SLOTS = 512
"""Number of layouts that are kept, by a hash of the header: rows of GPU metrics alternate between up to 60 layouts."""
_WORDS = SLACK // 8
"""Length of the longest header whose layout is kept, in words of 8 bytes."""
_BYTES = np.array([0, 1, 2, 3, 4, 6, 8, 8, 0, 0], np.int64)
"""Bytes of a value, by its serial type: NULL, six widths of integers, a real, and the constants 0 and 1."""


@inlined
def _byte(data: ByteArray, at: int) -> int:
    return np.int64(data[np.uintp(at)])  # a test for a negative signed index takes a third of the time


@inlined
def _two_bytes(data: ByteArray, at: int) -> int:
    return (_byte(data, at) << 8) | _byte(data, at + 1)


@inlined
def _four_bytes(data: ByteArray, at: int) -> int:
    return (_two_bytes(data, at) << 16) | _two_bytes(data, at + 2)


@inlined
def _eight_bytes(data: ByteArray, at: int) -> int:
    return (_four_bytes(data, at) << 32) | _four_bytes(data, at + 4)


@inlined
def _varint(data: ByteArray, at: int) -> tuple[int, int]:
    """Return a varint of up to 64 bits (9 bytes, all 8 bits of the last), and the position after it."""
    value = np.int64(0)
    for i in range(8):
        byte = _byte(data, at + i)
        value = (value << 7) | (byte & 127)
        if byte < 128:
            return value, at + i + 1
    return (value << 8) | _byte(data, at + 8), at + 9


@inlined
def _short_varint(data: ByteArray, at: int) -> tuple[int, int]:
    """Return a varint below 2**28 and the position after it; for a longer one, NOT_READ and its position.

    Sizes and serial types are this small in every sane file, and SQLite does not always read longer ones the same way.
    """
    value = np.int64(0)
    for i in range(4):
        byte = _byte(data, at + i)
        value = (value << 7) | (byte & 127)
        if byte < 128:
            return value, at + i + 1
    return np.int64(NOT_READ), at


@inlined
def _cells(data: ByteArray, page: int, kind: int, page_size: int, usable: int) -> tuple[int, int]:
    """Return the number of cells of a page and the smallest offset they can have; NOT_READ if the page is not sound.

    A page without cells is sound only as the root of an empty table, which is not worth reading here.
    """
    head = 8 if kind == LEAF else 12
    cells = _two_bytes(data, page + 3)
    first = _two_bytes(data, page + 5)
    if first == 0:
        first = np.int64(65536)
    # A cell and its pointer take at least 6 bytes: SQLite refuses pages with more cells than fit.
    too_many = cells > (page_size - 8) // 6 or first < head + 2 * cells
    if _byte(data, page) != kind or cells < 1 or too_many or first > usable:
        return np.int64(NOT_READ), np.int64(0)
    return cells, first


@compiled
def count_cells(data: ByteArray, pages: int, kind: int, page_size: int, usable: int) -> int:
    """Return the number of cells in all pages, which have the same kind."""
    total = np.int64(0)
    for i in range(pages):
        cells, _ = _cells(data, i * page_size, kind, page_size, usable)
        if cells < 0:
            return np.int64(NOT_READ)
        total += cells
    return total


@compiled
def read_children(data: ByteArray, pages: int, page_size: int, usable: int, out: IntArray) -> int:
    """Write the numbers of the pages below interior pages to `out`, in the order of rows; return their count."""
    n = np.int64(0)
    for i in range(pages):
        page = i * page_size
        cells, first = _cells(data, page, INTERIOR, page_size, usable)
        if cells < 0 or n + cells + 1 > out.size:
            return np.int64(NOT_READ)
        for j in range(cells):
            offset = _two_bytes(data, page + 12 + 2 * j)
            if offset < first or offset + 5 > usable:  # a page number of 4 bytes, and a key
                return np.int64(NOT_READ)
            out[n] = _four_bytes(data, page + offset)
            n += 1
        out[n] = _four_bytes(data, page + 8)
        n += 1
    return n


class LeafPages(NamedTuple):
    """Whole leaf pages: their bytes, how many there are, the size of a page and the bytes of it that are in use."""

    data: ByteArray
    pages: int
    page_size: int
    usable: int


def read_leaves(
    leaves: LeafPages, want: IntArray, has_default: BoolArray, alias: int, null: int, out: IntArray, row: int
) -> int:
    """Write the requested integers of the rows in leaf pages to out[:, row:]; return the row after the last.

    `want`: for each column of the table up to the last requested one, its row in `out`, or -1. `alias`: the row in
    `out` of the column that stands for the rowid, or -1. Rows that lack a column in `has_default` are left to sqlite3.
    """
    headers = np.zeros((_SLOTS, 1 + _WORDS), np.int64)
    layouts = np.empty((_SLOTS, out.shape[0], 4), np.int64)
    return int(_read_leaves(*leaves, want, has_default, alias, null, headers, layouts, out, row))


@compiled
def _read_leaves(
    data: ByteArray,
    pages: int,
    page_size: int,
    usable: int,
    want: IntArray,
    has_default: BoolArray,
    alias: int,
    null: int,
    headers: IntTable,
    layouts: IntCube,
    out: IntTable,
    row: int,
) -> int:
    for i in range(pages):
        page = i * page_size
        cells, first = _cells(data, page, LEAF, page_size, usable)
        if cells < 0 or row + cells > out.shape[1]:
            return np.int64(NOT_READ)
        for j in range(cells):
            offset = _two_bytes(data, page + 8 + 2 * j)
            if offset < first or offset + 4 > usable:  # SQLite gives a cell at least 4 bytes
                return np.int64(NOT_READ)
            payload, at = _short_varint(data, page + offset)
            rowid, at = _varint(data, at)
            local = _local_bytes(payload, usable)
            overflow = 0 if local == payload else 4
            if payload < 0 or at + local + overflow > page + usable:
                return np.int64(NOT_READ)
            slot = _hash_header(data, at)
            if not _is_kept(data, at, payload, headers, slot) and not _find_layout(
                data, at, payload, local, want, has_default, null, layouts, slot
            ):
                return np.int64(NOT_READ)
            for column in range(out.shape[0]):
                word = _eight_bytes(data, at + layouts[slot, column, 0]) >> layouts[slot, column, 1]
                out[column, row] = (word & layouts[slot, column, 2]) | layouts[slot, column, 3]
            if alias >= 0:
                out[alias, row] = rowid
            row += 1
    return row


@inlined
def _hash_header(data: ByteArray, start: int) -> int:
    """Return a number below _SLOTS that depends on the bytes of a record header."""
    number = np.int64(0)
    for word in range(min((_byte(data, start) + 7) >> 3, _WORDS)):
        number = (number ^ _word_of_header(data, start, word)) * 0x9E3779B97F4A7C1
    return (number >> 40) & (_SLOTS - 1)


@inlined
def _word_of_header(data: ByteArray, start: int, word: int) -> int:
    """Return 8 bytes of a header that is not too long to be kept; fewer at its end."""
    left = _byte(data, start) - 8 * word
    return _eight_bytes(data, start + 8 * word) >> (8 * max(8 - left, 0))


@inlined
def _is_kept(data: ByteArray, start: int, payload: int, kept: IntTable, slot: int) -> bool:
    """Return whether a record has the size and the header in a slot; put them there if not."""
    header = _byte(data, start)
    if header < 1 or header > SLACK:
        kept[slot, 0] = 0
        return False
    is_same = kept[slot, 0] == payload
    kept[slot, 0] = payload
    for word in range((header + 7) >> 3):
        found = _word_of_header(data, start, word)
        is_same &= kept[slot, 1 + word] == found
        kept[slot, 1 + word] = found
    return is_same


@inlined
def _local_bytes(payload: int, usable: int) -> int:
    """Return the bytes of a record in its leaf page; the others overflow (1.6 "Cell Payload Overflow Pages")."""
    largest = usable - 35
    if payload <= largest:
        return payload
    least = (usable - 12) * 32 // 255 - 23
    local = least + (payload - least) % (usable - 4)
    return local if local <= largest else least


@inlined
def _find_layout(
    data: ByteArray,
    start: int,
    payload: int,
    local: int,
    want: IntArray,
    has_default: BoolArray,
    null: int,
    layouts: IntCube,
    slot: int,
) -> bool:
    """Write to a slot where the requested integers are in a record. The page has its first `local` of `payload` bytes.

    Records with the same header and size have the same layout: the position of 8 bytes from the start of the record,
    the bits to shift them to the right, their mask, and a constant that is set in the result. Return False for
    NOT_READ.
    """
    end = start + local
    header, at = _short_varint(data, start)
    header_end = value = start + header
    if header < at - start or header_end > end:
        return False
    column = 0
    while column < want.size and at < header_end:
        serial, at = _short_varint(data, at)
        to = want[column]
        if serial < 0 or serial == _RESERVED or serial == _RESERVED + 1:
            return False
        size = (serial - _BLOB) >> 1 if serial >= _BLOB else _BYTES[serial]
        if to >= 0:
            if serial == 0 or serial >= _BLOB:
                _set_layout(layouts, slot, to, 0, 0, 0, null)
            elif serial > _REAL:
                _set_layout(layouts, slot, to, 0, 0, 0, serial - 8)
            elif serial == _REAL or value + size > end:
                return False
            else:
                _set_layout(layouts, slot, to, value - start, 64 - 8 * size, -1, 0)
        value += size
        column += 1
    # As in SQLite: values do not reach beyond the record, and fill it if the header was read to its end.
    if at > header_end or value > start + payload or (at == header_end and value != start + payload):
        return False
    for missing in range(column, want.size):
        if want[missing] >= 0:
            if has_default[missing]:
                return False
            _set_layout(layouts, slot, want[missing], 0, 0, 0, null)
    return True


@inlined
def _set_layout(layouts: IntCube, slot: int, to: int, position: int, shift: int, mask: int, constant: int) -> None:
    layouts[slot, to, 0] = position
    layouts[slot, to, 1] = shift
    layouts[slot, to, 2] = mask
    layouts[slot, to, 3] = constant
