"""Reads an nsys export in any format without changing it: columns of numbers, columns of text, small tables.

Exports differ by version: nsys writes a table only if it has rows, columns come and go, and values may be NULL or have
another type than declared. So all columns are selected by name, and a value that is not a number reads as NULL. A table
may have a version at the end of its name (NVTX_EVENTS_V2): see `_find_versions`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from nsys2prv_ng.arrays.types import FloatArray, IntArray
from nsys2prv_ng.errors import ReportError, TranslationError
from nsys2prv_ng.report.formats import find_format
from nsys2prv_ng.report.table_reader import NULL, Among, TableReader
from nsys2prv_ng.value_class import ValueClass

__all__ = ["NULL", "Among", "Columns", "Database", "IntArray", "Table"]

T = TypeVar("T")

_HEADER_BYTES = 100
"""Length of the header of an SQLite file."""
_VERSIONED = re.compile(r"(\w+?)_V[0-9]{1,4}")
"""The name of a table with a version."""


class Table(ValueClass):
    """The columns of a table that a source needs: required, optional, and by type.

    `optional`: default of each integer column that some schema versions lack; it also replaces NULL. `text`: columns of
    text; missing columns read as NULL. `real`: columns of floating point numbers, likewise. `blob`: columns of bytes,
    likewise. Text in them reads as its bytes.
    """

    name: str
    required: tuple[str, ...]
    optional: Mapping[str, int] = field(default_factory=dict)
    text: tuple[str, ...] = ()
    real: tuple[str, ...] = ()
    blob: tuple[str, ...] = ()


class Columns(ValueClass):
    """Columns of a table, each with `rows` values in the order of the rows.

    SQL's NULL is `NULL` in integers, null in strings and bytes, and NaN in floats.
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

    `tables`: names of its tables, without versions. `ignored`: tables with a version beside one without, which is read.

    Raises ReportError for a file or folder that is not an export, or is damaged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._table_reader = load_reader(path)(path)
        self._versions = _find_versions(self._table_reader.tables)
        stored = self._table_reader.tables
        self.tables = stored.difference(*self._versions.values()) | self._versions.keys()
        self.ignored = sorted(t for t in self.tables if (m := _VERSIONED.fullmatch(t)) and m[1] in stored)
        if "StringIds" not in self.tables:
            self.close()
            raise ReportError(
                f"{path}: not an nsys export (it has no table StringIds); make one with: {find_format(path).command}"
            )
        self._columns: dict[str, frozenset[str]] = {}
        self._rows: dict[str, int] = {}

    def close(self) -> None:
        self._table_reader.close()

    def list_columns(self, table: str) -> frozenset[str]:
        """Return the names of a table's columns; empty if the export has no such table."""
        if table not in self.tables:
            return frozenset()
        if table not in self._columns:
            stored = self._versions.get(table, (table,))[0]  # looking at several versions is no error, reading is
            self._columns[table] = self._table_reader.list_columns(stored)
        return self._columns[table]

    def count_rows(self, table: str) -> int:
        """Return the number of a table's rows without reading them; 0 if the export has no such table."""
        if table not in self._rows:
            self._rows[table] = self._table_reader.count_rows(self._find_table(table)) if table in self.tables else 0
        return self._rows[table]

    def list_missing(self, table: Table) -> list[str]:
        """Return the required columns that a table lacks; none if the export has no such table."""
        present = self.list_columns(table.name)
        return [name for name in table.required if name not in present] if present else []

    def read_objects(self, table: str, columns: Sequence[str], among: Among | None = None) -> dict[str, list[Any]]:
        """Read a small table, or only the rows that have one of the given integers in each column of `among`.

        Return columns of values of any type: int, float, str, bytes or None. Columns that the export lacks are None. A
        missing table has no rows, and no row has an integer in a missing column.
        """
        existing = self.list_columns(table)
        present = [name for name in columns if name in existing]
        if not present or not set(among or ()) <= existing:
            return {name: [] for name in columns}
        read = self._table_reader.read_objects(self._find_table(table), present, among or {})
        values = dict(zip(present, read, strict=True))
        nulls = [None] * len(values[present[0]])
        return {name: values.get(name, nulls) for name in columns}

    def read_pairs(self, table: str) -> list[tuple[str, Any]]:
        """Return the name and the value of each entry of a small table."""
        columns = self.read_objects(table, ["name", "value"])
        return list(zip(map(str, columns["name"]), columns["value"], strict=True))

    def read(self, table: Table, schema_version: str) -> Columns:
        """Read columns of a large table. A table that the export lacks has no rows."""
        present = self._check_columns(table, schema_version)
        if not present:
            none = np.zeros(0, np.int64)
            numbers, rows = dict.fromkeys((*table.required, *table.optional), none), 0
        else:
            names, stored = _choose_integers(table, present), self._find_table(table.name)
            numbers = _fill_defaults(table, names, self._table_reader.read_integers(stored, names))
            rows = next(iter(numbers.values())).size
        texts, blobs, reals = (
            {
                name: self._table_reader.read_values(self._find_table(table.name), name, kind)
                if name in present
                else pa.chunked_array([pa.nulls(rows, kind)])
                for name in names
            }
            for names, kind in ((table.text, pa.string()), (table.blob, pa.binary()), (table.real, pa.float64()))
        )
        return Columns(rows, numbers, texts, blobs, {name: column.to_numpy() for name, column in reals.items()})

    def read_by_block(self, table: Table, schema_version: str, convert: Callable[[Columns], T]) -> list[T]:
        """Return what `convert` makes of each block of rows of a large table. A block is valid only during its call.

        The table has only integer columns.
        """
        present = self._check_columns(table, schema_version)
        if not present:
            return []
        names = _choose_integers(table, present)

        def convert_block(integers: Sequence[IntArray]) -> T:
            numbers = _fill_defaults(table, names, integers)
            return convert(Columns(integers[0].size, numbers, {}))

        return self._table_reader.read_by_block(self._find_table(table.name), names, convert_block)

    def _find_table(self, table: str) -> str:
        """Return the name in the export of a table, which may have a version at its end.

        Raises ReportError if several tables may be meant.
        """
        stored = self._versions.get(table, (table,))
        if len(stored) > 1:
            raise ReportError(
                f"{self.path}: holds tables {' and '.join(stored)}, and it is not known which of them counts;"
                " export the report again with another version of nsys"
            )
        return stored[0]

    def _check_columns(self, table: Table, schema_version: str) -> frozenset[str]:
        """Return the columns of a table that the export has. Raises ReportError if it has the table but lacks required
        columns."""
        present = self.list_columns(table.name)
        missing = self.list_missing(table)
        if missing:
            raise ReportError(
                f"{self.path}: table {table.name} has no column {', '.join(missing)} (schema version {schema_version});"
                " export the report again with another version of nsys"
            )
        return present


