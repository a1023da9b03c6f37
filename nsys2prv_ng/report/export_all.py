"""Several reports exported at once."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from threading import Event

from nsys2prv_ng.errors import TranslationError
from nsys2prv_ng.report.export import find_export, make_export
from nsys2prv_ng.report.nsys import Children, find_nsys
from nsys2prv_ng.runtime.progress import Progress, Step

_PERCENT = re.compile(rb"(\d{1,3})%")
_BETWEEN_LOOKS = 0.2
"""Seconds after which progress is looked at."""


def export_all(
    reports: Sequence[Path],
    out_folder: Path,
    progress: Progress,
    jobs: int,
    *,
    returned: tuple[type[TranslationError], ...] = (),
    keep: bool = True,
) -> dict[Path, Path | TranslationError]:
    """The export of each report; those that have no good one are exported, up to `jobs` at once.

    Of several that cannot be exported, the TranslationError of the first is raised, when those that run have ended.
    Errors that are to be `returned` are in the place of the export, and the others are exported. An interrupt kills
    them. `keep` is that of `make_export`.
    """
    nsys = find_nsys()
    found = {report: find_export(report, out_folder, nsys) for report in reports}
    there: dict[Path, Path | TranslationError] = {
        report: export for report, export in found.items() if export is not None
    }
    missing = [report for report in reports if report not in there]
    if not missing:
        return there
    title = f"exporting {len(missing)} of {len(reports)} reports" + (f" with nsys {nsys.version}" if nsys else "")
    with progress.step(title, 100 * len(missing), "%") as step:
        children = Children()

        def make(report: Path, percent: _Percent) -> Path:
            return make_export(report, out_folder, nsys, children, percent.see, keep=keep)

        made = _export(missing, make, children, jobs, step, returned)
        return there | dict(zip(missing, made, strict=True))


def _export(
    reports: Sequence[Path],
    make: Callable[[Path, _Percent], Path],
    children: Children,
    jobs: int,
    step: Step,
    returned: tuple[type[TranslationError], ...],
) -> list[Path | TranslationError]:
    """New exports of reports, in their order."""
    failed = Event()
    percents = [_Percent() for _ in reports]

    def export(report: Path, percent: _Percent) -> Path | TranslationError | None:
        # Exports start in the order of the reports, so that what is not started any more is behind what failed.
        if failed.is_set():
            return None
        try:
            return make(report, percent)
        except BaseException as error:
            if isinstance(error, returned):
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


def _follow(
    running: Sequence[Future[Path | TranslationError | None]], percents: Sequence[_Percent], step: Step
) -> None:
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
