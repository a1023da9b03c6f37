"""Draws a quantity as a matrix: of pairs, with a row for each sender and a column for each receiver, or of two axes."""

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
"""Width and height (pixels) of a cell if there are few, and the least and the largest of a matrix. (The least height
of a matrix with names for its columns is a cell for each row.)"""
_MOST_LABELS = 24


class MatrixFigure(NamedTuple):
    """An image of a matrix, as the template shows it."""

    image: str
    """A data URL."""
    width: int
    height: int
    """In pixels."""
    labels: list[tuple[float, str]]
    """Place (percent from the top) and name of rows."""
    ticks: list[Tick]
    """Numbers or names of the columns."""
    legend: list[Swatch]


def make_matrix(
    names: Sequence[str],
    values: FloatArray,
    hue: Hue,
    write: Callable[[float], str],
    columns: Sequence[str] | None = None,
) -> MatrixFigure:
    """Return a matrix of values (rows, columns), of which NaN is not known. Opacity shows the value.

    `names`: of the rows. `write`: returns the text of a value. `columns`: short names of the columns; None if they are
    the rows, which are then numbered.
    """
    top = float(np.nanmax(values, initial=0.0))
    share = np.nan_to_num(values) / top if top > 0 else np.zeros(values.shape)
    level = np.rint(share * (_LEVELS - 1)).astype(np.int64) + 1
    level[np.isnan(values)] = 0
    palette = [_NOTHING, *(fade(hue, n / (_LEVELS - 1)) for n in range(_LEVELS))]
    legend = [Swatch(format_colour(fade(hue, n / 4)), write(top * n / 4)) for n in range(5)]
    legend.append(Swatch(format_colour(_NOTHING), NOT_KNOWN.text))
    count, across = values.shape
    shown, shown_across = (range(0, number, -(-number // _MOST_LABELS) or 1) for number in (count, across))
    return MatrixFigure(
        image=encode_png(level.astype(np.uint8), palette),
        width=min(max(across * _CELL, _LEAST), _MOST),
        height=min(max(count * _CELL, _LEAST if columns is None else _CELL), _MOST),
        labels=[(100 * (n + 0.5) / count, f"{n}: {names[n]}" if columns is None else names[n]) for n in shown],
        ticks=[Tick((n + 0.5) / across, f"{n}" if columns is None else columns[n]) for n in shown_across],
        legend=legend,
    )
