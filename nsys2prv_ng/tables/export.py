"""Writes the tables of a job as Parquet or CSV files: a folder for each table, and in it one for each rank.

Names of folders are those of Hive, rank=0, so that pandas, polars, DuckDB, Dask and Spark read a table as one, with the
rank as a column. A piece of a table, mostly that of a report, is written wherever the engine works, some rows at a
time. Schemas of Parquet have the unit and the meaning of each column, and what became of the events of the piece.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import csv, parquet

from nsys2prv_ng.arrays.row_keys import find_starts, sort_rows
from nsys2prv_ng.arrays.types import IntArray, pick, put
from nsys2prv_ng.errors import TranslationError
from nsys2prv_ng.grouping import group_by_key
from nsys2prv_ng.reading.opened_events import keep_opened_events
from nsys2prv_ng.runtime.progress import Progress
from nsys2prv_ng.tables.columns import NO_ACCOUNT, RANK, Account, Column, Part, Table, Values, join_values
from nsys2prv_ng.tables.context import JobTables
from nsys2prv_ng.tables.registry import TABLES
from nsys2prv_ng.value_class import ValueClass

PARQUET, CSV = "parquet", "csv"
_ROWS = 1 << 17
"""Rows that are in memory as Arrow columns at once: a row group of Parquet."""
_TYPES = {"integer": pa.int64(), "flag": pa.bool_(), "real": pa.float64()}


class ExportedTable(ValueClass):
    """A table that was written: its rows, the events that were read for it, and those without a row, by reason.

    `pieces`: further rows of events that have several. A table without rows has no folder.
    """

    name: str
    rows: int
    read: int
    dropped: dict[str, int]
    pieces: int


def write_tables(
    tables: JobTables, chosen: Sequence[Table], folder: Path, format: str, progress: Progress
) -> list[ExportedTable]:
    """Write tables into a folder, which all workers of the engine share."""
    folder = folder.absolute()  # a worker may run in another folder
    groups = group_by_key((table.group or table.name, table) for table in chosen if not table.is_whole).values()
    # The pieces of metrics are the largest: with them first, no process is left with one at the end.
    pieces = [([table.name for table in group], n) for group in groups for n in group[0].list_pieces(tables)][::-1]
    whole = [([table.name], 0) for table in chosen if table.is_whole]
    done = {table.name: (0, NO_ACCOUNT) for table in chosen}

    def write(item: tuple[list[str], int]) -> list[tuple[str, int, Account]]:
        names, piece = item
        kept = tables.keep_reports()
        with keep_opened_events():
            return [(name, *_write_piece(kept, name, piece, folder, format)) for name in names]

    def add(written: list[tuple[str, int, Account]]) -> None:
        for name, rows, account in written:
            done[name] = done[name][0] + rows, done[name][1].add(account)
        step.update(1)

    with (
        tables.job.engine.beside(lambda: list(map(write, whole))) as wait_for_whole,
        progress.step(f"writing {len(chosen)} tables", len(pieces) + len(whole), "piece") as step,
    ):
        for written in tables.job.engine.map(write, pieces):
            add(written)
        for written in wait_for_whole():
            add(written)
    for ranks in folder.glob("*/*"):
        _number_files(ranks)
    return [ExportedTable(name, rows, *account) for name, (rows, account) in done.items()]


def _number_files(folder: Path) -> None:
    """Number the files of a rank without gaps, in the order of their pieces. Remove what died workers left."""
    files = {}
    for file in folder.iterdir():
        if file.name.startswith("."):
            file.unlink()
        else:
            files[int(file.stem.rpartition("-")[2])] = file
    for number, piece in enumerate(sorted(files)):
        files[piece].rename(folder / f"part-{number}{files[piece].suffix}")


def _write_piece(tables: JobTables, name: str, piece: int, folder: Path, format: str) -> tuple[int, Account]:
    """Write a piece of a table, a file for each of its ranks, sorted by time; return its rows and its account."""
    table = TABLES[name]  # no engine sends this to a worker
    parts, account = table.read(tables, piece)
    nothing = np.zeros(0, np.int64)
    start = parts[0].start if len(parts) == 1 else np.concatenate([nothing, *(part.start for part in parts)])
    rank_of_row = tables.facts.rank.astype(np.int32)
    rank = np.concatenate([nothing.astype(np.int32), *(pick(rank_of_row, part.row, -1) for part in parts)])
    is_sorted = not ((rank[1:] != rank[:-1]).any() or (start[1:] < start[:-1]).any())
    order = np.arange(start.size) if is_sorted else sort_rows(rank, start)
    first = find_starts(rank[order])
    columns = [column for column in table.columns if column.name != RANK.name]
    schema = _make_schema(table, columns, account, format)
    for rows in np.split(order, first[1:]) if order.size else ():
        number = int(rank[rows[0]])
        into = folder / name / f"rank={number}"
        into.mkdir(parents=True, exist_ok=True)
        # A piece may be written more than once, at the same time, with the same bytes.
        temporary = into / f".{secrets.token_hex(8)}"
        chunks = (rows[low : low + _ROWS] for low in range(0, rows.size, _ROWS))
        try:
            _write_file(temporary, format, schema, (_read_rows(parts, which, columns, schema) for which in chunks))
            temporary.rename(into / f"part-{piece}.{format}")
        except OSError as error:
            raise TranslationError(f"{name}: cannot be written: {error.strerror or error}") from None
    return order.size, account


def _make_schema(table: Table, columns: Sequence[Column], account: Account, format: str) -> pa.Schema:
    """Return the schema of a table. Names are dictionaries in Parquet, and texts in CSV, which has no dictionaries."""
    names = pa.dictionary(pa.int32(), pa.string()) if format == PARQUET else pa.string()
    fields = [
        pa.field(column.name, _TYPES.get(column.kind, names), metadata={"unit": column.unit, "meaning": column.meaning})
        for column in columns
    ]
    # With what pandas itself writes, it reads integers that may lack as such, not as floating point.
    nullable = [column for column in columns if column.dtype == "Int64"]
    types = [
        {"name": each.name, "field_name": each.name, "pandas_type": "int64", "numpy_type": "Int64", "metadata": None}
        for each in nullable
    ]
    of_pandas = {"index_columns": [], "column_indexes": [], "columns": types, "pandas_version": "2.2.0"}
    about = {"table": table.name, "meaning": table.meaning, **account._asdict()}
    return pa.schema(fields, metadata={"nsys2prv_ng": json.dumps(about), "pandas": json.dumps(of_pandas)})


def _read_rows(parts: Sequence[Part], which: IntArray, columns: Sequence[Column], schema: pa.Schema) -> pa.RecordBatch:
    """Return some rows of all parts, which are given by their numbers over the parts, in an order."""
    limits = np.cumsum([0, *(part.start.size for part in parts)])
    back: IntArray | slice = slice(None)
    taken = [part.take(which) for part in parts] if len(parts) == 1 else []
    if len(parts) > 1:
        by_part = np.argsort(which, kind="stable")
        split = np.searchsorted(which[by_part], limits)
        chosen = [by_part[low:high] for low, high in pairwise(split.tolist())]
        taken = [part.take(which[at] - low) for part, at, low in zip(parts, chosen, limits.tolist(), strict=False)]
        back = put(np.arange(which.size), by_part, which.size)
    arrays = []
    for column, field in zip(columns, schema, strict=True):
        values = join_values([column.read(part) for part in taken]).take(back)
        arrays.append(_make_array(values).cast(field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _make_array(values: Values) -> pa.Array:
    if values.names is None:
        return pa.array(values.data, mask=values.missing)
    codes = pa.array(values.data.astype(np.int32, copy=False), mask=values.missing)
    return pa.DictionaryArray.from_arrays(codes, pa.array(values.names, pa.string()))


def _write_file(file: Path, format: str, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> None:
    make: Callable[..., Any] = csv.CSVWriter
    options: dict[str, Any] = {}
    if format == PARQUET:
        times = [name for name in schema.names if name.endswith("_ns")]  # most occur once, and readers choose by them
        coded = [name for name in schema.names if name not in times]
        make = parquet.ParquetWriter
        options = {"compression": "zstd", "compression_level": 1, "use_dictionary": coded, "write_statistics": times}
    with closing(make(os.fspath(file), schema, **options)) as writer:
        for batch in batches:
            writer.write(batch)
