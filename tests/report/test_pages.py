"""Integers read from the pages of a file are those that sqlite3 reads, for databases of every kind."""

from __future__ import annotations

import os
import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nsys2prv_ng.errors import TranslationError
from nsys2prv_ng.report import page_kernels, pages
from nsys2prv_ng.report.database import NULL, Database, Table
from nsys2prv_ng.report.pages import PageReader
from nsys2prv_ng.report.sqlite_file import SqliteFile
from tests.conftest import REPORTS, SAMPLES
from tests.examples import examples
from tests.report.page_databases import (
    Plan,
    by_pages,
    by_pages_in_blocks,
    by_sqlite,
    large_export,
    list_columns,
    page_reader,
    plans,
)
from tests.report_sets import sets

MANY = tuple((i, -i * 2**40) for i in range(700))
SMALL_REPORTS = [*sorted(SAMPLES.glob("*.sqlite")), *sorted(REPORTS.glob("*/*.sqlite"))]
LARGE_REPORTS = [REPORTS / f"bench/{name}.sqlite.xz" for name in ("torchrun-one-report", "ddplong-2x2.rank0")]


def assert_equal(path: Path, columns: list[str], table: str = "t") -> bool:
    """Whether the table was read; if so, as by sqlite3, also in blocks."""
    found, in_blocks = by_pages(path, columns, table), by_pages_in_blocks(path, columns, table)
    assert (found is None) == (in_blocks is None)
    if found is not None:
        np.testing.assert_array_equal(in_blocks, found)
        np.testing.assert_array_equal(found, by_sqlite(path, columns, table))
    return found is not None


