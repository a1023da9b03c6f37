"""An export to SQLite, opened without touching it.

PageReader reads the columns of large tables, and sqlite3 what is small. SQLAlchemy writes the statements that select
rows of large tables; it is imported for those only, since that takes 0.2 s, in which sqlite3 reads 200,000 rows. Values
may be of another type than their column declares, so each is asked for its own.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from nsys2prv_ng.arrays.types import FloatArray, IntArray
from nsys2prv_ng.errors import ReportError
from nsys2prv_ng.report.pages import PageReader, quote
from nsys2prv_ng.report.table_reader import (
    NULL,
    Among,
    make_damage_error,
    make_unreadable_error,
)

_MAGIC = b"SQLite format 3\x00"
_TRACE_START = b"#Paraver"
_TABLE_STARTS = (b"PAR1", b"ARROW1", b"\xff\xff\xff\xff")
"""First bytes of a file of one table: Parquet, Arrow, Arrow as a stream."""
_BLOCK_ROWS = 1 << 16
_FEW_ROWS = 1 << 15
"""Most rows of a table that is read whole, to select some of them then."""

_ERRORS = (sqlite3.Error, UnicodeDecodeError)
"""Errors of damaged files; the last occurs where sqlite3's own message quotes invalid text."""
_SELECT_TABLES = r"SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite\_%' ESCAPE '\'"
_SELECT_COLUMNS = "SELECT name FROM pragma_table_xinfo(?) WHERE hidden != 1"

T = TypeVar("T")


class SqliteFile:
    """The TableReader of an SQLite file. Raises ReportError for a file that is not an SQLite database, or is damaged.

    `small`: least number of leaf pages of the tables that are read without sqlite3.
    """

    def __init__(self, path: Path, small: int | None = None) -> None:
        self.path = path
        _check_file(path)
        try:
            self._pages = PageReader(path, small)
            self._connection = sqlite3.connect(
                f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True, check_same_thread=False
            )
            self._connection.text_factory = lambda data: data.decode("utf-8", "replace")
            self.tables = frozenset(name for (name,) in self._connection.execute(_SELECT_TABLES))
        except _ERRORS as error:
            raise make_damage_error(path, error) from None

    def close(self) -> None:
        self._connection.close()

    def list_columns(self, table: str) -> frozenset[str]:
        try:
            return frozenset(name for (name,) in self._connection.execute(_SELECT_COLUMNS, (table,)))
        except _ERRORS as error:
            raise make_damage_error(self.path, error, table) from None

    def count_rows(self, table: str) -> int:
        try:
            self._pages.check_tree(self._connection, table)
            ((rows,),) = self._connection.execute(f"SELECT count(*) FROM {quote(table)}")
        except sqlite3.Error as error:
            raise make_damage_error(self.path, error, table) from None
        return int(rows)

    def read_objects(self, table: str, columns: Sequence[str], among: Among) -> list[list[Any]]:
        is_large = among and self.count_rows(table) > _FEW_ROWS
        try:
            rows = self._select_rows(table, columns, among) if is_large else self._read_rows(table, columns, among)
        except _ERRORS as error:
            raise make_damage_error(self.path, error, table) from None
        return [list(column) for column in zip(*rows, strict=True)] or [[] for _ in columns]

    def _select_rows(self, table: str, columns: Sequence[str], among: Among) -> list[tuple[Any, ...]]:
        """Return the rows that SQL finds."""
        import sqlalchemy as sa
        from sqlalchemy.dialects import sqlite

        conditions = [sa.column(name).in_(list(values)) for name, values in among.items()]
        statement = sa.table(table, *map(sa.column, columns)).select().where(*conditions)
        sql = str(statement.compile(dialect=sqlite.dialect(), compile_kwargs={"literal_binds": True}))
        return self._connection.execute(sql).fetchall()  # SQLAlchemy's own rows take twice as long, or more

    def _read_rows(self, table: str, columns: Sequence[str], among: Among) -> list[tuple[Any, ...]]:
        """Return the same rows, found among all of them."""
        names = ", ".join(map(quote, [*columns, *among]))
        rows = self._connection.execute(f"SELECT {names} FROM {quote(table)}").fetchall()
        if not among:
            return rows
        wanted, width = [frozenset(values) for values in among.values()], len(columns)
        return [row[:width] for row in rows if all(map(frozenset.__contains__, wanted, row[width:]))]

    def read_integers(self, table: str, columns: Sequence[str]) -> list[IntArray]:
        try:
            block = self._pages.read(self._connection, table, columns, NULL)
            if block is None:
                block = self._integers(table, columns)
        except _ERRORS as error:
            raise make_damage_error(self.path, error, table) from None
        return [np.ascontiguousarray(column) for column in block]

    def read_by_block(self, table: str, columns: Sequence[str], convert: Callable[[Sequence[IntArray]], T]) -> list[T]:
        try:
            answers = self._pages.read_by_block(self._connection, table, columns, NULL, convert)
            return [convert(list(self._integers(table, columns)))] if answers is None else answers
        except _ERRORS as error:
            raise make_damage_error(self.path, error, table) from None

    def _integers(self, table: str, columns: Sequence[str]) -> IntArray:
        """Read columns of integers with sqlite3; return an array (columns, rows)."""
        statement = f"SELECT {', '.join(map(_select_integer, columns))} FROM {quote(table)} ORDER BY rowid"
        flat = np.fromiter(chain.from_iterable(self._connection.execute(statement)), np.int64)
        return flat.reshape(-1, len(columns)).T

    def read_texts(self, table: str, column: str) -> pa.ChunkedArray:
        return self._values(table, _select_text(column), pa.string())

    def read_blobs(self, table: str, column: str) -> pa.ChunkedArray:
        quoted = quote(column)
        value = f"CASE WHEN typeof({quoted}) IN ('blob', 'text') THEN CAST({quoted} AS BLOB) END"
        return self._values(table, value, pa.binary())

    def read_reals(self, table: str, column: str) -> FloatArray:
        quoted = quote(column)
        value = f"CASE WHEN typeof({quoted}) IN ('real', 'integer') THEN CAST({quoted} AS REAL) END"
        return np.asarray(self._values(table, value, pa.float64()).to_numpy(), np.float64)

    def _values(self, table: str, value: str, kind: pa.DataType) -> pa.ChunkedArray:
        return pa.chunked_array(list(self._blocks(table, value, kind)), kind)

    def _blocks(self, table: str, value: str, kind: pa.DataType) -> Iterator[pa.Array]:
        """Yield the values of at most `_BLOCK_ROWS` rows at a time."""
        try:
            cursor = self._connection.execute(f"SELECT {value} FROM {quote(table)} ORDER BY rowid")
            while rows_read := cursor.fetchmany(_BLOCK_ROWS):
                block = pa.array([item for (item,) in rows_read], kind)
                del rows_read
                # Strings of more than 2 GiB come in several arrays.
                yield from block.chunks if isinstance(block, pa.ChunkedArray) else [block]
        except _ERRORS as error:
            raise make_damage_error(self.path, error, table) from None


