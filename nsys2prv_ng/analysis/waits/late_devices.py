"""Finds what held up a kernel on the device: its launch, and the operations that ended just as it started."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nsys2prv_ng import source_names
from nsys2prv_ng.analysis.names import number_lines
from nsys2prv_ng.arrays.row_keys import encode_rows, find_rows, mark_duplicates
from nsys2prv_ng.arrays.types import BoolArray, IntArray
from nsys2prv_ng.intervals.device_sweep import COMMUNICATION, COMPUTE, MEMORY, WHOLE_GRAPH
from nsys2prv_ng.job.opened_events import ABSENT, load_opened_events, load_source_records
from nsys2prv_ng.job.read_reports import ReportRecords
from nsys2prv_ng.objects.places import Stream
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.records.store import Store
from nsys2prv_ng.runtime.jit import compiled

ENDED_BEFORE_NS, ENDED_AFTER_NS = 10_000, 2_000
"""How long (ns) before and after a kernel's start an operation may end that the kernel waited for.

In real reports of H200 GPUs (2,000 NCCL kernels that had been launched in advance), the gap to the preceding operation
on the stream is 1.2 to 6 us. An operation on another stream that the kernel waited for through an event ends between
3 us before and 1.2 us after the kernel's start.
"""

PROMPT_NS = 20_000
"""Longest time (ns) from a launch call to a kernel that waited for nothing: 8 to 13 us in real reports."""


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
    lines = load_source_records(report, source_names.LAUNCH_LINES, store)
    words = lines.first[:-1]
    place, begin = lines.handle[words].astype(np.int64), lines.value[words + 1]
    order = np.lexsort((lines.place, lines.time))
    order = order[~mark_duplicates(place[order], begin[order])]
    return Launches(place[order], begin[order], lines.place[order].astype(np.int64), lines.time[order])


class DeviceOperations(NamedTuple):
    """n operations on streams: place, begin and end (ns), index of the name, whether it is a CUDA graph node.

    `kind`: COMPUTE, COMMUNICATION, MEMORY, or WHOLE_GRAPH for a graph traced as a whole.
    """

    place: IntArray
    begin: IntArray
    end: IntArray
    name: IntArray
    is_node: BoolArray
    kind: IntArray
    names: list[str]


_TYPES = {
    source_names.KERNELS: {types.KERNEL: COMPUTE, types.NCCL_KERNEL: COMMUNICATION},
    source_names.MEMORY_OPERATIONS: {types.MEMORY_OPERATION: MEMORY},
    source_names.CUDA_GRAPHS: {types.GRAPH_LAUNCH: WHOLE_GRAPH},
}


def load_device_operations(report: ReportRecords, store: Store) -> DeviceOperations:
    """Return all operations of a report that ran on streams."""
    names: list[str] = []
    columns: list[tuple[IntArray, ...]] = [tuple(np.zeros(0, np.int64) for _ in range(6))]
    for source, kinds in _TYPES.items():
        events = load_opened_events(report, source, store)
        is_node = events.get_values(types.GRAPH_NODE_ID) != ABSENT
        numbered = number_lines(events, kinds, names)
        for kind, (rows, name) in zip(kinds.values(), numbered, strict=True):
            times = events.begin[rows], events.end[rows]
            columns.append((events.place[rows], *times, name, is_node[rows], np.full(rows.size, kind, np.int64)))
    place, begin, end, name, is_node, operation_kind = (np.concatenate(column) for column in zip(*columns, strict=True))
    return DeviceOperations(place, begin, end, name, is_node > 0, operation_kind, names)


def find_ended(
    report: ReportRecords, operations: DeviceOperations, place: IntArray, begin: IntArray
) -> tuple[IntArray, IntArray]:
    """Return the operations that ended just as kernels started: (the last on its stream, the last on another stream).

    `place` and `begin` (ns): n kernels. The results are indices of operations, -1 without one. Only other streams of
    the kernel's process and device count. The lanes of a stream are one stream.
    """
    device, stream = number_streams(report)
    order = np.lexsort((operations.end, device[operations.place]))
    by_device = device[operations.place][order]
    limits = np.searchsorted(by_device, np.arange(int(device.max(initial=-1)) + 2))
    columns = (stream[operations.place][order], operations.begin[order], operations.end[order])
    kernels = (device[place], stream[place], begin)
    ended = _find_ended(limits, *columns, *kernels, ENDED_BEFORE_NS, ENDED_AFTER_NS)
    on_stream, on_other = (np.where(index >= 0, np.append(order, -1)[index], -1) for index in ended)
    return on_stream, on_other


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


@compiled
def _find_ended(
    limits: IntArray,
    stream: IntArray,
    begin: IntArray,
    end: IntArray,
    kernel_device: IntArray,
    kernel_stream: IntArray,
    time: IntArray,
    before: int,
    after: int,
) -> tuple[IntArray, IntArray]:
    """Return the result of `find_ended`. Operations are sorted by device and end: device d has limits[d:d + 2]."""
    on_stream, on_other = np.full(time.size, -1, np.int64), np.full(time.size, -1, np.int64)
    for i in range(time.size):
        low, high = limits[kernel_device[i]], limits[kernel_device[i] + 1]
        k = low + np.searchsorted(end[low:high], time[i] - before)
        while k < high and end[k] <= time[i] + after:
            if begin[k] < time[i]:
                if stream[k] == kernel_stream[i]:
                    on_stream[i] = k
                else:
                    on_other[i] = k
            k += 1
    return on_stream, on_other
