"""Folders of tables: what is read of them, and what is said of those that are no sound export."""

from __future__ import annotations

import os
import random
import re
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

from nsys2prv_ng.errors import TranslationError, UsageError
from nsys2prv_ng.report import table_folder
from nsys2prv_ng.report.database import NULL, Database, Table
from nsys2prv_ng.report.export_all import locate_exports
from nsys2prv_ng.report.files import get_export_size
from nsys2prv_ng.runtime.progress import Progress
from nsys2prv_ng.sources.registry import select_sources
from nsys2prv_ng.translation.plan_trace import TranslationPlan
from nsys2prv_ng.translation.translate import translate
from tests.cli.program_runs import run
from tests.cli.test_program import SAMPLE, assert_one_line, files
from tests.examples import examples
from tests.report.table_folders import BLOCK, KINDS, SUFFIXES, folder_of, tables_of, write_folder, write_table
from tests.sources.small_reports import MAIN, export

NAMES = pa.table({"id": pa.array([0, 1]), "value": pa.array(["", "x"])})
RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
EVENTS = Table(
    "EVENTS", ("start",), {"end": -7, "none": 5}, text=("word", "no_word"), real=("no_real",), blob=("no_blob",)
)


def events(rows: int) -> pa.Table:
    start = np.arange(rows) * 3
    end = pa.array([None if i % 2 else i for i in range(rows)], pa.uint32())
    return pa.table(
        {"start": start, "end": end, "word": [f"w{i % 7}" for i in range(rows)], "unread": [{"a": 1}] * rows}
    )


def test_a_pipe_is_no_table(tmp_path):
    """Opening it would wait for ever: so a process with an end."""
    folder = write_folder(tmp_path / "r_pqtdir", {"StringIds": NAMES, RUNTIME: NAMES}, "parquet")
    (folder / f"{RUNTIME}.parquet").unlink()
    os.mkfifo(folder / f"{RUNTIME}.parquet")
    line = assert_one_line(run(folder, tmp_path / "out.prv", env=os.environ), 1)
    assert f"{RUNTIME}.parquet: is not a file; export the report again" in line


@pytest.mark.parametrize("kind", KINDS)
def test_columns_are_those_of_the_file(tmp_path, kind):
    """In its order, over several blocks, with the defaults of what is missing."""
    rows = 3 * BLOCK + 7
    table = events(rows).drop_columns("unread")
    database = Database(write_folder(tmp_path / "r", {"StringIds": NAMES, "EVENTS": table}, kind))
    assert database.tables == {"StringIds", "EVENTS"}
    assert database.list_columns("EVENTS") == {"start", "end", "word"} and database.list_columns("OTHER") == frozenset()
    columns = database.read(EVENTS, "")
    assert columns.rows == rows
    assert columns["start"].tolist() == table["start"].to_pylist()
    assert columns["end"].tolist() == [-7 if i % 2 else i for i in range(rows)]
    assert columns["none"].tolist() == [5] * rows
    assert columns.texts["word"].to_pylist() == table["word"].to_pylist()
    assert columns.texts["no_word"].null_count == columns.blobs["no_blob"].null_count == rows
    assert np.isnan(columns.reals["no_real"]).all() and columns.reals["no_real"].size == rows
    blocks = database.read_by_block(
        Table("EVENTS", ("start",), {"end": -7}), "", lambda block: (block["start"], block["end"])
    )
    assert (len(blocks) > 3) == (kind != "parquet")
    for block_column, name in zip(zip(*blocks, strict=True), ("start", "end"), strict=True):
        assert np.concatenate(block_column).tolist() == columns[name].tolist()
    assert database.read(Table("EVENTS", (), {"none": 1}), "")["none"].tolist() == [1] * rows
    assert database.read(Table("OTHER", ("a",)), "").rows == 0
    assert [database.count_rows(name) for name in ("EVENTS", "StringIds", "OTHER")] == [rows, 2, 0]
    assert database.list_missing(Table("EVENTS", ("a", "start", "b"))) == ["a", "b"]
    assert database.list_missing(Table("OTHER", ("a",))) == database.list_missing(EVENTS) == []
    with pytest.raises(TranslationError, match=r"table EVENTS has no column a, b \(schema version 3\.1\)"):
        database.read(Table("EVENTS", ("start", "a", "b")), "3.1")


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_reader_selects_the_same_rows(tmp_path, kind):
    """A folder of tables, and SQLite, which compares numbers with columns of text as numbers."""
    columns = {"k": [1, 2, None, 2**40], "l": [7, 7, 7, None], "t": ["1", None, "x", "y"], "f": [1.0, 1.5, None, 2.0]}
    report = export(tmp_path / "r.sqlite", [""], {"T": (list(columns), list(zip(*columns.values(), strict=True)))})
    sqlite, folder = Database(report), Database(folder_of(report, tmp_path, kind))
    assert folder.tables == sqlite.tables
    alone = ({"k": [1, 2**40]}, {"k": []}, {"f": [1, 2]}, {"t": [5]}, {"none": [1]})
    for among in (None, {}, {"k": [2], "l": [7]}, *alone):
        of_sqlite = sqlite.read_objects("T", ["t", "k", "none", "f"], among)
        found = folder.read_objects("T", ["t", "k", "none", "f"], among)
        assert found == of_sqlite, among
    assert folder.read_objects("T", ["k"], {"k": [1], "l": [7]}) == {"k": [1]}
    assert folder.read_objects("OTHER", ["a"]) == {"a": []}


