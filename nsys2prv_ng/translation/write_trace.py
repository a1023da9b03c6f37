"""Writes a planned trace: its texts, then its slices."""

from __future__ import annotations

from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.paraver.output import TraceOutput
from nsys2prv_ng.runtime.limits import give_back_freed_memory
from nsys2prv_ng.runtime.progress import Progress
from nsys2prv_ng.translation.plan_trace import TracePlan, TranslationPlan
from nsys2prv_ng.translation.write_slices import write_slices


def write_texts(trace: TraceOutput, planned: TracePlan) -> None:
    """Write the .pcf, the .row and the header of the .prv."""
    trace.write_text("pcf", planned.pcf)
    trace.write_text("row", planned.row)
    trace.write_header(planned.header)


def write_planned(trace: TraceOutput, planned: TracePlan, job: Job, plan: TranslationPlan, progress: Progress) -> int:
    """Write the trace of a job; return the bytes of the text of its .prv."""
    write_texts(trace, planned)
    give_back_freed_memory()
    return write_slices(trace, planned.slices, job.store, job.engine, plan.resources, progress)
