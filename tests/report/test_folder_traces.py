"""A report gives the same bytes of trace whatever it was exported to, and with whatever types of columns."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.conftest import SAMPLES
from tests.report.table_folders import ENDINGS, KINDS, other_types, tables_of, write_folder
from tests.report_sets import sets
from tests.spans import list_single_reports
from tests.tiers import cases
from tests.translated import bytes_of_trace

pytestmark = pytest.mark.slow

SETS = {
    name: sorted(SAMPLES.glob(f"{name}*.sqlite")) for name in ("single-graph", "mpi-4.rank[02]", "mpi-4", "ddp-2x2")
}


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


@pytest.mark.parametrize("name", cases(SETS, push=1))
def test_samples(tmp_path: Path, name: str) -> None:
    assert_same_trace(SETS[name], tmp_path, KINDS)


PUSHED = (
    *("gpu/um-1", "gpu/autograd-1", "gpu/oneproc-4gpu", "public/mapf_report1"),
    *("cpu/2022.4.2-nvtx_py", "cpu/2023.4.4-mpich_all", "cpu/2024.2.3-omp_clang", "cpu/2024.2.3-nccl_mimic"),
)
REPORTS = [each for each in sets(list_single_reports(), PUSHED) if not each.id.startswith("samples/")]


def list_pairs() -> Iterator[object]:
    """Yield each report as a folder of each kind, by name; every push takes the kinds in turn."""
    for number, report in enumerate(REPORTS):
        for kind in ("parquet", "arrow file"):
            marks = [*report.marks, *([pytest.mark.all_sets] if (kind == "parquet") == bool(number % 2) else [])]
            yield pytest.param(*report.values, kind, id=f"{kind}-{report.id}", marks=marks)


@pytest.mark.parametrize(("report", "kind"), list(list_pairs()))
def test_large_reports(
    tmp_path: Path, report: Path, kind: str, whole_traces: Callable[[Path], tuple[bytes, ...]]
) -> None:
    tables = tables_of(report)
    if kind == "parquet":
        tables = {name: other_types(table) for name, table in tables.items()}
    folder = write_folder(tmp_path / f"{report.stem}{ENDINGS[kind]}", tables, kind)
    assert bytes_of_trace([folder], tmp_path) == whole_traces(report)
