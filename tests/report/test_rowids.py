"""Tables without rowids are refused by name, of whatever kind; columns that are called as the rowid do no harm."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

import nsys2prv_ng
from nsys2prv_ng.errors import ReportError
from nsys2prv_ng.report.database import Database, Table
from nsys2prv_ng.report.sqlite_file import SqliteFile
from tests.conftest import SAMPLES
from tests.tiers import cases

KINDS = {
    "kernels": "CUPTI_ACTIVITY_KIND_KERNEL",
    "calls": "CUPTI_ACTIVITY_KIND_RUNTIME",
    "ranges": "NVTX_EVENTS",
    "texts": "StringIds",
    "metadata": "META_DATA_CAPTURE",
    "GPUs": "TARGET_INFO_GPU",
    "metrics": "GPU_METRICS",
    "messages": "DIAGNOSTIC_EVENT",
}


def write_without_rowid(path: Path, table: str) -> Path:
    """Write a copy of a sample with a table that has the same columns, and its key first, but no rowid."""
    path.write_bytes((SAMPLES / "single-graph.sqlite").read_bytes())
    with closing(sqlite3.connect(path)) as connection:
        columns = ", ".join(f'"{row[1]}" {row[2]}' for row in connection.execute(f"PRAGMA table_info({table})"))
        connection.execute(f"ALTER TABLE {table} RENAME TO before")
        connection.execute(f"CREATE TABLE {table} (zz_key INTEGER PRIMARY KEY, {columns}) WITHOUT ROWID")
        connection.execute(f"INSERT INTO {table} SELECT rowid, * FROM before")
        connection.execute("DROP TABLE before")
        connection.commit()
    return path


@pytest.mark.slow
@pytest.mark.parametrize("kind", cases(KINDS, push=["kernels", "texts"]))
def test_every_kind_of_table(tmp_path, kind):
    path = write_without_rowid(tmp_path / "a.sqlite", KINDS[kind])
    message = f"a.sqlite: table {KINDS[kind]} has no rowid, as if made WITHOUT ROWID.*; export the report again"
    for use in (lambda: nsys2prv_ng.translate([path], tmp_path / "o.prv"), lambda: nsys2prv_ng.summarize([path])):
        with pytest.raises(ReportError, match=message):
            use()
    (fault,) = nsys2prv_ng.inspect([path]).faults
    assert KINDS[kind] in str(fault) and "WITHOUT ROWID" in str(fault)
    assert not list(tmp_path.glob("o.*"))


def test_other_tables_may_lack_rowids(tmp_path):
    path = write_without_rowid(tmp_path / "a.sqlite", "ENUM_CUDA_MEM_KIND")
    assert Database(path).count_rows("StringIds") == Database(SAMPLES / "single-graph.sqlite").count_rows("StringIds")


@pytest.mark.parametrize("names", [["rowid"], ["ROWID", "oid"], ["_rowid_"]])
def test_columns_that_are_called_as_the_rowid(tmp_path, names):
    """Rows are in the order of the file, not of these columns."""
    path = tmp_path / "a.sqlite"
    rows = [(3 * i % 100, i) for i in range(100)]
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE StringIds (id INTEGER)")
        connection.execute(f"CREATE TABLE t ({', '.join(names)}, value INTEGER)")
        connection.executemany(f"INSERT INTO t VALUES ({'?1, ' * len(names)} ?2)", rows)
        connection.commit()
    with closing(SqliteFile(path)) as reader:
        read = reader.read_integers("t", [names[0], "value"])
        np.testing.assert_array_equal(np.transpose(read), rows)
        assert reader.read_objects("t", ["value"], {"value": [5, 7]}) == [[5, 7]]
    assert Database(path).read(Table("t", ("value",)), "")["value"].tolist() == list(range(100))


def test_no_name_is_left_for_the_rowid(tmp_path):
    path = tmp_path / "a.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE t (rowid, oid, _rowid_)")
    for use in (SqliteFile(path).count_rows, SqliteFile(path).list_columns):
        with pytest.raises(ReportError, match="table t has no rowid"):
            use("t")
