"""Draws charts from numbers, names and colours only.

Lines, areas and points are stretchable SVG without the texts of the axes, so that these keep their size on narrow
screens: a drawing has SIDE x SIDE units, whatever its size on the screen. Heat maps of rows over time, and strips of
what each row does, are PNG. The script of the page reads values from the image itself, whose rows are not filtered
(W3C's PNG specification, third edition): index 0 of its palette means not known, other indexes are values.
"""

from __future__ import annotations

import base64
import math
import struct
import zlib
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nsys2prv_ng.arrays.types import ByteArray, FloatArray
from nsys2prv_ng.html.page import clean
from nsys2prv_ng.paraver.palette import GREY
from nsys2prv_ng.paraver.palette import Colour as Hue
from nsys2prv_ng.value_class import ValueClass

SIDE = 1000
_MOST_POINTS = 1500
"""Points of a line that a screen can show; of more, the least and the largest of each stretch are drawn."""


class Shape(ValueClass):
    """A part of a plot: its colour as CSS, its name, its SVG path, and its kind.

    The kind is "line", "area" or "points".
    """

    kind: str
    css: str
    name: str
    path: str


class Axis(NamedTuple):
    """The limits of an axis."""

    low: float
    high: float

    def place(self, values: FloatArray) -> FloatArray:
        """Return where values are, from 0 at the low end to 1 at the high end."""
        scaled = (np.asarray(values, np.float64) - self.low) / ((self.high - self.low) or 1.0)
        return np.clip(scaled, 0.0, 1.0)

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


def spread(count: int, low: float = 0.0, high: float = 1.0) -> FloatArray:
    """Return evenly spread places from `low` to `high`; a single one is in the middle."""
    return np.linspace(low, high, count) if count > 1 else np.array([(low + high) / 2])


def make_time_axis(lowest: float, highest: float) -> tuple[Axis, list[Tick]]:
    """Return an axis for times (ns) from the lowest to the highest, and its ticks."""
    times = make_value_ticks(lowest, highest)
    axis = Axis(times[0], times[-1])
    return axis, axis.mark(times, format_times(times))


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
"""Part of the highest value. If all values are above it, their axis need not start at 0: half of it would be empty."""
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


# ---- PNG -------------------------------------------------------------------------------------------------------------

Colour = tuple[int, int, int, int]
"""Red, green, blue and opacity, from 0 to 255."""
_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_HEADER = 8, 3, 0, 0, 0
"""Bits of an index, colour type (palette), compression, filter method, interlacing (none)."""


def encode_png(indexes: npt.NDArray[np.uint8], palette: Sequence[Colour]) -> str:
    """Return an image of (rows, columns) indexes into a palette of at most 256 colours, as a data URL."""
    rows, columns = indexes.shape
    lines = np.zeros((rows, columns + 1), np.uint8)  # each starts with its filter: none
    lines[:, 1:] = indexes
    parts = [
        (b"IHDR", struct.pack(">IIBBBBB", columns, rows, *_HEADER)),
        (b"PLTE", bytes(part for colour in palette for part in colour[:3])),
        (b"tRNS", bytes(colour[3] for colour in palette)),
        (b"IDAT", zlib.compress(lines.tobytes(), 9)),
        (b"IEND", b""),
    ]
    chunks = (struct.pack(">I", len(d)) + kind + d + struct.pack(">I", zlib.crc32(kind + d)) for kind, d in parts)
    png = _SIGNATURE + b"".join(chunks)
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"


# ---- rows over time --------------------------------------------------------------------------------------------------

_LEVELS = 255
"""The number of indexes for values; index 0 means not known."""
_UNKNOWN: Colour = (*GREY, 56)
_NOTHING: Colour = (*GREY, 0)
_FAINTEST = 0.04
"""Opacity of the least value: it must be visible on the page."""
_ROW, _LEAST_HEIGHT, _HEIGHT = 18, 24, 420
"""Height (pixels) of a row if there are few rows, and least and largest height of an image."""
_MOST_LABELS = 24


class Swatch(NamedTuple):
    """A colour of a legend, as CSS, and its meaning."""

    css: str
    text: str


