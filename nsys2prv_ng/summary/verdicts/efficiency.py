"""Describes efficiencies in sentences: what GPUs do with their time, how long steps take, and the FLOPs (MFU)."""

from __future__ import annotations

import re

from nsys2prv_ng.summary.numbers.efficiency import EfficiencyNumbers, StepNumbers, StepOfRank
from nsys2prv_ng.summary.numbers.job import JobSummary
from nsys2prv_ng.summary.tables.efficiency import (
    choose_window,
    list_parts,
    name_steps,
)
from nsys2prv_ng.text.formatting import count_noun, format_flops, format_percent, format_time
from nsys2prv_ng.text.names import name_task

_FACTOR = 10
"""Least spread that is easier to read as a factor: 1000% and more."""
_LEAST_SHOWN = 0.0005
"""Least share that is not printed as 0.0%."""
_OPERATORS = re.compile(r"^(aten|autograd)::|Backward\d+$")
"""Names of ranges that PyTorch opens for each operator, if asked to."""
_LEAST_HOST = 0.1
"""Least share of GPU time that is host-bound for that cost to matter.

A choice: GPUs do not wait for every slow host."""
_MANY_RANGES = 1
"""Ranges per kernel from which the ranges themselves cost the host time that matters."""


def describe_parts(efficiency: EfficiencyNumbers, steps: StepNumbers | None) -> str:
    """Return a sentence on where the time of all GPUs goes, without shares that round to 0.0%; "" without GPUs."""
    window = choose_window(efficiency, steps)
    losses = window.numbers.losses
    if losses is None or not window.numbers.window_ns:
        return ""
    whole = losses.devices * window.numbers.window_ns
    parts = [part for part in list_parts(losses) if part.ns >= _LEAST_SHOWN * whole]
    listed = ", ".join(f"{format_percent(part.ns, whole)} {part.label}" for part in parts)
    return f"Time of {count_noun(losses.devices, 'GPU')} in {window.name}: {listed}"


def describe_steps(steps: StepNumbers) -> str:
    """Return how long steps take, how they differ, and which ranks are fastest and slowest without waiting."""
    times = f"{name_steps(steps)}: median {format_time(steps.median_ns)}"
    if steps.count > 1:
        if steps.turns_ns is not None:
            short, long = map(format_time, steps.turns_ns)
            times += f", alternating between {short} and {long}"
        times += f", {format_time(steps.min_ns)} to {format_time(steps.max_ns)}"
        times += f" (spread {_format_spread(steps.spread)}), slowest {steps.slowest}"
    if steps.drift is not None:
        speed = "slower" if steps.drift > 0 else "faster"
        share = format_percent(abs(steps.drift), 1)
        times += f", later half {share} {speed}" if abs(steps.drift) >= _LEAST_SHOWN else ", later half as fast"
    if len(steps.ranks) > 1:
        by_time = sorted(steps.ranks, key=lambda rank: rank.median_without_waiting_ns)
        times += f"; without waiting for others {_describe_rank(by_time[0])} to {_describe_rank(by_time[-1])}"
    return times


def _describe_rank(rank: StepOfRank) -> str:
    return f"{format_time(rank.median_without_waiting_ns)} ({name_task(rank.rank, rank.task)})"


def _format_spread(spread: float) -> str:
    """Return (max - min) / median as a percentage, or as a factor if it is large."""
    return format_percent(spread, 1) if spread < _FACTOR else f"{spread:,.0f} times the median"


def describe_mfu(summary: JobSummary) -> str:
    """Return the MFU in words, or why it is not known; "" without FLOPs."""
    numbers = summary.mfu
    if numbers is None:
        return ""
    if numbers.mfu is None or numbers.peak_flops_per_s is None:
        reason = numbers.refused.replace("(peak_tflops)", "(--peak-tflops)")
        return f"not known: {reason.replace('(flops_per_step)', '(--flops-per-step)')}"
    peak = format_flops(numbers.peak_flops_per_s / numbers.gpus)
    dense = f"dense {numbers.number_type}" if numbers.number_type else "given"
    text = "" if numbers.is_given else "at least "
    text += f"{format_percent(numbers.mfu, 1)}: {format_flops(numbers.flops_per_step)} a step"
    text += f" on {count_noun(numbers.gpus, 'GPU')} of {peak}/s ({dense})"
    if count_operator_ranges(summary):
        text += "; of this run, which NVTX ranges of operators slow"
    return text


def count_operator_ranges(summary: JobSummary) -> float:
    """Return the number of ranges of PyTorch's operators per kernel, if they slow the host; 0 without many of them."""
    kernels = sum(kernel.count for kernel in summary.kernels)
    operators = [numbers for numbers in summary.ranges if _OPERATORS.search(numbers.name)]
    ranges = sum(task.count for numbers in operators for task in numbers.tasks)
    losses = None if summary.efficiency is None else choose_window(summary.efficiency, summary.steps).numbers.losses
    if losses is None or losses.host_ns < _LEAST_HOST * sum(part.ns for part in list_parts(losses)):
        return 0
    return ranges / kernels if kernels and ranges >= _MANY_RANGES * kernels else 0
