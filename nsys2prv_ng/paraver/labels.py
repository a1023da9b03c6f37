"""Numbers the event types and names of reports for the trace, and writes its .pcf.

A report is read before the names of the other reports are known. So its records carry handles (dense ids of event
types) and local ids of names. `Numbering` gives the final numbers once every report has been read. Names get ids from 1
in sorted order over all reports, independent of the order of reports and events. A new trace can keep the numbers of
another one, so that one histogram can compare both.

BSC's BasicAnalysis recognises a trace of nsys reports if no line of its .pcf is exactly `STATES` and the text contains
`NCCL kernel` or `CUDA memcpy kernel`. So a blank precedes STATES, which Paraver trims (since 4.10.3), and every .pcf
declares the type of NCCL kernels.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count, pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.errors import TranslationError
from nsys2prv_ng.grouping import group_by_key
from nsys2prv_ng.paraver.event_type import EventType
from nsys2prv_ng.paraver.event_types import NCCL_KERNEL, STATES
from nsys2prv_ng.paraver.families import FAMILIES
from nsys2prv_ng.paraver.read.label_files import read_pcf
from nsys2prv_ng.paraver.read.problems import Findings
from nsys2prv_ng.text.names import to_one_line

MAX_TYPE = 2**31 - 1
"""Paraver reads the .pcf with stoi: larger types and values cannot have a label."""


@dataclass(eq=False)
class Labels:
    """Event types and names that the records of one report use."""

    types: list[EventType] = field(default_factory=list)
    unused: set[EventType] = field(default_factory=set)
    """Types without a record. The .pcf does not declare them, because Paraver treats declared types as present."""
    names: dict[str, dict[str, int]] = field(default_factory=dict)
    """Local ids (from 1) of names by namespace."""

    def __post_init__(self) -> None:
        self._handles = {event_type: handle for handle, event_type in enumerate(self.types)}
        self._declared: set[EventType] = set()

    def handle(self, event_type: EventType) -> int:
        """Return the dense id of an event type in this report's records."""
        known = self.find_handle(event_type)
        if known is None:
            known = self._handles[event_type] = len(self.types)
            self.types.append(event_type)
        return known

    def find_handle(self, event_type: EventType) -> int | None:
        """Return the dense id of an event type; None if this report does not have it."""
        return self._handles.get(event_type)

    def declare(self, event_type: EventType) -> None:
        """Note that records made from all reports together will have this type."""
        self.handle(event_type)
        self._declared.add(event_type)

    def note_used(self, handles: Iterable[int]) -> None:
        """Note the handles of records, once all records have been made."""
        used = self._declared.union(self.types[handle] for handle in handles)
        self.unused = set(self.types) - used

    def name_ids(self, space: str, names: Iterable[str]) -> IntArray:
        """Return local ids (from 1) of names in a namespace. Call with distinct names, then index the result."""
        ids = self.names.setdefault(space, {})
        return np.array([ids.setdefault(name, len(ids) + 1) for name in names], np.int64)

    def add(self, other: Labels) -> tuple[IntArray, IntArray, IntArray]:
        """Add the types and names of a part of the report; return the maps from its ids, as `Numbering.maps` does."""
        handles = [self.handle(event_type) for event_type in other.types]
        self._declared |= other._declared
        ids = {space: self.name_ids(space, names) for space, names in other.names.items()}
        return _join_tables(other, handles, ids)


def _join_tables(
    labels: Labels, numbers: Sequence[int], ids: Mapping[str, Iterable[int]]
) -> tuple[IntArray, IntArray, IntArray]:
    """Return (number of each handle, start of each handle's table of ids or -1, the tables).

    `ids`: an id for each name of a namespace, in the order of the local ids of names. Entry 0 of a table is 0.
    """
    starts = np.full(len(labels.types), -1, np.int64)
    tables: list[int] = [0]
    start_of_space: dict[str, int] = {}
    for handle, space in enumerate(event_type.names for event_type in labels.types):
        if space and space not in start_of_space:
            start_of_space[space] = len(tables)
            tables += [0, *ids.get(space, ())]
        starts[handle] = start_of_space.get(space, -1)
    return np.array(numbers, np.int64), starts, np.array(tables, np.int64)


class Value(NamedTuple):
    """Number and label of a name in the trace."""

    number: int
    label: str


Assigned = Mapping[str, Mapping[str, Value]]
"""Values by namespace and name, for names whose values or labels depend on all reports together."""


class KeptLabels(NamedTuple):
    """Numbers to keep from another trace: types by their title, values by type number and label."""

    types: Mapping[str, int]
    values: Mapping[int, Mapping[str, int]]


