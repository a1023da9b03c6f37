"""What held a kernel on the device: its launch, and the operations that ended just as it began."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

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
"""How long before and after the begin of a kernel the operation ends that it had waited for.

In real reports of H200 (2,000 kernels of NCCL that had been launched before), the gap to the operation before it on the
stream is 1.2 to 6 us; the one on another stream, for which it waited by an event, ends 1.2 us after to 3 us before.
"""

PROMPT_NS = 20_000
"""Most time (ns) from a launch call to a kernel that waited for nothing: 8 to 13 us in real reports."""


class Launches(NamedTuple):
    """n operations and the first call that launched each: place, begin (ns); place of the thread, begin of the call."""

    place: IntArray
    begin: IntArray
    thread: IntArray
    sent: IntArray

    def find(self, place: IntArray, begin: IntArray) -> IntArray:
        """Return the index of the launch of each operation, -1 for none."""
        return find_rows([self.place, self.begin], [place, begin])


def load_launches(report: ReportRecords, store: Store) -> Launches:
    """Return the launches of a report."""
    lines = load_source_records(report, "launch_lines", store)
    words = lines.first[:-1]
    place, begin = lines.handle[words].astype(np.int64), lines.value[words + 1]
    order = np.lexsort((lines.place, lines.time))
    order = order[~mark_duplicates(place[order], begin[order])]
    return Launches(place[order], begin[order], lines.place[order].astype(np.int64), lines.time[order])


class DeviceOperations(NamedTuple):
    """n operations on streams: place, begin and end (ns), index of the name, whether it is a node of a CUDA graph.

    `kind`: COMPUTE, COMMUNICATION, MEMORY or, of graphs as a whole, WHOLE_GRAPH.
    """

    place: IntArray
    begin: IntArray
    end: IntArray
    name: IntArray
    is_node: BoolArray
    kind: IntArray
    names: list[str]


_TYPES = {
    "kernels": {types.KERNEL: COMPUTE, types.NCCL_KERNEL: COMMUNICATION},
    "memory_operations": {types.MEMORY_OPERATION: MEMORY},
    "cuda_graphs": {types.GRAPH_LAUNCH: WHOLE_GRAPH},
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
    place, begin, end, name, is_node, kind_of = (np.concatenate(column) for column in zip(*columns, strict=True))
    return DeviceOperations(place, begin, end, name, is_node > 0, kind_of, names)


def find_ended(
    report: ReportRecords, operations: DeviceOperations, place: IntArray, begin: IntArray
) -> tuple[IntArray, IntArray]:
    """Return the operations that ended just as kernels began: (the last on its stream, the last on another stream).

    `place` and `begin` (ns) of n kernels; indices of operations, -1 for none. Other streams: those of its process and
    device. Lanes of a stream are one stream.
    """
    device, stream = number_streams(report)
    order = np.lexsort((operations.end, device[operations.place]))
    of_device = device[operations.place][order]
    limits = np.searchsorted(of_device, np.arange(int(device.max(initial=-1)) + 2))
    ended = _find_ended(
        limits,
        stream[operations.place][order],
        operations.begin[order],
        operations.end[order],
        device[place],
        stream[place],
        begin,
        ENDED_BEFORE_NS,
        ENDED_AFTER_NS,
    )
    own, other = (np.where(index >= 0, np.append(order, -1)[index], -1) for index in ended)
    return own, other


def number_streams(report: ReportRecords) -> tuple[IntArray, IntArray]:
    """Return numbers of the device of a process and of the stream of each place of a report, -1 for other places."""
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
    device_of: IntArray,
    stream_of: IntArray,
    time: IntArray,
    before: int,
    after: int,
) -> tuple[IntArray, IntArray]:
    """Return what `find_ended` does. Operations are sorted by device and end; device d has limits[d] .. [d + 1] - 1."""
    own, other = np.full(time.size, -1, np.int64), np.full(time.size, -1, np.int64)
    for i in range(time.size):
        low, high = limits[device_of[i]], limits[device_of[i] + 1]
        k = low + np.searchsorted(end[low:high], time[i] - before)
        while k < high and end[k] <= time[i] + after:
            if begin[k] < time[i]:
                if stream[k] == stream_of[i]:
                    own[i] = k
                else:
                    other[i] = k
            k += 1
    return own, other
