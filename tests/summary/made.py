"""Overviews for tests, and the reports that they are of."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from nsys2prv_ng.job.open_job import ReadOptions, placed
from nsys2prv_ng.job.selection import Choice
from nsys2prv_ng.runtime.progress import Progress
from nsys2prv_ng.sources import choose
from nsys2prv_ng.sources.shared.source import SourceOptions
from nsys2prv_ng.summary.compute import overview
from nsys2prv_ng.summary.model import Overview

SETS = {
    "samples/ddp-2x2": [f"samples/ddp-2x2.rank{rank}.sqlite" for rank in range(4)],
    "samples/mpi-4": [f"samples/mpi-4.rank{rank}.sqlite" for rank in range(4)],
    "samples/single-graph": ["samples/single-graph.sqlite"],
    "single-node": ["gpu/single-node.sqlite"],
    "oneproc-4gpu": ["gpu/oneproc-4gpu.sqlite"],
    "mpi-one-report": ["gpu/mpi-one-report.sqlite"],
    "um-1": ["gpu/um-1.sqlite"],
    "mfu_2gpu_before": ["public/mfu_2gpu_before.sqlite"],
    "pipit_cloverleaf": ["public/pipit_cloverleaf.sqlite"],
}


def overview_of(reports: Sequence[Path], choice: Choice | None = None, **of_sources: object) -> Overview:
    """The numbers of some reports."""
    choice = choice or Choice()
    options = ReadOptions(
        sources=choose(None),
        of_sources=SourceOptions(nvtx_range=choice.nvtx_range, **of_sources),  # type: ignore[arg-type]
        choice=choice,
    )
    with tempfile.TemporaryDirectory() as folder, placed(reports, Path(folder), options, Progress()) as job:
        return overview(job)
