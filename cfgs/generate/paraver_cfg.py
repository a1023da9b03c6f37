"""Defines the parts of a preset: events, windows (timelines) and histograms. `cfg_text` writes Paraver's format.

A function that makes a part is named after the part, so that a preset reads as a declaration.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from typing import Any

from cfgs.generate.colours import Colours
from nsys2prv_ng.paraver.event_type import EventType

# ---- events ----------------------------------------------------------------------------------------------------------

TRACE_LACKS = 8999999
"""An event type that no trace has. Used as the number beside a pattern, it shows nothing if no label matches."""


@dataclass(frozen=True)
class Events:
    """The events that a window reads: their types equal (`=`) one of some types, or are in the range `[x,y]` of two.

    A type has a number and a label. If the label is in the trace's .pcf, it wins over the number, so presets also work
    with other numbers. A `*` in a label matches any text, and selects all types that match.

    If the trace lacks some types of a preset, Paraver asks before it loads the preset. It does not ask for a window
    with a range if the trace has one type of that range, and then forgets the questions of earlier windows. So the
    events that make a preset worth opening are a range, in the last single window of the file.
    """

    types: tuple[tuple[int, str], ...] = ()
    function: str = "="


def span(first: EventType, last: EventType) -> Events:
    """Return all types from the number of the first to the number of the last."""
    return Events(((first.number, first.title), (last.number, last.title)), "[x,y]")


def only(event_type: EventType, number: int | None = None) -> Events:
    """Return one type. Give `number` if its declaration has only an offset."""
    return Events(((event_type.number if number is None else number, event_type.title),) * 2, "[x,y]")


def several(*event_types: EventType) -> Events:
    """Return several types. The trace should have all of them."""
    return Events(tuple((event_type.number, event_type.title) for event_type in event_types))


def matching(*patterns: str) -> Events:
    """Return the types with a label that matches one of the patterns."""
    return Events(tuple((TRACE_LACKS, pattern) for pattern in patterns))


EVERYTHING = Events(function="All")


@dataclass(frozen=True)
class Messages:
    """The communications that are drawn as lines: with these tags, or (`!=`) with other tags."""

    tags: tuple[int, ...]
    function: str = "="


# ---- functions -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Function:
    """A semantic function: its name in Paraver, and its parameters. A parameter has one or more numbers."""

    name: str
    parameters: tuple[tuple[float, ...], ...] = ()


def function(name: str, *parameters: float | tuple[float, ...]) -> Function:
    return Function(name, tuple(numbers if isinstance(numbers, tuple) else (numbers,) for numbers in parameters))


LAST_VALUE = Function("Last Evt Val")
LAST_TYPE = Function("Last Evt Type")
NEXT_VALUE = Function("Next Evt Val")
NEXT_TYPE = Function("Next Evt Type")
"""The type of the next event; 0 after the last event."""
TO_NEXT = Function("Int. Between Evt")
"""The time from the last event to the next one; 0 before the first and after the last event."""
STATE = Function("State As Is")

AS_IS = Function("As Is")
SIGN = Function("Sign")
ONE_MINUS_SIGN = Function("1-Sign")
STACKED = Function("Stacked Val")
NESTING = Function("Nesting level")
JOINED = Function("Join Bursts")
ENUMERATED = Function("Enumerate")
"""The number of bursts so far with a value other than 0."""
BEGIN_TIME = Function("Begin Time")
BURST_TIME = Function("Burst Time")
"""Start and length of a burst, in the units of the window."""


ADDING, MAXIMUM = Function("Adding"), Function("Maximum")
"""Functions of the values of all threads or objects below a level."""


def has_value(*values: float) -> Function:
    """Return 1 while the last event has one of these values, else 0."""
    return function("In Evt Val", values)


def divided(by: float) -> Function:
    return function("Div", by)


def times(factor: float) -> Function:
    return function("Prod", factor)


def logarithm(base: float) -> Function:
    return function("log N", base)


def power_of(base: float) -> Function:
    """Return the base to the power of the value."""
    return function("exp", base)


def plus(value: float) -> Function:
    return function("Add", value)


def at_least(value: float) -> Function:
    """Return 1 while the value is at least this value, else 0."""
    return function("Is In Range", 1_000_000_000, value)


def below(value: int) -> Function:
    """Return 1 while the value, a whole number, is below this value, else 0."""
    return function("Is In Range", value - 1, 0)


def equal_to(value: float) -> Function:
    """Return 1 while the value is this value, else 0."""
    return function("Is Equal (Sign)", value)


# ---- windows and histograms ------------------------------------------------------------------------------------------

THREAD, TASK, NODE = "thread", "task", "node"
NANOSECONDS, MICROSECONDS, MILLISECONDS = "Nanoseconds", "Microseconds", "Milliseconds"


@dataclass(frozen=True)
class Look:
    """The look of values: each value has its own colour, or a gradient draws all if there are no colours.

    Paraver paints values outside the range as 0. Without a `maximum` it fits the range to the trace.
    """

    colours: Colours | None = None
    maximum: float | None = None
    logarithmic: bool = False
    draw: str = "draw_maximum"
    """How Paraver chooses among the values that share a pixel."""


def codes(colours: Colours, draw: str = "draw_maximum") -> Look:
    return Look(colours, maximum=1_000_000_000, draw=draw)


ANY_DRAW = "draw_randnotzero"
"""Draws one of the names of a pixel at random. Names have no order, so colours are as frequent as names."""

GRADIENT = Look()
LOGARITHMIC = Look(logarithmic=True)
PERCENT = Look(maximum=100)


@dataclass(frozen=True, eq=False)
class View:
    """The common base of single and derived windows."""

    name: str
    look: Look
    _: KW_ONLY
    level: str = THREAD
    above: Function = ADDING
    """How levels above threads combine values."""
    compose: Function = AS_IS
    """Function applied to the values of each thread."""
    top: tuple[Function, ...] = ()
    """Functions applied to the values of the level, in this order."""
    units: str = MICROSECONDS
    messages: Messages | None = None


@dataclass(frozen=True, eq=False)
class Window(View):
    """A timeline of events or states."""

    events: Events
    thread: Function = LAST_VALUE


@dataclass(frozen=True, eq=False)
class Derived(View):
    """A timeline that is computed from two others. Its values have the labels of the first."""

    operation: str
    first: View
    second: View


def product(name: str, look: Look, first: View, second: View, **properties: Any) -> Derived:
    return Derived(name, look, operation="product", first=first, second=second, **properties)


@dataclass(frozen=True, eq=False)
class Histogram:
    """A histogram: one row per object at the level of the control window, one column per range of its values."""

    name: str
    control: View
    statistic: str
    _: KW_ONLY
    minimum: float = 1
    maximum: float | None
    """None: Paraver finds the least and the greatest value except 0."""
    delta: float = 1
    """Width of a column. If it is 1, columns have the labels of the values."""
    data: View | None = None
    """The window that the statistic reads; None: the control window."""
    only_totals: bool = False
    """Whether rows are hidden until the user wants to see them."""


@dataclass(frozen=True, eq=False)
class Preset:
    """A .cfg file."""

    folder: str
    name: str
    summary: str
    description: str
    shown: tuple[View | Histogram, ...]
    menu: str
    """The question of the menu that has the preset; see `workspaces`."""
    hidden_first: tuple[View, ...] = ()
    """Windows that come first in the file because of Paraver's questions; see `Events`."""

    @property
    def path(self) -> str:
        return f"{self.folder}/{self.name}.cfg"

    @property
    def histograms(self) -> list[Histogram]:
        return [part for part in self.shown if isinstance(part, Histogram)]

    @property
    def views(self) -> list[View]:
        """All windows; parents come before the windows derived from them."""
        order: dict[View, None] = {}
        wanted = [*self.hidden_first, *(part for part in self.shown if isinstance(part, View))]
        for histogram in self.histograms:
            wanted += [view for view in (histogram.control, histogram.data) if view is not None]
        for view in wanted:
            order |= dict.fromkeys(_list_with_parents(view))
        return list(order)


class Folder:
    """The presets of one folder of cfgs/, in the order in which they are added."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.presets: list[Preset] = []

    def add(
        self,
        name: str,
        summary: str,
        description: str,
        *shown: View | Histogram,
        menu: str,
        hidden_first: tuple[View, ...] = (),
    ) -> None:
        """Declare a preset that shows these windows and histograms."""
        self.presets.append(Preset(self.name, name, summary, description, shown, menu, hidden_first))


def _list_with_parents(view: View) -> Iterator[View]:
    if isinstance(view, Derived):
        yield from _list_with_parents(view.first)
        yield from _list_with_parents(view.second)
    yield view
