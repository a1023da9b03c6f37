"""Draws a quantity of pairs as a matrix: a row for each sender, a column for each receiver."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from nsys2prv_ng.arrays.types import FloatArray
from nsys2prv_ng.html.charts.axes import Tick
from nsys2prv_ng.html.charts.maps import NOT_KNOWN, Swatch, fade, format_colour
from nsys2prv_ng.html.charts.png import Colour, encode_png
from nsys2prv_ng.paraver.palette import Colour as Hue

_LEVELS = 255
"""The number of indexes for values; index 0 means no value."""
_NOTHING: Colour = (0, 0, 0, 0)
_CELL, _LEAST, _MOST = 28, 84, 560
"""Width and height (pixels) of a cell if there are few, and the least and the largest of a matrix."""
_MOST_LABELS = 24


class MatrixFigure(NamedTuple):
    """An image of a matrix, as the template shows it."""

    image: str
    """A data URL."""
    size: int
    """Width and height in pixels."""
    labels: list[tuple[float, str]]
    """Place (percent from the top) and name of rows."""
    ticks: list[Tick]
    """Numbers of the columns."""
    legend: list[Swatch]


def make_matrix(names: Sequence[str], values: FloatArray, hue: Hue, write: Callable[[float], str]) -> MatrixFigure:
    """Return a matrix of values (senders, receivers), of which NaN is not known. Opacity shows the value.

    `names`: of the rows, which are also the columns. `write`: returns the text of a value.
    """
    top = float(np.nanmax(values, initial=0.0))
    share = np.nan_to_num(values) / top if top > 0 else np.zeros(values.shape)
    level = np.rint(share * (_LEVELS - 1)).astype(np.int64) + 1
    level[np.isnan(values)] = 0
    palette = [_NOTHING, *(fade(hue, n / (_LEVELS - 1)) for n in range(_LEVELS))]
    legend = [Swatch(format_colour(fade(hue, n / 4)), write(top * n / 4)) for n in range(5)]
    legend.append(Swatch(format_colour(_NOTHING), NOT_KNOWN.text))
    count = len(names)
    every = -(-count // _MOST_LABELS)
    shown = range(0, count, every)
    return MatrixFigure(
        image=encode_png(level.astype(np.uint8), palette),
        size=min(max(count * _CELL, _LEAST), _MOST),
        labels=[(100 * (n + 0.5) / count, f"{n}: {names[n]}") for n in shown],
        ticks=[Tick((n + 0.5) / count, f"{n}") for n in shown],
        legend=legend,
    )
