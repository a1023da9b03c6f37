"""Defines the rows of a task, and makes their labels, as users read them in Paraver and in paramedir's tables.

BSC's BasicAnalysis treats a row as a stream only if its label is exactly `CUDA-D<n>.S<n>`, and as the metrics of a GPU
only if its label is `Metrics GPU<n>`. So these labels repeat: for further rows of a stream, and for GPUs with the same
number on two nodes. The name of the task shows the rank. All other labels are unique within a trace.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from itertools import count
from typing import Any, NamedTuple

from nsys2prv_ng.objects.places import Device, NodePart, Place, Stream, Thread
from nsys2prv_ng.report.metadata import PID_MASK, Metadata
from nsys2prv_ng.text.formatting import make_unique
from nsys2prv_ng.text.names import to_one_line

# ---- rows of a task --------------------------------------------------------------------------------------------------

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


# ---- labels ----------------------------------------------------------------------------------------------------------

_FIXED = (RowKind.STREAM, RowKind.DEVICE)
"""Kinds of rows whose labels BasicAnalysis reads."""


class LabelledTask(NamedTuple):
    """The inputs for the labels of a task's rows."""

    rows: Sequence[Row]
    folded: Sequence[str]
    """Names of the threads that share the row of folded threads, from `name_threads`."""
    rank: int | None
    """The rank of the process, or of the process that started it."""
    node: str


def label_rows(tasks: Sequence[LabelledTask]) -> list[list[str]]:
    """Return the labels of the rows of each task: `r2 python3 1987` for a host thread of rank 2.

    If labels repeat (the names of folded threads count as well), the label of a host thread ends with its id, and the
    label of the row of folded threads with the id of the process. If they still repeat, the name of the node goes in
    front if it differs, otherwise a number at the end.
    """
    rows = [row for task in tasks for row in task.rows]
    texts = [text for task in tasks for text in _name_rows(task.rows, task.rank)]
    nodes = [task.node for task in tasks for _ in task.rows]
    folded = Counter(_format_rank(task.rank) + name for task in tasks for name in task.folded)
    times = folded + Counter(texts)
    for i, row in enumerate(rows):
        if row.key.kind == RowKind.THREAD and times[texts[i]] > 1:
            assert isinstance(row.place, Thread)
            texts[i] += f" {(row.place.process if is_folded(row.key) else row.place.global_tid) & PID_MASK}"
    free = [i for i, row in enumerate(rows) if row.key.kind not in _FIXED]
    times = Counter(text for text, _ in set(zip(texts, nodes, strict=True)))
    for i in free:
        if times[texts[i]] > 1:
            texts[i] = f"{nodes[i]} {texts[i]}"
    fixed = {text for text, row in zip(texts, rows, strict=True) if row.key.kind in _FIXED}
    unique = make_unique([*fixed, *(texts[i] for i in free)])
    for i, text in zip(free, unique[len(fixed) :], strict=True):
        texts[i] = text
    left = iter(texts)
    return [[next(left) for _ in task.rows] for task in tasks]


# ---- names within a task ---------------------------------------------------------------------------------------------


def name_threads(reports: Sequence[Metadata], tids: Iterable[int]) -> list[str]:
    """Return the names of threads of a process by globalTid, each from a report of the process that has the name."""
    names = []
    for tid in tids:
        naming = (report for report in reports if tid in report.threads)
        names.append(_name_thread(next(naming, reports[0]), Thread(tid)))
    return names


def _name_thread(metadata: Metadata, thread: Thread) -> str:
    """Return the name of a thread on one line, or else the name of its process."""
    return to_one_line(metadata.threads.get(thread.global_tid) or metadata.get_process_name(thread.process))


def _format_rank(rank: int | None) -> str:
    return "" if rank is None else f"r{rank} "


def _name_rows(rows: Sequence[Row], rank: int | None) -> list[str]:
    """Return names for the rows of a task, with the rank for host threads. Threads with the same name share it."""
    prefix = _format_rank(rank)
    stream_numbers = _number_streams(rows)
    part_names = _name_node_parts(rows)
    names = []
    for key, metadata, place in rows:
        if is_folded(key):
            names.append(f"{prefix}other threads ({key.order[1]})")
        elif isinstance(place, Thread):
            names.append(prefix + _name_thread(metadata, place))
        elif isinstance(place, Stream):
            names.append(f"CUDA-D{key.gpu}.S{stream_numbers[key.gpu, place.stream, place.context]}")
        elif isinstance(place, Device):
            names.append(f"Metrics GPU{key.gpu}")
        elif isinstance(place, NodePart):
            names.append(to_one_line(next(part_names)))
        else:
            names.append("node")
    return names


def _name_node_parts(rows: Sequence[Row]) -> Iterator[str]:
    """Return names for parts of a node. Parts with the same name are numbered across all reports."""
    parts: dict[str, dict[object, int]] = {}
    names = []
    for key, _, place in rows:
        if isinstance(place, NodePart):
            part = key.order[0]
            same_name = parts.setdefault(place.name, {})
            number = same_name.setdefault(part, len(same_name) + 1)
            names.append(f"{place.name}{f'-{number}' if number > 1 else ''}{place.suffix}")
    return iter(make_unique(names))


def _number_streams(rows: Sequence[Row]) -> dict[tuple[int, int, int], int]:
    """Return the number in the label of each stream of a task, by GPU, stream and context.

    If several contexts of a GPU have a stream with the same number, the lowest context keeps the number. Another gets
    1000 times the stream plus the context (stream 7 of context 2 is 7002), or the next number that no stream of the
    process has.
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
