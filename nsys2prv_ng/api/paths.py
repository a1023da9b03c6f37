"""Checks the paths that a call is given."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from nsys2prv_ng.errors import UsageError
from nsys2prv_ng.options.kinds import AnyPath, File, Files
from nsys2prv_ng.paraver.files import is_trace

Reports = AnyPath | Iterable[AnyPath]


def list_reports(reports: Reports, parameter: str = "reports") -> list[Path]:
    """Return the paths of reports. Raises UsageError that names the parameter for anything else."""
    return list(Files("").read(reports, parameter))


def list_some_reports(reports: Reports, parameter: str = "reports") -> list[Path]:
    """Return the paths of reports. Raises UsageError if there are none."""
    given = list_reports(reports, parameter)
    if not given:
        raise UsageError("give at least one report", parameter=parameter)
    return given


def refuse_traces(reports: Sequence[Path], remedy: str = "give the reports alone") -> None:
    """Raise UsageError for a trace among the reports: it is no damaged report, which may be skipped."""
    for report in reports:
        if is_trace(report):
            raise UsageError(f"a trace among the reports; {remedy}", parameter="reports", value=str(report))


def check_path(name: str, path: AnyPath) -> Path:
    """Return a path. Raises UsageError that names its parameter for anything else."""
    return File("").read(path, name)


def check_names(reports: Sequence[Path], output: Path) -> None:
    """Raise UsageError for an output that is not named like a trace, and for traces among the reports."""
    if not is_trace(output):
        raise UsageError("the trace must be named *.prv or *.prv.gz", parameter="output", value=str(output))
    if not reports:
        raise UsageError(f"give at least one report to translate into {output}", parameter="reports")
    refuse_traces(reports, "only the output is one")


def check_page(file: Path | None) -> None:
    """Raise UsageError for a file that cannot be a page, before anything is read."""
    _check_file(file, "html", "the page must be named *.html", (".html", ".htm"))


def check_saved(file: Path | None) -> None:
    """Raise UsageError for a file that cannot take the numbers of a summary, before anything is read."""
    _check_file(file, "save", "the file must be named *.json", (".json",))


def _check_file(file: Path | None, parameter: str, wrong_name: str, suffixes: Sequence[str]) -> None:
    if file is None:
        return
    if file.suffix.lower() not in suffixes:
        raise UsageError(wrong_name, parameter=parameter, value=str(file))
    if not file.parent.is_dir():
        raise UsageError("its folder does not exist; make it first", parameter=parameter, value=str(file))
    if file.is_dir():
        raise UsageError("is a folder; choose another name", parameter=parameter, value=str(file))
    try:
        with tempfile.TemporaryFile(dir=file.parent):
            pass
    except OSError as error:
        raise UsageError(f"its folder takes no file: {error.strerror}", parameter=parameter, value=str(file)) from None
