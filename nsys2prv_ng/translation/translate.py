"""Translates the reports of a job into one trace: opens the job, plans the trace, writes its slices and its result."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path

from nsys2prv_ng.job.open_job import open_job
from nsys2prv_ng.paraver.output import TraceOutput
from nsys2prv_ng.runtime.files import write_atomically
from nsys2prv_ng.runtime.progress import Progress
from nsys2prv_ng.translation.output_guards import check_files
from nsys2prv_ng.translation.plan_trace import TracePlan, TranslationPlan, plan_trace
from nsys2prv_ng.translation.result import TranslationResult
from nsys2prv_ng.translation.write_trace import write_planned


def translate(
    reports: Sequence[Path],
    output: Path,
    plan: TranslationPlan = TranslationPlan(),  # noqa: B008 (is frozen)
    progress: Progress = Progress(),  # noqa: B008 (has no state)
) -> TranslationResult:
    """Write the trace of some reports, or of a folder of shards; return the counts of events read, written and dropped.

    Raises TranslationError (including UsageError) with one line for the user. Nothing is then left under `output`,
    unless a file besides the trace cannot be written.
    """
    started = time.perf_counter()
    check_files(reports, output, plan)
    with TraceOutput(output, force=plan.force) as trace, open_job(reports, output.parent, plan, progress) as job:
        planned = plan_trace(job, output, plan)
        size = write_planned(trace, planned, job, plan, progress)
    for warning in planned.facts.warnings:
        progress.warn(warning)
    return account_for(planned, output, size, time.perf_counter() - started, plan)


def account_for(
    planned: TracePlan, output: Path, size: int, seconds: float, plan: TranslationPlan
) -> TranslationResult:
    """Write the files besides the trace, and return the result of a trace that has been written.

    `size`: bytes of the text of the .prv.
    """
    file_size = output.stat().st_size if output.is_file() else size
    result = TranslationResult(
        **vars(planned.facts), output=str(output), bytes=size, file_bytes=file_size, seconds=seconds
    )
    if plan.align_report is not None:
        write_atomically(plan.align_report, result.clocks.toml())
    if plan.stats is not None:
        write_atomically(plan.stats, json.dumps(result.to_dict(), indent=2) + "\n")
    return result
