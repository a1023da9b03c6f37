"""Writes the .pcf of a trace: labels of states, event types and values, in the form that Paraver's parser accepts.

BSC's BasicAnalysis recognises a trace of nsys reports if no line of its .pcf is exactly `STATES` and the text contains
`NCCL kernel` or `CUDA memcpy kernel`. So a blank precedes STATES, which Paraver trims (since 4.10.3), and every .pcf
declares the type of NCCL kernels.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from nsys2prv_ng.paraver.event_type import EventType
from nsys2prv_ng.paraver.event_types import NCCL_KERNEL, STATES
from nsys2prv_ng.paraver.labels import Numbering
from nsys2prv_ng.text.names import to_one_line

ALWAYS_DECLARED = (NCCL_KERNEL,)
"""Event types that a .pcf declares even if the trace has no such event; then they have no VALUES."""


def format_pcf(numbering: Numbering, shown: Collection[int] | None = None) -> str:
    """Return the whole .pcf. Types that share a namespace form one block, so that their values are written once.

    `shown`: numbers of the types in the trace, if these are not all. Their lines do not depend on the other types.
    """
    return "\n".join(_list_lines(numbering, shown)) + "\n"


def _list_lines(numbering: Numbering, shown: Collection[int] | None) -> Iterator[str]:
    yield " STATES"
    for state, (label, _) in STATES.items():
        yield f"{state} {label}"
    yield ""
    yield "STATES_COLOR"
    for state, (_, (red, green, blue)) in STATES.items():
        yield f"{state} {{{red},{green},{blue}}}"
    types = _declared_types(numbering)
    titles = _make_titles(types)
    used = set(numbering.types)
    if shown is not None:
        used = {event_type for event_type in used if numbering.number(event_type) in shown}
        types = [event_type for event_type in types if event_type in used or event_type in ALWAYS_DECLARED]
    for block in _group_blocks(types):
        yield ""
        yield "EVENT_TYPE"
        for event_type in block:
            yield f"0 {numbering.number(event_type)} {titles[event_type]}"
        first = block[0]
        if first.precision:
            yield f"PRECISION {first.precision}"
        values = _label_values(first, numbering) if first in used else {}
        if values:
            yield "VALUES"
            for value, label in values.items():
                yield f"{value} {to_one_line(label)}"


def _declared_types(numbering: Numbering) -> list[EventType]:
    """Return the types of the trace and the types that are always declared, in the order of their numbers.

    A number that `--labels-from` gave to another type stays with that type.
    """
    used = {numbering.number(event_type) for event_type in numbering.types}
    absent = [event_type for event_type in ALWAYS_DECLARED if event_type.number not in used]
    return sorted([*numbering.types, *absent], key=numbering.number)


def _make_titles(types: Sequence[EventType]) -> dict[EventType, str]:
    """Return a unique line for each type, because names may differ only in characters that a line cannot show."""
    titles: dict[str, EventType] = {}
    for event_type in types:
        title = plain = to_one_line(event_type.title)
        number = 1
        while title in titles:
            number += 1
            title = f"{plain} ({number})"
        titles[title] = event_type
    return {event_type: title for title, event_type in titles.items()}


def _group_blocks(types: list[EventType]) -> list[list[EventType]]:
    """Group types, in the order of their numbers, by shared names and by whether they are intervals."""
    blocks: dict[object, list[EventType]] = {}
    for event_type in types:
        shared = (event_type.names, event_type.interval) if event_type.names else event_type
        blocks.setdefault(shared, []).append(event_type)
    return list(blocks.values())


def _label_values(event_type: EventType, numbering: Numbering) -> dict[int, str]:
    """Return the labels of a type's values: 0 for an interval, fixed values, then names."""
    values = {0: "End"} if event_type.interval else {}
    values.update(event_type.values or {})
    values.update(sorted(numbering.values.get(event_type.names, {}).values()))
    return values
