"""Overviews for tests, and the reports that they are of."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from nsys2prv_ng.job.open_job import open_job
from nsys2prv_ng.job.open_reports import ReadOptions
from nsys2prv_ng.job.selection import Selection
from nsys2prv_ng.runtime.progress import Progress
from nsys2prv_ng.sources.registry import select_sources
from nsys2prv_ng.sources.shared.source_options import SourceOptions
from nsys2prv_ng.summary.compute.job import compute_summary
from nsys2prv_ng.summary.numbers.job import JobSummary
from tests.report_truth import Objects, Report

SETS = {
    "samples/ddp-2x2": [f"samples/ddp-2x2.rank{rank}.sqlite" for rank in range(4)],
    "samples/mpi-4": [f"samples/mpi-4.rank{rank}.sqlite" for rank in range(4)],
    "samples/single-graph": ["samples/single-graph.sqlite"],
    "gpu/single-node": ["gpu/single-node.sqlite"],
    "gpu/oneproc-4gpu": ["gpu/oneproc-4gpu.sqlite"],
    "gpu/mpi-one-report": ["gpu/mpi-one-report.sqlite"],
    "gpu/um-1": ["gpu/um-1.sqlite"],
    "public/mfu_2gpu_before": ["public/mfu_2gpu_before.sqlite"],
    "public/pipit_cloverleaf": ["public/pipit_cloverleaf.sqlite"],
}


@lru_cache(maxsize=2)
def summary_and_reports(*reports: Path) -> tuple[JobSummary, Objects]:
    """The numbers of some reports and what plain SQL reads from these, for tests of them, which follow each other."""
    return overview_of(reports), Objects([Report(path) for path in reports])


def overview_of(reports: Sequence[Path], selection: Selection | None = None, **source_options: object) -> JobSummary:
    """The numbers of some reports."""
    selection = selection or Selection()
    options = ReadOptions(
        sources=select_sources(None),
        source_options=SourceOptions(nvtx_range=selection.nvtx_range, **source_options),  # type: ignore[arg-type]
        selection=selection,
    )
    with tempfile.TemporaryDirectory() as folder, open_job(reports, Path(folder), options, Progress()) as job:
        return compute_summary(job)