def _check_file(path: Path) -> None:
    if path.exists() and not path.is_file():
        raise ReportError(f"{path}: is a device or a pipe; write its content to a file")
    try:
        with path.open("rb") as file:
            start = file.read(len(_MAGIC))
    except OSError as error:
        raise make_unreadable_error(path, error) from None
    if not start:
        raise ReportError(f"{path}: the file is empty; export the report again")
    if start.startswith(_TABLE_STARTS):
        raise ReportError(
            f"{path}: not a whole export; if it is a table of one, name the folder that it is in,"
            " else make one with: nsys export --type parquetdir REPORT.nsys-rep"
        )
    if start.startswith(_TRACE_START):
        raise ReportError(f"{path}: is a Paraver trace; name the reports that it was made of")
    if start != _MAGIC:
        raise ReportError(f"{path}: not an SQLite database; make one with: nsys export --type sqlite REPORT.nsys-rep")
    for suffix in ("-wal", "-journal"):
        beside = path.with_name(path.name + suffix)
        if beside.exists():
            raise ReportError(
                f"{path}: {beside.name} beside it says that a program is writing to it or was stopped while it was;"
                " end that program, or open the report once with sqlite3, or export it again"
            )


def _select_text(name: str) -> str:
    quoted = quote(name)
    return f"CASE typeof({quoted}) WHEN 'text' THEN {quoted} END"


def _select_integer(name: str) -> str:
    quoted = quote(name)
    return (
        f"CASE typeof({quoted}) WHEN 'integer' THEN {quoted} WHEN 'real' THEN CAST({quoted} AS INTEGER) ELSE {NULL} END"
    )