class MapFigure(NamedTuple):
    """An image of rows over time, as the template shows it, with the data that the script needs.

    `image`: a data URL. `smooth`: whether rows share a pixel. `labels`: place (percent from the top) and text.
    `script`: the rows, the limits of time (ns), and the meaning of indexes.
    """

    image: str
    height: int
    smooth: bool
    labels: list[tuple[float, str]]
    ticks: list[Tick]
    legend: list[Swatch]
    script: dict[str, Any]


def format_colour(colour: Hue | Colour) -> str:
    """Return a colour as CSS."""
    if len(colour) == 3:
        return "#{:02x}{:02x}{:02x}".format(*colour)
    return "rgb({} {} {} / {:.2f})".format(*colour[:3], colour[3] / 255)


NOT_KNOWN = Swatch(format_colour(_UNKNOWN), "not known")


def make_heat_map(
    rows: Sequence[str],
    values: FloatArray,
    limits: tuple[int, int],
    hue: Hue,
    unit: str,
    write: Callable[[float], str],
    absent: str,
) -> MapFigure:
    """Return a heat map of values (rows, bins) between two times (ns).

    Opacity shows the value, so that 0 has nearly the colour of the page. The scale of percentages ends at 100, that of
    other units at the largest value; it is then of square roots, so that a few large values do not hide the small ones.
    `write`: returns the text of a value. `absent`: what NaN means, if that is known; NaN has no colour then.
    """
    root, is_known = unit != "%", ~np.isnan(values)
    top = float(np.nanmax(values, initial=0.0)) if root else 100.0
    share = np.clip(np.nan_to_num(values) / top, 0, 1) if top > 0 else np.zeros(values.shape)
    level = np.rint((np.sqrt(share) if root else share) * (_LEVELS - 1)).astype(np.int64) + 1
    level[~is_known] = 0
    palette = [(*hue, 0) if absent else _UNKNOWN, *(fade(hue, n / (_LEVELS - 1)) for n in range(_LEVELS))]
    read = {"unit": unit, "top": top, "root": root, "absent": absent or NOT_KNOWN.text}
    steps = [n / 4 for n in range(5)] if top > 0 else []
    legend = [Swatch(format_colour(fade(hue, step**0.5 if root else step)), write(top * step)) for step in steps]
    legend += [] if is_known.all() or absent else [NOT_KNOWN]
    return _make_figure(rows, level.astype(np.uint8), palette, limits, legend, read)


def make_strips(
    rows: Sequence[str], values: ByteArray, limits: tuple[int, int], kinds: Sequence[tuple[str, Colour]]
) -> MapFigure:
    """Return strips of what each row does: values (rows, bins) are one more than the index of a kind, or 0."""
    palette: list[Colour] = [_NOTHING, *(colour for _, colour in kinds)]
    used = np.unique(values)
    legend = [Swatch(format_colour(colour), text) for n, (text, colour) in enumerate(kinds, 1) if n in used]
    legend += [Swatch(format_colour(_NOTHING), NOT_KNOWN.text)] if 0 in used else []
    read = {"kinds": [text for text, _ in kinds], "absent": NOT_KNOWN.text}
    return _make_figure(rows, values, palette, limits, legend, read)


def fade(hue: Hue, share: float) -> Colour:
    """Return the colour of a value, given as a share of the largest."""
    return (*hue, round(255 * (_FAINTEST + (1 - _FAINTEST) * share)))


def _make_figure(
    rows: Sequence[str],
    indexes: ByteArray,
    palette: Sequence[Colour],
    limits: tuple[int, int],
    legend: list[Swatch],
    read: dict[str, Any],
) -> MapFigure:
    height = min(max(len(rows) * _ROW, _LEAST_HEIGHT), _HEIGHT)
    every = max(1, -(-len(rows) // _MOST_LABELS))
    labels = [(100 * (n + 0.5) / len(rows), row) for n, row in enumerate(rows) if n % every == 0]
    return MapFigure(
        image=encode_png(indexes, palette),
        height=height,
        smooth=len(rows) > height,
        labels=labels,
        ticks=make_time_ticks(*limits),
        legend=legend,
        script={"rows": [*map(clean, rows)], "columns": indexes.shape[1], "from": limits[0], "to": limits[1], **read},
    )