def test_rows_keep_their_order_beside_an_index(tmp_path):
    """Also if the index has all columns that are read, or selects the rows."""
    rows = [(3, "a"), (1, "c"), (2, "b")]
    report = export(tmp_path / "r.sqlite", [""], {"T": (("k", "t"), rows)})
    with closing(sqlite3.connect(report)) as connection:
        connection.execute("CREATE INDEX i ON T (k, t)")
        connection.commit()
    database = Database(report)
    assert database.read_objects("T", ["k", "t"]) == {"k": [3, 1, 2], "t": ["a", "c", "b"]}
    assert database.read_objects("T", ["t"], {"k": [1, 2, 3]}) == {"t": ["a", "c", "b"]}
    database.close()


@pytest.mark.parametrize("kind", KINDS)
def test_integers_with_null_among_them_stay_exact(tmp_path, kind):
    table = pa.table({"id": pa.array([MAIN + 1, None])})
    report = export(tmp_path / "r.sqlite", [""], {"T": (("id",), [(MAIN + 1,), (None,)])})
    folder = write_folder(tmp_path / "r", {"StringIds": NAMES, "T": table}, kind)
    for path in (report, folder):
        assert list(Database(path).read_objects("T", ["id"])["id"]) == [MAIN + 1, None]


@pytest.mark.parametrize("kind", KINDS)
def test_tables_without_rows_and_columns_without_values(tmp_path, kind):
    empty = pa.table({"start": pa.array([], pa.int64()), "word": pa.array([], pa.string())})
    nulls = pa.table({"start": pa.nulls(2), "word": pa.nulls(2)})
    database = Database(write_folder(tmp_path / "r", {"StringIds": NAMES, "EVENTS": empty, "NULLS": nulls}, kind))
    columns = database.read(EVENTS, "")
    assert (columns.rows, columns["start"].size, len(columns.texts["word"])) == (0, 0, 0)
    assert database.read_objects("EVENTS", ["start"]) == {"start": []}
    assert (database.count_rows("EVENTS"), database.count_rows("NULLS")) == (0, 2)
    columns = database.read(Table("NULLS", ("start",), text=("word",)), "")
    assert columns["start"].tolist() == [NULL, NULL] and columns.texts["word"].to_pylist() == [None, None]


def test_only_what_is_asked_for_is_read(tmp_path, monkeypatch):
    """Other tables may be damaged, other columns of any type; files that are no tables do not count."""
    asked = []
    batches = table_folder._read_parquet_batches
    monkeypatch.setattr(
        table_folder, "_read_parquet_batches", lambda file, names: asked.append(names) or batches(file, names)
    )
    folder = write_folder(tmp_path / "r", {"StringIds": NAMES, "EVENTS": events(9)}, "parquet")
    for name in ("OTHER.parquet", ".hidden.parquet", ".hidden.arrow", "notes.txt"):
        (folder / name).write_text("no table")
    database = Database(folder)
    assert database.tables == {"StringIds", "EVENTS", "OTHER"}
    assert database.read(Table("EVENTS", ("start",), text=("word",)), "").rows == 9
    assert database.count_rows("EVENTS") == 9
    with pytest.raises(TranslationError, match=r"OTHER\.parquet: cannot be read"):
        database.count_rows("OTHER")
    assert asked == [["start"], ["word"]]


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
def test_compressed_arrow_files(tmp_path, compression):
    folder = write_folder(tmp_path / "r", {"StringIds": NAMES}, "arrow file")
    feather.write_feather(events(9).drop_columns("unread"), folder / "EVENTS.arrow", compression=compression)
    assert Database(folder).read(EVENTS, "")["start"].tolist() == [3 * i for i in range(9)]


