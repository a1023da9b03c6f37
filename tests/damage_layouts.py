"""Other layouts of the same content: exports that differ in their bytes, but give the same bytes of a trace."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.damage_folders import encode, quote, write_file

PAGE_SIZES = (512, 1024, 2048, 4096, 8192, 16384, 32768, 65536)
ENCODINGS = ("UTF-8", "UTF-8", "UTF-16le", "UTF-16be")
EXACT = 2**53
"""Integers below this size are exact as floating point numbers."""
END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"
"""The last bytes of an Arrow stream."""
LONG_TEXT = "beside " * 3000
"""More than a page holds, whatever its size but one."""


@dataclass
class _Table:
    """A table to be written: its columns in their order, and its rows in the order of rowids."""

    name: str
    columns: list[str]
    types: list[str]
    key: int
    """Index of the column that stands for the rowid, or -1."""
    rows: list[tuple[Any, ...]]

    def select(self, order: Sequence[int]) -> _Table:
        """Return the table with these columns, in this order."""
        rows = [tuple(row[i] for i in order) for row in self.rows]
        key = order.index(self.key) if self.key in order else -1
        return _Table(self.name, [self.columns[i] for i in order], [self.types[i] for i in order], key, rows)

    def values(self, column: int) -> set[object]:
        """Return the distinct values of a column; 1 and 1.0 are two."""
        return {(type(row[column]), row[column]) for row in self.rows}


def write_layout(report: Path, copy: Path, rng: random.Random) -> str:
    """Write the tables of a report in another layout; return which. Raises sqlite3.Error if it is damaged."""
    ways = [way for way in ("order", "reals", "beside", "added", "holes", "indexes") if rng.random() < 0.3]
    page_size, encoding = rng.choice(PAGE_SIZES), rng.choice(ENCODINGS)
    journal, vacuum = rng.choice(("DELETE", "WAL")), rng.choice((0, 0, 1, 2))
    with closing(sqlite3.connect(copy, isolation_level=None)) as sql:
        for pragma in (f"page_size = {page_size}", f"encoding = '{encoding}'", f"auto_vacuum = {vacuum}"):
            sql.execute(f"PRAGMA {pragma}")
        sql.execute("PRAGMA synchronous = OFF")
        sql.execute(f"PRAGMA journal_mode = {journal}")  # in the header; the file beside goes when it is closed
        sql.execute("BEGIN")
        for table in _read_tables(report):
            _write_table(sql, table, ways, rng)
        sql.execute("COMMIT")
        if rng.random() < 0.3:
            sql.execute("VACUUM")
            ways.append("VACUUM")
    return f"layout of {report.name}: {page_size}, {encoding}, {journal}, auto_vacuum {vacuum}, {', '.join(ways)}"


def _read_tables(report: Path) -> Iterator[_Table]:
    with closing(sqlite3.connect(f"{report.resolve().as_uri()}?mode=ro&immutable=1", uri=True)) as sql:
        sql.text_factory = lambda data: data.decode("utf-8", "replace")  # as the program reads it
        names = sql.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'")
        for (name,) in names.fetchall():
            declared = sql.execute("SELECT name, type, pk FROM pragma_table_info(?)", (name,)).fetchall()
            columns, types, keys = (list(each) for each in zip(*declared, strict=True))
            listed = ", ".join(map(quote, columns))
            rows = sql.execute(f"SELECT {listed} FROM {quote(name)} NOT INDEXED ORDER BY rowid").fetchall()
            if "binaryData" in columns:  # in UTF-16 its texts have other bytes
                i = columns.index("binaryData")
                rows = [
                    (*row[:i], str(row[i]).encode(), *row[i + 1 :]) if isinstance(row[i], str) else row for row in rows
                ]
            is_key = sum(keys) == 1 and types[keys.index(1)].upper() == "INTEGER"
            yield _Table(name, columns, types, keys.index(1) if is_key else -1, rows)


def _write_table(sql: sqlite3.Connection, table: _Table, ways: Sequence[str], rng: random.Random) -> None:
    """Write a table; each of the ways changes about half of the tables."""
    chosen = [way for way in ways if rng.random() < 0.5]
    order = list(range(len(table.columns)))
    added = []
    if "order" in chosen:
        rng.shuffle(order)
    if "added" in chosen and table.rows:
        same = [i for i in order if len(table.values(i)) == 1 and i != table.key]
        added = rng.sample(same, rng.randrange(min(len(same), len(order) - 1) + 1))
        order = [i for i in order if i not in added]
    later, table = table.select(added), table.select(order)
    if "reals" in chosen:
        _declare_reals(table, rng)
    if "beside" in chosen:
        table.columns.insert(0, "beside")
        table.types.insert(0, "TEXT")
        table.key += table.key >= 0
        table.rows = [(LONG_TEXT if i % 97 == 0 else None, *row) for i, row in enumerate(table.rows)]
    _create(sql, table, "holes" in chosen, rng)
    name = quote(table.name)
    for i, (column, kind) in enumerate(zip(later.columns, later.types, strict=True)):
        ((default,),) = sql.execute("SELECT quote(?)", (later.rows[0][i],)).fetchall()
        sql.execute(f"ALTER TABLE {name} ADD COLUMN {quote(column)} {kind} DEFAULT ({default})")
    if "indexes" in chosen:
        for i in range(rng.choice((1, 3))):
            among = rng.sample(table.columns, rng.randrange(len(table.columns)) + 1)
            sql.execute(f"CREATE INDEX {quote(f'{table.name} {i}')} ON {name} ({', '.join(map(quote, among))})")


def _declare_reals(table: _Table, rng: random.Random) -> None:
    """Let some columns of integers be floating point numbers that are equal."""
    for i, kind in enumerate(table.types):
        if i != table.key and "INT" in kind.upper() and rng.random() < 0.5:
            values = [row[i] for row in table.rows]
            if all(value is None or (isinstance(value, int) and abs(value) < EXACT) for value in values):
                table.types[i] = rng.choice(("REAL", ""))
                reals = [None if value is None else float(value) for value in values]
                table.rows = [(*row[:i], real, *row[i + 1 :]) for row, real in zip(table.rows, reals, strict=True)]


def _create(sql: sqlite3.Connection, table: _Table, holes: bool, rng: random.Random) -> None:
    """Create an ordinary table; with holes, its rows were written in any order among others that were deleted."""
    as_key = table.key >= 0 and (holes or rng.random() < 0.5)
    declared = [
        f"{quote(name)} {kind}{' PRIMARY KEY' * (as_key and i == table.key)}"
        for i, (name, kind) in enumerate(zip(table.columns, table.types, strict=True))
    ]
    name = quote(table.name)
    sql.execute(f"CREATE TABLE {name} ({', '.join(declared)})")
    rows, columns = table.rows, list(map(quote, table.columns))
    if holes:
        if not as_key:
            others = [("deleted later" * 50, 3 * i + 1) for i in range(0, len(rows), 2)]
            sql.executemany(f"INSERT INTO {name} ({columns[0]}, rowid) VALUES (?, ?)", others)
            columns.append("rowid")
            rows = [(*row, 3 * i) for i, row in enumerate(rows)]
        rows = rng.sample(rows, len(rows))
    insert = f"INSERT INTO {name} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"
    sql.executemany(insert, rows)
    if holes and not as_key:
        sql.execute(f"DELETE FROM {name} WHERE rowid % 3 = 1")


def write_folder_layout(folder: Path, copy: Path, rng: random.Random) -> str:
    """Write the tables of a folder in another layout: columns, dictionaries, batches. Copy those that are damaged."""
    copy.mkdir()
    written = []
    for file in sorted(folder.iterdir()):
        try:
            table = _read_file(file)
            order = rng.sample(range(table.num_columns), table.num_columns)
            table = table.select(order)
            for i, kind in enumerate(table.schema.types):
                if (pa.types.is_integer(kind) or pa.types.is_string(kind)) and rng.random() < 0.2:
                    table = encode(table, i, rng)
            kind = "parquet" if file.suffix == ".parquet" else rng.choice(("arrow file", "arrow stream"))
            write_file(table, copy / file.stem, kind, rng)
            written.append(file.stem)
        except (pa.ArrowException, OSError, ValueError, LookupError):
            shutil.copyfile(file, copy / file.name)
    return f"layout of {folder.name}: {len(written)} files"


def _read_file(file: Path) -> pa.Table:
    """Read a whole table; raise pa.ArrowInvalid for one that the program would not read."""
    if file.suffix == ".parquet":
        table = pq.ParquetFile(file, page_checksum_verification=True).read()
    else:
        with file.open("rb") as raw:
            is_file = raw.read(6) == b"ARROW1"
            raw.seek(0)
            if not is_file and not raw.read().endswith(END_OF_STREAM):
                raise pa.ArrowInvalid("more follows the end of the stream, or it has none")
            raw.seek(0)
            table = (pa.ipc.open_file(raw) if is_file else pa.ipc.open_stream(raw)).read_all()
    table.validate(full=True)
    if len(set(table.column_names)) < table.num_columns:
        raise pa.ArrowInvalid("two columns have one name")
    return table
