"""Takes pages of a table's b-tree apart: child pages of interior pages, integers of leaf pages.

https://www.sqlite.org/fileformat2.html describes the layout (1.6 "B-tree Pages", 2.1 "Record Format"). Numbers in a
file are big-endian. Positions (`at`, `start`, `end`) count from the start of the bytes of all pages, offsets from that
of a page. All numbers are int64: numba makes floats of uint64 mixed with int64.

A damaged page can contain any bytes. Only `_word` reads them, and only within its page. Anything unexpected ends a
kernel with `NOT_READ`, and sqlite3 reads the table instead.
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

WORD = 8
"""Bytes that are read at once."""

_REAL, _RESERVED, _BLOB = 7, 10, 12
_SLOTS = 512
"""Number of layouts that are kept, by a hash of the header: rows of GPU metrics alternate between up to 60 layouts."""
_WORDS = 6
"""Length of the longest header whose layout is kept, in words."""
_BYTES = np.array([0, 1, 2, 3, 4, 6, 8, 8, 0, 0], np.int64)
"""Bytes of a value, by its serial type: NULL, six widths of integers, a real, and the constants 0 and 1."""


class Pages(NamedTuple):
    """Whole pages, one after the other. `make_pages` makes it.

    `data`: bytes of the pages, and a word. `usable`: bytes of a page that are in use. `damage`: one number, which is
    not 0 after a read beyond the end of a page.
    """

    data: ByteArray
    number: int
    page_size: int
    usable: int
    damage: IntArray


def make_pages(data: ByteArray, number: int, page_size: int, usable: int) -> Pages:
    """Return the pages at the start of `data`, which has a word more than these."""
    assert 0 < usable <= page_size and number * page_size + WORD <= data.size
    return Pages(data, number, page_size, usable, np.zeros(1, np.int64))


def make_room(pages: int, page_size: int) -> ByteArray:
    """Return room for the bytes of pages, as `make_pages` takes them."""
    return np.zeros(pages * page_size + WORD, np.uint8)


class _Page(NamedTuple):
    """One of the pages: positions of its first byte and after its last one in use."""

    data: ByteArray
    start: int
    end: int
    damage: IntArray


@inlined
def _page(pages: Pages, number: int) -> _Page:
    start = number * pages.page_size
    return _Page(pages.data, start, start + pages.usable, pages.damage)


@inlined
def _word(page: _Page, at: int, size: int) -> int:
    """Return a word whose first `size` bytes (1 to 8) are at a position; 0, and note the damage, if its page ends
    before these do."""
    if np.uintp(at - page.start) > np.uintp(page.end - page.start - size):  # also before it
        page.damage[0] = 1
        at = page.start
    word = np.int64(0)
    for i in range(WORD):  # the compiler makes one instruction of this
        word = (word << 8) | np.int64(page.data[np.uintp(at + i)])  # testing for a negative index takes long
    return word


@inlined
def _number(page: _Page, at: int, size: int) -> int:
    """Return an unsigned integer of 1 to 4 bytes."""
    return (_word(page, at, size) >> (64 - 8 * size)) & ((1 << 8 * size) - 1)


@inlined
def _varint(page: _Page, at: int) -> tuple[int, int]:
    """Return a varint of up to 64 bits (9 bytes, all 8 bits of the last), and the position after it."""
    value = np.int64(0)
    for i in range(8):
        byte = _number(page, at + i, 1)
        value = (value << 7) | (byte & 127)
        if byte < 128:
            return value, at + i + 1
    return (value << 8) | _number(page, at + 8, 1), at + 9


@inlined
def _short_varint(page: _Page, at: int) -> tuple[int, int]:
    """Return a varint below 2**28 and the position after it; for a longer one, NOT_READ and its position.

    Sizes and serial types are this small in every sane file, and SQLite does not always read longer ones the same way.
    """
    value = np.int64(0)
    for i in range(4):
        byte = _number(page, at + i, 1)
        value = (value << 7) | (byte & 127)
        if byte < 128:
            return value, at + i + 1
    return np.int64(NOT_READ), at


@inlined
def _cells(pages: Pages, page: _Page, kind: int) -> tuple[int, int]:
    """Return the number of cells of a page and the smallest offset they can have; NOT_READ if the page is not sound.

    A page without cells is sound only as the root of an empty table, which is not worth reading here.
    """
    head = 8 if kind == LEAF else 12
    cells = _number(page, page.start + 3, 2)
    first = _number(page, page.start + 5, 2)
    if first == 0:
        first = np.int64(65536)
    # A cell and its pointer take at least 6 bytes: SQLite refuses pages with more cells than fit.
    too_many = cells > (pages.page_size - 8) // 6 or first < head + 2 * cells
    if _number(page, page.start, 1) != kind or cells < 1 or too_many or first > pages.usable:
        return np.int64(NOT_READ), np.int64(0)
    return cells, first


@compiled
def count_cells(pages: Pages, kind: int) -> int:
    """Return the number of cells in all pages, which have the same kind."""
    total = np.int64(0)
    for i in range(pages.number):
        cells, _ = _cells(pages, _page(pages, i), kind)
        if cells < 0:
            return np.int64(NOT_READ)
        total += cells
    return total


@compiled
def read_children(pages: Pages, out: IntArray) -> int:
    """Write the numbers of the pages below interior pages to `out`, in the order of rows; return their count."""
    n = np.int64(0)
    for i in range(pages.number):
        page = _page(pages, i)
        cells, first = _cells(pages, page, INTERIOR)
        if cells < 0 or n + cells + 1 > out.size:
            return np.int64(NOT_READ)
        for j in range(cells):
            offset = _number(page, page.start + 12 + 2 * j, 2)
            if offset < first or offset + 5 > pages.usable:  # a page number of 4 bytes, and a key
                return np.int64(NOT_READ)
            out[n] = _number(page, page.start + offset, 4)
            n += 1
        out[n] = _number(page, page.start + 8, 4)
        n += 1
    return np.int64(NOT_READ) if pages.damage[0] else n


class Wanted(NamedTuple):
    """The columns of a table that are read.

    `place`: for each column up to the last requested one: its row in the result, or -1. `has_default`: columns that are
    not NULL in rows that lack them: ALTER TABLE ADD COLUMN leaves the rows as they are. `alias`: row in the result of
    the column that stands for the rowid and is stored as NULL, or -1. `null`: what stands for NULL, texts and bytes.
    """

    place: IntArray
    has_default: BoolArray
    alias: int
    null: int


class Layouts(NamedTuple):
    """Where integers are in records with certain headers, each in a slot.

    `headers`: the size of such a record, 0 if the slot is empty, and the words of its header. `places`: for each
    requested column: the position of a word in a record, the bits to shift it to the right, their mask, and a constant
    that is set in the result.
    """

    headers: IntTable
    places: IntCube


class _Record(NamedTuple):
    """A row as it is stored.

    `payload`: bytes of the record. `local`: bytes of it in its leaf page; the others overflow.
    """

    start: int
    payload: int
    local: int


def make_layouts(columns: int) -> Layouts:
    """Return empty slots for tables of which so many columns are read. Blocks of one table share them."""
    return Layouts(np.zeros((_SLOTS, 1 + _WORDS), np.int64), np.empty((_SLOTS, columns, 4), np.int64))


@compiled
def read_leaves(pages: Pages, wanted: Wanted, layouts: Layouts, out: IntTable, row: int) -> int:
    """Write the requested integers of the rows in leaf pages to out[:, row:]; return the row after the last."""
    places = layouts.places
    for i in range(pages.number):
        page = _page(pages, i)
        cells, first = _cells(pages, page, LEAF)
        if cells < 0 or row + cells > out.shape[1]:
            return np.int64(NOT_READ)
        for j in range(cells):
            offset = _number(page, page.start + 8 + 2 * j, 2)
            if offset < first or offset + 4 > pages.usable:  # SQLite gives a cell at least 4 bytes
                return np.int64(NOT_READ)
            payload, at = _short_varint(page, page.start + offset)
            rowid, at = _varint(page, at)
            record = _Record(at, payload, _local_bytes(payload, pages.usable))
            overflow = 0 if record.local == payload else 4
            if payload < 1 or at + record.local + overflow > page.end:
                return np.int64(NOT_READ)
            slot = _hash_header(page, at)
            if not _is_kept(page, record, layouts, slot) and not _find_layout(page, record, wanted, layouts, slot):
                return np.int64(NOT_READ)
            for column in range(out.shape[0]):  # a kept layout is within the record: only its start is new
                word = _word(page, at + places[slot, column, 0], 1) >> places[slot, column, 1]
                out[column, row] = (word & places[slot, column, 2]) | places[slot, column, 3]
            if wanted.alias >= 0:
                out[wanted.alias, row] = rowid
            row += 1
    return np.int64(NOT_READ) if pages.damage[0] else row


@inlined
def _hash_header(page: _Page, start: int) -> int:
    """Return a number below _SLOTS that depends on the bytes of a record header."""
    number = np.int64(0)
    for word in range(min((_number(page, start, 1) + 7) >> 3, _WORDS)):
        number = (number ^ _word_of_header(page, start, word)) * 0x9E3779B97F4A7C1
    return (number >> 40) & (_SLOTS - 1)


@inlined
def _word_of_header(page: _Page, start: int, word: int) -> int:
    """Return a word of a header that is not too long to be kept, or the bytes of it that the header has."""
    left = _number(page, start, 1) - 8 * word
    return _word(page, start + 8 * word, 1) >> (8 * max(8 - left, 0))


@inlined
def _is_kept(page: _Page, record: _Record, layouts: Layouts, slot: int) -> bool:
    """Return whether a record has the size and the header in a slot; put them there if not."""
    kept = layouts.headers
    header = _number(page, record.start, 1)
    if header < 1 or header > 8 * _WORDS:
        kept[slot, 0] = 0
        return False
    is_same = kept[slot, 0] == record.payload
    words = (header + 7) >> 3
    for word in range(words):
        is_same &= kept[slot, 1 + word] == _word_of_header(page, record.start, word)
    if not is_same:
        kept[slot, 0] = record.payload
        for word in range(words):
            kept[slot, 1 + word] = _word_of_header(page, record.start, word)
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
def _find_layout(page: _Page, record: _Record, wanted: Wanted, layouts: Layouts, slot: int) -> bool:
    """Write to a slot where the requested integers are in a record. Return False for NOT_READ.

    Records with the same header and size have the same layout.
    """
    end = record.start + record.local
    places = layouts.places[slot]
    header, at = _short_varint(page, record.start)
    header_end = value = record.start + header
    if header <= at - record.start or header_end > end:  # SQLite takes a header without columns for damage
        return False
    column = 0
    while column < wanted.place.size and at < header_end:
        serial, at = _short_varint(page, at)
        to = wanted.place[column]
        if serial < 0 or serial == _RESERVED or serial == _RESERVED + 1:
            return False
        size = (serial - _BLOB) >> 1 if serial >= _BLOB else _BYTES[serial]
        if to >= 0:
            if serial == 0 or serial >= _BLOB:
                _set_constant(places, to, wanted.null)
            elif serial > _REAL:
                _set_constant(places, to, serial - 8)
            elif serial == _REAL or value + size > end:
                return False
            else:
                _set_layout(places, to, value - record.start, size, -1, 0)
        value += size
        column += 1
    # As in SQLite: values do not reach beyond the record, and fill it if the header was read to its end.
    record_end = record.start + record.payload
    if at > header_end or value > record_end or (at == header_end and value != record_end):
        return False
    for missing in range(column, wanted.place.size):
        if wanted.place[missing] >= 0:
            if wanted.has_default[missing]:
                return False
            _set_constant(places, wanted.place[missing], wanted.null)
    return True


@inlined
def _set_layout(places: IntTable, to: int, position: int, size: int, mask: int, constant: int) -> None:
    places[to, 0] = position
    places[to, 1] = 64 - 8 * size
    places[to, 2] = mask
    places[to, 3] = constant


@inlined
def _set_constant(places: IntTable, to: int, constant: int) -> None:
    """Let a value not depend on the record, of which the first byte is read."""
    _set_layout(places, to, 0, 1, 0, constant)