# ---- what is no sound export -----------------------------------------------------------------------------------------


_TABLE = f"{RUNTIME}.parquet: "
DAMAGED: dict[str, tuple[Callable[[Path], object], str]] = {
    "cut": (lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]), _TABLE),
    "empty_file": (lambda path: path.write_bytes(b""), f"{_TABLE}the file is empty"),
    "text": (lambda path: path.write_text("this is no table\n" * 100), f"{_TABLE}cannot be read (neither"),
    "missing_column": (
        lambda path: pq.write_table(pq.read_table(path).drop_columns("globalTid"), path),
        f"table {RUNTIME} has no column globalTid",
    ),
    "two_columns": (
        lambda path: pq.write_table(pa.Table.from_arrays([pa.array([1])] * 2, ["a", "a"]), path),
        f"{_TABLE}cannot be read (two columns",
    ),
    "folder_for_file": (lambda path: (path.unlink(), path.mkdir()), f"{_TABLE}is not a file"),
    "dangling": (lambda path: (path.unlink(), path.symlink_to("nothing")), f"{_TABLE}cannot be read (No such file"),
    "mixed": (lambda path: path.with_suffix(".arrow").write_bytes(b""), "tables of several exports ("),
    "no_strings": (
        lambda path: path.with_name("StringIds.parquet").unlink(),
        "no table StringIds); make one with: nsys export --type parquetdir",
    ),
    "empty": (lambda path: [file.unlink() for file in path.parent.iterdir()], "the folder is empty"),
}
"""What is done to the file of a table, and what must be said of its folder."""


def no_exports(parent: Path) -> dict[Path, str]:
    """Return folders and files that are no export, and what must be said of them."""
    whole = folder_of(SAMPLE, parent, "parquet")
    found = {whole / f"{RUNTIME}.parquet": "name the folder that it is in", parent / "other": "name the reports in it"}
    for name, (damage, says) in DAMAGED.items():
        folder = shutil.copytree(whole, parent / f"{name}_pqtdir")
        damage(folder / f"{RUNTIME}.parquet")
        found[folder] = says
    (parent / "other").mkdir()
    shutil.copy(SAMPLE, parent / "other" / "r.sqlite")
    return found


@pytest.mark.slow
def test_what_is_no_export_ends_in_one_line_and_leaves_nothing(tmp_path):
    (tmp_path / "out").mkdir()
    for path, says in no_exports(tmp_path).items():
        with pytest.raises(TranslationError) as error:
            translate([path], tmp_path / "out" / "out.prv", TranslationPlan(sources=select_sources(None)))
        line = str(error.value)
        assert says in line and line.startswith(str(path)) and "\n" not in line and ";" in line, line
        assert files(tmp_path / "out") == []


@pytest.mark.parametrize("cut", [8, 1])
def test_streams_that_end_early(tmp_path, cut):
    """One that was cut between two batches looks whole but for its end."""
    folder = write_folder(tmp_path / "r", {"StringIds": NAMES}, "arrow stream")
    path = folder / "StringIds.arrow"
    path.write_bytes(path.read_bytes()[:-cut])
    if cut == 8:
        assert pa.ipc.open_stream(path).read_all() == NAMES
    with pytest.raises(TranslationError, match=r"StringIds\.arrow: cannot be read \(the Arrow stream has no end\)"):
        Database(folder).read_objects("StringIds", ["id"])


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_folders_that_may_not_be_read(tmp_path):
    folder = write_folder(tmp_path / "r", {"StringIds": NAMES}, "parquet")
    folder.chmod(0)
    with pytest.raises(TranslationError, match="Permission denied"):
        Database(folder)
    folder.chmod(0o700)


