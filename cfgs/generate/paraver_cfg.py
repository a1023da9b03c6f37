"""The parts of a preset: events, windows (timelines), histograms. `cfg_text` writes them in Paraver's format.

Functions that make a part are named after it, so that a preset reads as a declaration.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from typing import Any

from cfgs.generate.palette import Colours
from nsys2prv_ng.paraver.event_type import EventType

# ---- events ----------------------------------------------------------------------------------------------------------

TRACE_LACKS = 8999999
"""An event type that no trace has: the number beside a pattern, so that no other type is shown if no type fits."""


@dataclass(frozen=True)
class Events:
    """Events that a window reads: their types are `=` to some types, or in the range `[x,y]` of two.

    Types carry number and label. A label that is in the trace's .pcf wins over the number, so presets survive other
    numbers. A `*` in a label fits any text, and selects all types that fit.

    Paraver asks before it loads a preset if the trace lacks some of its types. It does not ask for a window with a
    range that has one of its types in the trace, and then forgets the questions of earlier windows. So the events that
    make a preset worth a look are a range, in the last single window of the file.
    """

    types: tuple[tuple[int, str], ...] = ()
    function: str = "="


def span(first: EventType, last: EventType) -> Events:
    """Return all types from one number to another."""
    return Events(((first.number, first.title), (last.number, last.title)), "[x,y]")


def only(event_type: EventType, number: int | None = None) -> Events:
    """Return one type; `number` is needed if its declaration has only an offset."""
    return Events(((event_type.number if number is None else number, event_type.title),) * 2, "[x,y]")


def any_of(*event_types: EventType) -> Events:
    """Return some types; the trace should have all of them."""
    return Events(tuple((event_type.number, event_type.title) for event_type in event_types))


def matching(*patterns: str) -> Events:
    """Return the types with a label that fits one of the patterns."""
    return Events(tuple((TRACE_LACKS, pattern) for pattern in patterns))


EVERYTHING = Events(function="All")


@dataclass(frozen=True)
class Messages:
    """Communications that are drawn as lines: those with these tags, or (`!=`) with other tags."""

    tags: tuple[int, ...]
    function: str = "="


# ---- functions -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Function:
    """A semantic function by Paraver's name, and its parameters; a parameter has one or more numbers."""

    name: str
    parameters: tuple[tuple[float, ...], ...] = ()


def function(name: str, *parameters: float | tuple[float, ...]) -> Function:
    return Function(name, tuple(numbers if isinstance(numbers, tuple) else (numbers,) for numbers in parameters))


LAST_VALUE = Function("Last Evt Val")
LAST_TYPE = Function("Last Evt Type")
NEXT_VALUE = Function("Next Evt Val")
NEXT_TYPE = Function("Next Evt Type")
"""0 after the last event."""
STATE = Function("State As Is")

AS_IS = Function("As Is")
SIGN = Function("Sign")
STACKED = Function("Stacked Val")
NESTING = Function("Nesting level")
JOINED = Function("Join Bursts")
BEGIN_TIME = Function("Begin Time")
"""Begin of a burst, in the units of the window."""


def one_of(*values: float) -> Function:
    """Return 1 while the last event has one of these values, else 0."""
    return function("In Evt Val", values)


def divided(by: float) -> Function:
    return function("Div", by)


def logarithm(base: float) -> Function:
    return function("log N", base)


def plus(value: float) -> Function:
    return function("Add", value)


def at_least(value: float) -> Function:
    """Return 1 where the value is at least this one, else 0."""
    return function("Is In Range", 1_000_000_000, value)


def equal_to(value: float) -> Function:
    """Return 1 where the value is this one, else 0."""
    return function("Is Equal (Sign)", value)


# ---- windows and histograms ------------------------------------------------------------------------------------------

THREAD, TASK, NODE = "thread", "task", "node"
NANOSECONDS, MICROSECONDS, MILLISECONDS = "Nanoseconds", "Microseconds", "Milliseconds"


@dataclass(frozen=True)
class Look:
    """How values are drawn: each value in its colour, or by a gradient if there are no colours.

    Paraver paints values outside of the range as 0; without a `maximum` it fits the range to the trace.
    """

    colours: Colours | None = None
    maximum: float | None = None
    logarithmic: bool = False
    draw: str = "draw_maximum"
    """Which of the values that share a pixel it shows."""


def codes(colours: Colours, draw: str = "draw_maximum") -> Look:
    return Look(colours, maximum=1_000_000_000, draw=draw)


ANY_DRAW = "draw_randnotzero"
"""Names have no order: one of a pixel's names is drawn at random, so that colours are as frequent as names."""

GRADIENT = Look()
LOGARITHMIC = Look(logarithmic=True)
PERCENT = Look(maximum=100)


@dataclass(frozen=True, eq=False)
class View:
    """The common part of single and derived windows."""

    name: str
    look: Look
    _: KW_ONLY
    level: str = THREAD
    above: str = "Adding"
    """How levels above threads combine their values."""
    compose: Function = AS_IS
    """Applied to the values of each thread."""
    top: tuple[Function, ...] = ()
    """Applied to the values of the level, in this order."""
    units: str = MICROSECONDS
    messages: Messages | None = None


@dataclass(frozen=True, eq=False)
class Window(View):
    """A timeline of events or states."""

    events: Events
    thread: Function = LAST_VALUE


@dataclass(frozen=True, eq=False)
class Derived(View):
    """A timeline made of two others; its values have the labels of the first."""

    operation: str
    first: View
    second: View


def product(name: str, look: Look, first: View, second: View, **properties: Any) -> Derived:
    return Derived(name, look, operation="product", first=first, second=second, **properties)


@dataclass(frozen=True, eq=False)
class Histogram:
    """A row for each object of the control window's level, a column for each range of its values."""

    name: str
    control: View
    statistic: str
    _: KW_ONLY
    minimum: float = 1
    maximum: float
    delta: float = 1
    """With 1, columns have the labels of values."""
    data: View | None = None
    """The window of the statistic; None: the control window."""


@dataclass(frozen=True, eq=False)
class Preset:
    """A .cfg file."""

    folder: str
    name: str
    summary: str
    description: str
    shown: tuple[View | Histogram, ...]
    hidden_first: tuple[View, ...] = ()
    """Windows that come first in the file, because of the questions that Paraver asks; see Events."""

    @property
    def path(self) -> str:
        return f"{self.folder}/{self.name}.cfg"

    @property
    def histograms(self) -> list[Histogram]:
        return [part for part in self.shown if isinstance(part, Histogram)]

    @property
    def views(self) -> list[View]:
        """All windows, parents before the windows that are derived from them."""
        order: dict[View, None] = {}
        wanted = [*self.hidden_first, *(part for part in self.shown if isinstance(part, View))]
        for histogram in self.histograms:
            wanted += [view for view in (histogram.control, histogram.data) if view is not None]
        for view in wanted:
            order |= dict.fromkeys(_list_with_parents(view))
        return list(order)


class Folder:
    """The presets of a folder of cfgs/, in the order in which they are added."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.presets: list[Preset] = []

    def add(
        self,
        name: str,
        summary: str,
        description: str,
        *shown: View | Histogram,
        hidden_first: tuple[View, ...] = (),
    ) -> None:
        """Declare a preset of these windows and histograms."""
        self.presets.append(Preset(self.name, name, summary, description, shown, hidden_first))


def _list_with_parents(view: View) -> Iterator[View]:
    if isinstance(view, Derived):
        yield from _list_with_parents(view.first)
        yield from _list_with_parents(view.second)
    yield view
