"""The .pcf of a trace: labels of states, event types and values, in the form that Paraver's parser accepts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nsys2prv_ng.paraver.event_type import EventType, one_line
from nsys2prv_ng.paraver.event_types import STATES
from nsys2prv_ng.paraver.labels import Numbering


def format_pcf(numbering: Numbering) -> str:
    """The whole .pcf. Types that share a name space form one block, so that their values are written once."""
    return "\n".join(_lines(numbering)) + "\n"


def _lines(numbering: Numbering) -> Iterator[str]:
    yield "STATES"
    for state, (label, _) in STATES.items():
        yield f"{state} {label}"
    yield ""
    yield "STATES_COLOR"
    for state, (_, (red, green, blue)) in STATES.items():
        yield f"{state} {{{red},{green},{blue}}}"
    titles = _titles(numbering.types)
    for block in _blocks(numbering.types):
        yield ""
        yield "EVENT_TYPE"
        for event_type in block:
            yield f"0 {numbering.number(event_type)} {titles[event_type]}"
        first = block[0]
        if first.precision:
            yield f"PRECISION {first.precision}"
        values = _values(first, numbering)
        if values:
            yield "VALUES"
            for value, label in values.items():
                yield f"{value} {one_line(label)}"


def _titles(types: Sequence[EventType]) -> dict[EventType, str]:
    """The line of each type, which no other has: domains and metrics may differ in what is no part of a line."""
    titles: dict[str, EventType] = {}
    for event_type in types:
        title = alone = one_line(event_type.title)
        number = 1
        while title in titles:
            number += 1
            title = f"{alone} ({number})"
        titles[title] = event_type
    return {event_type: title for title, event_type in titles.items()}


def _blocks(types: list[EventType]) -> list[list[EventType]]:
    """Types in the order of their numbers; those that share names (and are closed alike) with the first of them."""
    blocks: dict[object, list[EventType]] = {}
    for event_type in types:
        shared = (event_type.names, event_type.interval) if event_type.names else event_type
        blocks.setdefault(shared, []).append(event_type)
    return list(blocks.values())


def _values(event_type: EventType, numbering: Numbering) -> dict[int, str]:
    values = {0: "End"} if event_type.interval else {}
    values.update(event_type.values or {})
    values.update(sorted(numbering.values.get(event_type.names, {}).values()))
    return values
