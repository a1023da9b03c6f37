"""Describes a job and the time that numbers cover, in one line."""

from __future__ import annotations

from nsys2prv_ng.summary.efficiency.numbers import StepNumbers
from nsys2prv_ng.summary.efficiency.windows import are_steps, choose_window
from nsys2prv_ng.summary.job import JobSummary
from nsys2prv_ng.text.formatting import count_nouns, format_span, format_time
from nsys2prv_ng.text.names import clean_name


def describe_job(summary: JobSummary) -> str:
    """Return the size of a job, the time that numbers cover, and how long steps take."""
    users = {"rank": summary.ranks} if summary.ranks or summary.gpus else {"task": summary.tasks}
    sizes = {"GPU": len(summary.gpus), **users, "node": summary.nodes}
    parts = [count_nouns({noun: number for noun, number in sizes.items() if number})]
    steps, efficiency = summary.steps, summary.efficiency
    if steps is not None and efficiency is not None:
        covers = are_steps(summary.windows_ns, efficiency.steps_ns) or efficiency.in_steps is not None
        parts += _describe_steps(steps, summary) if covers else []
    if len(parts) == 1:
        parts.append(_describe_time(summary))
    return " | ".join(parts)


def _describe_steps(steps: StepNumbers, summary: JobSummary) -> list[str]:
    name = clean_name(steps.name)
    numbers = f"{steps.first}" + (f"-{steps.last}" if steps.last != steps.first else "")
    excluded = ", warm-up excluded" if steps.warmup and summary.start_up is not None else ""
    whole = format_time(steps.window_ns[1] - steps.window_ns[0])
    parts = [f"{name} {numbers} ({whole}{excluded})"]
    if steps.count > 1:
        return [*parts, f"median step {format_time(steps.median_ns)} ({format_span(steps.min_ns, steps.max_ns)})"]
    return parts


def _describe_time(summary: JobSummary) -> str:
    """Return the time that numbers cover, without steps."""
    if summary.efficiency is None:
        return f"capture of {format_time(summary.duration_ns)}"
    window = choose_window(summary.efficiency, None)
    return f"{window.name} ({format_time(window.numbers.window_ns)})"
