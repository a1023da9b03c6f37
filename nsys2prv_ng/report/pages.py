"""Reads integer columns of large tables from the pages of the file: 20 times as fast as sqlite3.

The file format is documented and will not change (https://www.sqlite.org/fileformat2.html). The result is what sqlite3
would return, or nothing. Everything out of the ordinary is left to sqlite3, which reads it or reports what is wrong:
another writer, short or inconsistent files, generated columns, columns of floating point numbers, single floating point
values, values in overflow pages, defaults of columns that were added later, anything damaged, and tables so small that
reading their pages does not pay.

Nothing is mapped into memory: if someone truncates the file, touching a map kills the program, whereas a read fails.

The library alternative is DuckDB's sqlite scanner. Its speed was not measured, because DuckDB downloads that extension
at the first use, which fails on compute nodes without a network.
"""

from __future__ import annotations

import os
import sqlite3
import struct
from collections.abc import Callable, Iterator, Sequence
from io import FileIO
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

import numpy as np

from nsys2prv_ng.arrays.types import IntArray, put
from nsys2prv_ng.report import page_kernels
from nsys2prv_ng.report.page_kernels import INTERIOR, LEAF, NOT_READ, Pages, Wanted
from nsys2prv_ng.report.table_reader import NULL
from nsys2prv_ng.value_class import ValueClass

T = TypeVar("T")
_State = tuple[int, int, int, int]
"""Device, number, size (bytes) and time of last change (ns) of a file."""

SMALL = 8
"""Fewest leaf pages that make this worthwhile: finding them takes 0.2 ms, in which sqlite3 reads 4 of them."""

_HEADER_BYTES = 100
_LOCK_BYTE = 1 << 30
"""SQLite locks files by the byte at this position; the page that contains it is empty."""

_DEEPEST = 20
"""Most levels of a tree; SQLite also treats more levels as damage."""

_BLOCK_BYTES = 1 << 22
"""Bytes to read at once: they stay in the CPU cache until they are taken apart. Half as many take 2 % longer."""

_SELECT_COLUMNS = "SELECT name, upper(type), dflt_value IS NOT NULL, pk, hidden FROM pragma_table_xinfo(?) ORDER BY cid"
"""The columns of a table in stored order."""
_COUNT_INDEXES_OF_KEY = "SELECT count(*) FROM pragma_index_list(?) WHERE origin = 'pk'"


class _UnusualError(Exception):
    """Signal that a case is left to sqlite3."""


class PageReader:
    """Reader of columns of one file, as long as the file does not change after the reader is made."""

    def __init__(self, path: Path, small: int = SMALL) -> None:
        """`small`: the fewest leaf pages of a table that is read."""
        self._path = path
        self._small = small
        try:
            self._state: _State | None = _get_state(path.stat())
        except OSError:
            self._state = None  # equals the state of no file that is opened later

    def check_tree(self, connection: sqlite3.Connection, table: str) -> None:
        """Raise sqlite3.DatabaseError if the pages of a table do not form a tree, because sqlite3 could take forever to
        go through them. All other damage is left to sqlite3."""
        try:
            with FileIO(self._path) as raw:
                _find_leaves(_File.open(raw), _find_root(connection, table))
        except (_UnusualError, OSError):
            return

    def read(self, connection: sqlite3.Connection, table: str, columns: Sequence[str]) -> IntArray | None:
        """Return integers as an array (columns x rows) in rowid order; None if sqlite3 has to read the table.

        NULL, text and bytes are `NULL`. `connection` is a connection to the file. Raises sqlite3.DatabaseError as
        `check_tree` does.
        """
        return self._take_apart(connection, table, columns, _read_rows)

    def read_by_block(
        self,
        connection: sqlite3.Connection,
        table: str,
        columns: Sequence[str],
        convert: Callable[[Sequence[IntArray]], T],
    ) -> list[T] | None:
        """Return what `convert` makes of the integers of each block of rows, as `read` reads them. Blocks last only for
        the call."""

        def converted(file: _File, leaves: IntArray, request: _Request) -> list[T]:
            return [convert(list(block)) for block in _read_row_blocks(file, leaves, request)]

        return self._take_apart(connection, table, columns, converted)

    def _take_apart(
        self,
        connection: sqlite3.Connection,
        table: str,
        columns: Sequence[str],
        take_apart: Callable[[_File, IntArray, _Request], T],
    ) -> T | None:
        """Return what `take_apart` makes of the leaf pages of a table; None if sqlite3 has to read it."""
        try:
            request = _Request.find(connection, table, columns)
            with FileIO(self._path) as raw:
                self._check_unchanged(raw)
                file = _File.open(raw)
                leaves = _find_leaves(file, request.root)
                if leaves.size < self._small:
                    return None
                answer = take_apart(file, leaves, request)
                self._check_unchanged(raw)
                return answer
        except (_UnusualError, OSError):
            return None

    def _check_unchanged(self, raw: FileIO) -> None:
        if _get_state(os.fstat(raw.fileno())) != self._state:
            raise _UnusualError
        for suffix in ("-wal", "-journal"):
            beside = self._path.with_name(self._path.name + suffix)
            if beside.exists() and beside.stat().st_size:
                raise _UnusualError


