"""A report that changes while it is read is an error, not a mixture of its old and new content."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

import nsys2prv_ng
from nsys2prv_ng.errors import ReportError, TranslationError
from nsys2prv_ng.reading import read_report
from nsys2prv_ng.report.database import open_database
from tests.conftest import SAMPLES
from tests.report.table_folders import KINDS, folder_of

REPORT = SAMPLES / "single-graph.sqlite"
CHANGED = "changed while it was read; wait until nothing writes to it"


def rename_a_string(path: Path) -> None:
    """Change a value in place, as SQLite does: no size changes."""
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA journal_mode = off")
        connection.execute("UPDATE StringIds SET value = upper(substr(value, 2)) || 'x'")
    connection.close()


def keep_times(change: Callable[[Path], None]) -> Callable[[Path], None]:
    def changed(path: Path) -> None:
        before = path.stat()
        change(path)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    return changed


def replace(path: Path) -> None:
    shutil.copy2(path, path.with_suffix(".new"))
    path.with_suffix(".new").rename(path)


def append(path: Path) -> None:
    with path.open("ab") as file:
        file.write(bytes(4096))


CHANGES = {
    "in place": rename_a_string,
    "in place, times kept": keep_times(rename_a_string),
    "replaced by a copy with its times": replace,
    "longer": append,
    "cut": lambda path: os.truncate(path, path.stat().st_size // 2),
    "gone": Path.unlink,
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_changed_file_is_an_error(tmp_path, change):
    path = shutil.copy(REPORT, tmp_path / "a.sqlite")
    with pytest.raises(TranslationError, match=CHANGED) as raised, open_database(path) as database:
        database.count_rows("StringIds")
        change(path)
    assert not isinstance(raised.value, ReportError)  # it would only leave this report out


def test_an_error_in_a_changed_file_says_that_it_changed(tmp_path):
    path = shutil.copy(REPORT, tmp_path / "a.sqlite")
    with pytest.raises(TranslationError, match=CHANGED), open_database(path):
        append(path)
        raise ReportError("cannot be read")


def test_reading_and_a_new_access_time_are_no_change(tmp_path):
    path = shutil.copy(REPORT, tmp_path / "a.sqlite")
    with open_database(path) as database:
        assert database.count_rows("StringIds")
        path.read_bytes()
    with pytest.raises(ReportError, match="cannot be read"), open_database(path):
        raise ReportError("cannot be read")


@pytest.mark.parametrize("kind", KINDS)
def test_a_changed_folder_is_an_error(tmp_path, kind):
    folder = folder_of(REPORT, tmp_path, kind)
    table = sorted(folder.iterdir())[0]
    for change in (append, replace, lambda path: shutil.copy(path, path.with_stem("OTHER"))):
        with pytest.raises(TranslationError, match=CHANGED), open_database(folder):
            change(table)
    with open_database(folder) as database:
        assert database.tables


@pytest.mark.parametrize("others", [[], [SAMPLES / "mpi-4.rank0.sqlite"]], ids=["alone", "beside another report"])
def test_no_trace_of_a_changed_report(tmp_path, monkeypatch, others):
    path = Path(shutil.copy(REPORT, tmp_path / "a.sqlite"))
    read = read_report.read_diagnostics

    def read_later(database):
        if database.path == path:
            rename_a_string(path)
        return read(database)

    monkeypatch.setattr(read_report, "read_diagnostics", read_later)
    for use in (
        lambda: nsys2prv_ng.translate([path, *others], tmp_path / "a.prv", jobs=1, several_jobs=True),
        lambda: nsys2prv_ng.summarize([path, *others], jobs=1, several_jobs=True),
        lambda: nsys2prv_ng.shard([path, *others], tmp_path / "shards", jobs=1),
    ):
        with pytest.raises(TranslationError, match=CHANGED):
            use()
    assert not list(tmp_path.glob("a.p*")) and not list(tmp_path.glob("shards/*a*"))
