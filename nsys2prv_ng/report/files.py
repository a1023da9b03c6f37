"""Turns the files that a user names into readable exports."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from nsys2prv_ng.errors import ReportError, UsageError
from nsys2prv_ng.report.formats import PARQUET, REPORT_ENDINGS, get_report_name, is_report_name
from nsys2prv_ng.runtime.files import resolve_links

_CELL = 8
"""Bytes of a value in memory. In SQLite, a value takes 2.8 (NVTX, mostly NULL) to 5.8 (GPU metrics), and text more."""


def get_export_size(export: Path) -> int:
    """Return the bytes of an export, which may be a folder; for Parquet, which packs values, the bytes of its values.

    Return 0 if it cannot be accessed: reading it reports why.
    """
    return _add_up(export, lambda file: max(file.stat().st_size, _compute_unpacked_size(file)))


def get_report_size(path: Path) -> int:
    """Return the bytes of a file, or of the files in a folder; 0 if it cannot be accessed."""
    return _add_up(path, lambda file: file.stat().st_size)


def _add_up(path: Path, measure: Callable[[Path], int]) -> int:
    """Return the sum of `measure` over a file or the files in a folder; 0 if it cannot be accessed."""
    try:
        files = path.iterdir() if path.is_dir() else [path]
        return sum(measure(file) for file in files if file.is_file())
    except OSError:
        return 0


def _compute_unpacked_size(file: Path) -> int:
    """Return the bytes of the values in a Parquet file, 0 for any other file.

    SQLite files are up to ten times as large as Parquet files, and reading either takes the same memory.
    """
    if file.suffix not in PARQUET.table_suffixes:
        return 0
    from pyarrow import parquet

    try:
        metadata = parquet.read_metadata(file)
    except (pa.ArrowException, OSError, ValueError):  # reading it reports what is wrong
        return 0
    return int(metadata.num_rows * metadata.num_columns * _CELL)


def refuse_missing(reports: Sequence[Path]) -> None:
    """Raise ReportError if any report does not exist or may not be read. To call before any report is read.

    A damaged report or a link that leads to itself may be skipped, but not a mistyped name.
    """
    missing = []
    for report in reports:
        try:
            report.stat()
            if not os.access(report, os.R_OK | (os.X_OK if report.is_dir() else 0)):
                raise PermissionError
        except (FileNotFoundError, NotADirectoryError):
            missing.append(report)
        except PermissionError:
            raise ReportError(f"{report}: no permission to read it; ask its owner, or do not name it") from None
        except (OSError, ValueError) as error:
            if getattr(error, "errno", None) == errno.ELOOP:
                continue  # reading it raises an error
            reason = getattr(error, "strerror", None) or error
            raise ReportError(f"{report}: cannot be read: {reason}; check the name") from None
    if missing:
        raise miss(missing[0], others=len(missing) - 1)


def miss(report: Path, others: int = 0) -> ReportError:
    """Return the error for a report that does not exist; `others` more do not exist either."""
    more = f" (nor {others:,} others)" if others > 1 else " (nor another)" if others else ""
    if report.is_symlink():
        return ReportError(f"{report}: is a link that leads to no file{more}; name the file itself, or renew the link")
    return ReportError(f"{report}: no such file{more}; check the name, or the pattern that the shell expanded")


def needs_export(report: Path) -> bool:
    """Return whether a file is a report that nsys captured. Folders are treated as exports, whatever their name."""
    return report.suffix in REPORT_ENDINGS and report.exists() and not report.is_dir()


def refuse_no_reports(left: Sequence[object], skipped: Mapping[Path, ReportError] | None) -> None:
    """Raise the first error if all reports were skipped."""
    if skipped and not left:
        raise next(iter(skipped.values()))


def refuse_twice(paths: Sequence[Path]) -> None:
    """Raise UsageError if two paths are one report: its exports are in one folder and differ only in their endings."""
    seen: dict[tuple[Path, bool], Path] = {}
    for path in paths:
        real = resolve_links(path)
        named = is_report_name(real)
        key = (real.with_name(get_report_name(real)) if named else real, named)
        if key in seen:
            also = f" (also as {seen[key]})" if seen[key] != path else ""
            raise UsageError(f"{path}: given twice{also}; name each report once, as .nsys-rep or as one of its exports")
        seen[key] = path
