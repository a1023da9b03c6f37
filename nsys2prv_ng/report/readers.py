"""Chooses the reader of an export: one reads SQLite files, the other folders of Parquet and Arrow files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from nsys2prv_ng.report.table_reader import TableReader


def load_reader(export: Path) -> Callable[[Path], TableReader]:
    """Import what opens this file or folder, whatever its name.

    Opening raises ReportError for a path that is not an export, or is damaged.
    """
    if export.is_dir():
        from nsys2prv_ng.report.table_folder import TableFolder  # imports pyarrow.parquet

        return TableFolder
    from nsys2prv_ng.report.sqlite_file import SqliteFile

    return SqliteFile
