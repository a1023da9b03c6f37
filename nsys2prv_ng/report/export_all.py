"""Finds the exports of reports, and makes those that are missing, several at the same time."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from threading import Event
from typing import Any

from nsys2prv_ng.errors import ReportError, TranslationError
from nsys2prv_ng.report.database import load_reader
from nsys2prv_ng.report.export import find_export, make_export
from nsys2prv_ng.report.files import miss, needs_export, refuse_no_reports, refuse_twice
from nsys2prv_ng.report.nsys import Children, find_nsys
from nsys2prv_ng.runtime.limits import count_usable_cores
from nsys2prv_ng.runtime.progress import Progress, Step

_PERCENT = re.compile(rb"(\d{1,3})%")
_BETWEEN_LOOKS = 0.2
"""Seconds between two updates of the progress."""


def locate_exports(
    reports: Sequence[Path],
    out_folder: Path,
    progress: Progress,
    jobs: int | None = None,
    skipped: dict[Path, ReportError] | None = None,
    tmp: Path | None = None,
) -> list[Path]:
    """Return the export of each report; export the reports that have no export yet.

    At most `jobs` exports run at once, by default one on each usable core. For `tmp`, see `make_export`. Folders are
    treated as exports. Reports that are missing or cannot be exported are noted in `skipped`, unless no report would be
    left. Raises UsageError for a report named twice, TranslationError if the machine is at fault, and ReportError if
    all reports are at fault or `skipped` is not given. That is the error of the first report; finished exports stay.
    """
    returned = (ReportError,) if skipped is not None else ()
    exports = []
    for report, export in export_each(reports, out_folder, progress, jobs, returned=returned, tmp=tmp).items():
        if isinstance(export, Path):
            exports.append(export)
        elif skipped is not None:
            assert isinstance(export, ReportError)
            skipped[report] = export
    refuse_no_reports(exports, skipped)
    return exports


def export_each(
    reports: Sequence[Path],
    out_folder: Path,
    progress: Progress,
    jobs: int | None = None,
    *,
    returned: tuple[type[TranslationError], ...],
    keep: bool = True,
    tmp: Path | None = None,
) -> dict[Path, Path | TranslationError]:
    """Return the export of each report, in the order of the reports, or its error if it has a type in `returned`.

    Without `keep`, new exports are always in `out_folder`. Raises the same errors as `locate_exports`, once the running
    exports have ended. An interrupt kills running exports.
    """
    refuse_twice(reports)
    exports: dict[Path, Path | TranslationError] = {report: report for report in reports}
    for report in reports:
        if not report.exists():
            error = miss(report)
            if not isinstance(error, returned):
                raise error
            exports[report] = error
    to_export = [report for report in reports if needs_export(report)]
    nsys, children, failed = find_nsys() if to_export else None, Children(), Event()
    found = ((report, find_export(report, out_folder, nsys)) for report in to_export)
    exports |= {report: export for report, export in found if export is not None}
    missing = [report for report in to_export if exports[report] == report]
    percents = dict.fromkeys(missing, 0)

    def make(report: Path) -> Path | TranslationError | None:
        def see(output: bytes) -> None:
            for percent in _PERCENT.findall(output):
                percents[report] = max(percents[report], min(int(percent), 99))

        # Exports start in the order of the reports, so all exports that never start come after the one that failed.
        if failed.is_set():
            return None
        try:
            return make_export(report, out_folder, nsys, children, see, keep=keep, tmp=tmp)
        except BaseException as error:
            if isinstance(error, returned):
                return error
            failed.set()
            raise

    if missing:
        title = f"exporting {len(missing)} of {len(to_export)} reports"
        title += f" with nsys {nsys.version}" if nsys else ""
        pool = ThreadPoolExecutor(max(1, min(jobs or count_usable_cores(), len(missing))))
        with progress.step(title, 100 * len(missing), "%") as step, pool:
            try:
                running = {report: pool.submit(make, report) for report in missing}
                _follow(running, percents, step)
            except BaseException:
                children.end()  # this also ends the threads that wait for them, and the pool waits for these threads
                raise
        made = {report: future.result() for report, future in running.items()}
        exports |= {report: export for report, export in made.items() if export is not None}
    whole = [export for export in exports.values() if isinstance(export, Path)]
    refuse_twice(whole)
    for export in whole:  # processes that are forked later need not import again what reads it
        load_reader(export)
    return exports


def _follow(running: Mapping[Path, Future[Any]], percents: Mapping[Path, int], step: Step) -> None:
    """Show the progress of exports, as nsys prints it, until all have ended."""
    shown, waiting = 0, set(running.values())
    while waiting:
        waiting = wait(waiting, _BETWEEN_LOOKS).not_done
        now = sum(100 if future.done() else percents[report] for report, future in running.items())
        if now > shown:
            step.update(now - shown)
            shown = now
