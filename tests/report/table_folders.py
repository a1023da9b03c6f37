"""Exports to SQLite made into folders of tables, with the types that the columns declare or with others."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

DECLARED = {"INTEGER": pa.int64(), "TEXT": pa.string(), "REAL": pa.float64(), "BLOB": pa.binary()}
"""Types of the columns of nsys's exports to SQLite; it declares no others."""


class Text(bytes):
    """Text as it is in SQLite: not always UTF-8, and nsys copies it as it is."""


OF_VALUES = {int: pa.int64(), Text: pa.string(), float: pa.float64(), bytes: pa.binary()}

BLOCK = 5000
"""Rows of a group or batch: several of them in each table of some size."""

KINDS = ("parquet", "arrow file", "arrow stream")
SUFFIXES = {"parquet": ".parquet", "arrow file": ".arrow", "arrow stream": ".arrow"}
"""What the files of tables end with."""
ENDINGS = {"parquet": "_pqtdir", "arrow file": "_arwdir", "arrow stream": "_arwdir"}
"""What `nsys export` adds to the name of the report."""

Convert = Callable[[pa.Table], pa.Table]


def tables_of(report: Path) -> dict[str, pa.Table]:
    """Every table of an export to SQLite, as plain pyarrow has it."""
    with closing(sqlite3.connect(f"{report.as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
        names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        declared = {
            name: connection.execute("SELECT name, type FROM pragma_table_info(?)", (name,)).fetchall()
            for name in names
        }
        connection.text_factory = Text
        return {name: _table(connection, name, columns) for name, columns in declared.items()}


def _table(connection: sqlite3.Connection, name: str, declared: list[tuple[str, str]]) -> pa.Table:
    rows = connection.execute(f'SELECT * FROM "{name}" ORDER BY rowid').fetchall()
    values = list(zip(*rows, strict=True)) if rows else [()] * len(declared)
    types = [DECLARED.get(kind) or _type_of(column) for (_, kind), column in zip(declared, values, strict=True)]
    columns = [_array(column, kind) for column, kind in zip(values, types, strict=True)]
    return pa.Table.from_arrays(columns, [column for column, _ in declared])


def _array(column: tuple[object, ...], kind: pa.DataType) -> pa.Array:
    return pa.array(column, pa.binary()).view(kind) if kind == pa.string() else pa.array(column, kind)


def _type_of(column: tuple[object, ...]) -> pa.DataType:
    """Of a column that declares none, as in the small reports of tests."""
    (kind,) = {type(value) for value in column if value is not None} or {int}
    return OF_VALUES[kind]


def folder_of(report: Path, parent: Path, kind: str, convert: Convert = lambda table: table) -> Path:
    """The folder that `nsys export` would make of a report, named as nsys names it."""
    folder = parent / f"{report.stem}{ENDINGS[kind]}"
    return write_folder(folder, {name: convert(table) for name, table in tables_of(report).items()}, kind)


def write_folder(folder: Path, tables: dict[str, pa.Table], kind: str) -> Path:
    folder.mkdir(parents=True)
    for name, table in tables.items():
        write_table(table, folder / f"{name}{SUFFIXES[kind]}", kind)
    return folder


def write_table(table: pa.Table, path: Path, kind: str) -> None:
    if kind == "parquet":
        pq.write_table(table, path, row_group_size=BLOCK)
        return
    new = pa.ipc.new_file if kind == "arrow file" else pa.ipc.new_stream
    with new(str(path), table.schema) as writer:
        writer.write_table(table, max_chunksize=BLOCK)


def other_types(table: pa.Table) -> pa.Table:
    """The same values in the narrowest types: what another version of nsys may write."""
    return pa.table({name: _narrow(table[name].combine_chunks()) for name in table.column_names})


def _narrow(column: pa.Array) -> pa.Array:
    if pa.types.is_string(column.type):
        return pc.dictionary_encode(column).cast(pa.dictionary(pa.int32(), pa.large_string()))
    if not pa.types.is_int64(column.type):
        return column
    if column.null_count == len(column):
        return pa.nulls(len(column))
    limits = pc.min_max(column).as_py()
    for kind in (pa.bool_(), pa.uint8(), pa.int16(), pa.uint32(), pa.uint64()):
        low, high = (0, 1) if kind == pa.bool_() else (0, 2**kind.bit_width - 1)
        if kind == pa.int16():
            low, high = -(2**15), 2**15 - 1
        if low <= limits["min"] and limits["max"] <= high:
            return column.cast(kind)
    return column
