"""Describes the model FLOPs utilisation (MFU)."""

from __future__ import annotations

from nsys2prv_ng.summary.job import JobSummary
from nsys2prv_ng.summary.verdicts.trust import count_operator_ranges
from nsys2prv_ng.text.formatting import count_noun, format_flops, format_percent


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
