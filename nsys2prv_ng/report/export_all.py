"""Several reports exported at once."""

from __future__ import annotations

import re
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from threading import Event

from nsys2prv_ng.errors import ReportError
from nsys2prv_ng.progress import Progress, Step
from nsys2prv_ng.report.export import find_export, make_export
from nsys2prv_ng.report.nsys import Children, Nsys, find_nsys

_PERCENT = re.compile(rb"(\d{1,3})%")
_BETWEEN_LOOKS = 0.2
"""Seconds after which progress is looked at."""


def export_all(
    reports: Sequence[Path], out_folder: Path, progress: Progress, jobs: int, *, keep_going: bool = False
) -> dict[Path, Path | ReportError]:
    """The export of each report; those that have no good one are exported, up to `jobs` at once.

    Of several that cannot be exported, the TranslationError of the first is raised, when those that run have ended.
    With `keep_going` all are exported, and a ReportError is returned in the place of the export. An interrupt kills
    them.
    """
    nsys = find_nsys()
    found = {report: find_export(report, out_folder, nsys) for report in reports}
    there: dict[Path, Path | ReportError] = {report: export for report, export in found.items() if export is not None}
    missing = [report for report in reports if report not in there]
    if not missing:
        return there
    title = f"exporting {len(missing)} of {len(reports)} reports" + (f" with nsys {nsys.version}" if nsys else "")
    with progress.step(title, 100 * len(missing), "%") as step:
        made = _export(missing, out_folder, nsys, jobs, step, keep_going)
        return there | dict(zip(missing, made, strict=True))


def _export(
    reports: Sequence[Path], out_folder: Path, nsys: Nsys | None, jobs: int, step: Step, keep_going: bool
) -> list[Path | ReportError]:
    """New exports of reports, in their order."""
    children = Children()
    failed = Event()
    percents = [_Percent() for _ in reports]

    def export(report: Path, percent: _Percent) -> Path | ReportError | None:
        # Exports start in the order of the reports, so that what is not started any more is behind what failed.
        if failed.is_set():
            return None
        try:
            return make_export(report, out_folder, nsys, children, percent.see)
        except BaseException as error:
            if keep_going and isinstance(error, ReportError):
                return error
            failed.set()
            raise

    with ThreadPoolExecutor(max(1, min(jobs, len(reports)))) as pool:
        try:
            running = [pool.submit(export, *each) for each in zip(reports, percents, strict=True)]
            _follow(running, percents, step)
        except BaseException:
            children.end()  # and with them the threads that wait for them, for which the pool waits
            raise
    exports = [each.result() for each in running]
    return [export for export in exports if export is not None]


def _follow(running: Sequence[Future[Path | ReportError | None]], percents: Sequence[_Percent], step: Step) -> None:
    """Show how far exports are until all have ended."""
    shown, waiting = 0, set(running)
    while waiting:
        waiting = wait(waiting, _BETWEEN_LOOKS).not_done
        now = sum(100 if each.done() else percent.latest for each, percent in zip(running, percents, strict=True))
        if now > shown:
            step.update(now - shown)
            shown = now


class _Percent:
    """How far an export is, by what nsys prints."""

    def __init__(self) -> None:
        self.latest = 0

    def see(self, output: bytes) -> None:
        for percent in _PERCENT.findall(output):
            self.latest = max(self.latest, min(int(percent), 99))
