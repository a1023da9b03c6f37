"""A report gives the same bytes of trace whatever it was exported to, and with whatever types of columns."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from nsys2prv_ng.sources import select_sources
from nsys2prv_ng.translation.translate import TranslationPlan, translate
from tests.conftest import NO_REPORTS, REPORTS, SAMPLES
from tests.report.table_folders import ENDINGS, KINDS, other_types, tables_of, write_folder

SETS = {name: sorted(SAMPLES.glob(f"{name}*.sqlite")) for name in ("ddp-2x2", "mpi-4", "single-graph")}


def bytes_of_trace(reports: Sequence[Path], folder: Path) -> list[bytes]:
    """.prv, .pcf and .row; folders differ so that the trace has one name, which is in it."""
    output = folder / "out" / "trace.prv"
    output.parent.mkdir(parents=True)
    translate(reports, output, TranslationPlan(sources=select_sources(None)))
    found = [output.with_suffix(suffix).read_bytes() for suffix in (".prv", ".pcf", ".row")]
    shutil.rmtree(output.parent)
    return found


def assert_same_trace(reports: Sequence[Path], folder: Path, kinds: Sequence[str]) -> None:
    expected = bytes_of_trace(reports, folder)
    tables = {report.stem: tables_of(report) for report in reports}
    for i, kind in enumerate(kinds):
        convert = other_types if i % 2 else lambda table: table
        folders = [
            write_folder(folder / kind / f"{stem}{ENDINGS[kind]}", {n: convert(t) for n, t in of_report.items()}, kind)
            for stem, of_report in tables.items()
        ]
        same = (
            bytes_of_trace(folders, folder) == expected,
            bytes_of_trace([*folders[1:], reports[0]], folder) == expected,
        )
        assert same == (True, True), kind  # and that of folders beside an SQLite file
        shutil.rmtree(folder / kind)


@pytest.mark.parametrize("name", SETS)
def test_samples(tmp_path: Path, name: str) -> None:
    assert_same_trace(SETS[name], tmp_path, KINDS)


def _large_reports() -> Iterator[object]:
    for path in sorted(path for folder in ("gpu", "cpu", "public") for path in (REPORTS / folder).glob("*.sqlite")):
        if not (SAMPLES / path.name).exists():
            yield pytest.param(path, id=path.stem)
    if not REPORTS.is_dir():
        yield pytest.param(None, id="large reports", marks=pytest.mark.skip(NO_REPORTS))


@pytest.mark.parametrize("report", list(_large_reports()))
def test_large_reports(tmp_path: Path, report: Path) -> None:
    expected = bytes_of_trace([report], tmp_path)
    tables = tables_of(report)
    other = {name: other_types(table) for name, table in tables.items()}
    parquet = write_folder(tmp_path / f"{report.stem}_pqtdir", other, "parquet")
    arrow = write_folder(tmp_path / f"{report.stem}_arwdir", tables, "arrow file")
    for folder in (parquet, arrow):
        same = bytes_of_trace([folder], tmp_path) == expected
        assert same, folder
