"""Makes the summary of a job: its numbers, its slow steps beside the usual ones, and the answer."""

from __future__ import annotations

from nsys2prv_ng.analysis.waits.waits import Waits
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.runtime.progress import Progress
from nsys2prv_ng.summary.job import JobSummary
from nsys2prv_ng.summary.measure import Known, Wanted, compute_summary
from nsys2prv_ng.summary.verdicts.answer import add_verdict
from nsys2prv_ng.summary.verdicts.slow_steps import SlowSteps, find_slow_steps


def summarize(
    job: Job, waits: Waits, known: Known, wanted: Wanted, progress: Progress | None = None
) -> tuple[JobSummary, SlowSteps | None]:
    """Return the summary of a job with its answer, and its slow steps if it has any. `waits`: all waits of the job."""
    summary = compute_summary(job, waits, known, wanted, progress)
    slow = find_slow_steps(summary)
    if slow is not None:  # most jobs need not import what compares
        from nsys2prv_ng.summary.difference.slow_steps import add_slow_steps

        summary = add_slow_steps(summary, slow, job, waits, known.late)
    return add_verdict(summary), slow
