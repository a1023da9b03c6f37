"""Describes the captures of a side.

With several captures a side, the captures are the samples: the steps of one capture share its node, clocks and
neighbours, so that they show how certain the capture is, not how certain the program is. The time of a side is then the
median over its captures of their median steps. Tables are of one capture, the typical one.
"""

from __future__ import annotations

from collections.abc import Sequence

from nsys2prv_ng.comparison.model import CaptureNumbers, Side
from nsys2prv_ng.summary.difference.statistics import find_median
from nsys2prv_ng.summary.job import JobSummary


def make_side(label: str, captures: Sequence[JobSummary]) -> Side:
    """Return the side with these captures, at least one."""
    if len(captures) == 1:
        return Side(label, captures[0])
    return Side(label, captures[choose_typical(captures)], tuple(captures))


def choose_typical(captures: Sequence[JobSummary]) -> int:
    """Return the index of the capture whose median step is nearest to the median of all; the first of equal ones."""
    times = [measure_capture(capture) for capture in captures]
    middle = find_median(times)
    return min(range(len(times)), key=lambda index: abs(times[index] - middle))


def measure_capture(summary: JobSummary) -> int:
    """Return the median step of a capture (ns); without steps, its length."""
    steps = list_step_times(summary)
    if steps:
        return find_median(steps)
    return summary.duration_ns if summary.efficiency is None else summary.efficiency.window_ns


def list_step_times(summary: JobSummary) -> list[int]:
    """Return the length (ns) of each step after the warm-up."""
    return [] if summary.efficiency is None else [step.window_ns for step in summary.efficiency.steps]


def has_steps(side: Side) -> bool:
    """Return whether steps were found in every capture."""
    return all(list_step_times(capture) for capture in side.every)


def describe_captures(side: Side) -> list[CaptureNumbers]:
    """Return the measurements of each capture."""
    steps = [list_step_times(capture) for capture in side.every]
    return [
        CaptureNumbers(capture.reports, own, find_median(own) if own else None)
        for capture, own in zip(side.every, steps, strict=True)
    ]


def find_table_capture(side: Side) -> int:
    """Return the index of the capture that tables are of."""
    return next(index for index, capture in enumerate(side.every) if capture is side.summary)
