"""Integer columns of large tables, read from the pages of the file: 20 times as fast as by sqlite3.

The file format is documented and will not change (https://www.sqlite.org/fileformat2.html). What is read here is what
sqlite3 gives, or nothing: whatever is out of the ordinary is left to sqlite3, which knows what to do with it, or says
what is wrong. That is: another writer, short or inconsistent files, tables WITHOUT ROWID, generated columns, columns of
floating point numbers, single such values, values in overflow pages, defaults of columns that were added later,
anything damaged, and tables so small that this is not worth its start.

Nothing is mapped into memory: a map of a file that someone cuts kills the program that touches it, a read fails.
"""

from __future__ import annotations

import os
import sqlite3
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from io import FileIO
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from nsys2prv_ng.arrays.types import ByteArray, IntArray
from nsys2prv_ng.report import page_kernels
from nsys2prv_ng.report.page_kernels import INTERIOR, LEAF, NOT_READ, SLACK

T = TypeVar("T")
_State = tuple[int, int, int, int]
"""Device, number, size (bytes) and time of last change (ns) of a file."""

SMALL = 64
"""Least number of leaf pages that this is worth: sqlite3 reads 64 in 4 ms, loading the kernels takes 8 ms, once."""

_HEADER_BYTES = 100
_LOCK_BYTE = 1 << 30
"""SQLite locks files by the byte at this position; the page that it is in holds nothing."""

_DEEPEST = 20
"""Levels of a tree; SQLite takes more for damage as well."""

_BLOCK_BYTES = 1 << 21
"""What is read at once: it stays in the cache until it is taken apart."""


class _UnusualError(Exception):
    """Something that is left to sqlite3."""


class PageReader:
    """Reads columns of one file, as long as that stays what it was when the reader was made."""

    def __init__(self, path: Path, small: int | None = None) -> None:
        """`small`: least number of leaf pages of the tables that are read, by default SMALL."""
        self._path = path
        self._small = SMALL if small is None else small
        try:
            self._state: _State | None = _state(path.stat())
        except OSError:
            self._state = None  # of no file that is opened later

    def check_tree(self, connection: sqlite3.Connection, table: str) -> None:
        """Raise sqlite3.DatabaseError for a table whose pages do not form a tree: sqlite3 could take forever to go
        through them. Whatever else is wrong with it is left to sqlite3."""
        try:
            with FileIO(self._path) as raw:
                _leaves(_File.open(raw), _root(connection, table))
        except (_UnusualError, OSError):
            return

    def read(self, connection: sqlite3.Connection, table: str, columns: Sequence[str], null: int) -> IntArray | None:
        """Integers as an array (columns, rows) in the order of the rowid, or None if sqlite3 has to read the table.

        NULL, text and bytes are `null`. `connection` is a connection to the file. Raises sqlite3.DatabaseError for a
        table whose pages do not form a tree, because sqlite3 could take forever to go through them.
        """

        def rows(file: _File, leaves: IntArray, wanted: _Wanted) -> IntArray:
            return _rows(file, leaves, wanted, len(columns), null)

        return self._taken_apart(connection, table, columns, rows)

    def read_by_block(
        self,
        connection: sqlite3.Connection,
        table: str,
        columns: Sequence[str],
        null: int,
        convert: Callable[[Sequence[IntArray]], T],
    ) -> list[T] | None:
        """What `convert` makes of the integers of some rows after the other, which are gone when it returns; else as
        `read`."""

        def converted(file: _File, leaves: IntArray, wanted: _Wanted) -> list[T]:
            return [convert(list(block)) for block in _blocks_of_rows(file, leaves, wanted, len(columns), null)]

        return self._taken_apart(connection, table, columns, converted)

    def _taken_apart(
        self,
        connection: sqlite3.Connection,
        table: str,
        columns: Sequence[str],
        take_apart: Callable[[_File, IntArray, _Wanted], T],
    ) -> T | None:
        """What is made of the leaf pages of a table, or None if sqlite3 has to read it."""
        try:
            wanted = _Wanted.find(connection, table, columns)
            with FileIO(self._path) as raw:
                self._be_unchanged(raw)
                file = _File.open(raw)
                leaves = _leaves(file, wanted.root)
                if leaves.size < self._small:
                    return None
                found = take_apart(file, leaves, wanted)
                self._be_unchanged(raw)
                return found
        except (_UnusualError, OSError):
            return None

    def _be_unchanged(self, raw: FileIO) -> None:
        if _state(os.fstat(raw.fileno())) != self._state:
            raise _UnusualError
        for suffix in ("-wal", "-journal"):
            beside = self._path.with_name(self._path.name + suffix)
            if beside.exists() and beside.stat().st_size:
                raise _UnusualError


def _state(status: os.stat_result) -> _State:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


@dataclass(frozen=True)
class _Wanted:
    """What is asked of a table, by the order in which its columns are stored."""

    root: int
    """Number of the page in which the table begins."""
    want: IntArray
    """For each column up to the last that is asked for: its place in the answer, or -1."""
    has_default: npt.NDArray[np.bool_]
    """Columns that are not NULL where a row lacks them: ALTER TABLE ADD COLUMN leaves the rows as they are."""
    alias: int
    """Place in the answer of the column that stands for the rowid and is stored as NULL, or -1."""

    @staticmethod
    def find(connection: sqlite3.Connection, table: str, columns: Sequence[str]) -> _Wanted:
        """Raises _UnusualError also where sqlite3 fails, since it will say so again."""
        root = _root(connection, table)
        try:
            schema, indexes_of_key = _schema(connection, table)
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
            raise _UnusualError  # where small numbers are stored as integers
        want = np.full(max(places) + 1, -1, np.int64)
        want[places] = np.arange(len(places))
        alias = -1
        if any(key) and not indexes_of_key:  # every other primary key has an index
            place = key.index(1)
            if types[place] != "INTEGER" or max(key) > 1:
                raise _UnusualError
            alias = int(want[place]) if place < want.size else -1
        return _Wanted(root, want, np.array(has_default[: want.size], np.bool_), alias)


