"""The blocks that sections of a page are made of. The templates show each kind of block in the same way.

Tables of typed cells draw bars and shades, and show other cells as text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from itertools import pairwise

from nsys2prv_ng.analysis.efficiency.typical_step import RangesOfTask
from nsys2prv_ng.html.charts import MapFigure, Shape, Swatch, Tick
from nsys2prv_ng.html.colours import get_cell_css
from nsys2prv_ng.text.formatting import format_time
from nsys2prv_ng.text.grid import Bar, Cell, Grid, Interval, Score, Term
from nsys2prv_ng.value_class import ValueClass

MOST_ROWS, MOST_RANKS = 12, 24
"""Most rows of a table, and of a table with a row for each rank or GPU."""
_LEAST = 1e-4
"""Least share of a bar at which a segment is drawn."""
_LIMITS = ((0.9, 0.0), (0.8, 0.25), (0.7, 0.5), (0.5, 0.75))
"""Least efficiency of each shade, and its badness; below the last limit, the badness is 1."""


class Segment(ValueClass):
    """A part of a bar, in percent of the width of the cell.

    `text`: what the part is, for tooltips and screen readers.
    """

    left: float
    width: float
    css: str
    text: str = ""


class ShadedCell(ValueClass):
    """A number on a coloured ground, which is the stronger the worse the number is (0: good, 1: bad)."""

    text: str
    badness: float


DrawnCell = str | list[Segment] | Term | ShadedCell
"""A list of segments is a bar."""


class Table(ValueClass):
    """A grid as the templates show it. Only `show_grid` makes tables.

    `sums`: the number of rows at the end that are sums. `folded`: the title of a table that is folded until the reader
    opens it; empty for other tables.
    """

    caption: str
    titles: list[str]
    names: int
    rows: list[list[DrawnCell]]
    sums: int
    below: str
    legend: list[Swatch]
    folded: str = ""

    kind = "table"


def show_grid(grid: Grid, most: int = MOST_ROWS) -> Table:
    """Return a table of a grid, with room for `most` rows and for all columns."""
    shown = grid.list_shown(most)
    rows = [*shown, *grid.footer]
    numbers = grid.list_columns(rows, wide=True)
    columns = [grid.columns[number] for number in numbers]
    hidden = len(grid.rows) - len(shown)
    below = [*grid.below, *([f"And {hidden:,} more {grid.more}".rstrip()] if hidden else [])]
    legend = [Swatch(get_cell_css(hue), text) for hue, text in grid.legend]
    is_shaded = any(isinstance(cell, Score) for row in rows for cell in row)
    return Table(
        caption=grid.caption,
        titles=[f"{column.title}, {grid.over} {column.over}" if column.over else column.title for column in columns],
        names=sum(number < grid.names for number in numbers),
        rows=[[_show_cell(row[number]) for number in numbers] for row in rows],
        sums=len(grid.footer),
        below=". ".join([*below, ""]).strip(),
        legend=_list_shades() if is_shaded else legend,
    )


def _show_cell(cell: Cell) -> DrawnCell:
    if isinstance(cell, Bar):
        return _draw_bar(cell)
    if isinstance(cell, Interval):
        return _draw_interval(cell)
    if isinstance(cell, Score) and cell.value is not None:
        # An efficiency may exceed 1 if it is relative to another run.
        return ShadedCell(str(cell), next((bad for least, bad in _LIMITS if cell.value >= least), 1.0))
    return cell if isinstance(cell, Term) else str(cell)


def _draw_bar(bar: Bar) -> list[Segment]:
    """Return the parts of a bar one after the other, without parts that are too small to be seen."""
    segments, left = [], 0.0
    for part in bar.parts:
        share = part.amount / bar.whole if bar.whole else 0.0
        if share >= _LEAST:
            text = f"{part.text}: {format_time(part.amount)}"
            segments.append(Segment(100 * left, 100 * share, get_cell_css(part.hue), text))
        left += share
    return segments


def _draw_interval(cell: Interval) -> list[Segment]:
    """Return a bar between two values; it is striped if it goes backwards."""
    ends = sorted((cell.begin, cell.end))
    left, right = (100 * (max(value, cell.low) - cell.low) / (cell.high - cell.low) for value in ends)
    css = get_cell_css(cell.hue)
    return [Segment(left, right - left, stripe(css) if cell.end < cell.begin else css, cell.text)]


def stripe(css: str) -> str:
    """Return the ground of a bar that goes backwards; stripes distinguish it without colour."""
    return f"repeating-linear-gradient(135deg, {css} 0 4px, color-mix(in srgb, {css} 35%, transparent) 4px 8px)"


# ---- shades ----------------------------------------------------------------------------------------------------------


def _list_shades() -> list[Swatch]:
    """Return the shades with their limits, the best first."""
    limits = [least for least, _ in _LIMITS]
    texts = [f"{100 * limits[0]:.0f}% or more"]
    texts += [f"{100 * low:.0f}% to {100 * high:.0f}%" for high, low in pairwise(limits)]
    texts.append(f"less than {100 * limits[-1]:.0f}%")
    grounds = [*(bad for _, bad in _LIMITS), 1.0]
    return [
        Swatch(f"color-mix(in srgb, rgb(var(--bad) / 0.55) {100 * bad:.0f}%, transparent)", text)
        for bad, text in zip(grounds, texts, strict=True)
    ]


# ---- other blocks, and sections --------------------------------------------------------------------------------------


class Paragraph(ValueClass):
    """One or more sentences; names are in `backquotes`."""

    text: str

    kind = "paragraph"


class Code(ValueClass):
    """Lines of code."""

    lines: list[str]

    kind = "code"


class Map(ValueClass):
    """An image of rows over time, and its numbers as a table.

    `lanes`: NVTX ranges above the image, on the axis of its time. `group`: maps of one group show the same time:
    zooming one zooms all.
    """

    title: str
    about: str
    figure: MapFigure
    table: Table
    lanes: Sequence[RangesOfTask] = ()
    group: str = "job"

    kind = "map"


class Maps(ValueClass):
    """Maps of which readers choose one; paper, and a page whose script may not run, have all of them."""

    maps: list[Map]

    kind = "maps"


class Chart(ValueClass):
    """A plot, and its numbers as a table.

    `y_ticks`: from the bottom (0) to the top (1). `height`: in pixels.
    """

    title: str
    about: str
    shapes: list[Shape]
    x_ticks: list[Tick]
    y_ticks: list[Tick]
    height: int
    legend: list[Swatch]
    table: Table

    kind = "chart"


class Line(ValueClass):
    """A line of the answer, with a link to the section with its numbers. `bar`: a bar in place of the text.

    `link`: text of the link, which then comes first; without it, the link is called "details" and comes last.
    """

    text: str
    label: str
    section: str = ""
    link: str = ""
    bar: list[Segment] = field(default_factory=list)
    legend: list[Swatch] = field(default_factory=list)


class Lines(ValueClass):
    """Lines of an answer."""

    lines: list[Line]

    kind = "lines"


Block = Table | Paragraph | Code | Lines | Map | Maps | Chart


class Section(ValueClass):
    """A section of a page, and the presets that show the same in Paraver.

    `lead`: what the section shows, in a sentence. `window`: the time in the form of the option --time; empty for all
    time. `traces`: the traces to open, in words, if the page covers several; names are in `backquotes`.
    """

    key: str
    title: str
    lead: str
    blocks: Sequence[Block]
    presets: Sequence[str] = ()
    window: str = ""
    traces: str = ""
