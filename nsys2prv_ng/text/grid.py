"""Tables of typed cells, which are built once for the terminal, Markdown and pages.

A cell keeps its value and its kind, so that each output chooses the form: an efficiency is a number on the terminal
and has a shade on a page. `str` of a cell is its text. A plain `str` as a cell is text of the program, not of a report.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, ClassVar, TypeVar

from nsys2prv_ng.text.formatting import format_bytes, format_difference, format_percent, format_time
from nsys2prv_ng.text.names import name_task
from nsys2prv_ng.value_class import ValueClass

T = TypeVar("T")


class Name(ValueClass):
    """A name from a report, which each output cleans or escapes.

    `values`: what it is made of, by name: such as the number of a rank. DataFrames have a column of each.
    """

    text: str
    values: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.text


def show_gpu(node: str, gpu: int) -> Name:
    """Return the name of a GPU, from those of its node and its number on it."""
    return Name(f"{node} GPU {gpu}", {"node": node, "gpu": gpu})


def show_task(rank: int | None, task: str) -> Name:
    """Return the rank of a task, or else its name."""
    return Name(name_task(rank, task), {"rank": rank})


def show_users(users: str, ranks: Sequence[int]) -> Name:
    """Return what uses a GPU, which has a rank if it is one."""
    return Name(users, {"rank": ranks[0] if len(ranks) == 1 else None})


class Number(ValueClass):
    """A number, which `write` of a class turns into a text; None if it is not known. `unit`: ends names of columns."""

    number: float | None
    write: ClassVar[staticmethod[[float], str]]
    unit: ClassVar[str] = ""

    def __str__(self) -> str:
        return "-" if self.number is None else self.write(self.number)


class Ns(Number):
    """A time (ns)."""

    unit = "ns"
    write = staticmethod(format_time)


class Saving(Number):
    """What a change saves (ns): below 0, what takes longer."""

    unit = "ns"
    write = staticmethod(lambda number: f"{format_time(-number)} longer" if number < 0 else format_time(number))


class Bound(Number):
    """A time (ns) that nothing limits if it is None."""

    unit = "ns"
    write = staticmethod(format_time)

    def __str__(self) -> str:
        return "unlimited" if self.number is None else super().__str__()


class NsChange(Number):
    """A difference of times (ns)."""

    unit = "ns"
    write = staticmethod(format_difference)


class Moment(Number):
    """A point in time (ns from the start of the trace)."""

    unit = "ns"
    write = staticmethod(lambda number: f"{number / 1e9:.3f} s")


class Bytes(Number):
    """A size (bytes)."""

    unit = "bytes"
    write = staticmethod(format_bytes)


class Growth(Number):
    """A change of a size (bytes), with its sign."""

    unit = "bytes"
    write = staticmethod(lambda number: f"{'+' * (number > 0)}{format_bytes(number)}")


class Count(Number):
    """A number of things."""

    write = staticmethod("{:,}".format)


class Ordinal(Number):
    """The number of one of several things, such as a step."""

    write = staticmethod(str)


class Share(ValueClass):
    """A part of a whole."""

    part: float
    whole: float
    unit: ClassVar[str] = "share"

    def __str__(self) -> str:
        return format_percent(self.part, self.whole)


class Portion(Share):
    """A part of a time (ns): the terminal prints the part, and its share on the line below."""

    unit = "ns"


class Rate(Number):
    """A rate (bytes/s); None if nothing moved."""

    unit = "bytes_per_s"

    @classmethod
    def measure(cls, size: int, ns: int) -> Rate:
        """Return the rate at which `size` bytes moved in `ns`."""
        return cls(size / ns * 1e9 if ns and size else None)

    write = staticmethod(lambda number: f"{format_bytes(number)}/s")


class Score(ValueClass):
    """An efficiency: 1 is ideal, None does not apply. The page shades it."""

    value: float | None
    unit: ClassVar[str] = ""

    def __str__(self) -> str:
        return "" if self.value is None else format_percent(self.value, 1)


class Term(ValueClass):
    """A term at a depth of a tree, with its definition, which pages show on demand."""

    text: str
    about: str = ""
    depth: int = 0

    def __str__(self) -> str:
        return "  " * self.depth + self.text


class BarPart(ValueClass):
    """A part of a bar: its label, the key of its colour (html/colours.py), and its size."""

    text: str
    hue: str
    amount: float


class Drawing:
    """What only pages draw."""

    def __str__(self) -> str:
        return ""


class Bar(ValueClass, Drawing):
    """A bar of parts, one after the other; an amount of `whole` fills the cell."""

    parts: Sequence[BarPart]
    whole: float


class Interval(ValueClass, Drawing):
    """A bar from one value to another on an axis from `low` to `high`."""

    begin: float
    end: float
    low: float
    high: float
    hue: str
    text: str


Cell = str | Name | Number | Share | Score | Term | Drawing


class Column(ValueClass):
    """A column and its title.

    `over`: a title over several columns side by side. `wide`: only pages have room for the column. `optional`: the
    column is left out if it is empty in all rows that are shown. `minor`: a terminal leaves it out if the table is too
    wide otherwise.
    """

    title: str
    over: str = ""
    wide: bool = False
    optional: bool = False
    minor: bool = False


class Grid(ValueClass, kw_only=True):
    """A table with all its rows; each output shows some rows and counts the others.

    The first `names` columns are text, the others numbers. `footer`: rows that are always shown, such as a sum.

    `more`: what the hidden rows are, as the rest of "and 3 more". `weights`: weight of each row: the heaviest rows are
    shown, in the order of the rows. None: the first rows are shown. `group`: column by which the terminal groups rows.
    The line above a group has the sum of its last column of times. `over`: title of the row of titles over several
    columns. `legend`: hue and text of each colour. `below`: sentences below the table. `name_room`: characters that
    names have, if they need them, before the terminal leaves out minor columns. `tight`: whether the terminal separates
    columns by one blank only.
    """

    caption: str = ""
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    names: int = 1
    footer: Sequence[Sequence[Cell]] = ()
    more: str = ""
    weights: Sequence[tuple[float, ...]] | None = None
    group: int | None = None
    over: str = ""
    legend: Sequence[tuple[str, str]] = ()
    below: Sequence[str] = ()
    name_room: int = 0
    tight: bool = False

    def list_shown(self, most: int | None) -> list[Sequence[Cell]]:
        """Return the rows that an output with room for `most` rows shows; None: all rows."""
        numbers = range(len(self.rows))
        if most is None or len(self.rows) <= most:
            return list(self.rows)
        if self.weights is None:
            return list(self.rows[:most])
        heaviest = sorted(numbers, key=self.weights.__getitem__, reverse=True)[:most]
        return [self.rows[number] for number in sorted(heaviest)]

    def list_columns(self, shown: Sequence[Sequence[Cell]], *, wide: bool) -> list[int]:
        """Return the indices of the columns to show with these rows. `wide`: whether there is room for wide columns."""
        return [
            number
            for number, column in enumerate(self.columns)
            if (wide or not column.wide) and not (column.optional and not any(str(row[number]) for row in shown))
        ]


def make_columns(*columns: str | Column) -> list[Column]:
    """Return columns; a `str` stands for a column with this title."""
    return [Column(column) if isinstance(column, str) else column for column in columns]


def tabulate(things: Iterable[T], columns: Sequence[tuple[str | Column, Callable[[T], Cell]]], **settings: Any) -> Grid:
    """Return a table with a row for each thing. Each column is its title, and the function that makes its cell.

    `settings`: further fields of the table.
    """
    titles = make_columns(*(title for title, _ in columns))
    return Grid(columns=titles, rows=[[make(thing) for _, make in columns] for thing in things], **settings)
