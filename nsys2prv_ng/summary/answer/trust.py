"""Describes what numbers exclude, and what makes them less certain."""

from __future__ import annotations

from nsys2prv_ng.replay.words import describe_replayed
from nsys2prv_ng.report.diagnostics import REMEDY
from nsys2prv_ng.summary.answer.case import LEAST, Case, count_operator_ranges
from nsys2prv_ng.summary.answer.slow_steps import SlowSteps
from nsys2prv_ng.summary.efficiency.windows import choose_window
from nsys2prv_ng.summary.job import PLURALS, JobSummary
from nsys2prv_ng.summary.verdict import Statement
from nsys2prv_ng.summary.waits.numbers import WaitNumbers
from nsys2prv_ng.summary.waits.words import describe_missing_payload
from nsys2prv_ng.text.formatting import count_noun, format_percent, format_time
from nsys2prv_ng.text.names import clean_name, quote_name

_LEAST_GRAPHS = 0.01
"""Least share of GPU time in opaque CUDA graphs that is worth a word. A choice: less changes no class."""
_LEAST_SIMILAR = 0.98
"""Least similarity of steps that a delimiter finds at which nothing needs to be said of it: a choice."""
_FEW_STEPS = 3
"""With fewer steps, nothing shows what is usual: of two that differ, either may be the odd one."""
_MOST_SPREAD = 0.5
"""Spread of the steps, (max - min) / median, above which there is no typical step.

A choice: too small, and steps of any job that saves checkpoints are doubtful."""


def describe_start_up(summary: JobSummary) -> str:
    """Return what the steps exclude, in words; "" if numbers cover all time."""
    start = summary.start_up
    if start is None:
        return ""
    inside = [count_noun(start.warmup, "warm-up step")] if start.warmup else []
    who = {0: "GPUs", 1: "the rank"}.get(summary.ranks, "ranks")
    inside += [f"{who} waited {format_time(start.wait_ns)} in total"] if start.wait_ns else []
    text = f"excluded: {format_time(start.before_ns)} before the steps"
    text += f" ({', '.join(inside)})" if inside else ""
    return text + (f"; {format_time(start.after_ns)} after the last step" if start.after_ns else "")


def list_doubts(case: Case) -> list[Statement]:
    """Return what makes the numbers of a summary less certain, by the keys of the evidence."""
    summary, slow = case.summary, case.slow_steps
    waits = [] if summary.waits is None else describe_limits(summary.waits)
    payload = describe_missing_payload(summary.waits, summary.reports)
    doubts = [
        *_make("skipped", [_describe_skipped(summary)]),
        *_make("steps", _describe_steps(summary, slow)),
        *_make("gpus", [_describe_tracing(case)]),
        *_make("efficiency", [describe_opaque_graphs(summary)]),
        *_make("waits", payload or waits),
        *_make("ranges", [_describe_operator_ranges(summary)]),
        *_make("what_if", [_describe_unsplit(summary), _describe_replayed(summary)]),
    ]
    return [doubt for doubt in doubts if doubt.text]


def _make(key: str, texts: list[str]) -> list[Statement]:
    return [Statement(label="TRUST", text=text, evidence=[key]) for text in texts]


def _describe_steps(summary: JobSummary, slow: SlowSteps | None) -> list[str]:
    """Return what is not certain about the steps."""
    steps = summary.steps
    if steps is None:
        if not summary.gpus or summary.chosen or summary.efficiency is None:
            return []
        return [f"no steps found (mark them with NVTX): numbers cover {choose_window(summary.efficiency, None).name}"]
    texts = []
    if steps.delimiter:
        text = f"steps are found by GPU work, not by NVTX ranges: {quote_name(steps.delimiter)} delimits them"
        text += f" every {count_noun(steps.repeats, 'time')}" if steps.repeats > 1 else ""
        similar = f", and they are only {format_percent(steps.similarity, 1)} alike"
        texts.append(text + (similar if steps.similarity < _LEAST_SIMILAR else ""))
    if steps.count < _FEW_STEPS:
        texts.append(f"only {count_noun(steps.count, 'step')}: how much steps vary is hardly known")
    elif len(steps.kinds) > 1:
        texts.append(f"steps are of {len(steps.kinds)} kinds: savings are means over all of them")
    elif steps.spread > _MOST_SPREAD and slow is None:
        times = f"{format_time(steps.min_ns)} to {format_time(steps.max_ns)}"
        texts.append(f"steps differ much ({times}): no step is typical, and savings are means")
    return texts


