"""The rows of a task: what distinguishes and sorts them, and their names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from enum import IntEnum
from itertools import count
from typing import Any, NamedTuple

from nsys2prv_ng.objects.places import Device, Node, NodePart, Place, Stream, Thread
from nsys2prv_ng.report.metadata import PID_MASK, Metadata
from nsys2prv_ng.text.formatting import make_unique

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


def _name_node_parts(rows: Sequence[Row]) -> Iterator[str]:
    """Return unique names for parts of a node: parts of one name are numbered, whichever reports have them."""
    parts: dict[str, dict[object, int]] = {}
    names = []
    for key, _, place in rows:
        if isinstance(place, NodePart):
            part = key.order[0]
            same_name = parts.setdefault(place.name, {})
            number = same_name.setdefault(part, len(same_name) + 1)
            names.append(f"{place.name}{f'-{number}' if number > 1 else ''}{place.suffix}")
    return iter(make_unique(names))


def name_rows(rows: Sequence[Row]) -> list[str]:
    """Return names of a task's rows. Names of host threads are unique, and so are those of parts of a node.

    BSC's BasicAnalysis takes a row for a stream only if its label is exactly `CUDA-D<n>.S<n>`, and for a GPU's metrics
    only if it is `Metrics GPU<n>`. So a further row of a stream, for operations that overlap, repeats the label.
    """
    stream_numbers = _number_streams(rows)
    part_names = _name_node_parts(rows)
    names = []
    for key, metadata, place in rows:
        if is_folded(key):
            names.append(f"other threads ({key.order[1]})")
        elif isinstance(place, Thread):
            names.append(metadata.threads.get(place.global_tid) or metadata.get_process_name(place.process))
        elif isinstance(place, Stream):
            names.append(f"CUDA-D{key.gpu}.S{stream_numbers[key.gpu, place.stream, place.context]}")
        elif isinstance(place, Device):
            names.append(f"Metrics GPU{key.gpu}")
        elif isinstance(place, NodePart):
            names.append(next(part_names))
        else:
            assert isinstance(place, Node)
            names.append("node")
    threads = Counter(name for name, row in zip(names, rows, strict=True) if isinstance(row.place, Thread))
    return [
        f"{name} {place.global_tid & PID_MASK}"
        if isinstance(place, Thread) and not is_folded(key) and threads[name] > 1
        else name
        for name, (key, _, place) in zip(names, rows, strict=True)
    ]


def _number_streams(rows: Sequence[Row]) -> dict[tuple[int, int, int], int]:
    """Return the number in the label of each stream of a task, by GPU, stream and context.

    Where several contexts of a GPU have a stream of one number, the lowest context keeps the number. Another gets 1000
    times the stream plus the context (stream 7 of context 2 is 7002), or the next number that no stream of the process
    has.
    """
    streams = sorted({(key.gpu, place.stream, place.context) for key, _, place in rows if isinstance(place, Stream)})
    taken = {stream for _, stream, _ in streams}
    numbers: dict[tuple[int, int, int], int] = {}
    named: set[tuple[int, int]] = set()
    for gpu, stream, context in streams:
        number = stream
        if (gpu, stream) in named:
            number = next(free for free in count(1000 * stream + context) if free not in taken)
            taken.add(number)
        named.add((gpu, stream))
        numbers[gpu, stream, context] = number
    return numbers