def _get_state(status: os.stat_result) -> _State:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


class _Request(ValueClass):
    """Columns that a caller asks for, in the order in which the table stores them.

    `root`: number of the first page of the table. `columns`: number of requested columns.
    """

    root: int
    columns: int
    wanted: Wanted

    @staticmethod
    def find(connection: sqlite3.Connection, table: str, columns: Sequence[str]) -> _Request:
        """Look up the columns. Raises _UnusualError also if sqlite3 fails, because it will fail again."""
        root = _find_root(connection, table)
        try:
            schema = connection.execute(_SELECT_COLUMNS, (table,)).fetchall()
            ((indexes_of_key,),) = connection.execute(_COUNT_INDEXES_OF_KEY, (table,))
        except (sqlite3.Error, ValueError):
            raise _UnusualError from None
        if not schema:
            raise _UnusualError
        names, types, has_default, key, hidden = zip(*schema, strict=True)
        if not columns or not set(columns) <= set(names) or len(set(columns)) < len(columns):
            raise _UnusualError
        if any(hidden) or "rowid" in map(str.lower, names):
            raise _UnusualError
        places = [names.index(name) for name in columns]
        if any(real in types[place] for place in places for real in ("REAL", "FLOA", "DOUB")):
            raise _UnusualError  # SQLite stores small numbers in such columns as integers
        want = put(np.arange(len(places)), places, max(places) + 1)
        alias = -1
        if any(key) and not indexes_of_key:  # every other primary key has an index
            place = key.index(1)
            if types[place] != "INTEGER" or max(key) > 1:
                raise _UnusualError
            alias = int(want[place]) if place < want.size else -1
        has_defaults = np.array(has_default[: want.size], np.bool_)
        return _Request(root, len(columns), Wanted(want, has_defaults, alias, NULL))


def _find_root(connection: sqlite3.Connection, table: str) -> int:
    """Return the number of the first page of a table."""
    statement = "SELECT rootpage FROM sqlite_master WHERE type = 'table' AND name = ?"
    try:
        connection.execute(f"SELECT rowid FROM {quote(table)} LIMIT 0")  # fails if there is no rowid
        ((root,),) = connection.execute(statement, (table,))
    except (sqlite3.Error, ValueError):
        raise _UnusualError from None
    if not isinstance(root, int):
        raise _UnusualError
    return root


def quote(name: str) -> str:
    """Quote a name for SQL."""
    return '"' + name.replace('"', '""') + '"'