class Numbering:
    """Final numbers of the types and names of all reports. Namespaces in `assigned` have the values given there."""

    def __init__(
        self, labels: Sequence[Labels], assigned: Assigned | None = None, kept: KeptLabels | None = None
    ) -> None:
        kept = kept or KeptLabels({}, {})
        types: dict[EventType, None] = {t: None for part in labels for t in part.types}
        self._numbers: dict[EventType, int] = {}
        for family, assign_numbers in FAMILIES.items():
            self._numbers.update(assign_numbers([t for t in types if t.family == family], kept.types))
        used = {t for part in labels for t in part.types if t not in part.unused}
        # Types of a family that agree in number and label are one type.
        self.types = list({(self.number(t), t.label): t for t in sorted(used, key=self.number)}.values())
        for one, other in pairwise(self.types):
            if self.number(one) == self.number(other):
                raise TranslationError(
                    f"event types '{one.title}' and '{other.title}' would have the same number {self.number(one)}:"
                    " keep labels only from the .pcf of a trace that this program made"
                )
        self.values: dict[str, dict[str, Value]] = {}
        """The value of each name in each namespace."""
        for space in sorted({space for part in labels for space in part.names}):
            names = sorted({name for part in labels for name in part.names.get(space, {})})
            given = (assigned or {}).get(space)
            dense = _dense_values(names, self._find_kept_values(space, kept)) if given is None else given
            self.values[space] = {name: dense[name] for name in names}

    def _find_kept_values(self, space: str, kept: KeptLabels) -> Mapping[str, int]:
        """Return the values of a namespace in the other trace, by label."""
        numbers = [self.number(t) for t in self.types if t.names == space]
        return next((kept.values[number] for number in numbers if number in kept.values), {})

    def number(self, event_type: EventType) -> int:
        """Return the number of an event type in the trace."""
        number = self._numbers.get(event_type, event_type.number)
        if not 0 < number <= MAX_TYPE:
            raise TranslationError(f"event type '{event_type.label}' has number {number}, which Paraver cannot label")
        return number

    def maps(self, labels: Labels) -> tuple[IntArray, IntArray, IntArray]:
        """Return (number of each handle, start of each handle's table of values or -1, the tables).

        The tables map the local name ids of a report to the ids of the trace; entry 0 is 0.
        """
        spaces = {t.names for t in labels.types} - {""}
        ids = {s: [self.values[s][name].number for name in labels.names.get(s, {})] for s in spaces}
        return _join_tables(labels, list(map(self.number, labels.types)), ids)


def _dense_values(names: Sequence[str], kept: Mapping[str, int]) -> dict[str, Value]:
    """Give names their kept value, if any, and the others the lowest free values from 1."""
    values = {name: Value(kept[to_one_line(name)], name) for name in names if to_one_line(name) in kept}
    taken = set(kept.values())
    free = (number for number in count(1) if number not in taken)
    return {name: values.get(name) or Value(next(free), name) for name in names}


def read_kept_labels(path: Path) -> KeptLabels:
    """Return types and values of a .pcf by their labels. Raises TranslationError if the file is not a .pcf."""
    try:
        config = read_pcf(path, Findings(path))
    except OSError as error:
        raise TranslationError(f"{path}: cannot be read ({error.strerror}); name the .pcf of another trace") from None
    if not config.types:
        raise TranslationError(f"{path}: declares no event types; name the .pcf of another trace")
    types = {declared.label: number for number, declared in config.types.items()}
    values = {
        number: {label: value for value, label in declared.values.items() if 0 < value <= MAX_TYPE}
        for number, declared in config.types.items()
        if declared.values
    }
    return KeptLabels(types, values)


# ---- the .pcf --------------------------------------------------------------------------------------------------------

ALWAYS_DECLARED = (NCCL_KERNEL,)
"""Event types that a .pcf declares even if the trace has no such event; then they have no VALUES."""


def format_pcf(numbering: Numbering, shown: Collection[int] | None = None) -> str:
    """Return the whole .pcf. Types that share a namespace form one block, so that their values are written once.

    `shown`: numbers of the types in the trace, if these are not all. Their lines do not depend on the other types.
    """
    return "\n".join(_list_lines(numbering, shown)) + "\n"


def _list_lines(numbering: Numbering, shown: Collection[int] | None) -> Iterator[str]:
    yield " STATES"
    yield from (f"{state} {label}" for state, (label, _) in STATES.items())
    yield from ("", "STATES_COLOR")
    yield from (f"{state} {{{red},{green},{blue}}}" for state, (_, (red, green, blue)) in STATES.items())
    types = _declared_types(numbering)
    titles = _make_titles(types)
    used = set(numbering.types)
    if shown is not None:
        used = {event_type for event_type in used if numbering.number(event_type) in shown}
        types = [event_type for event_type in types if event_type in used or event_type in ALWAYS_DECLARED]
    for block in _group_blocks(types):
        yield from ("", "EVENT_TYPE")
        yield from (f"0 {numbering.number(event_type)} {titles[event_type]}" for event_type in block)
        first = block[0]
        if first.precision:
            yield f"PRECISION {first.precision}"
        values = _label_values(first, numbering) if first in used else {}
        if values:
            yield "VALUES"
            yield from (f"{value} {to_one_line(label)}" for value, label in values.items())


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
    return list(group_by_key(((each.names, each.interval) if each.names else each, each) for each in types).values())


def _label_values(event_type: EventType, numbering: Numbering) -> dict[int, str]:
    """Return the labels of a type's values: 0 for an interval, fixed values, then names."""
    values = {0: "End"} if event_type.interval else {}
    values.update(event_type.values or {})
    values.update(sorted(numbering.values.get(event_type.names, {}).values()))
    return values
