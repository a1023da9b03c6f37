"""Exports of reports that were captured with vClock, which only --ts-normalize keeps, by nsys 2026.4 and later."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest

from nsys2prv_ng.report.export import find_export, make_export
from tests.report.fake_nsys import HELP_2024, HELP_NORMALISE, Fake, write_export, write_report

NEW, OLD = "2026.4.1.57", "2026.3.1.57"
PLUGIN = "Plugin vclock was started."


@pytest.fixture
def report(tmp_path: Path) -> Path:
    return write_report(tmp_path / "rank0.nsys-rep")


def is_normalised(export: Path) -> bool:
    with contextlib.closing(sqlite3.connect(export)) as database:
        values = dict(database.execute("SELECT name, value FROM META_DATA_EXPORT"))
    return values.get("EXPORT_PARAM_TIME_NORMALIZE") == "true"


@pytest.mark.parametrize(
    ("product", "offered", "message", "runs"),
    [
        (NEW, HELP_NORMALISE, PLUGIN, [False, True]),
        (NEW, HELP_NORMALISE, "nvclock_plugin and vclocks", [False]),
        (OLD, HELP_NORMALISE, PLUGIN, [False]),
        (NEW, HELP_2024, PLUGIN, [False]),
    ],
)
def test_only_such_reports_are_normalised(
    report: Path, tmp_path: Path, product: str, offered: str, message: str, runs: list[bool]
) -> None:
    fake = Fake(tmp_path / "bin", product=product, help=offered, messages=["Profiling has started.", message])
    made = make_export(report, tmp_path / "out", fake.nsys)
    assert is_normalised(made) == runs[-1]
    assert ["--ts-normalize=true" in words for words in fake.exports()] == runs
    assert find_export(report, tmp_path / "out", fake.nsys) == made
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bin", "rank0.nsys-rep", "rank0.sqlite"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("entry", "is_good"),
    [
        (("PLUGIN_0:NAME", "vclock"), False),
        (("PLUGIN_0:NAME", "network_interface"), True),
        # The words of the profiled program, and its variables, are no options of the capture.
        (("PROCESS_0:ARGUMENT_1", "vclock"), True),
        (("PROCESS_0:ENVIRONMENT_VARIABLE", 'NAME="vclock"'), True),
    ],
)
def test_an_export_that_is_there(report: Path, tmp_path: Path, entry: tuple[str, str], is_good: bool) -> None:
    """Of a capture with vClock it is made again, unless it has its times or nobody can make it."""
    export = tmp_path / "rank0.sqlite"
    fake = Fake(tmp_path / "bin", product=NEW, help=HELP_NORMALISE)
    for normalised in ("false", "true"):
        export.unlink(missing_ok=True)
        write_export(export, NEW, EXPORT_PARAM_TIME_NORMALIZE=normalised)
        with contextlib.closing(sqlite3.connect(export)) as database, database:
            database.execute("CREATE TABLE META_DATA_CAPTURE (name TEXT, value TEXT)")
            database.execute("INSERT INTO META_DATA_CAPTURE VALUES (?, ?)", entry)
        found = find_export(report, tmp_path / "out", fake.nsys)
        assert found == (export if is_good or normalised == "true" else None)
        assert find_export(report, tmp_path / "out", None) == export
