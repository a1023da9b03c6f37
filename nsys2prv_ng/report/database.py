"""An nsys export in SQLite, opened without touching it: schema, columns of numbers, columns of text, small tables.

Exports differ by version: tables are written only when they have rows, columns come and go, and values may be NULL or
of another type than declared. So everything is selected by column name, and what is not a number reads as NULL.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import sqlalchemy as sa
from sqlalchemy.pool import StaticPool

from nsys2prv_ng.errors import TranslationError
from nsys2prv_ng.report.pages import PageReader, quote

IntArray = npt.NDArray[np.int64]

NULL = np.iinfo(np.int64).min
"""Stands for NULL, and for whatever is not a number, in columns of integers."""

_MAGIC = b"SQLite format 3\x00"
_TEXT_BLOCK = 1 << 16


@dataclass(frozen=True)
class Table:
    """What a source needs of a table: columns that must be there, columns that may be missing, columns of text."""

    name: str
    required: tuple[str, ...]
    optional: Mapping[str, int] = field(default_factory=dict)
    """Default of each integer column that some schema versions do not have; it also replaces NULL."""
    text: tuple[str, ...] = ()
    """Columns of text, which may be missing and then hold only NULL."""
    real: tuple[str, ...] = ()
    """Columns of floating point numbers, likewise."""
    blob: tuple[str, ...] = ()
    """Columns of bytes, likewise. Text in them is given as its bytes."""


@dataclass(frozen=True)
class Columns:
    """Columns of a table, each of `rows` values in the order of the rows.

    NULL is `NULL` among integers, null among strings and bytes, and not a number among floats.
    """

    rows: int
    numbers: Mapping[str, IntArray]
    texts: Mapping[str, pa.ChunkedArray]
    blobs: Mapping[str, pa.ChunkedArray] = field(default_factory=dict)
    reals: Mapping[str, npt.NDArray[np.float64]] = field(default_factory=dict)

    def __getitem__(self, name: str) -> IntArray:
        return self.numbers[name]


class Database:
    """A read-only nsys export. Raises TranslationError for a file that is not one, or is damaged."""

    def __init__(self, path: Path) -> None:
        self.path = path
        _check_file(path)
        try:
            self._pages = PageReader(path)
            self._connection = sqlite3.connect(
                f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True, check_same_thread=False
            )
            self._connection.text_factory = lambda data: data.decode("utf-8", "replace")
            self._engine = sa.create_engine("sqlite://", creator=lambda: self._connection, poolclass=StaticPool)
            self.tables = frozenset(sa.inspect(self._engine).get_table_names())
        except (sqlite3.Error, sa.exc.SQLAlchemyError) as error:
            raise self._damaged(error) from None
        if "StringIds" not in self.tables:
            raise TranslationError(
                f"{path}: not an nsys export (it has no table StringIds);"
                " make one with: nsys export --type sqlite REPORT.nsys-rep"
            )
        self._columns: dict[str, frozenset[str]] = {}

    def close(self) -> None:
        self._engine.dispose()
        self._connection.close()

    def columns_of(self, table: str) -> frozenset[str]:
        """Names of a table's columns; empty where the report has no such table."""
        if table not in self.tables:
            return frozenset()
        if table not in self._columns:
            try:
                found = sa.inspect(self._engine).get_columns(table)
            except (sqlite3.Error, sa.exc.SQLAlchemyError) as error:
                raise self._damaged(error, table) from None
            self._columns[table] = frozenset(column["name"] for column in found)
        return self._columns[table]

    def frame(self, table: str, columns: Sequence[str], where: str = "") -> pd.DataFrame:
        """A small table, or the rows of one that fulfil an SQL condition on columns that every version has.

        Columns that the export does not have hold None; a missing table has no rows.
        """
        present = [name for name in columns if name in self.columns_of(table)]
        if not present:
            return pd.DataFrame({name: pd.Series(dtype=object) for name in columns})
        statement = sa.text(f"SELECT {_list(present)} FROM {quote(table)}{' WHERE ' + where if where else ''}")
        try:
            with self._engine.connect() as connection:
                frame = pd.read_sql(statement, connection, dtype=object)  # type: ignore[arg-type]
        except (sqlite3.Error, sa.exc.SQLAlchemyError) as error:
            raise self._damaged(error, table) from None
        return frame.reindex(columns=list(columns)).astype(object).where(lambda f: f.notna(), None)

    def read(self, table: Table, schema_version: str) -> Columns:
        """Columns of a large table. A table that the export does not have has no rows."""
        present = self.columns_of(table.name)
        if not present:
            empty = {name: np.zeros(0, np.int64) for name in (*table.required, *table.optional)}
            no_text = {name: pa.chunked_array([], pa.string()) for name in table.text}
            no_blob = {name: pa.chunked_array([], pa.binary()) for name in table.blob}
            return Columns(0, empty, no_text, no_blob, {name: np.zeros(0) for name in table.real})
        missing = [name for name in table.required if name not in present]
        if missing:
            raise TranslationError(
                f"{self.path}: table {table.name} has no column {', '.join(missing)} (schema version {schema_version});"
                " export the report again with another version of nsys"
            )
        numbers = self._numbers(table, present)
        rows = next(iter(numbers.values())).size
        texts = {name: self._text(table.name, name, rows, name in present) for name in table.text}
        blobs = {name: self._blob(table.name, name, rows, name in present) for name in table.blob}
        reals = {name: self._real(table.name, name, rows, name in present) for name in table.real}
        return Columns(rows, numbers, texts, blobs, reals)

    def _numbers(self, table: Table, present: frozenset[str]) -> dict[str, IntArray]:
        names = [*table.required, *(name for name in table.optional if name in present)]
        try:
            block = self._pages.read(self._connection, table.name, names, NULL)
            if block is None:
                block = self._integers(table.name, names)
        except sqlite3.Error as error:
            raise self._damaged(error, table.name) from None
        numbers = {name: np.ascontiguousarray(column) for name, column in zip(names, block, strict=True)}
        for name, default in table.optional.items():
            column = numbers.get(name)
            if column is None:
                numbers[name] = np.full(block.shape[1], default, np.int64)
            elif default != NULL:
                column[column == NULL] = default
        return numbers

    def _integers(self, table: str, names: Sequence[str]) -> IntArray:
        """Columns of integers as an array (columns, rows), by sqlite3."""
        statement = f"SELECT {', '.join(map(_number, names))} FROM {quote(table)} ORDER BY rowid"
        flat = np.fromiter(chain.from_iterable(self._connection.execute(statement)), np.int64)
        return flat.reshape(-1, len(names)).T

    def _text(self, table: str, column: str, rows: int, present: bool) -> pa.ChunkedArray:
        quoted = quote(column)
        value = f"CASE typeof({quoted}) WHEN 'text' THEN {quoted} END"
        return self._values(table, value, pa.string(), rows, present)

    def _blob(self, table: str, column: str, rows: int, present: bool) -> pa.ChunkedArray:
        quoted = quote(column)
        value = f"CASE WHEN typeof({quoted}) IN ('blob', 'text') THEN CAST({quoted} AS BLOB) END"
        return self._values(table, value, pa.binary(), rows, present)

    def _real(self, table: str, column: str, rows: int, present: bool) -> npt.NDArray[np.float64]:
        quoted = quote(column)
        value = f"CASE WHEN typeof({quoted}) IN ('real', 'integer') THEN CAST({quoted} AS REAL) END"
        values = self._values(table, value, pa.float64(), rows, present)
        return np.asarray(values.to_numpy(), np.float64)

    def _values(self, table: str, value: str, kind: pa.DataType, rows: int, present: bool) -> pa.ChunkedArray:
        if not present:
            return pa.chunked_array([pa.nulls(rows, kind)])
        statement = f"SELECT {value} FROM {quote(table)} ORDER BY rowid"
        blocks = []
        try:
            cursor = self._connection.execute(statement)
            while rows_read := cursor.fetchmany(_TEXT_BLOCK):
                blocks.append(pa.array([each for (each,) in rows_read], kind))
        except sqlite3.Error as error:
            raise self._damaged(error, table) from None
        return pa.chunked_array(blocks, kind)

    def _damaged(self, error: Exception, table: str = "") -> TranslationError:
        where = f"table {table} " if table else ""
        reason = str(getattr(error, "orig", None) or error).splitlines()[0]
        return TranslationError(f"{self.path}: {where}cannot be read ({reason}); export the report again")


def _check_file(path: Path) -> None:
    try:
        if path.is_dir():
            raise TranslationError(f"{path}: is a folder; name the reports in it")
        with path.open("rb") as file:
            start = file.read(len(_MAGIC))
    except OSError as error:
        raise TranslationError(
            f"{path}: cannot be read ({error.strerror}); check the name and its permissions"
        ) from None
    if not start:
        raise TranslationError(f"{path}: the file is empty; export the report again")
    if start != _MAGIC:
        raise TranslationError(
            f"{path}: not an SQLite database; make one with: nsys export --type sqlite REPORT.nsys-rep"
        )
    for suffix in ("-wal", "-journal"):
        beside = path.with_name(path.name + suffix)
        if beside.exists():
            raise TranslationError(
                f"{path}: {beside.name} beside it says that a program is writing to it or was stopped while it was;"
                " end that program, or open the report once with sqlite3, or export it again"
            )


def _list(names: Sequence[str]) -> str:
    return ", ".join(map(quote, names))


def _number(name: str) -> str:
    quoted = quote(name)
    return (
        f"CASE typeof({quoted}) WHEN 'integer' THEN {quoted} WHEN 'real' THEN CAST({quoted} AS INTEGER) ELSE {NULL} END"
    )
