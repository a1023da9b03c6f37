"""From the files that a user names to exports that can be read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from nsys2prv_ng.errors import TranslationError, UsageError
from nsys2prv_ng.progress import Progress
from nsys2prv_ng.report.export import export_sqlite

REPORT_SUFFIXES = (".nsys-rep", ".qdrep")
_ENDING = re.compile(r"(\.nsys-rep|\.qdrep|\.sqlite|_pqtdir|_arwdir|\.parquet(dir)?|\.arrow(s|dir)?)$")
"""What nsys, or who names its output, adds to the name of a report to name an export."""


def name_of_report(path: Path) -> str:
    """The name that a report and all of its exports share."""
    return _ENDING.sub("", path.name)


def is_report_name(path: Path) -> bool:
    """Whether a file or folder is named like a report or an export."""
    return name_of_report(path) != path.name


def locate_exports(reports: Sequence[Path], out_folder: Path, progress: Progress) -> list[Path]:
    """The export of each report; reports as nsys writes them are exported first.

    Folders are taken for exports. Raises UsageError for a report named twice, TranslationError for one that is missing
    or cannot be exported.
    """
    for report in reports:
        if not report.exists():
            raise TranslationError(f"{report}: no such file; check the name, or the pattern that the shell expanded")
    _refuse_twice(reports)
    to_export = [report for report in reports if report.suffix in REPORT_SUFFIXES and not report.is_dir()]
    exported: dict[Path, Path] = {}
    if to_export:
        with progress.step(f"exporting {len(to_export)} of {len(reports)} reports", len(to_export), "report") as step:
            for report in to_export:
                exported[report] = export_sqlite(report, out_folder)
                step.update(1)
    exports = [exported.get(report, report) for report in reports]
    _refuse_twice(exports)
    return exports


def _refuse_twice(paths: Sequence[Path]) -> None:
    """Exports of one report to several kinds of file lie beside each other, and differ in the end of the name only."""
    seen: dict[tuple[Path, bool], Path] = {}
    for path in paths:
        real = path.resolve()
        named = is_report_name(real)
        key = (real.with_name(name_of_report(real)) if named else real, named)
        if key in seen:
            also = f" (also as {seen[key]})" if seen[key] != path else ""
            raise UsageError(f"{path}: given twice{also}; name each report once, as .nsys-rep or as one of its exports")
        seen[key] = path
