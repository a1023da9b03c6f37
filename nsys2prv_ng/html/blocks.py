"""What sections of a page are made of. The templates show each kind of block in one way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from nsys2prv_ng.html.charts.maps import MapFigure, Swatch
from nsys2prv_ng.html.charts.plots import Plot


@dataclass(frozen=True)
class Segment:
    """A part of a bar, in percent of the width of its cell."""

    left: float
    width: float
    css: str
    text: str = ""
    """What it is, for pointers and screen readers."""


@dataclass(frozen=True)
class BarCell:
    """A cell with a bar."""

    segments: list[Segment]


@dataclass(frozen=True)
class HistogramCell:
    """A cell with a histogram: an SVG path (charts/plots.draw_histogram), and what it says in words."""

    path: str
    css: str
    text: str


@dataclass(frozen=True)
class TermCell:
    """A cell with a term of a tree, at a depth, and its definition."""

    term: str
    definition: str
    depth: int = 0


@dataclass(frozen=True)
class ShadedCell:
    """A number on a ground that is the stronger the worse it is (0: good, 1: bad)."""

    text: str
    badness: float


Cell = str | BarCell | HistogramCell | TermCell | ShadedCell


@dataclass(frozen=True)
class Table:
    """A table. Its first column heads the rows; the first `texts` columns are text, the others numbers."""

    caption: str
    titles: list[str]
    rows: list[list[Cell]]
    texts: int = 1
    below: str = ""
    """A sentence on rows that are not here, or on what the columns mean."""
    strong_last: bool = False
    """Whether the last row is a sum."""
    legend: list[Swatch] = field(default_factory=list)
    """Colours of its bars."""
    key: str = "table"

    kind = "table"


@dataclass(frozen=True)
class Paragraph:
    """A sentence or more; names stand between `backquotes`."""

    text: str

    kind = "paragraph"


@dataclass(frozen=True)
class Map:
    """An image of rows over time, with its numbers as a table."""

    title: str
    about: str
    figure: MapFigure
    table: Table | None = None
    group: str = "job"
    """Maps of one group show the same time: to zoom one zooms all."""

    kind = "map"


@dataclass(frozen=True)
class Chart:
    """A plot, with its numbers as a table."""

    title: str
    about: str
    plot: Plot
    legend: list[Swatch]
    table: Table | None = None

    kind = "chart"


@dataclass(frozen=True)
class Folded:
    """A table that readers unfold."""

    title: str
    table: Table

    kind = "folded"


Block = Table | Paragraph | Map | Chart | Folded


@dataclass(frozen=True)
class Section:
    """A section of a page, and where Paraver shows the same."""

    key: str
    title: str
    lead: str
    """What to read here, in a sentence."""
    blocks: Sequence[Block]
    presets: Sequence[str] = ()
    window: str = ""
    """The time as the option --time takes it; empty for all of it."""
    traces: str = ""
    """Of which traces, in words, where the page is on several; names stand between `backquotes`."""


@dataclass(frozen=True)
class Line:
    """A line of the verdict at the top of a page, and the section on it."""

    text: str
    details: list[str] = field(default_factory=list)
    section: str = ""
