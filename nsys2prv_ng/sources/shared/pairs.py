"""Makes the pairs of event type and value that n events show, from columns of numbers and from names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from nsys2prv_ng.arrays.row_keys import find_distinct, find_distinct_rows
from nsys2prv_ng.arrays.types import BoolArray, IntArray
from nsys2prv_ng.paraver.event_type import EventType
from nsys2prv_ng.paraver.labels import Labels
from nsys2prv_ng.records.columns import Pair
from nsys2prv_ng.report.database import NULL
from nsys2prv_ng.sources.shared.report_reader import ReportReader


def make_number_pair(labels: Labels, event_type: EventType, value: IntArray) -> Pair:
    """Make the pair for the events that have a value; NULL stands for no value."""
    return Pair(labels.handle(event_type), value, value != NULL)


def make_name_pair(
    labels: Labels, event_type: EventType, index: IntArray, names: Iterable[str], present: BoolArray | None = None
) -> Pair:
    """Make the pair that shows a name at each event, given the index of each into distinct names."""
    return Pair(labels.handle(event_type), labels.name_ids(event_type.names, names)[index], present)


def make_id_pair(reader: ReportReader, event_type: EventType, ids: IntArray, present: BoolArray | None = None) -> Pair:
    """Make the pair that shows a name of the report at each event, given its id."""
    return make_name_pair(reader.labels, event_type, *reader.names(ids), present)


def make_partial_pair(labels: Labels, event_type: EventType, value: IntArray, present: BoolArray) -> Pair:
    """Make the pair for the events in a mask of n, given the values of these events alone."""
    values = np.zeros(present.size, np.int64)
    values[present] = value
    return Pair(labels.handle(event_type), values, present)


def register_used(labels: Labels, space: str, names: Sequence[str], index: IntArray) -> IntArray:
    """Return the ids of the names at n indices. Names at no index are not registered."""
    position, used = find_distinct(index)
    return labels.name_ids(space, [names[i] for i in used])[position]


def register_ranks(
    labels: Labels, space: str, communicators: Sequence[str], communicator: IntArray, rank: IntArray
) -> IntArray:
    """Return the ids of the ranks (not NULL) of n events, by the names that `parse_rank` reads.

    `communicator`: index of each into the keys of communicators. The `join` of a source assigns the values of ranks,
    which depend on all reports.
    """
    known = rank != NULL
    codes, distinct = find_distinct_rows(communicator[known], rank[known])
    return labels.name_ids(space, [f"{communicators[index]} {local}" for index, local in distinct])[codes]


def parse_rank(name: str) -> tuple[str, int]:
    """Return the key of the communicator and the rank in it, for the name of a rank."""
    key, _, rank = name.rpartition(" ")
    return key, int(rank)