class _File(ValueClass):
    """Open database file, and facts from its header (1.3 of the format).

    `usable`: bytes of a page that are not reserved for extensions.
    """

    raw: FileIO
    page_size: int
    usable: int
    pages: int

    @staticmethod
    def open(raw: FileIO) -> _File:
        size = os.fstat(raw.fileno()).st_size
        raw.seek(0)
        header = raw.read(_HEADER_BYTES)
        if header is None or len(header) < _HEADER_BYTES:
            raise _UnusualError
        page_size, write_version, read_version, reserved = struct.unpack_from(">HBBB", header, 16)
        page_size = 65536 if page_size == 1 else page_size
        (changed, pages), (valid_for,) = struct.unpack_from(">II", header, 24), struct.unpack_from(">I", header, 92)
        sound = (
            page_size >= 512
            and page_size & (page_size - 1) == 0
            and page_size - reserved >= 480
            and write_version in (1, 2)
            and read_version in (1, 2)
            and header[21:24] == b"\x40\x20\x20"  # fractions of a page, which are fixed
            and changed == valid_for  # the number of pages is up to date
            and 0 < pages * page_size <= size
        )
        if not sound:
            raise _UnusualError
        return _File(raw, page_size, page_size - reserved, pages)

    def blocks(self, numbers: IntArray) -> Iterator[Pages]:
        """Yield blocks of pages in their order; the next block overwrites it."""
        block = max(_BLOCK_BYTES // self.page_size, 1)
        buffer = page_kernels.make_room(min(block, numbers.size), self.page_size)
        view = buffer.data
        for first in range(0, numbers.size, block):
            wanted = numbers[first : first + block]
            runs = np.flatnonzero(np.diff(wanted, prepend=-1, append=-1) != 1).tolist()
            for start, end in pairwise(runs):
                self._read(int(wanted[start]), view[start * self.page_size : end * self.page_size])
            yield page_kernels.make_pages(buffer, wanted.size, self.page_size, self.usable)

    def _read(self, number: int, into: memoryview) -> None:
        self.raw.seek((number - 1) * self.page_size)
        while into:
            read = self.raw.readinto(into)
            if not read:
                raise _UnusualError
            into = into[read:]


def _find_leaves(file: _File, root: int) -> IntArray:
    """Return the numbers of the leaf pages below a page, in the order of rows. All leaves are on the last level."""
    seen = np.zeros(file.pages + 1, np.bool_)
    visited = 0
    level = np.array([root], np.int64)
    for _ in range(_DEEPEST):
        if level.min() < 2 or level.max() > file.pages or np.any(level == _LOCK_BYTE // file.page_size + 1):
            raise _UnusualError
        seen[level] = True
        visited += level.size
        if np.count_nonzero(seen) < visited:
            raise sqlite3.DatabaseError("pages of the database refer to each other in circles")
        if next(file.blocks(level[:1])).data[0] == LEAF:
            return level
        level = np.concatenate(list(map(_read_children, file.blocks(level))))
    raise _UnusualError


def _read_children(block: Pages) -> IntArray:
    children = np.empty(_count_cells(block, INTERIOR) + block.number, np.int64)
    _check_read(page_kernels.read_children(block, children))
    return children


def _read_rows(file: _File, leaves: IntArray, request: _Request) -> IntArray:
    integers, layouts = np.empty((request.columns, 0), np.int64), page_kernels.make_layouts(request.columns)
    rows = done = 0
    for block in file.blocks(leaves):
        cells = _count_cells(block)
        done += block.number
        if rows + cells > integers.shape[1]:
            # Expect as many rows per page as so far; the system never allocates memory that is never used.
            wider = np.empty((request.columns, (rows + cells) * leaves.size // done * 51 // 50 + 1), np.int64)
            wider[:, :rows] = integers[:, :rows]
            integers = wider
        rows = _check_read(page_kernels.read_leaves(block, request.wanted, layouts, integers, rows))
    return integers[:, :rows]


def _read_row_blocks(file: _File, leaves: IntArray, request: _Request) -> Iterator[IntArray]:
    """Yield the rows of one block of leaf pages after the other; the next block overwrites them."""
    integers, layouts = np.empty((request.columns, 0), np.int64), page_kernels.make_layouts(request.columns)
    for block in file.blocks(leaves):
        cells = _count_cells(block)
        if cells > integers.shape[1]:
            integers = np.empty((request.columns, cells * 5 // 4), np.int64)
        yield integers[:, : _check_read(page_kernels.read_leaves(block, request.wanted, layouts, integers, 0))]


def _count_cells(block: Pages, kind: int = LEAF) -> int:
    """Return the number of rows in leaf pages, or of the keys in interior pages."""
    return _check_read(page_kernels.count_cells(block, kind))


def _check_read(number: int) -> int:
    """Return a number of rows or pages, unless sqlite3 has to read them."""
    if number == NOT_READ:
        raise _UnusualError
    return number
