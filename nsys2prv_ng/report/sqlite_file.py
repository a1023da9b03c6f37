"""Reads an export to SQLite without changing it.

PageReader reads integer columns of large tables, and sqlite3 reads everything else. SQLAlchemy writes the statements
that select rows of large tables; it is imported for these only, because that takes 0.2 s, in which sqlite3 reads
200,000 rows. Values may have another type than their column declares, so each value is asked for its own.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.errors import ReportError
from nsys2prv_ng.report.formats import FOLDER_FORMATS, PARQUET, SQLITE
from nsys2prv_ng.report.pages import SMALL, PageReader, quote
from nsys2prv_ng.report.table_reader import NULL, Among, make_damage_error, make_unreadable_error

_TRACE_START = b"#Paraver"
_TABLE_STARTS = tuple(start for format in FOLDER_FORMATS for start in format.first_bytes)
"""First bytes of a file with one table."""
_BLOCK_ROWS = 1 << 16
"""A choice: more rows only take more memory, as each is a Python object for a moment."""
_FEW_ROWS = 1 << 15
"""Tables with more rows are large: SQL selects rows of them. Of smaller tables, all rows are read."""
_SELECT_TABLES = r"SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite\_%' ESCAPE '\'"
_SELECT_COLUMNS = "SELECT name FROM pragma_table_xinfo(?) WHERE hidden != 1"
_ROWID_NAMES = ("rowid", "oid", "_rowid_")
"""Names of the rowid, unless columns have them."""

_VALUES = {
    pa.string(): "CASE typeof({0}) WHEN 'text' THEN {0} END",
    pa.binary(): "CASE WHEN typeof({0}) IN ('blob', 'text') THEN CAST({0} AS BLOB) END",
    pa.float64(): "CASE WHEN typeof({0}) IN ('real', 'integer') THEN CAST({0} AS REAL) END",
}
"""SQL for a column's values of each type; other values are NULL."""

T = TypeVar("T")


