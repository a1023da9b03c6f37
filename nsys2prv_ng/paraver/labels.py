"""From what a report calls its types and names to the numbers of the trace.

A report is read before the names of the others are known, so its records carry handles (dense ids of event types) and
local ids of names. `Numbering` gives the final numbers once every report has been read: names get ids from 1 in sorted
order over all reports, whatever the order of reports and events was.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import count, pairwise
from typing import NamedTuple

import numpy as np

from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.errors import TranslationError
from nsys2prv_ng.paraver.event_type import EventType, to_one_line
from nsys2prv_ng.paraver.families import FAMILIES

MAX_TYPE = 2**31 - 1
"""The .pcf is read with stoi: larger types and labelled values cannot be named."""


class Labels:
    """Event types and names that the records of one report use."""

    def __init__(self) -> None:
        self.types: list[EventType] = []
        self._handles: dict[EventType, int] = {}
        self._declared: set[EventType] = set()
        self.unused: set[EventType] = set()
        """Types of which no record is: the .pcf does not name them, since Paraver takes what it names for present."""
        self.names: dict[str, dict[str, int]] = {}

    def handle(self, event_type: EventType) -> int:
        """Dense id of an event type in this report's records."""
        known = self._handles.get(event_type)
        if known is None:
            known = self._handles[event_type] = len(self.types)
            self.types.append(event_type)
        return known

    def declare(self, event_type: EventType) -> None:
        """The type will be in records that are made of all reports together."""
        self.handle(event_type)
        self._declared.add(event_type)

    def note_used(self, handles: Iterable[int]) -> None:
        """The handles of which there are records, once all have been made."""
        used = self._declared.union(self.types[handle] for handle in handles)
        self.unused = set(self.types) - used

    def name_ids(self, space: str, names: Iterable[str]) -> IntArray:
        """Local ids (from 1) of names in a name space. Call with distinct names, then index with the result."""
        ids = self.names.setdefault(space, {})
        return np.array([ids.setdefault(name, len(ids) + 1) for name in names], np.int64)


class Value(NamedTuple):
    """What a name becomes in the trace where sorting the names would not do."""

    number: int
    label: str


Assigned = Mapping[str, Mapping[str, Value]]
"""Values by name space and name: of names whose value or label is known only from all reports together."""


class KeptLabels(NamedTuple):
    """Labels of another trace whose numbers are kept: types by their title, and values by type number and label."""

    types: Mapping[str, int]
    values: Mapping[int, Mapping[str, int]]


class Numbering:
    """Final numbers of the types and names of all reports. Name spaces in `assigned` have the values given there."""

    def __init__(
        self, labels: Sequence[Labels], assigned: Assigned | None = None, kept: KeptLabels | None = None
    ) -> None:
        kept = kept or KeptLabels({}, {})
        types: dict[EventType, None] = {t: None for each in labels for t in each.types}
        self._numbers: dict[EventType, int] = {}
        for family, numbers_of in FAMILIES.items():
            self._numbers.update(numbers_of([t for t in types if t.family == family], kept.types))
        used = {t for each in labels for t in each.types if t not in each.unused}
        # Types of a family can agree in number and label: they are one.
        self.types = list({(self.number(t), t.label): t for t in sorted(used, key=self.number)}.values())
        for one, other in pairwise(self.types):
            if self.number(one) == self.number(other):
                raise TranslationError(
                    f"event types '{one.title}' and '{other.title}' would have the same number {self.number(one)}:"
                    " keep labels only from the .pcf of a trace that this program made"
                )
        self.values: dict[str, dict[str, Value]] = {}
        """Value of each name in each name space."""
        for space in sorted({space for each in labels for space in each.names}):
            names = sorted({name for each in labels for name in each.names.get(space, {})})
            given = (assigned or {}).get(space)
            if given is not None:
                self.values[space] = {name: given[name] for name in names}
            else:
                self.values[space] = _dense_values(names, self._kept_values(space, kept))

    def _kept_values(self, space: str, kept: KeptLabels) -> Mapping[str, int]:
        """Values of a name space in the other trace, by label."""
        of_types = [
            kept.values[self.number(t)] for t in self.types if t.names == space and self.number(t) in kept.values
        ]
        return of_types[0] if of_types else {}

    def number(self, event_type: EventType) -> int:
        """Number of an event type in the trace."""
        number = self._numbers.get(event_type, event_type.number)
        if not 0 < number <= MAX_TYPE:
            raise TranslationError(f"event type '{event_type.label}' has number {number}, which Paraver cannot label")
        return number

    def maps(self, labels: Labels) -> tuple[IntArray, IntArray, IntArray]:
        """(number of each handle, start of each handle's table of values or -1, the tables).

        The tables map a report's local ids of names to the trace's; entry 0 is 0.
        """
        numbers = np.array([self.number(t) for t in labels.types], np.int64)
        starts = np.full(len(labels.types), -1, np.int64)
        tables: list[IntArray] = []
        start_of: dict[str, int] = {}
        length = 0
        for handle, event_type in enumerate(labels.types):
            space = event_type.names
            if not space:
                continue
            if space not in start_of:
                values = self.values.get(space, {})
                table = np.array([0, *(values[name].number for name in labels.names.get(space, {}))], np.int64)
                start_of[space] = length
                tables.append(table)
                length += table.size
            starts[handle] = start_of[space]
        return numbers, starts, np.concatenate(tables) if tables else np.zeros(0, np.int64)


def _dense_values(names: Sequence[str], kept: Mapping[str, int]) -> dict[str, Value]:
    """Names with a kept value have it, the others the lowest that are free, from 1."""
    values = {name: Value(kept[to_one_line(name)], name) for name in names if to_one_line(name) in kept}
    taken = set(kept.values())
    free = (number for number in count(1) if number not in taken)
    return {name: values.get(name) or Value(next(free), name) for name in names}
