"""The blocks that sections of a page are made of. The templates show each kind of block in the same way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from nsys2prv_ng.analysis.efficiency.typical_step import RangesOfTask
from nsys2prv_ng.html.charts.plots import Shape, Tick
from nsys2prv_ng.html.charts.png import MapFigure, MatrixFigure, Swatch
from nsys2prv_ng.html.tables import Table, Tree
from nsys2prv_ng.light_dataclass import dataclass


@dataclass(frozen=True)
class Paragraph:
    """One or more sentences; names are in `backquotes`."""

    text: str

    kind = "paragraph"


@dataclass(frozen=True)
class Map:
    """An image of rows over time, and its numbers as a table."""

    title: str
    about: str
    figure: MapFigure
    table: Table
    lanes: Sequence[RangesOfTask] = ()
    """NVTX ranges above the image, on the axis of its time."""
    group: str = "job"
    """Maps of one group show the same time: zooming one zooms all."""

    kind = "map"


@dataclass(frozen=True)
class Chart:
    """A plot, and its numbers as a table."""

    title: str
    about: str
    shapes: list[Shape]
    x_ticks: list[Tick]
    y_ticks: list[Tick]
    """From the bottom (0) to the top (1)."""
    height: int
    """In pixels."""
    legend: list[Swatch]
    table: Table

    kind = "chart"


@dataclass(frozen=True)
class Matrix:
    """An image of a quantity of pairs, and its numbers as a table."""

    title: str
    about: str
    figure: MatrixFigure
    table: Table

    kind = "matrix"


Block = Table | Paragraph | Map | Chart | Matrix | Tree


@dataclass(frozen=True)
class Section:
    """A section of a page, and the presets that show the same in Paraver."""

    key: str
    title: str
    lead: str
    """What the section shows, in a sentence."""
    blocks: Sequence[Block]
    presets: Sequence[str] = ()
    window: str = ""
    """The time in the form of the option --time; empty for all time."""
    traces: str = ""
    """The traces to open, in words, if the page covers several; names are in `backquotes`."""


@dataclass(frozen=True)
class Line:
    """A line of the verdict at the top of a page, and the section with its numbers."""

    text: str
    details: list[str] = field(default_factory=list)
    section: str = ""
    label: str = ""
