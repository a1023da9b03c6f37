"""Defines the rows of a task: what distinguishes and sorts them."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

from nsys2prv_ng.objects.places import Place
from nsys2prv_ng.report.metadata import Metadata

FOLDED = 2
"""First part of the `order` of the row of folded threads, after False (main thread) and True (other threads).

The second part is the number of folded threads.
"""


class RowKind(IntEnum):
    """Kinds of rows, in the order in which a task shows them."""

    THREAD = 0
    STREAM = 1
    DEVICE = 2
    NODE = 3
    NODE_PART = 4


class RowKey(NamedTuple):
    """The identity of a row within its task, across reports. The keys sort the rows of a task."""

    kind: RowKind
    gpu: int
    """Number of the GPU of a stream or device; -1 for other rows."""
    order: tuple[Any, ...]
    """Distinguishes and sorts the rows of one kind and GPU."""


def is_folded(key: RowKey) -> bool:
    """Return whether a row is the row of the folded threads of its task."""
    return key.kind == RowKind.THREAD and key.order[0] == FOLDED


class Row(NamedTuple):
    """A row of a task, with the first place for which it was made."""

    key: RowKey
    metadata: Metadata
    """Metadata of the report with the place."""
    place: Place