def _root(connection: sqlite3.Connection, table: str) -> int:
    """First page of a table."""
    of_table = "SELECT rootpage FROM sqlite_master WHERE type = 'table' AND name = ?"
    try:
        connection.execute(f"SELECT rowid FROM {quote(table)} LIMIT 0")  # fails where there is no rowid
        ((root,),) = connection.execute(of_table, (table,))
    except (sqlite3.Error, ValueError):
        raise _UnusualError from None
    if not isinstance(root, int):
        raise _UnusualError
    return root


def _schema(connection: sqlite3.Connection, table: str) -> tuple[list[tuple[Any, ...]], int]:
    """Columns of a table as they are stored (a row for each), and how many indexes its key has."""
    columns = connection.execute(
        "SELECT name, upper(type), dflt_value IS NOT NULL, pk, hidden FROM pragma_table_xinfo(?) ORDER BY cid", (table,)
    )
    ((indexes,),) = connection.execute("SELECT count(*) FROM pragma_index_list(?) WHERE origin = 'pk'", (table,))
    return columns.fetchall(), indexes


def quote(name: str) -> str:
    """A name as SQL has it."""
    return '"' + name.replace('"', '""') + '"'


@dataclass(frozen=True)
class _File:
    """An open database file and what its header says (1.3 of the format)."""

    raw: FileIO
    page_size: int
    usable: int
    """Bytes of a page that are not reserved for extensions."""
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

    def blocks(self, numbers: IntArray) -> Iterator[tuple[ByteArray, int]]:
        """Contents of pages in their order, a block at a time, and how many they are; the next overwrites it."""
        block = max(_BLOCK_BYTES // self.page_size, 1)
        buffer = np.zeros(min(block, numbers.size) * self.page_size + SLACK, np.uint8)
        view = buffer.data
        for first in range(0, numbers.size, block):
            some = numbers[first : first + block]
            runs = np.flatnonzero(np.diff(some, prepend=-1, append=-1) != 1).tolist()
            for begin, end in pairwise(runs):
                self._read(int(some[begin]), view[begin * self.page_size : end * self.page_size])
            yield buffer, some.size

    def _read(self, number: int, into: memoryview) -> None:
        self.raw.seek((number - 1) * self.page_size)
        while into:
            read = self.raw.readinto(into)
            if not read:
                raise _UnusualError
            into = into[read:]


def _leaves(file: _File, root: int) -> IntArray:
    """Numbers of the leaf pages below a page, in the order of their rows: all are on the last level of the tree."""
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
        first, _ = next(file.blocks(level[:1]))
        if first[0] == LEAF:
            return level
        level = np.concatenate([_children(file, block, pages) for block, pages in file.blocks(level)])
    raise _UnusualError


def _children(file: _File, block: ByteArray, pages: int) -> IntArray:
    cells = page_kernels.count_cells(block, pages, INTERIOR, file.page_size, file.usable)
    children = np.empty(max(cells, 0) + pages, np.int64)
    if page_kernels.read_children(block, pages, file.page_size, file.usable, children) == NOT_READ:
        raise _UnusualError
    return children


def _rows(file: _File, leaves: IntArray, wanted: _Wanted, columns: int, null: int) -> IntArray:
    found = np.empty((columns, 0), np.int64)
    rows = done = 0
    for block, pages in file.blocks(leaves):
        cells = _cells(file, block, pages)
        done += pages
        if rows + cells > found.shape[1]:
            # As if the pages to come held as many rows as those before; memory that is not used is not given either.
            wider = np.empty((columns, (rows + cells) * leaves.size // done * 51 // 50 + 1), np.int64)
            wider[:, :rows] = found[:, :rows]
            found = wider
        rows = _read_block(file, block, pages, wanted, null, found, rows)
    return found[:, :rows]


def _blocks_of_rows(file: _File, leaves: IntArray, wanted: _Wanted, columns: int, null: int) -> Iterator[IntArray]:
    """Rows of some leaf pages after the other; the next overwrite them."""
    found = np.empty((columns, 0), np.int64)
    for block, pages in file.blocks(leaves):
        cells = _cells(file, block, pages)
        if cells > found.shape[1]:
            found = np.empty((columns, cells * 5 // 4), np.int64)
        yield found[:, : _read_block(file, block, pages, wanted, null, found, 0)]


def _cells(file: _File, block: ByteArray, pages: int) -> int:
    """Number of rows in leaf pages."""
    cells: int = page_kernels.count_cells(block, pages, LEAF, file.page_size, file.usable)
    if cells == NOT_READ:
        raise _UnusualError
    return cells


def _read_block(file: _File, block: ByteArray, pages: int, wanted: _Wanted, null: int, into: IntArray, row: int) -> int:
    """Rows of leaf pages into into[:, row:]; the row after the last."""
    row = page_kernels.read_leaves(
        block, pages, file.page_size, file.usable, wanted.want, wanted.has_default, wanted.alias, null, into, row
    )
    if row == NOT_READ:
        raise _UnusualError
    return row