def _describe_tracing(case: Case) -> str:
    """Return how much of a step may be the cost of tracing; "" if it is little."""
    if not case.tracing_ns or case.summary.what_if is None:
        return ""
    step, cost = format_time(case.summary.what_if.step_ns), format_time(case.tracing_ns)
    each = "about 60 us a launch with its back trace" if case.has_back_traces else "5 to 18 us a launch"
    return f"tracing may cost {cost} of the {step} of a step ({each}), so GAIN may be too high"


def _describe_operator_ranges(summary: JobSummary) -> str:
    each = count_operator_ranges(summary)
    if not each:
        return ""
    return f"NVTX ranges of operators ({each:,.1f} per kernel) slow the host: capture again without them"


def describe_opaque_graphs(summary: JobSummary) -> str:
    """Return the time in CUDA graphs that were traced as a whole and may contain NCCL; "" if it is little."""
    if summary.efficiency is None:
        return ""
    window = choose_window(summary.efficiency, summary.steps)
    losses = window.numbers.losses
    whole = 0 if losses is None else losses.devices * window.numbers.length_ns
    if losses is None or not losses.whole_graph_ns or losses.whole_graph_ns < _LEAST_GRAPHS * whole:
        return ""
    share = format_percent(losses.whole_graph_ns, whole)
    return f"{share} of GPU time is in opaque CUDA graphs, which may compute, wait or transfer; to know, {REMEDY}"


def describe_limits(waits: WaitNumbers) -> list[str]:
    """Return sentences on the kernels and calls whose wait is not known, and why."""
    texts = []
    if waits.below_uncertainty:
        count = f"{waits.below_uncertainty:,} of {_count_kernels(waits)}"
        texts.append(f"wait within clock error in {count}, counted as transfer")
    if waits.not_split:
        reasons = sorted(waits.not_split.items(), key=lambda item: -item[1])
        several = len(reasons) > 1
        parts = ", ".join(f"{f'{count:,} ' * several}because {clean_name(reason)}" for reason, count in reasons)
        count = f"{sum(waits.not_split.values()):,} of {_count_kernels(waits)}"
        texts.append(f"{count} may wait or transfer data, {parts}")
    return texts


def _count_kernels(waits: WaitNumbers) -> str:
    """Return the number of kernels and calls over ranks, with their nouns."""
    kernels, calls = any(rank.nccl_ns for rank in waits.ranks), any(rank.mpi for rank in waits.ranks)
    whole = waits.split + waits.below_uncertainty + sum(waits.not_split.values())
    nouns = [noun for noun, is_any in (("kernel", kernels or not calls), ("call", calls)) if is_any]
    return " and ".join([count_noun(whole, nouns[0]), *(f"{noun}s" for noun in nouns[1:])])


def _describe_unsplit(summary: JobSummary) -> str:
    """Return the time of communication that no predicted change alters, if it is a worthwhile part of a step."""
    numbers = summary.what_if
    if numbers is None or numbers.unsplit_ns < LEAST * numbers.step_ns * summary.users[1]:
        return ""
    kept = format_time(numbers.unsplit_ns)
    users = PLURALS[summary.users[0]]
    return f"predictions leave unclassified communication as it is: {kept} a step, summed over {users}"


def _describe_replayed(summary: JobSummary) -> str:
    """Return which steps predictions are of, if not of all."""
    text = "" if summary.what_if is None else describe_replayed(summary.what_if)
    return f"{text[:1].lower()}{text[1:]}"


def _describe_skipped(summary: JobSummary) -> str:
    if not summary.skipped:
        return ""
    return f"{count_noun(len(summary.skipped), 'report')} skipped, so ranks may be missing (listed with --details)"
