"""Databases of every kind that SQLite can make, and what sqlite3 reads from them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

import numpy as np
from hypothesis import strategies as st

from nsys2prv_ng.report import pages
from nsys2prv_ng.report.database import NULL
from nsys2prv_ng.report.pages import PageReader
from tests.sources.small_reports import export

TOO_MANY_ROWS = 100_000

INTEGERS = st.sampled_from(
    [0, 1, -1, 2, *(s * 2**b + d for b in (7, 15, 23, 31, 47) for s in (1, -1) for d in (-1, 0))]
)
VALUES = {
    "integers": INTEGERS | st.integers(-(2**63) + 1, 2**63 - 1),
    "nulls": st.none(),
    "texts": st.text(max_size=5) | st.sampled_from(["12", "", "9" * 70]),
    "bytes": st.binary(max_size=5) | st.just(b"\xff" * 90),
    "long texts": st.integers(400, 9000).map(lambda size: "x" * size),
    "reals": st.floats(allow_nan=False),
}
TYPES = ["INTEGER", "INT", "BIGINT NOT NULL DEFAULT 3", "NUMERIC", "", "TEXT", "BLOB", "REAL", "DOUBLE PRECISION"]
KEYS = {
    "none": ("", ""),
    "alias": ("k INTEGER PRIMARY KEY, ", ""),
    "alias, lower case": ('"k" integer primary key autoincrement, ', ""),
    "alias, last": ("", ", k INTEGER, PRIMARY KEY (k DESC)"),
    "descending": ("k INTEGER PRIMARY KEY DESC, ", ""),
    "index": ("k INT PRIMARY KEY, ", ""),
    "two": ("k INTEGER, ", ", l INTEGER, PRIMARY KEY (k, l)"),
}
OPERATIONS = {
    "add": "ALTER TABLE t ADD COLUMN {name} INTEGER",
    "add with default": "ALTER TABLE t ADD COLUMN {name} INTEGER DEFAULT -70000",
    "add text": "ALTER TABLE t ADD COLUMN {name} TEXT NOT NULL DEFAULT 'some'",
    "add generated": "ALTER TABLE t ADD COLUMN {name} INTEGER AS (c0) VIRTUAL",
    "delete": "DELETE FROM t WHERE rowid % 3 = 1",
    "delete all": "DELETE FROM t",
    "update": "UPDATE t SET c0 = rowid WHERE rowid % 5 = 1",
    "vacuum": "VACUUM",
    "insert": "",
}
Rows = np.ndarray
"""Integers as an array (columns, rows)."""


@dataclass(frozen=True)
class Plan:
    """A database to make. `operations` are done after the first rows were inserted."""

    page_size: int = 512
    reserved: int = 0
    encoding: str = "UTF-8"
    auto_vacuum: int = 0
    journal: str = "OFF"
    key: str = "none"
    types: tuple[str, ...] = ("INTEGER", "INTEGER")
    rows: tuple[tuple[object, ...], ...] = ((1, 2),)
    rowids: tuple[int, ...] = ()
    copies: int = 1
    operations: tuple[str, ...] = ()
    stored: bool = field(default=False)
    """With a generated column that is stored."""

    def make(self, path: Path) -> Path:
        path.unlink(missing_ok=True)
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            for pragma in (f"page_size={self.page_size}", f"auto_vacuum={self.auto_vacuum}"):
                connection.execute(f"PRAGMA {pragma}")
            connection.execute(f"PRAGMA encoding='{self.encoding}'")
            connection.execute("PRAGMA synchronous=OFF")
            connection.execute("VACUUM")
        if self.reserved:
            reserve(path, self.reserved)
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("PRAGMA synchronous=OFF")
            connection.execute(f"PRAGMA journal_mode={self.journal}")
            self._fill(connection)
        return path

    def _fill(self, connection: sqlite3.Connection) -> None:
        before, after = KEYS[self.key]
        columns = ", ".join(f"c{i} {each}" for i, each in enumerate(self.types))
        generated = ", g INTEGER AS (c0) STORED" if self.stored else ""
        connection.execute(f"CREATE TABLE t ({before}{columns}{generated}{after})")
        connection.execute("CREATE TABLE other (text TEXT)")
        for rowid, row in zip(self.rowids, self.rows, strict=False):
            self._insert(connection, [(rowid, *row)], "rowid, ")
        if self.copies:
            self._insert(connection, list(self.rows) * self.copies)
        for i, name in enumerate(self.operations):
            connection.execute(OPERATIONS[name].format(name=f"d{i}"))
            if name == "insert":
                self._insert(connection, list(self.rows))

    def _insert(self, connection: sqlite3.Connection, rows: list[tuple[object, ...]], rowid: str = "") -> None:
        names = ", ".join(f"c{i}" for i in range(len(self.types)))
        marks = ", ".join("?" for _ in rows[0])
        connection.execute("BEGIN")
        connection.executemany(f"INSERT OR IGNORE INTO t ({rowid}{names}) VALUES ({marks})", rows)
        connection.execute("INSERT INTO other VALUES (?)", ("z" * 700,))  # between the pages of t
        connection.execute("COMMIT")


def reserve(path: Path, size: int) -> None:
    """Give the end of each page of an empty database to an extension, as encryption and checksums do."""
    data = bytearray(path.read_bytes())
    data[20] = size
    page_size = int.from_bytes(data[16:18], "big")
    data[105:107] = ((65536 if page_size == 1 else page_size) - size & 0xFFFF).to_bytes(2, "big")
    path.write_bytes(data)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    types = draw(st.lists(st.sampled_from(TYPES), min_size=1, max_size=6))
    kinds = st.sets(st.sampled_from(list(VALUES)), max_size=2).map(lambda names: names | {"integers"})
    mostly_integers = st.just({"integers"}) | st.just({"integers", "nulls"}) | kinds
    values = [st.one_of([VALUES[name] for name in sorted(draw(mostly_integers))]) for _ in types]
    rows = draw(st.lists(st.tuples(*values), min_size=1, max_size=20))
    return Plan(
        page_size=draw(st.sampled_from([512, 512, 1024, 4096, 65536])),
        reserved=draw(st.sampled_from([0, 0, 0, 8, 32])),
        encoding=draw(st.sampled_from(["UTF-8", "UTF-16le", "UTF-16be"])),
        auto_vacuum=draw(st.integers(0, 2)),
        journal=draw(st.sampled_from(["OFF", "DELETE", "WAL"])),
        key=draw(st.sampled_from(["none", "none", *KEYS])),
        types=tuple(types),
        rows=tuple(rows),
        rowids=tuple(draw(st.lists(st.integers(-(2**62), 2**62), max_size=5, unique=True))),
        copies=draw(st.sampled_from([1, 5, 40])),
        operations=tuple(draw(st.lists(st.sampled_from(list(OPERATIONS)), max_size=4))),
        stored=draw(st.sampled_from([False] * 7 + [True])),
    )


def open_database(path: Path) -> closing[sqlite3.Connection]:
    connection = sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)
    connection.text_factory = bytes
    return closing(connection)


def list_columns(path: Path, table: str = "t") -> list[str]:
    with open_database(path) as connection:
        return [name.decode() for (name,) in connection.execute("SELECT name FROM pragma_table_xinfo(?)", (table,))]


def by_sqlite(path: Path, columns: list[str], table: str = "t") -> Rows:
    """What sqlite3 reads; a floating point number is an error, because PageReader must not have read it either.

    As in Database, it is not asked for texts: they may be damaged in pages that no integer is in.
    """
    one = "CASE typeof({0}) WHEN 'integer' THEN {0} WHEN 'real' THEN 0.5 END"
    names = ", ".join(one.format(f'"{name}"') for name in columns)
    with open_database(path) as connection:
        rows = connection.execute(f'SELECT {names} FROM "{table}" ORDER BY rowid').fetchmany(TOO_MANY_ROWS)
    assert not any(isinstance(value, float) for row in rows for value in row)
    values = [[NULL if value is None else value for value in row] for row in rows]
    return np.array(values, np.int64).reshape(-1, len(columns)).T


@contextmanager
def page_reader(path: Path, small: int = pages.SMALL) -> Iterator[tuple[PageReader, sqlite3.Connection]]:
    """A reader of a file, and the connection that it needs."""
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
        connection.text_factory = lambda data: data.decode("utf-8", "replace")
        yield PageReader(path, small), connection


def by_pages(path: Path, columns: list[str], table: str = "t", *, small: int = 0) -> Rows | None:
    """Return what PageReader reads, by default from tables of any size."""
    with page_reader(path, small) as (reader, connection):
        return reader.read(connection, table, columns)


def by_pages_in_blocks(path: Path, columns: list[str], table: str = "t") -> Rows | None:
    """Return the same, read a page at a time."""
    with page_reader(path, 0) as (reader, connection), mock.patch.object(pages, "_BLOCK_BYTES", 1):
        blocks = reader.read_by_block(connection, table, columns, np.array)
        return None if blocks is None else np.concatenate(blocks, axis=1)


def large_export(path: Path, rows: int = 20_000) -> Path:
    """A report with a table EVENTS that is read from its pages."""
    values = [(i, None if i % 2 else i * 2**33, "text") for i in range(rows)]
    return export(path, ["", "x"], {"EVENTS": (("start", "end", "word"), values)})
