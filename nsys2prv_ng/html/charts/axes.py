"""Chooses the ticks of axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

_STEPS = (1, 2, 5)
_ALIKE = 0.5
"""Part of the highest value. If all values are above it, their axis need not start at 0."""
_UNITS = ((10**9, "s"), (10**6, "ms"), (10**3, "us"), (1, "ns"))


class Tick(NamedTuple):
    """A tick: its place from 0 (start of the axis) to 1, and its text."""

    at: float
    text: str


def choose_step(span: float, most: int) -> float:
    """Return the distance between ticks, 1, 2 or 5 times a power of ten; at most `most` of them fit into the span."""
    power = 10.0 ** math.floor(math.log10(span / most))
    return next(step for k in (*_STEPS, 10, 20) if span / (step := k * power) <= most)


def make_time_ticks(begin: int, end: int, most: int = 8) -> list[Tick]:
    """Return the ticks of a time axis (ns), with enough digits to distinguish them."""
    if end <= begin:
        return []
    step = max(1, round(choose_step(end - begin, most)))
    unit, name = next((unit for unit in _UNITS if max(abs(begin), abs(end)) >= unit[0]), _UNITS[-1])
    digits = max(0, math.ceil(math.log10(unit / step)))
    times = range(-(-begin // step) * step, end + 1, step)
    return [Tick((time - begin) / (end - begin), f"{time / unit:,.{digits}f} {name}") for time in times]


def format_times(times: Sequence[float]) -> list[str]:
    """Return ascending round times (ns) as texts, in one unit and with enough digits to distinguish them."""
    unit, name = next((unit for unit in _UNITS if times[-1] >= unit[0]), _UNITS[-1])
    step = min((later - time for time, later in pairwise(times)), default=float(unit))
    digits = min(6, max(0, math.ceil(math.log10(unit / step) - 1e-9)))
    return [f"{time / unit:,.{digits}f} {name}" for time in times]


def make_value_ticks(lowest: float, highest: float, most: int = 5) -> list[float]:
    """Return round values from below `lowest` to above `highest`, both at least 0; from 0 unless both are alike."""
    if highest <= 0:
        return [0.0]
    lowest = lowest if lowest > _ALIKE * highest else 0.0
    step = choose_step((highest - lowest) or highest, most)
    first, last = math.floor(lowest / step + 1e-9), math.ceil(highest / step - 1e-9)
    return [step * k for k in range(first, max(last, first + 1) + 1)]
