"""Draws lines, areas and points as stretchable SVG, without the texts of the axes.

So the texts keep their size on narrow screens. A drawing has SIDE x SIDE units, whatever its size on the screen.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from nsys2prv_ng.arrays.types import FloatArray
from nsys2prv_ng.light_dataclass import dataclass

SIDE = 1000
_MOST_POINTS = 1500
"""Points of a line that a screen can show; of more, the least and the largest of each stretch are drawn."""
_FEW_POWERS = 3


@dataclass(frozen=True)
class Shape:
    """A part of a plot: its colour as CSS, its name, its SVG path, and its kind.

    The kind is "line", "area", "points" or "histogram".
    """

    kind: str
    css: str
    name: str
    path: str


class Axis(NamedTuple):
    """The limits of an axis. `log`: the axis is logarithmic."""

    low: float
    high: float
    log: bool = False

    def place(self, values: FloatArray) -> FloatArray:
        """Return where values are, from 0 at the low end to 1 at the high end."""
        low, high = (math.log(self.low), math.log(self.high)) if self.log else (self.low, self.high)
        scaled = np.log(values) if self.log else np.asarray(values, np.float64)
        return np.clip((scaled - low) / ((high - low) or 1.0), 0.0, 1.0)

    def mark(self, values: Sequence[float], texts: Iterable[str]) -> list[Tick]:
        """Return ticks at these values."""
        return [Tick(at, text) for at, text in zip(self.place(np.array(values)).tolist(), texts, strict=True)]


def draw_line(x: FloatArray, y: FloatArray) -> str:
    """Return the path of a line through points (places from 0 to 1), with a gap where y is NaN."""
    x, y = _thin(x, y)
    parts, draws = [], False
    for left, top in zip(x.tolist(), y.tolist(), strict=True):
        if math.isnan(top):
            draws = False
            continue
        parts.append(f"{'L' if draws else 'M'}{_format(left)} {_format(1 - top)}")
        draws = True
    return "".join(parts)


def draw_area(x: FloatArray, low: FloatArray, high: FloatArray) -> str:
    """Return the path of the area between two lines (places from 0 to 1)."""
    if not x.size:
        return ""
    ahead = draw_line(x, high)
    back = draw_line(x[::-1], low[::-1])
    return f"{ahead}L{back[1:]}Z"


def draw_points(x: FloatArray, y: FloatArray) -> str:
    """Return the path of points: lines of length 0, which round caps turn into dots of any size."""
    return "".join(f"M{_format(left)} {_format(1 - top)}h0" for left, top in zip(x.tolist(), y.tolist(), strict=True))


def draw_histogram(counts: Sequence[int]) -> str:
    """Return the path of the outline of bars of equal width."""
    highest = max(counts, default=0) or 1
    width = SIDE / max(1, len(counts))
    steps = "".join(f"V{SIDE - SIDE * count / highest:.0f}H{width * (n + 1):.0f}" for n, count in enumerate(counts))
    return f"M0 {SIDE}{steps}V{SIDE}Z"


def spread(count: int, low: float = 0.0, high: float = 1.0) -> FloatArray:
    """Return evenly spread places from `low` to `high`; a single one is in the middle."""
    return np.linspace(low, high, count) if count > 1 else np.array([(low + high) / 2])


def make_time_axis(lowest: float, highest: float) -> tuple[Axis, list[Tick]]:
    """Return an axis for times (ns) from the lowest to the highest, and its ticks."""
    times = make_value_ticks(lowest, highest)
    axis = Axis(times[0], times[-1])
    return axis, axis.mark(times, format_times(times))


def make_log_ticks(axis: Axis) -> list[float]:
    """Return the powers of ten within an axis; if these are few, also 2 and 5 times each power."""
    powers = range(math.floor(math.log10(axis.low) + 1e-9), math.floor(math.log10(axis.high) + 1e-9) + 1)
    steps = (1, 2, 5) if len(powers) <= _FEW_POWERS else (1,)
    values = [step * 10.0**power for power in powers for step in steps]
    return [value for value in values if axis.low * (1 - 1e-9) <= value <= axis.high * (1 + 1e-9)]


def _thin(x: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the points of a line; if there are too many, the least and the largest of each stretch."""
    if x.size <= _MOST_POINTS:
        return x, y
    keep = [0, x.size - 1]
    for part in np.array_split(np.arange(x.size), _MOST_POINTS // 2):
        known = part[~np.isnan(y[part])]
        keep += [int(known[np.argmin(y[known])]), int(known[np.argmax(y[known])])] if known.size else [int(part[0])]
    kept = np.unique(keep)
    return x[kept], y[kept]


def _format(share: float) -> str:
    return f"{SIDE * share:.1f}".rstrip("0").rstrip(".")


# ---- ticks -----------------------------------------------------------------------------------------------------------

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
