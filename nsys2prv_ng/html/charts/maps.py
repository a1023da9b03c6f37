"""Draws images of rows over time: heat maps of a quantity, and strips of what each row does.

The script of the page reads values from the image itself: index 0 of its palette means not known, other indexes are
values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from nsys2prv_ng.arrays.types import ByteArray, FloatArray
from nsys2prv_ng.html.charts.axes import Tick, make_time_ticks
from nsys2prv_ng.html.charts.png import Colour, encode_png
from nsys2prv_ng.html.names import clean
from nsys2prv_ng.paraver.palette import GREY
from nsys2prv_ng.paraver.palette import Colour as Hue

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
    """An image of rows over time, as the template shows it, with the data that the script needs."""

    image: str
    """A data URL."""
    height: int
    smooth: bool
    """Whether rows share a pixel."""
    labels: list[tuple[float, str]]
    """Place (percent from the top) and text."""
    ticks: list[Tick]
    legend: list[Swatch]
    script: dict[str, Any]
    """The rows, the limits of time (ns), and the meaning of indexes."""


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
