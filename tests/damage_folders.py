"""Damaged folders of tables, Parquet or Arrow: columns of other types, encodings and chunks, missing or doubled."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tests.report.table_folders import ENDINGS, KINDS, tables_of, write_folder


def quote(name: str) -> str:
    """Return a name as SQL has it, in quotes."""
    return '"' + name.replace('"', '""') + '"'


def write_damaged_folder(report: Path, rng: random.Random, done: list[str]) -> Path:
    """Write a report as a folder of tables, some with columns of other types; return the folder."""
    kind = rng.choice(KINDS)
    _make_uniform(report)
    try:
        tables = {name: table for name, table in tables_of(report).items() if not name.startswith("ENUM_")}
    except (sqlite3.Error, ValueError):  # tables without a rowid, with generated columns
        return report
    for name in rng.sample(sorted(tables), min(rng.choice((0, 1, 3)), len(tables))):
        if tables[name].num_columns:
            way = rng.choice(WAYS_OF_COLUMNS)
            i = rng.randrange(tables[name].num_columns)
            with suppress(pa.ArrowException, ValueError, OverflowError):
                changed = way(tables[name], i, rng)
                done.append(f"{name}.{tables[name].column_names[i]}: {way.__name__}, {changed.schema.types[i : i + 1]}")
                tables[name] = changed
    folder = write_folder(report.with_name(report.stem + ENDINGS[kind]), {}, kind)
    for name, table in tables.items():
        with suppress(pa.ArrowException, OSError):  # types that Parquet does not have
            _write_file(table, folder / name, kind, rng)
    report.unlink()
    done.append(kind)
    if rng.random() < 0.2:
        files = sorted(folder.iterdir())
        one, other = rng.choice(files), rng.choice(files)
        shutil.copyfile(one, other) if one != other else one.unlink()
        done.append(f"{one.name} is {other.name}")
    return folder


def _make_uniform(report: Path) -> None:
    """Set values to NULL that are not of the type of their column: files of tables have columns of one type."""
    with closing(sqlite3.connect(report, isolation_level=None)) as sql:
        sql.execute("PRAGMA journal_mode = OFF")
        columns = sql.execute(
            "SELECT t.name, c.name, lower(c.type) FROM sqlite_master t, pragma_table_info(t.name) c"
            " WHERE t.type = 'table' AND t.name NOT LIKE 'ENUM_%'"
        ).fetchall()
        for table, column, kind in columns:
            table, column = quote(table), quote(column)
            if kind not in ("integer", "text", "real", "blob"):
                kinds = f"SELECT typeof({column}) FROM {table} WHERE {column} NOTNULL GROUP BY 1 ORDER BY count(*) DESC"
                kind = next(iter(sql.execute(kinds)), ("integer",))[0]
            sql.execute(f"UPDATE OR IGNORE {table} SET {column} = NULL WHERE typeof({column}) <> '{kind}'")


def _write_file(table: pa.Table, stem: Path, kind: str, rng: random.Random) -> None:
    """Write a table in groups or batches of some size, compressed or not."""
    rows = rng.choice((1000, 1000, 37, 10**6))
    if kind == "parquet":
        pq.write_table(
            table,
            f"{stem}.parquet",
            row_group_size=rows,
            compression=rng.choice(("none", "snappy", "zstd")),
            use_dictionary=rng.random() < 0.5,
            data_page_version=rng.choice(("1.0", "2.0")),
            data_page_size=rng.choice((None, 500)),
            write_page_checksum=rng.random() < 0.2,
        )
        return
    options = pa.ipc.IpcWriteOptions(
        compression=rng.choice((None, None, "lz4", "zstd")), emit_dictionary_deltas=kind == "arrow stream"
    )
    new = pa.ipc.new_file if kind == "arrow file" else pa.ipc.new_stream
    with new(f"{stem}.arrow", table.schema, options=options) as writer:
        if rng.random() < 0.2:
            writer.write_table(table.slice(0, 0))
        writer.write_table(table.unify_dictionaries(), max_chunksize=rows)


def flip_values(folder: Path, rng: random.Random) -> str:
    """Flip bits in the data of a table with many rows, and not in what describes it."""
    file = max(
        rng.sample(sorted(folder.iterdir()), min(5, len(list(folder.iterdir())))), key=lambda p: p.stat().st_size
    )
    data = bytearray(file.read_bytes())
    at_end = int.from_bytes(data[-8:-4], "little") + 8 if file.suffix == ".parquet" else 0
    first, end = (4 if at_end else 2000), len(data) - at_end
    if first < end:
        for _ in range(rng.choice((1, 5, 100))):
            data[rng.randrange(first, end)] ^= 1 << rng.randrange(8)
    file.write_bytes(data)
    return f"values flipped in {file.name}"


# ---- columns ---------------------------------------------------------------------------------------------------------


def _change_type(table: pa.Table, i: int, rng: random.Random) -> pa.Table:
    values = table.column(i).combine_chunks()
    to = rng.choice(OTHER_TYPES)
    values = values.cast(to, safe=False) if to is not None else pa.array([[v] for v in range(len(values))])
    return table.set_column(i, table.column_names[i], values)


def _set_nulls(table: pa.Table, i: int, rng: random.Random) -> pa.Table:
    among = np.random.default_rng(rng.randrange(2**32)).random(table.num_rows) < rng.choice((0.01, 0.5, 1))
    values = pc.if_else(pa.array(among), pa.scalar(None, table.column(i).type), table.column(i))
    return table.set_column(i, table.column_names[i], values)


def _encode(table: pa.Table, i: int, rng: random.Random) -> pa.Table:
    return table.set_column(i, table.column_names[i], table.column(i).dictionary_encode())


def _drop(table: pa.Table, i: int, rng: random.Random) -> pa.Table:
    return table.remove_column(i)


def _double(table: pa.Table, i: int, rng: random.Random) -> pa.Table:
    other = rng.randrange(table.num_columns)
    return table.append_column(table.column_names[i], table.column(other))


def _rename(table: pa.Table, i: int, rng: random.Random) -> pa.Table:
    names = list(table.column_names)
    names[i] = rng.choice((names[i].upper(), "", " ", "a.b", names[i] + "\0", "\N{SPARKLES}\n"))
    return table.rename_columns(names)


def _nest(table: pa.Table, i: int, rng: random.Random) -> pa.Table:
    values = pa.StructArray.from_arrays([table.column(i).combine_chunks()], [table.column_names[i]])
    return table.set_column(i, table.column_names[i], values)


WAYS_OF_COLUMNS: tuple[Callable[[pa.Table, int, random.Random], pa.Table], ...] = (
    *(_change_type, _change_type, _change_type, _set_nulls, _encode, _drop, _double, _rename, _nest),
)

OTHER_TYPES: Sequence[pa.DataType | None] = (
    *(pa.int8(), pa.uint64(), pa.float32(), pa.float64(), pa.bool_(), pa.string(), pa.large_string(), pa.binary()),
    *(pa.null(), pa.timestamp("s"), pa.timestamp("ns"), pa.duration("us"), pa.decimal128(38, 3), pa.date64()),
    *(pa.dictionary(pa.int8(), pa.string()), None),
)
