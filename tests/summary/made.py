"""Summaries for tests, and the reports that they are of."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from nsys2prv_ng.job.open_job import open_job
from nsys2prv_ng.reading.open_reports import ReadOptions, Selection
from nsys2prv_ng.runtime.progress import Progress
from nsys2prv_ng.sources.registry import select_sources
from nsys2prv_ng.sources.shared.source_options import SourceOptions
from nsys2prv_ng.summary.job import JobSummary
from nsys2prv_ng.summary.summarize import compute_summary
from tests.report_truth import Objects, Report
from tests.shared import share

SETS = (
    *("samples/ddp-2x2", "samples/mpi-4", "samples/single-graph", "gpu/single-node", "gpu/oneproc-4gpu"),
    *("gpu/mpi-one-report", "gpu/um-1", "public/mfu_2gpu_before", "public/pipit_cloverleaf"),
)


_KEPT = 8
_made: dict[object, JobSummary] = {}
"""The last summaries by reports and options, since tests of the same reports follow each other."""


@lru_cache(maxsize=2)
def summary_and_reports(*reports: Path) -> tuple[JobSummary, Objects]:
    """Return the numbers of some reports and what plain SQL reads from these."""
    return summarize_reports(reports), Objects([Report(path) for path in reports])


IN_STEPS = Selection(cuts_steps=False)
"""What users see: numbers of the steps after the warm-up."""


def summarize_reports(
    reports: Sequence[Path], selection: Selection | None = None, **source_options: object
) -> JobSummary:
    """Return the numbers of some reports: of all time, unless a time is chosen or IN_STEPS."""
    selection = selection or Selection(window=(None, None))
    stats = [(path, path.stat().st_mtime_ns, path.stat().st_size) for path in reports]
    key = repr((stats, selection, source_options))
    summary = _made.pop(key, None) or share(key, lambda: _compute(reports, selection, source_options))
    _made[key] = summary  # the last one is the last to go
    if len(_made) > _KEPT:
        del _made[next(iter(_made))]
    return summary


def _compute(reports: Sequence[Path], selection: Selection, source_options: dict[str, object]) -> JobSummary:
    options = ReadOptions(
        sources=select_sources(None),
        source_options=SourceOptions(nvtx_range=selection.nvtx_range, **source_options),  # type: ignore[arg-type]
        selection=selection,
    )
    with tempfile.TemporaryDirectory() as folder, open_job(reports, Path(folder), options, Progress()) as job:
        return compute_summary(job)
