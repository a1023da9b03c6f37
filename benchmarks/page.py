"""Size of the page of a job, time to write it, and time until Chromium shows it.

python benchmarks/page.py PAGE.html REPORT...

Needs the extra `test` and Chromium (CHROMIUM, or chromium on the PATH). Make a job of many ranks with make_job.py.
"""

from __future__ import annotations

import os
import resource
import shutil
import statistics
import sys
import time
from pathlib import Path

from playwright.sync_api import sync_playwright

from nsys2prv_ng.analysis.waits.waits import find_waits
from nsys2prv_ng.html.summary_page import render_summary
from nsys2prv_ng.job.open_job import open_job
from nsys2prv_ng.reading.open_reports import ReadOptions
from nsys2prv_ng.runtime.progress import choose_progress
from nsys2prv_ng.summary.pictures.measure import collect_pictures
from nsys2prv_ng.summary.summarize import compute_summary

_ROUNDS = 5


def main(page: Path, reports: list[Path]) -> None:
    """Print the figures."""
    began = time.perf_counter()
    with open_job(reports, page.parent, ReadOptions(), choose_progress(quiet=False)) as job:
        opened = time.perf_counter()
        waits = find_waits(job)
        summary = compute_summary(job, waits)
        summed = time.perf_counter()
        pictures = collect_pictures(job, waits)
        collected = time.perf_counter()
    text = render_summary(summary, pictures)
    page.write_text(text, encoding="utf-8")
    written = time.perf_counter()
    print(f"{len(reports):,} reports: read in {opened - began:.1f} s, summed up in {summed - opened:.1f} s")
    print(f"pictures in {collected - summed:.1f} s, page in {written - collected:.2f} s")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f"{len(text.encode()) / 1e6:.2f} MB; at most {peak:.2f} GB of memory")
    print(f"opened in {statistics.median(_open(page) for _ in range(_ROUNDS)):.2f} s (median of {_ROUNDS})")


def _open(page: Path) -> float:
    """Return how long a new browser takes until the page is drawn and its script has run (s)."""
    path = os.environ.get("CHROMIUM") or shutil.which("chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": 1200, "height": 900})
        began = time.perf_counter()
        tab.goto(page.resolve().as_uri())
        tab.wait_for_function("document.documentElement.dataset.ready")
        tab.screenshot()
        return time.perf_counter() - began


if __name__ == "__main__":
    main(Path(sys.argv[1]), [Path(report) for report in sys.argv[2:]])
