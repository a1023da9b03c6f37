"""Writes the trace of a job as changes would make it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from nsys2prv_ng.paraver.output import TraceOutput
from nsys2prv_ng.replay.changes import Change
from nsys2prv_ng.replay.predicted_job import predict_job
from nsys2prv_ng.replay.what_if import Experiment
from nsys2prv_ng.runtime.progress import Progress
from nsys2prv_ng.translation.plan_trace import TranslationPlan, plan_trace
from nsys2prv_ng.translation.write_trace import write_planned


def write_prediction(
    experiment: Experiment, changes: Sequence[Change], output: Path, plan: TranslationPlan, progress: Progress
) -> None:
    """Write the predicted trace, whose application is named so. `plan`: as for the trace of the job itself."""
    outcome, _ = experiment.play(changes)
    with TraceOutput(output, force=plan.force) as trace:
        job = predict_job(experiment.model, outcome.time)
        note = f": prediction with {' and '.join(map(str, changes))}"
        write_planned(trace, plan_trace(job, output, plan, note), job, plan, progress)
