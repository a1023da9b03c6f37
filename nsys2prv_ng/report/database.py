"""An nsys export of any kind, opened without touching it: columns of numbers, columns of text, small tables.

Exports differ by version: tables are written only when they have rows, columns come and go, and values may be NULL or
of another type than declared. So everything is selected by column name, and what is not a number reads as NULL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import numpy as np
import pandas as pd
import pyarrow as pa

from nsys2prv_ng.arrays.types import FloatArray, IntArray
from nsys2prv_ng.errors import ReportError
from nsys2prv_ng.report.table_folder import TableFolder
from nsys2prv_ng.report.table_reader import NULL, Among, TableReader

__all__ = ["NULL", "Among", "Columns", "Database", "IntArray", "Table"]

T = TypeVar("T")


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
    reals: Mapping[str, FloatArray] = field(default_factory=dict)

    def __getitem__(self, name: str) -> IntArray:
        return self.numbers[name]


class Database:
    """A read-only nsys export: an SQLite file, or a folder of Parquet or Arrow files.

    Raises ReportError for one that is no export, or is damaged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._table_reader = _open_tables(path)
        self.tables = self._table_reader.tables
        if "StringIds" not in self.tables:
            self.close()
            kind = "parquetdir" if path.is_dir() else "sqlite"
            raise ReportError(
                f"{path}: not an nsys export (it has no table StringIds);"
                f" make one with: nsys export --type {kind} REPORT.nsys-rep"
            )
        self._columns: dict[str, frozenset[str]] = {}

    def close(self) -> None:
        self._table_reader.close()

    def list_columns(self, table: str) -> frozenset[str]:
        """Names of a table's columns; empty where the report has no such table."""
        if table not in self.tables:
            return frozenset()
        if table not in self._columns:
            self._columns[table] = self._table_reader.list_columns(table)
        return self._columns[table]

    def count_rows(self, table: str) -> int:
        """Number of a table's rows, counted without reading them; 0 where the report has no such table."""
        return self._table_reader.count_rows(table) if table in self.tables else 0

    def list_missing(self, table: Table) -> list[str]:
        """Columns that a table must have and does not; none where the report has no such table."""
        present = self.list_columns(table.name)
        return [name for name in table.required if name not in present] if present else []

    def read_frame(self, table: str, columns: Sequence[str], among: Among | None = None) -> pd.DataFrame:
        """A small table, or its rows that have one of some integers in each column of `among`.

        Columns that the export does not have hold None; a missing table has no rows, and no row has one of the integers
        in a missing column.
        """
        there = self.list_columns(table)
        present = [name for name in columns if name in there]
        if not present or not set(among or ()) <= there:
            return pd.DataFrame({name: pd.Series(dtype=object) for name in columns})
        frame = self._table_reader.read_frame(table, present, among or {})
        return frame.reindex(columns=list(columns)).astype(object).where(lambda f: f.notna(), None)

    def read(self, table: Table, schema_version: str) -> Columns:
        """Columns of a large table. A table that the export does not have has no rows."""
        present = self._present(table, schema_version)
        if not present:
            return _no_rows(table)
        numbers = self._numbers(table, present)
        rows = next(iter(numbers.values())).size
        texts, blobs = (
            {name: read(table.name, name) if name in present else _nulls(rows, kind) for name in names}
            for names, read, kind in (
                (table.text, self._table_reader.read_texts, pa.string()),
                (table.blob, self._table_reader.read_blobs, pa.binary()),
            )
        )
        reals = {
            name: self._table_reader.read_reals(table.name, name) if name in present else np.full(rows, np.nan)
            for name in table.real
        }
        return Columns(rows, numbers, texts, blobs, reals)

    def read_by_block(self, table: Table, schema_version: str, convert: Callable[[Columns], T]) -> list[T]:
        """What `convert` makes of some rows of a large table after the other, which are gone when it returns.

        The table has columns of integers only.
        """
        present = self._present(table, schema_version)
        if not present:
            return []
        names = _integers_of(table, present)

        def convert_block(found: Sequence[IntArray]) -> T:
            numbers = _with_defaults(table, names, found)
            return convert(Columns(found[0].size, numbers, {}))

        return self._table_reader.read_by_block(table.name, names, convert_block)

    def read_texts_by_block(self, table: str, column: str, convert: Callable[[pa.Array], T]) -> list[T]:
        """What `convert` makes of the strings of some rows of a large table after the other; nulls where the export
        lacks the column."""
        if column not in self.list_columns(table):
            rows = self.count_rows(table)
            return [convert(pa.nulls(rows, pa.string()))] if rows else []
        return self._table_reader.read_texts_by_block(table, column, convert)

    def _present(self, table: Table, schema_version: str) -> frozenset[str]:
        """Columns that the export has of a table, of which it must have all that are required, or no table at all."""
        present = self.list_columns(table.name)
        missing = self.list_missing(table)
        if missing:
            raise ReportError(
                f"{self.path}: table {table.name} has no column {', '.join(missing)} (schema version {schema_version});"
                " export the report again with another version of nsys"
            )
        return present

    def _numbers(self, table: Table, present: frozenset[str]) -> dict[str, IntArray]:
        names = _integers_of(table, present)
        return _with_defaults(table, names, self._table_reader.read_integers(table.name, names))


def load_libraries(exports: Iterable[Path]) -> None:
    """Import what reads these exports, so that processes that are forked later need not do it again."""
    if not all(path.is_dir() for path in exports):
        import nsys2prv_ng.report.sqlite_file  # noqa: F401 (imports SQLAlchemy)


def _open_tables(path: Path) -> TableReader:
    if path.is_dir():
        return TableFolder(path)
    from nsys2prv_ng.report.sqlite_file import SqliteFile  # imports SQLAlchemy

    return SqliteFile(path)


def _integers_of(table: Table, present: frozenset[str]) -> list[str]:
    """Columns of integers to read: at least one, to know how many rows there are."""
    return [*table.required, *(name for name in table.optional if name in present)] or [min(present)]


def _with_defaults(table: Table, names: Sequence[str], found: Sequence[IntArray]) -> dict[str, IntArray]:
    """Columns by their names; those that were read are changed."""
    numbers = dict(zip(names, found, strict=True))
    for name, default in table.optional.items():
        column = numbers.get(name)
        if column is None:
            numbers[name] = np.full(found[0].size, default, np.int64)
        elif default != NULL:
            column[column == NULL] = default
    return numbers


def _no_rows(table: Table) -> Columns:
    return Columns(
        0,
        {name: np.zeros(0, np.int64) for name in (*table.required, *table.optional)},
        {name: pa.chunked_array([], pa.string()) for name in table.text},
        {name: pa.chunked_array([], pa.binary()) for name in table.blob},
        {name: np.zeros(0) for name in table.real},
    )


def _nulls(rows: int, kind: pa.DataType) -> pa.ChunkedArray:
    return pa.chunked_array([pa.nulls(rows, kind)])
