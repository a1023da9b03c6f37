"""Translates the reports of a job into one trace: opens the job, plans the trace, writes its slices and its result."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nsys2prv_ng.errors import TranslationError, UsageError
from nsys2prv_ng.job.open_job import open_job
from nsys2prv_ng.paraver.files import list_trace_files
from nsys2prv_ng.paraver.output import TraceOutput, refuse_in_the_way
from nsys2prv_ng.runtime.files import resolve_links, write_atomically
from nsys2prv_ng.runtime.progress import Progress
from nsys2prv_ng.translation.plan_trace import TracePlan, TranslationPlan, plan_trace
from nsys2prv_ng.translation.result import TranslationResult
from nsys2prv_ng.translation.write_trace import write_planned

if TYPE_CHECKING:
    from nsys2prv_ng.replay.changes import Change
    from nsys2prv_ng.replay.what_if import Experiment


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


def check_files(reports: Sequence[Path], output: Path, plan: TranslationPlan) -> None:
    """Refuse files that could not or must not be written, before anything is read.

    Not even `force` replaces an input, a file of the trace or anything in a report that is a folder. Raises UsageError
    and TranslationError.
    """
    trace = list_trace_files(output)
    read = set(map(resolve_links, reports))
    for file in trace:
        if resolve_links(file) in read:
            raise UsageError(f"{file}: is a report, which the trace would replace; choose another name for the trace")
    inputs = [path for path in (plan.labels_from, plan.align) if isinstance(path, Path)]
    used = read | set(map(resolve_links, [*inputs, *trace]))
    folders = {path for path in used if path.is_dir()}
    for file in [path for path in (plan.stats, plan.align_report) if path is not None]:
        real = resolve_links(file)
        if real in used or real.parent in folders:
            raise UsageError(f"{file}: is a report or a file of the trace itself; choose another name")
        used.add(real)
        if not file.parent.is_dir():
            raise UsageError(f"{file.parent}: no such folder; create it or choose another place for {file.name}")
        if not os.access(file.parent, os.W_OK | os.X_OK):
            raise TranslationError(
                f"{file}: cannot be written: no permission to write to the folder; choose another place"
            )
        refuse_in_the_way(file, force=plan.force)


def write_prediction(
    experiment: Experiment, changes: Sequence[Change], output: Path, plan: TranslationPlan, progress: Progress
) -> None:
    """Write the predicted trace, whose application is named so. `plan`: as for the trace of the job itself."""
    from nsys2prv_ng.replay.predicted_job import predict_job  # a translation needs no replay

    time = experiment.predict_times(changes)
    with TraceOutput(output, force=plan.force) as trace:
        job = predict_job(experiment.model, time)
        note = f": prediction with {' and '.join(map(str, changes))}"
        write_planned(trace, plan_trace(job, output, plan, note), job, plan, progress)
