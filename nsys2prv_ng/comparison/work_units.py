"""Finds the unit of work of which a step has more on one side, such as a micro-batch.

A range is a unit if each rank that has it opens it equally often in every step. The ranges whose counts differ between
the sides by one ratio must have most of the time of all ranges at their depth, on both sides: then the work of the step
differs by this ratio. The range with most time stands for all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import NamedTuple

from nsys2prv_ng.comparison.model import Verdict, WorkUnits
from nsys2prv_ng.summary.job import JobSummary
from nsys2prv_ng.summary.ranges.numbers import RepeatedRange
from nsys2prv_ng.text.formatting import shorten_range_name

_MOST = 0.5
"""Least share of the time of all ranges at a depth."""
_Key = tuple[str, str]
"""Domain and name of a range."""


class _Unit(NamedTuple):
    """A range: how often it occurs in each step (0: not equally often), its depth, and its time in all steps (ns)."""

    times: int
    depth: int
    ns: int


def find_units(a: JobSummary, b: JobSummary, verdict: Verdict) -> WorkUnits | None:
    """Return the unit of work that differs; None if none does, or if most of the work is of no such unit."""
    before, after = _list_ranges(a), _list_ranges(b)
    groups: dict[tuple[Fraction, int, int], list[_Key]] = {}
    for key in sorted(before.keys() & after.keys()):
        one, other = before[key], after[key]
        if one.times and other.times:
            groups.setdefault((Fraction(other.times, one.times), one.depth, other.depth), []).append(key)
    whole = [
        keys
        for (ratio, *depths), keys in groups.items()
        if ratio != 1
        and all(_measure_share(side, keys, depth) >= _MOST for side, depth in zip((before, after), depths, strict=True))
    ]
    if not whole or not verdict.a_ns:
        return None
    key = max((key for keys in whole for key in keys), key=lambda key: before[key].ns + after[key].ns)
    count_a, count_b = before[key].times, after[key].times
    a_ns, b_ns = verdict.a_ns / count_a, verdict.b_ns / count_b
    return WorkUnits(shorten_range_name(*key), count_a, count_b, round(a_ns), round(b_ns), b_ns / a_ns - 1)


def _list_ranges(summary: JobSummary) -> dict[_Key, _Unit]:
    """Return all ranges but those of the steps themselves."""
    step = None if summary.steps is None else summary.steps.name
    return {
        (each.domain, each.name): _Unit(_count_per_step(each), each.depth, each.total_ns)
        for each in summary.ranges
        if each.name != step
    }


def _count_per_step(each: RepeatedRange) -> int:
    """Return how often each rank opens a range in each step; 0 if not equally often."""
    counts = {task.per_step for task in each.tasks}
    return counts.pop() if len(counts) == 1 else 0


def _measure_share(ranges: Mapping[_Key, _Unit], keys: list[_Key], depth: int) -> float:
    """Return the share of some ranges in the time of all ranges at their depth."""
    whole = sum(each.ns for each in ranges.values() if each.depth == depth)
    return sum(ranges[key].ns for key in keys) / whole if whole else 0.0
