"""File systems without locks: nsys cannot write SQLite files there, and we read them all the same."""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from nsys2prv_ng.errors import ReportError, TranslationError
from nsys2prv_ng.report.database import Database
from nsys2prv_ng.report.export import find_export, make_export
from tests.report.fake_nsys import HELP_2023, Fake, write_export, write_report


@pytest.fixture
def report(tmp_path: Path) -> Path:
    return write_report(tmp_path / "no locks" / "rank0.nsys-rep")


@pytest.mark.parametrize("given", [True, False])
def test_nsys_writes_in_the_temporary_folder(
    report: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: bool
) -> None:
    """The export ends up beside the report all the same, and nothing else stays anywhere."""
    tmp = tmp_path / "tmp"
    tmp.mkdir()
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path / "none" if given else tmp))
    fake = Fake(tmp_path / "bin", no_locks=str(report.parent))
    made = make_export(report, tmp_path / "out", fake.nsys, tmp=tmp if given else None)
    assert made == report.with_suffix(".sqlite") == find_export(report, tmp_path / "out", fake.nsys)
    with contextlib.closing(sqlite3.connect(made)) as database:
        assert ("REPORT", "the report of rank 0") in database.execute("SELECT * FROM META_DATA_EXPORT").fetchall()
    assert {path.name for path in report.parent.iterdir()} == {report.name, made.name}
    assert list(tmp.iterdir()) == [] and not (tmp_path / "out").exists()
    outputs = [Path(words[words.index("--output") + 1]) for words in fake.exports()]
    assert [output.is_relative_to(tmp) for output in outputs] == [False, True]


@pytest.mark.slow
def test_the_table_that_a_folder_lacks(report: Path, tmp_path: Path) -> None:
    """It is exported to SQLite, so that folders need locks as well."""
    fake = Fake(tmp_path / "bin", no_locks=str(report.parent), capture=[["A", "B"]])
    fake.offer_folders("NVTX_EVENTS")
    assert "parquetdir" in HELP_2023
    made = make_export(report, tmp_path / "out", fake.nsys, tmp=tmp_path)
    database = Database(made)
    assert database.read_objects("META_DATA_CAPTURE", ["name", "value"]) == {"name": ["A"], "value": ["B"]}
    database.close()
    assert {path.name for path in report.parent.iterdir()} == {report.name, "rank0_pqtdir"}


@pytest.mark.slow
@pytest.mark.parametrize("tmp", [".", "no such folder"])
def test_nowhere_with_locks(report: Path, tmp_path: Path, tmp: str) -> None:
    """The machine is at fault, not the report; the error names the remedy."""
    fake = Fake(tmp_path / "bin", no_locks=str(tmp_path))
    with pytest.raises(TranslationError, match=r"no locks.*choose another temporary folder \(see tmp\)$") as error:
        make_export(report, tmp_path / "out", fake.nsys, tmp=tmp_path / tmp)
    assert not isinstance(error.value, ReportError)
    assert {path.name for path in report.parent.iterdir()} == {report.name}


def test_reading_takes_no_lock(tmp_path: Path) -> None:
    """Another program holds all locks of the file, so that whoever asks for one is refused."""
    path = tmp_path / "a.sqlite"
    write_export(path)
    program = (
        "import sqlite3, sys\n"
        f"database = sqlite3.connect({str(path)!r}, isolation_level=None)\n"
        "database.execute('PRAGMA journal_mode = OFF')\n"
        "database.execute('BEGIN EXCLUSIVE')\n"
        "print(flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen([sys.executable, "-S", "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as held:
        assert held.stdout is not None and held.stdout.readline()
        with (
            contextlib.closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=0)) as refused,
            pytest.raises(sqlite3.OperationalError, match="database is locked"),
        ):
            refused.execute("SELECT * FROM META_DATA_EXPORT").fetchall()
        database = Database(path)
        assert database.read_objects("META_DATA_EXPORT", ["value"]) == {"value": ["2024.2.3.38"]}
        database.close()
        held.communicate()