def _find_versions(tables: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Return the tables with a version (NVTX_EVENTS_V2) by their names without it, if the export lacks that name.

    A table without a version is read as before. The versions of a table are sorted by name.
    """
    versions: dict[str, tuple[str, ...]] = {}
    for table in sorted(tables):
        match = _VERSIONED.fullmatch(table)
        if match and match[1] not in tables:
            versions[match[1]] = (*versions.get(match[1], ()), table)
    return versions


@contextmanager
def open_database(path: Path) -> Iterator[Database]:
    """Open an export, and close it at the end of the context.

    Raises TranslationError if the export has changed in the meantime: what was read may be a mixture.
    """
    before = _stamp(path)
    try:
        with closing(Database(path)) as database:
            yield database
    except Exception:
        _refuse_changed(path, before)  # which explains any other error
        raise
    _refuse_changed(path, before)


def _refuse_changed(path: Path, before: object) -> None:
    if _stamp(path) != before:
        raise TranslationError(f"{path}: changed while it was read; wait until nothing writes to it, and try again")


def _stamp(path: Path) -> object:
    """Return what differs after a change of a file or of the files in a folder; None if the export is not there."""
    try:
        if path.is_dir():
            return [(file.name, *_stamp_file(file)) for file in sorted(path.iterdir())]
        if path.is_file():
            with path.open("rb") as file:  # SQLite counts changes in its header
                return file.read(_HEADER_BYTES), _stamp_file(path)
    except OSError:
        pass
    return None


def _stamp_file(file: Path) -> tuple[int, ...]:
    known = file.stat()
    return known.st_dev, known.st_ino, known.st_size, known.st_mtime_ns, known.st_ctime_ns


def load_reader(export: Path) -> Callable[[Path], TableReader]:
    """Import what opens this file or folder, whatever its name: an SQLite file, or a folder of Parquet or Arrow files.

    Opening raises ReportError for a path that is not an export, or is damaged.
    """
    if export.is_dir():
        from nsys2prv_ng.report.table_folder import TableFolder  # imports pyarrow.parquet

        return TableFolder
    from nsys2prv_ng.report.sqlite_file import SqliteFile

    return SqliteFile


def _choose_integers(table: Table, present: frozenset[str]) -> list[str]:
    """Return the integer columns to read: at least one, to find the number of rows."""
    return [*table.required, *(name for name in table.optional if name in present)] or [min(present)]


def _fill_defaults(table: Table, names: Sequence[str], integers: Sequence[IntArray]) -> dict[str, IntArray]:
    """Return columns by name, with defaults for missing values; changes the columns that were read."""
    numbers = dict(zip(names, integers, strict=True))
    for name, default in table.optional.items():
        column = numbers.get(name)
        if column is None:
            numbers[name] = np.full(integers[0].size, default, np.int64)
        elif default != NULL:
            column[column == NULL] = default
    return numbers
