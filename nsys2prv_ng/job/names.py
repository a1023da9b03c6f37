"""Numbers the names of ranges, calls and operations: each report has numbers of its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b

import numpy as np

from nsys2prv_ng.arrays.row_keys import find_distinct
from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.job.opened_events import ABSENT, OpenedEvents
from nsys2prv_ng.paraver.event_type import EventType
from nsys2prv_ng.text.formatting import shorten_range_name


def find_checksum(text: str) -> int:
    """Return a checksum of 64 bits with a sign: equal texts of different reports have equal ones."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little", signed=True)


class Names:
    """Distinct names, numbered from 0 in the order in which they first occur."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    @property
    def texts(self) -> list[str]:
        """The names, in the order of their numbers."""
        return list(self._numbers)

    def number(self, texts: Sequence[str], index: IntArray) -> IntArray:
        """Return the number of the name of each index into `texts`; -1 stays -1."""
        position, used = find_distinct(index)
        numbers = [self._numbers.setdefault(texts[i], len(self._numbers)) if i >= 0 else -1 for i in used.tolist()]
        return np.array(numbers, np.int64)[position]


def number_lines(
    events: OpenedEvents, event_types: Iterable[EventType], names: list[str]
) -> Iterator[tuple[IntArray, IntArray]]:
    """Yield, for each type, the lines that have it and the index of each line's name in `names`; add the names."""
    for event_type in event_types:
        value = events.get_values(event_type)
        lines = np.flatnonzero(value != ABSENT)
        known = events.get_names(event_type)
        index = np.full(max(known, default=0) + 1, -1, np.int64)
        index[list(known)] = len(names) + np.arange(len(known))
        names += [shorten_range_name(event_type.member, name) for name in known.values()]
        yield lines, index[value[lines]]
