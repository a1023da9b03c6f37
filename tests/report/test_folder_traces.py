"""A report gives the same bytes of trace whatever it was exported to, and with whatever types of columns."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.conftest import SAMPLES
from tests.report.table_folders import ENDINGS, KINDS, other_types, tables_of, write_folder
from tests.spans import list_single_reports
from tests.translated import bytes_of_trace

pytestmark = pytest.mark.slow

SETS = {name: sorted(SAMPLES.glob(f"{name}*.sqlite")) for name in ("ddp-2x2", "mpi-4", "single-graph")}


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


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "single-graph" else pytest.mark.slow) for name in SETS]
)
def test_samples(tmp_path: Path, name: str) -> None:
    assert_same_trace(SETS[name], tmp_path, KINDS)


@pytest.mark.parametrize("report", [each for each in list_single_reports() if not each.id.startswith("samples/")])
def test_large_reports(tmp_path: Path, report: Path, whole_traces: Callable[[Path], tuple[bytes, ...]]) -> None:
    expected = whole_traces(report)
    tables = tables_of(report)
    other = {name: other_types(table) for name, table in tables.items()}
    parquet = write_folder(tmp_path / f"{report.stem}_pqtdir", other, "parquet")
    arrow = write_folder(tmp_path / f"{report.stem}_arwdir", tables, "arrow file")
    for folder in (parquet, arrow):
        same = bytes_of_trace([folder], tmp_path) == expected
        assert same, folder
