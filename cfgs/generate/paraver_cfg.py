"""What a preset is made of: events, windows (timelines), histograms. `cfg_text` writes them as Paraver reads them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from typing import Any

from cfgs.generate.palette import Colours
from nsys2prv_ng.paraver.event_type import EventType

# ---- events ----------------------------------------------------------------------------------------------------------

TRACE_LACKS = 8999999
"""An event type that no trace has: the number beside a pattern, so that no other type is shown where none fits."""


@dataclass(frozen=True)
class Events:
    """Events that a window reads: of types that are `=` to some, or in the range `[x,y]` of two.

    Types carry number and label. Where the label is in the trace's .pcf it wins, so presets survive other numbers; a
    `*` in it fits any text, and picks as many types as there are.

    Paraver asks before it loads a preset of whose types the trace lacks some. It does not where a range has one type in
    the trace, and then forgets that it was to ask because of windows before. So what the trace must have to be worth a
    look at the preset is a range, in the last single window of the file.
    """

    types: tuple[tuple[int, str], ...] = ()
    function: str = "="


def span(first: EventType, last: EventType) -> Events:
    """All types from one number to another."""
    return Events(((first.number, first.title), (last.number, last.title)), "[x,y]")


def only(event_type: EventType, number: int | None = None) -> Events:
    """One type; `number` where its declaration has but an offset."""
    return Events(((event_type.number if number is None else number, event_type.title),) * 2, "[x,y]")


def any_of(*event_types: EventType) -> Events:
    """Some types, of which the trace should have all."""
    return Events(tuple((each.number, each.title) for each in event_types))


def matching(*patterns: str) -> Events:
    """Types whose label fits one of the patterns."""
    return Events(tuple((TRACE_LACKS, pattern) for pattern in patterns))


EVERYTHING = Events(function="All")


@dataclass(frozen=True)
class Messages:
    """Communications that are drawn as lines: those with these tags, or with none of them."""

    tags: tuple[int, ...]
    function: str = "="


# ---- functions -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Function:
    """A semantic function by Paraver's name for it, and its parameters, each of one or more numbers."""

    name: str
    parameters: tuple[tuple[float, ...], ...] = ()


def function(name: str, *parameters: float | tuple[float, ...]) -> Function:
    return Function(name, tuple(each if isinstance(each, tuple) else (each,) for each in parameters))


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
"""Of a burst, in the units of the window."""


def one_of(*values: float) -> Function:
    """1 while the last event has one of these values, else 0."""
    return function("In Evt Val", values)


def divided(by: float) -> Function:
    return function("Div", by)


def logarithm(base: float) -> Function:
    return function("log N", base)


def plus(value: float) -> Function:
    return function("Add", value)


def at_least(value: float) -> Function:
    """1 where the value is that or more, else 0."""
    return function("Is In Range", 1_000_000_000, value)


def equal_to(value: float) -> Function:
    """1 where the value is that, else 0."""
    return function("Is Equal (Sign)", value)


# ---- windows and histograms ------------------------------------------------------------------------------------------

THREAD, TASK, NODE = "thread", "task", "node"
NANOSECONDS, MICROSECONDS, MILLISECONDS = "Nanoseconds", "Microseconds", "Milliseconds"


@dataclass(frozen=True)
class Look:
    """How values are drawn: as codes of a colour each, or by a gradient where there are no colours.

    Paraver paints values outside its range as 0; without a `maximum` it fits the range to the trace.
    """

    colours: Colours | None = None
    maximum: float | None = None
    logarithmic: bool = False
    draw: str = "draw_maximum"
    """What a pixel shows of the values that share it."""


def codes(colours: Colours, draw: str = "draw_maximum") -> Look:
    return Look(colours, maximum=1_000_000_000, draw=draw)


ANY_DRAW = "draw_randnotzero"
"""Of names none is more than another: one is drawn at random, so that colours are as frequent as names."""

GRADIENT = Look()
LOGARITHMIC = Look(logarithmic=True)
PERCENT = Look(maximum=100)


@dataclass(frozen=True, eq=False)
class View:
    """What single and derived windows have in common."""

    name: str
    look: Look
    _: KW_ONLY
    level: str = THREAD
    above: str = "Adding"
    """What levels above threads make of their values."""
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
    """A timeline made of two others; labels of its values are those of the first."""

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
    """What the statistic is of; the control window if there is none."""


@dataclass(frozen=True, eq=False)
class Preset:
    """A .cfg file."""

    folder: str
    name: str
    summary: str
    description: str
    shown: tuple[View | Histogram, ...]
    hidden_first: tuple[View, ...] = ()
    """What is to be in the file before anything else, for the sake of what Paraver asks; see Events."""

    @property
    def path(self) -> str:
        return f"{self.folder}/{self.name}.cfg"

    @property
    def histograms(self) -> list[Histogram]:
        return [each for each in self.shown if isinstance(each, Histogram)]

    @property
    def views(self) -> list[View]:
        """All windows, parents before what is derived from them."""
        order: dict[View, None] = {}
        wanted = [*self.hidden_first, *(each for each in self.shown if isinstance(each, View))]
        for histogram in self.histograms:
            wanted += [each for each in (histogram.control, histogram.data) if each is not None]
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