@pytest.mark.slow
def test_generated_databases(tmp_path):
    outcomes = Counter()

    # The assertion below is about what is drawn, which must not change from run to run.
    @settings(max_examples=examples(400), deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(plan=plans(), data=st.data())
    def check(plan, data):
        path = plan.make(tmp_path / "a.sqlite")
        columns = data.draw(st.lists(st.sampled_from(list_columns(path)), min_size=1, unique=True))
        outcomes[assert_equal(path, columns)] += 1

    check()
    assert outcomes[True] > examples(100) and outcomes[False] > examples(20)  # so that both were tried


@pytest.mark.parametrize(("reserved", "auto_vacuum"), [(0, 0), (0, 1), (32, 0), (32, 1)])
def test_page_sizes(tmp_path, reserved, auto_vacuum):
    """All of 512 bytes, and half of the others so that every two values of the three meet."""
    for i, page_size in enumerate([512, 1024, 2048, 4096, 8192, 16384, 32768, 65536]):
        if page_size == 512 or (i + (reserved > 0) + auto_vacuum) % 2:
            check_page_size(tmp_path, page_size, reserved, auto_vacuum)


def check_page_size(tmp_path, page_size, reserved, auto_vacuum):
    plan = Plan(page_size, reserved, auto_vacuum=auto_vacuum, rows=MANY, copies=4)
    assert assert_equal(plan.make(tmp_path / "a.sqlite"), ["c1", "c0"])


@pytest.mark.slow
def test_deep_tree(tmp_path):
    """Four levels, in pages that were not written in the order of the rows."""
    rowids = tuple(np.random.default_rng(1).permutation(30_000).tolist())
    plan = Plan(512, rows=tuple((i, i) for i in range(30_000)), rowids=rowids, types=("INTEGER", "TEXT"), copies=0)
    plan = replace(plan, rows=tuple((i, "x" * 60) for i, _ in plan.rows))
    assert assert_equal(plan.make(tmp_path / "a.sqlite"), ["c0"])


KEYS = ["none", "alias", "alias, lower case", "alias, last", "descending", "index"]
CHANGES = [(), ("delete",), ("delete", "vacuum"), ("add", "insert"), ("update", "insert")]


@pytest.mark.parametrize(("i", "key"), list(enumerate(KEYS)))
@pytest.mark.parametrize(("j", "operations"), list(enumerate(CHANGES)))
def test_keys_and_changes_are_read(tmp_path, i, key, j, operations):
    """Every key with every change, each of them in both kinds of journal."""
    journal = ("OFF", "WAL")[(i + j) % 2]
    plan = Plan(key=key, operations=operations, journal=journal, rows=MANY, rowids=(-5, 2**61, 7))
    path = plan.make(tmp_path / "a.sqlite")
    columns = list_columns(path)
    assert assert_equal(path, columns)
    assert all(assert_equal(path, [name]) for name in columns)


@pytest.mark.parametrize(
    ("plan", "columns", "is_read"),
    [
        (Plan(types=("INTEGER", "TEXT"), rows=((5, "x" * 2000),) * 9), ["c0"], True),
        (Plan(types=("TEXT", "INTEGER"), rows=(("x" * 2000, 5),) * 9), ["c1"], False),
        (Plan(types=("TEXT", "INTEGER"), rows=(("x" * 2000, 1),) * 9), ["c0"], True),
        (Plan(types=("TEXT", "INTEGER"), rows=(("x" * 2000, None),) * 9), ["c1"], True),
        (Plan(types=("INTEGER", "INTEGER"), rows=((5, "text"), (b"bytes", 6))), ["c0", "c1"], True),
        (Plan(types=("INTEGER", "INTEGER"), rows=((5, 0.5),) * 9), ["c0"], True),
        (Plan(types=("INTEGER", "INTEGER"), rows=((5, 0.5),) * 9), ["c1"], False),
        (Plan(types=("INTEGER", "REAL"), rows=((5, 6),) * 9), ["c1"], False),
        (Plan(operations=("add",)), ["d0"], True),
        (Plan(operations=("add with default",)), ["c1"], True),
        (Plan(operations=("add with default",)), ["d0"], False),
        (Plan(operations=("add with default", "vacuum")), ["d0"], False),
        (Plan(operations=("add generated",)), ["c0"], False),
        (Plan(stored=True), ["c0"], False),
        (Plan(operations=("delete all",), rows=MANY), ["c0"], False),
    ],
)
def test_what_is_left_to_sqlite(tmp_path, plan, columns, is_read):
    assert assert_equal(plan.make(tmp_path / "a.sqlite"), columns) == is_read


@pytest.mark.parametrize(
    ("statement", "columns"),
    [
        ("CREATE TABLE u (a INTEGER PRIMARY KEY, b INTEGER) WITHOUT ROWID", ["a", "b"]),
        ("CREATE TABLE u (a INTEGER, rowid INTEGER)", ["a"]),
        ("CREATE TABLE u (a INTEGER, b INTEGER)", ["a", "none"]),
        ("CREATE VIEW u AS SELECT c0 AS a, c1 AS b FROM t", ["a", "b"]),
        ("CREATE TABLE v (a)", ["a"]),
    ],
)
def test_what_is_no_ordinary_table(tmp_path, statement, columns):
    path = Plan(rows=MANY).make(tmp_path / "a.sqlite")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(statement)
        if "TABLE u" in statement:
            connection.execute("INSERT INTO u VALUES (1, 2), (2, 1)")
        connection.commit()
    assert by_pages(path, columns, "u") is None


def test_names_that_need_quotes(tmp_path):
    path = tmp_path / "a.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute('CREATE TABLE "a ""b" ("c ""d" INTEGER, "select" INTEGER)')
        connection.execute('INSERT INTO "a ""b" VALUES (1, 2)')
        connection.commit()
    assert by_pages(path, ["select", 'c "d'], 'a "b').tolist() == [[2], [1]]


@pytest.mark.parametrize("columns", [1, 3, 7, 8, 15, 47, 48, 60])
def test_headers_of_any_length_and_of_many_kinds(tmp_path, columns):
    """More kinds than there is room for their layouts, in any order, and headers too long for that."""
    rng = np.random.default_rng(columns)
    rows = rng.integers(-(2**62), 2**62, (2500, columns)) >> rng.choice([0, 12, 20, 30, 45, 61, 62], (2500, columns))
    names = [f"c{i}" for i in range(columns)]
    path = tmp_path / "a.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"CREATE TABLE t ({', '.join(f'{name} INTEGER' for name in names)})")
        values = [[None if value % 11 == 0 else value for value in row] for row in rows.tolist()]
        connection.executemany(f"INSERT INTO t VALUES ({', '.join('?' * columns)})", values)
        connection.commit()
    assert assert_equal(path, names[:: max(1, columns // 5)][::-1])
    assert assert_equal(path, names)


@pytest.mark.parametrize(("sizes", "is_read"), [([0, 57, 58, 200], True), ([0, 200, 4000, 4060], False)])
def test_layouts_depend_on_the_sizes_of_texts(tmp_path, sizes, is_read):
    """Integers before and after texts, whose sizes take one or two bytes of the header, and of which some overflow."""
    drawn = np.random.default_rng(1).choice(sizes, (400, 2)).tolist()
    rows = tuple((i, "x" * first, i * 2**30, "y" * second) for i, (first, second) in enumerate(drawn))
    path = Plan(types=("INTEGER", "TEXT", "INTEGER", "TEXT"), rows=rows).make(tmp_path / "a.sqlite")
    assert assert_equal(path, ["c0"])
    assert assert_equal(path, ["c2", "c0"]) == is_read


@pytest.mark.slow
@pytest.mark.parametrize(
    "report",
    sets(
        [pytest.param(path, id=f"{path.parent.name}/{path.stem}") for path in SMALL_REPORTS],
        push=(
            *("samples/single-graph", "gpu/um-1", "gpu/autograd-1", "public/mapf_report1"),
            *("cpu/2022.4.2-nvtx_py", "cpu/2023.4.4-mpich_all", "public/pipit_cloverleaf"),
        ),
    ),
)
def test_real_reports(report):
    """All tables, all columns but those of floating point numbers."""
    assert tables_read(report) > 20


@pytest.mark.slow
@pytest.mark.all_sets
@pytest.mark.parametrize("report", LARGE_REPORTS, ids=lambda path: path.stem)
def test_large_reports(report, shared_reports, unpacked):
    assert tables_read(unpacked(report)) > 20


def tables_read(report: Path) -> int:
    """Compare all columns of integers of all tables with what sqlite3 reads; return how many tables were read."""
    read = 0
    with closing(SqliteFile(report, small=2**62)) as by_row, page_reader(report, 0) as (reader, connection):
        for table in sorted(by_row.tables):
            reals = {name for (name,) in connection.execute(REALS, (table,))}
            columns = sorted(by_row.list_columns(table) - reals)
            by_page = reader.read(connection, table, columns)
            if by_page is not None:
                np.testing.assert_array_equal(by_page, by_row.read_integers(table, columns), table)
                read += 1
            else:
                is_empty = not by_row.read_objects(table, columns[:1], {})[0]
                assert is_empty or has_overflow(connection, table), table  # only these are left
    return read


def has_overflow(connection: sqlite3.Connection, table: str) -> bool:
    """Whether a row has more bytes of text than its page: values behind it are then in overflow pages."""
    ((page_size,),) = connection.execute("PRAGMA page_size")
    texts = [name for name, kind in connection.execute(COLUMNS, (table,)) if kind in ("TEXT", "BLOB")]
    sizes = " + ".join(f'ifnull(length(CAST("{name}" AS BLOB)), 0)' for name in texts)
    return bool(texts) and connection.execute(f'SELECT max({sizes}) > ? FROM "{table}"', (page_size,)).fetchone()[0]


COLUMNS = "SELECT name, type FROM pragma_table_info(?)"
REALS = "SELECT name FROM pragma_table_info(?) WHERE type = 'REAL'"

EVENTS = Table("EVENTS", ("start",), {"end": -7, "word": NULL, "later": 5}, text=("word",))


def test_database(tmp_path, monkeypatch):
    """Both roads of Database.read give the same, with the defaults of optional columns."""
    path = large_export(tmp_path / "a.sqlite")
    answers = []
    monkeypatch.setattr(PageReader, "read", logged(PageReader.read, answers))
    database = Database(path)
    by_page = database.read(EVENTS, "")
    monkeypatch.setattr(pages.PageReader, "read", lambda *_: None)
    by_row = database.read(EVENTS, "")
    database.close()
    assert len(answers) == 1 and answers[0] is not None
    assert by_page.rows == by_row.rows == 20_000
    assert by_page.texts["word"].equals(by_row.texts["word"])
    assert by_page["end"][:3].tolist() == [0, -7, 2 * 2**33]
    for name in ("start", "end", "word", "later"):
        np.testing.assert_array_equal(by_page[name], by_row[name])


NUMBERS = Table("EVENTS", ("start",), {"end": -7, "later": 5})


@pytest.mark.slow
@pytest.mark.parametrize("by_page", [True, False])
def test_database_by_block(tmp_path, monkeypatch, by_page):
    """Blocks are the rows that Database.read gives, one after the other, and overwrite each other."""
    database = Database(large_export(tmp_path / "a.sqlite"))
    whole = database.read(NUMBERS, "")
    monkeypatch.setattr(pages, "_BLOCK_BYTES", 1 << 14)
    if not by_page:
        monkeypatch.setattr(PageReader, "read_by_block", lambda *_: None)
    blocks = database.read_by_block(
        NUMBERS, "", lambda block: [block[name].copy() for name in ("start", "end", "later")]
    )
    assert (len(blocks) > 9) == by_page
    for name, column in zip(("start", "end", "later"), zip(*blocks, strict=True), strict=True):
        np.testing.assert_array_equal(np.concatenate(column), whole[name])
    assert database.read_by_block(Table("OTHER", ("a",)), "", lambda block: block) == []
    with pytest.raises(TranslationError, match="table EVENTS has no column a"):
        database.read_by_block(Table("EVENTS", ("a",)), "", lambda block: block)
    database.close()


def test_blocks_of_a_file_that_changes_are_read_again(tmp_path, monkeypatch):
    """What was made of its pages until then is not used."""
    path = large_export(tmp_path / "a.sqlite")
    database = SqliteFile(path)
    monkeypatch.setattr(pages, "_BLOCK_BYTES", 1 << 14)

    def list_rows(block):
        os.utime(path)
        return block[0].tolist()

    assert database.read_by_block("EVENTS", ["start"], list_rows) == [list(range(20_000))]
    database.close()


def logged(function, answers):
    def call(*arguments):
        answers.append(function(*arguments))
        return answers[-1]

    return call


def test_small_tables_are_left(tmp_path):
    """Loading the kernels would take longer."""
    path = large_export(tmp_path / "a.sqlite", 50)
    assert by_pages(path, ["start"], "EVENTS", small=pages.SMALL) is None
    assert by_pages(path, ["start"], "EVENTS") is not None


@pytest.mark.parametrize("suffix", ["-wal", "-journal"])
def test_another_writer(tmp_path, suffix):
    path = large_export(tmp_path / "a.sqlite")
    with page_reader(path) as (reader, connection):
        path.with_name(path.name + suffix).write_bytes(b"")
        assert reader.read(connection, "EVENTS", ["start"]) is not None
        path.with_name(path.name + suffix).write_bytes(b"x")
        assert reader.read(connection, "EVENTS", ["start"]) is None


def test_a_file_that_changes(tmp_path):
    path = large_export(tmp_path / "a.sqlite")
    with page_reader(path) as (reader, connection):
        os.utime(path, ns=(1, 1))
        assert reader.read(connection, "EVENTS", ["start"]) is None
        content = path.read_bytes()
        path.unlink()
        assert reader.read(connection, "EVENTS", ["start"]) is None
        of_no_file = PageReader(path)
        path.write_bytes(content)
        assert of_no_file.read(connection, "EVENTS", ["start"]) is None
        assert PageReader(path).read(connection, "EVENTS", ["start"]) is not None


@pytest.mark.slow
@pytest.mark.parametrize("size", [0, 5000, None])
def test_a_file_that_is_cut_or_written_meanwhile(tmp_path, monkeypatch, size):
    path = large_export(tmp_path / "a.sqlite", 150_000)

    def count_cells(*arguments):
        if size is None:
            os.utime(path)
        else:
            os.truncate(path, size)
        return kernel(*arguments)

    kernel = page_kernels.count_cells
    monkeypatch.setattr(page_kernels, "count_cells", count_cells)
    assert by_pages(path, ["start"], "EVENTS") is None


def test_the_page_of_the_lock(tmp_path, monkeypatch):
    """Nothing is in it, so what refers to it is damaged; 1 GiB is too much for a test."""
    path = Plan(512, rows=MANY).make(tmp_path / "a.sqlite")
    monkeypatch.setattr(pages, "_LOCK_BYTE", 512 * 20)
    assert by_pages(path, ["c0"]) is None
