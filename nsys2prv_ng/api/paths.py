"""Checks the paths that a call is given."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from nsys2prv_ng.errors import UsageError
from nsys2prv_ng.options import AnyPath
from nsys2prv_ng.options.values import NO_PATH, find_wrong_path

Reports = AnyPath | Iterable[AnyPath]


def list_reports(reports: Reports, parameter: str = "reports") -> list[Path]:
    """Return the paths of reports. Raises UsageError, which names the parameter, for what are none."""
    try:
        given = [reports] if isinstance(reports, str | bytes | os.PathLike) else list(reports)
    except TypeError:
        given = [None]  # type: ignore[list-item]
    for report in given:
        if wrong := find_wrong_path(report):
            message = "give a path or a list of paths" if wrong == NO_PATH else wrong
            raise UsageError(message, parameter=parameter, value=reports if report is None else report)
    return [Path(report) for report in given]


def list_some_reports(reports: Reports, parameter: str = "reports") -> list[Path]:
    """Return the paths of reports. Raises UsageError where there are none."""
    given = list_reports(reports, parameter)
    if not given:
        raise UsageError("give at least one report", parameter=parameter)
    return given


def check_path(name: str, path: AnyPath) -> Path:
    """Return a path. Raises UsageError that names its parameter for anything else."""
    if wrong := find_wrong_path(path):
        raise UsageError(wrong, parameter=name, value=path)
    return Path(path)


def check_names(reports: Sequence[Path], output: Path) -> None:
    """Raise UsageError for a trace that is named as none, and for traces among the reports."""
    if not output.name.endswith((".prv", ".prv.gz")):
        raise UsageError("the trace must be named *.prv or *.prv.gz", parameter="output", value=str(output))
    if not reports:
        raise UsageError(f"give at least one report to translate into {output}", parameter="reports")
    for report in reports:
        if report.name.endswith((".prv", ".prv.gz")):
            message = "a trace among the reports; only the output is one"
            raise UsageError(message, parameter="reports", value=str(report))


def check_page(page: AnyPath | None) -> Path | None:
    """Return the file of a page. Raises UsageError where it cannot be one, before anything is read."""
    if page is None:
        return None
    file = Path(page)
    if file.suffix.lower() not in (".html", ".htm"):
        raise UsageError("the page must be named *.html", parameter="html", value=str(page))
    if not file.parent.is_dir():
        raise UsageError("its folder does not exist; make it first", parameter="html", value=str(page))
    if file.is_dir():
        raise UsageError("is a folder; choose another name", parameter="html", value=str(page))
    try:
        with tempfile.TemporaryFile(dir=file.parent):
            return file
    except OSError as error:
        raise UsageError(f"its folder takes no file: {error.strerror}", parameter="html", value=str(page)) from None


def to_path(path: AnyPath | None) -> Path | None:
    """Return a path, or None for none."""
    return None if path is None else Path(path)
