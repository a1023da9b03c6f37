"""Loads the operations on the streams of a report, the calls that launched them, and how CUDA graphs were traced."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from nsys2prv_ng import source_names
from nsys2prv_ng.arrays.row_keys import encode_rows, find_rows, mark_duplicates
from nsys2prv_ng.arrays.types import BoolArray, IntArray, pick
from nsys2prv_ng.intervals.device_sweep import COMPUTE, MEMORY, WHOLE_GRAPH, add_communication
from nsys2prv_ng.objects.places import Stream
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver.event_type import EventType
from nsys2prv_ng.reading import opened_events
from nsys2prv_ng.reading.read_reports import ReportRecords
from nsys2prv_ng.records.store import Store
from nsys2prv_ng.report.diagnostics import AS_WHOLE, BY_NODE
from nsys2prv_ng.sources.cuda import communication

HOST_FUNCTION = 32
"""Kind of a host function that a stream runs, beside the kinds of operations on GPUs."""


class Launches(NamedTuple):
    """n operations (place, start in ns) and the first call that launched each (place of the thread, start in ns)."""

    place: IntArray
    begin: IntArray
    thread: IntArray
    sent: IntArray

    def find(self, place: IntArray, begin: IntArray) -> IntArray:
        """Return the index of each operation's launch; -1 without one."""
        return find_rows([self.place, self.begin], [place, begin])


def load_launches(report: ReportRecords, store: Store) -> Launches:
    """Return the launches of a report."""
    lines = opened_events.load_source_records(report, source_names.LAUNCH_LINES, store)
    words = lines.first[:-1]
    place, begin = lines.handle[words].astype(np.int64), lines.value[words + 1]
    order = np.lexsort((lines.place, lines.time))
    order = order[~mark_duplicates(place[order], begin[order])]
    return Launches(place[order], begin[order], lines.place[order].astype(np.int64), lines.time[order])


class DeviceOperations(NamedTuple):
    """n operations on streams: place, begin and end (ns), index of the name, whether it is a CUDA graph node.

    `kind`: COMPUTE, COMMUNICATION, MEMORY, COMMUNICATING_COPY, HOST_FUNCTION, or WHOLE_GRAPH for a graph traced as a
    whole. `kernel_class`: number of KERNEL_CLASSES; -1 for what is no kernel.
    """

    place: IntArray
    begin: IntArray
    end: IntArray
    name: IntArray
    is_node: BoolArray
    kind: IntArray
    kernel_class: IntArray
    names: list[str]


_TYPES = {  # unless they are communication
    source_names.KERNELS: {types.KERNEL: COMPUTE, types.NCCL_KERNEL: COMPUTE},
    source_names.MEMORY_OPERATIONS: {types.MEMORY_OPERATION: MEMORY},
    source_names.CUDA_GRAPHS: {types.GRAPH_LAUNCH: WHOLE_GRAPH},
}


_HOST_TYPES = {source_names.HOST_FUNCTIONS: {types.HOST_FUNCTION: HOST_FUNCTION}}


def mark_communication(events: opened_events.OpenedEvents) -> BoolArray:
    """Mark the kernels and copies that are communication, among the events of their source."""
    return communication.mark_communication(events.get_values(types.KERNEL_CLASS))


def load_device_operations(report: ReportRecords, store: Store, *, host_functions: bool = False) -> DeviceOperations:
    """Return all operations of a report that ran on GPUs, and if asked the `host_functions` that streams ran."""
    names: list[str] = []
    columns: list[tuple[IntArray, ...]] = [tuple(np.zeros(0, np.int64) for _ in range(7))]
    for source, kinds in {**_TYPES, **(_HOST_TYPES if host_functions else {})}.items():
        events = opened_events.load_opened_events(report, source, store)
        is_node = events.get_values(types.GRAPH_NODE_ID) != opened_events.ABSENT
        kernel_class, communicates = events.get_values(types.KERNEL_CLASS), mark_communication(events)
        if source != source_names.KERNELS:
            kernel_class = np.full(kernel_class.size, opened_events.ABSENT)
        numbered = opened_events.number_lines(events, kinds, names)
        for kind, (rows, name) in zip(kinds.values(), numbered, strict=True):
            times = events.begin[rows], events.end[rows]
            kinds_of_rows = add_communication(np.full(rows.size, kind, np.int64), communicates[rows])
            columns.append((events.place[rows], *times, name, is_node[rows], kinds_of_rows, kernel_class[rows]))
    place, begin, end, name, is_node, operation_kind, kernel_class = map(np.concatenate, zip(*columns, strict=True))
    return DeviceOperations(place, begin, end, name, is_node > 0, operation_kind, np.maximum(kernel_class, -1), names)


