"""Exports several reports at the same time."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from threading import Event
from typing import Any

from nsys2prv_ng.errors import TranslationError
from nsys2prv_ng.report.export import find_export, make_export
from nsys2prv_ng.report.nsys import Children, find_nsys
from nsys2prv_ng.runtime.progress import Progress, Step

_PERCENT = re.compile(rb"(\d{1,3})%")
_BETWEEN_LOOKS = 0.2
"""Seconds between two updates of the progress."""


def export_all(
    reports: Sequence[Path],
    out_folder: Path,
    progress: Progress,
    jobs: int,
    *,
    returned: tuple[type[TranslationError], ...] = (),
    keep: bool = True,
    tmp: Path | None = None,
) -> dict[Path, Path | TranslationError]:
    """Return the export of each report; export the reports that have no good export, up to `jobs` at once.

    If reports cannot be exported, raises the TranslationError of the first one after the running exports have ended.
    An error of one of the types `returned` takes the place of its export, and the other reports are still exported. An
    interrupt kills running exports. For `keep` and `tmp`, see `make_export`.
    """
    nsys, children, failed = find_nsys(), Children(), Event()
    found = ((report, find_export(report, out_folder, nsys)) for report in reports)
    exports: dict[Path, Path | TranslationError] = {report: export for report, export in found if export is not None}
    missing = [report for report in reports if report not in exports]
    if not missing:
        return exports
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

    title = f"exporting {len(missing)} of {len(reports)} reports" + (f" with nsys {nsys.version}" if nsys else "")
    pool = ThreadPoolExecutor(max(1, min(jobs, len(missing))))
    with progress.step(title, 100 * len(missing), "%") as step, pool:
        try:
            running = {report: pool.submit(make, report) for report in missing}
            _follow(running, percents, step)
        except BaseException:
            children.end()  # this also ends the threads that wait for them, and the pool waits for these threads
            raise
    made = {report: future.result() for report, future in running.items()}
    return exports | {report: export for report, export in made.items() if export is not None}


def _follow(running: Mapping[Path, Future[Any]], percents: Mapping[Path, int], step: Step) -> None:
    """Show the progress of exports, as nsys prints it, until all have ended."""
    shown, waiting = 0, set(running.values())
    while waiting:
        waiting = wait(waiting, _BETWEEN_LOOKS).not_done
        now = sum(100 if future.done() else percents[report] for report, future in running.items())
        if now > shown:
            step.update(now - shown)
            shown = now
