"""What sections of a page are made of. The templates show each kind of block in one way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from nsys2prv_ng.html.charts.maps import MapFigure, Swatch
from nsys2prv_ng.html.charts.plots import Plot
from nsys2prv_ng.html.tables import Table


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