def number_streams(report: ReportRecords) -> tuple[IntArray, IntArray]:
    """Return (device, stream) of each place of a report, as numbers; -1 for places that are not streams.

    A device counts once for each process that uses it.
    """
    places = report.places.all
    device, stream = np.full((2, len(places)), -1, np.int64)
    streams = np.array([number for number, place in enumerate(places) if isinstance(place, Stream)], np.int64)
    keys = np.array([places[number][:4] for number in streams.tolist()], np.int64).reshape(-1, 4).T
    if streams.size:
        device[streams] = encode_rows(*keys[:2])[0]
        stream[streams] = encode_rows(*keys)[0]
    return device, stream


def find_launch(has_launch: BoolArray, is_node: BoolArray, stream: IntArray) -> IntArray:
    """Return the operation whose launch counts for each operation: itself, or -1 if no launch is known.

    A CUDA graph has a launch for its first node on a stream only: that counts for the nodes after it, too.
    """
    n = stream.size
    last = np.maximum.accumulate(np.where(has_launch, np.arange(n), -1)) if n else np.zeros(0, np.int64)
    same = (last >= 0) & (pick(stream, last, -1) == stream)
    return np.where(has_launch | (same & is_node), last, -1)


class LaunchedOperations(NamedTuple):
    """n operations: place, start and end (ns), and when each was launched (ns).

    `launched`: start of the launching call; the operation's own start if no launch is recorded. `is_known`: whether a
    launch is recorded. `thread`: place of the thread that launched each; -1 if no launch is recorded. `kind`: as in
    `DeviceOperations`.
    """

    place: IntArray
    begin: IntArray
    end: IntArray
    launched: IntArray
    is_known: BoolArray
    thread: IntArray
    kind: IntArray


def load_launched_operations(report: ReportRecords, store: Store) -> LaunchedOperations:
    """Return the operations of a report, ordered by stream and start. Nodes of a CUDA graph have the graph's launch."""
    operations = load_device_operations(report, store)
    stream = number_streams(report)[1][operations.place]
    order = np.lexsort((operations.end, operations.begin, stream))
    place, begin = operations.place[order], operations.begin[order]
    launches = load_launches(report, store)
    line = launches.find(place, begin)
    launch = find_launch(line >= 0, operations.is_node[order], stream[order])
    line = pick(line, launch, -1)
    sent, thread = pick(launches.sent, line, 0), pick(launches.thread, line, -1)
    is_known = launch >= 0
    return LaunchedOperations(
        place=place,
        begin=begin,
        end=operations.end[order],
        launched=np.where(is_known, sent, begin),
        is_known=is_known,
        thread=np.where(is_known, thread, -1),
        kind=operations.kind[order],
    )


# ---- CUDA graphs -----------------------------------------------------------------------------------------------------


_SHOWN = {
    BY_NODE: ((source_names.KERNELS, source_names.MEMORY_OPERATIONS), types.GRAPH_NODE_ID),
    AS_WHOLE: ((source_names.CUDA_GRAPHS,), types.GRAPH_LAUNCH),
}


def list_traced_graphs(report: ReportRecords) -> list[str]:
    """Return BY_NODE and AS_WHOLE if the chosen sources and time show such graphs."""
    return [kind for kind, (sources, event_type) in _SHOWN.items() if _has_events(report, sources, event_type)]


def has_copies_between(report: ReportRecords) -> bool:
    """Return whether copies of a report are communication."""
    return _has_events(report, (source_names.MEMORY_OPERATIONS,), types.KERNEL_CLASS)


def _has_events(report: ReportRecords, sources: Sequence[str], event_type: EventType) -> bool:
    """Return whether any record of some sources has an event type."""
    handle = report.labels.find_handle(event_type)
    return handle is not None and any(bool((run.facts.handles == handle).any()) for run in report.runs(sources))
