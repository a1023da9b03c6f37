"""The rows of a task: what distinguishes and sorts them."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

from nsys2prv_ng.objects.places import Place
from nsys2prv_ng.report.metadata import Metadata

FOLDED = 2
"""First part of the `order` of the row of folded threads, after those of the main thread and of others (False, True).

The second part is their number.
"""


class RowKind(IntEnum):
    """Kinds of rows, in the order in which a task shows them."""

    THREAD = 0
    STREAM = 1
    DEVICE = 2
    NODE = 3
    NODE_PART = 4


class RowKey(NamedTuple):
    """What a row is within its task, whichever reports have events there. Rows of a task are sorted by their keys."""

    kind: RowKind
    gpu: int
    """Number of the GPU of a stream or device, -1 for the others."""
    order: tuple[Any, ...]
    """What distinguishes and sorts the rows of one kind and GPU."""


def is_folded(key: RowKey) -> bool:
    """Return whether a row is that of the folded threads of its task."""
    return key.kind == RowKind.THREAD and key.order[0] == FOLDED


class Row(NamedTuple):
    """A row of a task, with the first place that it was made for."""

    key: RowKey
    metadata: Metadata
    """Of the report of the place."""
    place: Place
