"""Names and formats of reports and exports."""

from __future__ import annotations

from pathlib import Path

import pytest

from nsys2prv_ng.report.formats import EXPORT_FORMATS, REPORTS_HELP, find_format, get_report_name, is_report_name


@pytest.mark.parametrize(
    "name",
    [
        "r.nsys-rep",
        "r.qdrep",
        "r.sqlite",
        "r_pqtdir",
        "r_arwdir",
        "r.parquet",
        "r.parquetdir",
        "r.arrows",
        "r.arrowdir",
    ],
)
def test_name_of_report(name: str) -> None:
    path = Path("some/folder.sqlite") / name
    assert get_report_name(path) == "r" and is_report_name(path)


def test_other_names_stay() -> None:
    assert get_report_name(Path("job.rank0")) == "job.rank0"
    assert not is_report_name(Path("r.sqlite/job.rank0"))


def test_format_is_that_of_a_folder_or_a_file(tmp_path: Path) -> None:
    file = tmp_path / "r_pqtdir"
    file.write_bytes(b"")
    assert (find_format(tmp_path).type, find_format(file).type) == ("parquetdir", "sqlite")


def test_help_names_each_format() -> None:
    assert all(format.ending in REPORTS_HELP for format in EXPORT_FORMATS)
