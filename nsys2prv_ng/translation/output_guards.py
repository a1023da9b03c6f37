"""Guards the files that a translation writes: none replaces an input, or another file unasked."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from nsys2prv_ng.errors import TranslationError, UsageError
from nsys2prv_ng.paraver.output import refuse_in_the_way


def check_extra_outputs(files: Iterable[Path], taken: Iterable[Path], *, force: bool) -> None:
    """Refuse files that could not or must not be written, before anything is read.

    `taken`: reports, the trace and other inputs; not even `force` replaces these, or anything in a report that is a
    folder. Raises UsageError and TranslationError.
    """
    used = {path.resolve() for path in taken}
    folders = {path for path in used if path.is_dir()}
    for file in files:
        if file.resolve() in used or file.resolve().parent in folders:
            raise UsageError(f"{file}: is a report or a file of the trace itself; choose another name")
        used.add(file.resolve())
        if not file.parent.is_dir():
            raise UsageError(f"{file.parent}: no such folder; create it or choose another place for {file.name}")
        if not os.access(file.parent, os.W_OK | os.X_OK):
            raise TranslationError(
                f"{file}: cannot be written: no permission to write to the folder; choose another place"
            )
        refuse_in_the_way(file, force=force)


def check_reports_stay(reports: Iterable[Path], trace: Iterable[Path]) -> None:
    """Refuse a trace that would replace one of the reports. Raises UsageError."""
    read = {report.resolve() for report in reports}
    for file in trace:
        if file.resolve() in read:
            raise UsageError(f"{file}: is a report, which the trace would replace; choose another name for the trace")