@pytest.mark.slow
@pytest.mark.parametrize("compression", ["none", "snappy"])
@pytest.mark.parametrize("kind", KINDS)
def test_damage_is_told_or_harmless(tmp_path, kind, compression):
    """Bytes that change anywhere, and ends that are missing: no other error than ours, and no end of the program."""
    table = events(300).drop_columns("unread")
    table = table.append_column("name", table["word"].dictionary_encode())
    folder = write_folder(tmp_path / "r", {"StringIds": NAMES}, kind)
    path = folder / f"EVENTS{SUFFIXES[kind]}"
    if kind == "parquet":
        pq.write_table(table, path, compression=compression, write_page_checksum=compression == "snappy")
    else:
        write_table(table, path, kind)
    whole, dice = path.read_bytes(), random.Random(7)
    wanted = Table("EVENTS", ("start", "end"), text=("word", "name"), blob=("name",), real=("end",))
    told = 0
    for _ in range(examples(400)):
        data = bytearray(whole)
        for _ in range(dice.choice([1, 1, 3])):
            data[dice.randrange(len(data))] = dice.choice([0, 1, 0x7F, 0xFF, dice.randrange(256)])
        path.write_bytes(data[: dice.choice([len(data)] * 4 + [dice.randrange(len(data))])])
        database = Database(folder)
        try:
            database.read(wanted, "")
            database.read_objects("EVENTS", ["start", "name", "word"], {"start": [3, 6]})
        except TranslationError as error:
            assert re.match(rf"{re.escape(str(folder))}.*; export the report again", str(error)), error
            assert "\n" not in str(error)
            told += 1
    assert told > examples(100)


# ---- the command line and the names of reports -----------------------------------------------------------------------


@pytest.mark.slow
def test_the_order_of_reports_is_that_of_their_names(tmp_path):
    """Reports that say the same of themselves are told apart by their names, which must not depend on the kind."""
    traces = set()
    calls = {name: [(10 * i, 10 * i + 5, MAIN + i, 1, 1)] for i, name in enumerate(("a", "a-b", "a_", "b"), 1)}
    for kind in ("sqlite", *KINDS):
        folder = tmp_path / kind
        folder.mkdir()
        columns = ("start", "end", "globalTid", "nameId", "correlationId")
        made = [export(folder / f"{n}.sqlite", ["", "call"], {RUNTIME: (columns, rows)}) for n, rows in calls.items()]
        if kind != "sqlite":
            made = [folder_of(path, folder, kind) for path in made]
        output = folder / "out" / "out.prv"
        output.parent.mkdir()
        translate(made[::-1] if kind == "parquet" else made, output, TranslationPlan(sources=select_sources(None)))
        traces.add(tuple(output.with_suffix(suffix).read_bytes() for suffix in (".prv", ".pcf", ".row")))
    assert len(traces) == 1


def test_exports_of_one_report_are_refused_together(tmp_path):
    report = shutil.copy(SAMPLE, tmp_path / "r.sqlite")
    folder = folder_of(report, tmp_path, "parquet")
    with pytest.raises(UsageError, match=r"r_pqtdir: given twice \(also as .*r\.sqlite\)"):
        locate_exports([report, folder], tmp_path, Progress())
    elsewhere = shutil.copytree(folder, tmp_path / "other" / "r_pqtdir")
    assert locate_exports([report, elsewhere], tmp_path, Progress()) == [report, elsewhere]


@pytest.mark.slow
def test_command_line(tmp_path):
    folder = folder_of(SAMPLE, tmp_path, "parquet")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    done = run(f"{folder.name}/", "out.prv", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert files(tmp_path) == [folder.name, "out.pcf", "out.prv", "out.row"]
    assert "must be the trace" in assert_one_line(run(folder.name, cwd=tmp_path), 2)
    for name in ("META_DATA_EXPORT.parquet", "new.json"):
        line = assert_one_line(
            run(folder.name, "o.prv", "--stats", f"{folder.name}/{name}", "--force", cwd=tmp_path), 2
        )
        assert name in line
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert set(tables_of(SAMPLE)) == {path.stem for path in folder.iterdir()}


def test_names_of_columns_that_are_no_text(tmp_path):
    """pyarrow fails to read them, also where only the size is asked for."""
    folder = write_folder(tmp_path / "r_pqtdir", {"StringIds": NAMES}, "parquet")
    path = folder / "StringIds.parquet"
    path.write_bytes(path.read_bytes().replace(b"value", b"valu\xdc"))
    assert get_export_size(folder) >= path.stat().st_size
    with pytest.raises(TranslationError, match="StringIds"):
        Database(folder).read_objects("StringIds", ["id"])
