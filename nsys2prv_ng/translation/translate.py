"""Translates the reports of a job into one trace: opens the job, plans the trace, writes its slices and its account."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from nsys2prv_ng.job.open_job import open_job
from nsys2prv_ng.paraver.files import list_trace_files
from nsys2prv_ng.paraver.output import TraceOutput
from nsys2prv_ng.runtime.files import write_atomically
from nsys2prv_ng.runtime.progress import Progress
from nsys2prv_ng.translation.output_guards import check_extra_outputs, check_reports_stay
from nsys2prv_ng.translation.plan_trace import TracePlan, TranslationPlan, plan_trace
from nsys2prv_ng.translation.result import TranslationResult
from nsys2prv_ng.translation.write_slices import write_slices


def translate(
    reports: Sequence[Path],
    output: Path,
    plan: TranslationPlan = TranslationPlan(),  # noqa: B008 (is frozen)
    progress: Progress = Progress(),  # noqa: B008 (has no state)
) -> TranslationResult:
    """Write the trace of some reports, or of a folder of shards; return what was read, written and dropped.

    Raises TranslationError (UsageError among them) with one line for the user; nothing is then left under `output`,
    unless a file besides the trace cannot be written.
    """
    started = time.perf_counter()
    check_files(reports, output, plan)
    with ExitStack() as opened:
        trace = opened.enter_context(TraceOutput(output, force=plan.force))
        job = opened.enter_context(open_job(reports, output.parent, plan, progress))
        planned = plan_trace(job, output, plan)
        write_texts(trace, planned)
        planned.result.bytes = write_slices(trace, planned.slices, job.store, job.engine, plan.resources, progress)
    for warning in planned.result.warnings:
        progress.warn(warning)
    return finish_result(planned.result, plan, time.perf_counter() - started)


def check_files(reports: Sequence[Path], output: Path, plan: TranslationPlan) -> None:
    """Refuse outputs that would replace an input, or another file unasked, before anything is read."""
    extra = [path for path in (plan.stats, plan.align_report) if path is not None]
    inputs = [*reports, *(path for path in (plan.labels_from, plan.align) if isinstance(path, Path))]
    check_reports_stay(reports, list_trace_files(output))
    check_extra_outputs(extra, [*inputs, *list_trace_files(output)], force=plan.force)


def write_texts(trace: TraceOutput, planned: TracePlan) -> None:
    """Write the .pcf, the .row and the header of the .prv."""
    trace.write_text("pcf", planned.pcf)
    trace.write_text("row", planned.row)
    trace.write_header(planned.header)


def finish_result(result: TranslationResult, plan: TranslationPlan, seconds: float) -> TranslationResult:
    """Add the size of the file and the time, write the files besides the trace, and return the result."""
    output = Path(result.output)
    result.file_bytes = output.stat().st_size if output.is_file() else result.bytes
    result.seconds = seconds
    if plan.align_report is not None and result.clocks is not None:
        write_atomically(plan.align_report, result.clocks.toml())
    if plan.stats is not None:
        write_atomically(plan.stats, json.dumps(result.to_dict(), indent=2) + "\n")
    return result
