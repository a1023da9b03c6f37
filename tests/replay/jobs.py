"""Opens the model of a job for tests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from nsys2prv_ng.analysis.waits.waits import find_waits
from nsys2prv_ng.api.plans import make_summary_options
from nsys2prv_ng.job.open_job import open_job
from nsys2prv_ng.options.calls import PredictionOptions
from nsys2prv_ng.replay.model import Model, load_model
from nsys2prv_ng.runtime.progress import Progress


@contextmanager
def opened_model(reports: Sequence[Path], scratch: Path) -> Iterator[Model]:
    options = make_summary_options(PredictionOptions(several_jobs=True))
    with open_job(reports, scratch, options, Progress()) as job:
        yield load_model(job, find_waits(job))