class SqliteFile:
    """TableReader of an SQLite file. Raises ReportError for a file that is not an SQLite database, or is damaged.

    `small`: the fewest leaf pages of a table that is read without sqlite3.
    """

    def __init__(self, path: Path, small: int = SMALL) -> None:
        self.path = path
        self._rowids: dict[str, str] = {}
        _check_file(path)
        with _report_damage(path):
            self._pages = PageReader(path, small)
            self._connection = sqlite3.connect(
                f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True, check_same_thread=False
            )
            self._connection.text_factory = lambda data: data.decode("utf-8", "replace")
            self.tables = frozenset(name for (name,) in self._connection.execute(_SELECT_TABLES))

    def close(self) -> None:
        self._connection.close()

    def list_columns(self, table: str) -> frozenset[str]:
        self._find_rowid(table)
        with _report_damage(self.path, table):
            return frozenset(name for (name,) in self._connection.execute(_SELECT_COLUMNS, (table,)))

    def _find_rowid(self, table: str) -> str:
        """Return a name of the rowid of a table. Raises ReportError for a table without one: its pages, which are those
        of an index, cannot be checked, and its rows are in another order."""
        if table in self._rowids:
            return self._rowids[table]
        with _report_damage(self.path, table):
            names = {name.lower() for (name,) in self._connection.execute(_SELECT_COLUMNS, (table,))}
            for free in (name for name in _ROWID_NAMES if name not in names):
                try:
                    self._connection.execute(f"SELECT {free} FROM {quote(table)} LIMIT 0")
                except sqlite3.OperationalError as error:
                    if not str(error).startswith("no such column"):
                        raise
                else:
                    return self._rowids.setdefault(table, free)
        raise ReportError(
            f"{self.path}: table {table} has no rowid, as if made WITHOUT ROWID, which nsys never does;"
            " export the report again"
        )

    def count_rows(self, table: str) -> int:
        self._find_rowid(table)
        with _report_damage(self.path, table):
            self._pages.check_tree(self._connection, table)
            ((rows,),) = self._connection.execute(f"SELECT count(*) FROM {quote(table)}")
        return int(rows)

    def read_objects(self, table: str, columns: Sequence[str], among: Among) -> list[list[Any]]:
        is_large = among and self.count_rows(table) > _FEW_ROWS
        with _report_damage(self.path, table):
            rows = self._select_rows(table, columns, among) if is_large else self._read_rows(table, columns, among)
        return [list(column) for column in zip(*rows, strict=True)] or [[] for _ in columns]

    def _select_rows(self, table: str, columns: Sequence[str], among: Among) -> list[tuple[Any, ...]]:
        """Return the rows that SQL finds."""
        import sqlalchemy as sa
        from sqlalchemy.dialects import sqlite

        conditions = [sa.column(name).in_(list(values)) for name, values in among.items()]
        rowid = sa.text(self._find_rowid(table))
        statement = sa.table(table, *map(sa.column, columns)).select().where(*conditions).order_by(rowid)
        sql = str(statement.compile(dialect=sqlite.dialect(), compile_kwargs={"literal_binds": True}))
        return self._connection.execute(sql).fetchall()  # SQLAlchemy's own rows take twice as long, or more

    def _read_rows(self, table: str, columns: Sequence[str], among: Among) -> list[tuple[Any, ...]]:
        """Return the same rows, found among all of them."""
        names = ", ".join(map(quote, [*columns, *among]))
        # An index that has all these columns would give the rows in its own order.
        rows = self._connection.execute(f"SELECT {names} FROM {quote(table)} NOT INDEXED").fetchall()
        if not among:
            return rows
        wanted, width = [frozenset(values) for values in among.values()], len(columns)
        return [row[:width] for row in rows if all(map(frozenset.__contains__, wanted, row[width:]))]

    def read_integers(self, table: str, columns: Sequence[str]) -> list[IntArray]:
        with _report_damage(self.path, table):
            block = self._pages.read(self._connection, table, columns)
            if block is None:
                block = self._integers(table, columns)
        return [np.ascontiguousarray(column) for column in block]

    def read_by_block(self, table: str, columns: Sequence[str], convert: Callable[[Sequence[IntArray]], T]) -> list[T]:
        with _report_damage(self.path, table):
            answers = self._pages.read_by_block(self._connection, table, columns, convert)
            return [convert(list(self._integers(table, columns)))] if answers is None else answers

    def _integers(self, table: str, columns: Sequence[str]) -> IntArray:
        """Read columns of integers with sqlite3; return an array (columns, rows)."""
        names = ", ".join(map(_select_integer, columns))
        statement = f"SELECT {names} FROM {quote(table)} ORDER BY {self._find_rowid(table)}"
        flat = np.fromiter(chain.from_iterable(self._connection.execute(statement)), np.int64)
        return flat.reshape(-1, len(columns)).T

    def read_values(self, table: str, column: str, kind: pa.DataType) -> pa.ChunkedArray:
        with _report_damage(self.path, table):
            return pa.chunked_array(list(self._blocks(table, column, kind)), kind)

    def _blocks(self, table: str, column: str, kind: pa.DataType) -> Iterator[pa.Array]:
        """Yield the values of at most `_BLOCK_ROWS` rows at once."""
        value = _VALUES[kind].format(quote(column))
        cursor = self._connection.execute(f"SELECT {value} FROM {quote(table)} ORDER BY {self._find_rowid(table)}")
        while rows_read := cursor.fetchmany(_BLOCK_ROWS):
            block = pa.array([item for (item,) in rows_read], kind)
            del rows_read
            # Strings of more than 2 GiB come in several arrays.
            yield from block.chunks if isinstance(block, pa.ChunkedArray) else [block]


@contextmanager
def _report_damage(path: Path, table: str = "") -> Iterator[None]:
    """Turn errors of a damaged file, or of a table in it, into a ReportError."""
    try:
        yield
    except (sqlite3.Error, UnicodeDecodeError) as error:  # the last one if sqlite3's own message quotes invalid text
        raise make_damage_error(path, error, table) from None


def _check_file(path: Path) -> None:
    if path.exists() and not path.is_file():
        raise ReportError(f"{path}: is a device or a pipe; write its content to a file")
    try:
        with path.open("rb") as file:
            start = file.read(16)
    except OSError as error:
        raise make_unreadable_error(path, error) from None
    if not start:
        raise ReportError(f"{path}: the file is empty; export the report again")
    if start.startswith(_TABLE_STARTS):
        raise ReportError(
            f"{path}: not a whole export; if it is a table of one, name the folder that it is in,"
            f" else make one with: {PARQUET.command}"
        )
    if start.startswith(_TRACE_START):
        raise ReportError(f"{path}: is a Paraver trace; name the reports that it was made of")
    if start not in SQLITE.first_bytes:
        raise ReportError(f"{path}: not an SQLite database; make one with: {SQLITE.command}")
    for suffix in ("-wal", "-journal"):
        beside = path.with_name(path.name + suffix)
        if beside.exists():
            raise ReportError(
                f"{path}: unfinished, {beside.name} is beside it; wait for the writer, or export the report again"
            )


def _select_integer(name: str) -> str:
    quoted = quote(name)
    return (
        f"CASE typeof({quoted}) WHEN 'integer' THEN {quoted} WHEN 'real' THEN CAST({quoted} AS INTEGER) ELSE {NULL} END"
    )
