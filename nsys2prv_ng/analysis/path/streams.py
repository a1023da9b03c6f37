"""Loads the operations on a report's streams for the critical path, and finds what CUDA events made them wait for.

Operations and calls can be cut to a span of time, before all reports are joined.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nsys2prv_ng import source_names
from nsys2prv_ng.analysis.path import columns as path
from nsys2prv_ng.analysis.path.columns import NEVER, NONE, PlaceNumbers
from nsys2prv_ng.arrays.row_keys import encode_rows, find_distinct, find_rows, mark_duplicates
from nsys2prv_ng.arrays.types import BoolArray, IntArray, pick
from nsys2prv_ng.objects.places import Stream
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.reading.device_operations import find_launch, load_device_operations, load_launches
from nsys2prv_ng.reading.opened_events import ABSENT, Names, OpenedEvents, load_opened_events
from nsys2prv_ng.reading.read_reports import ReportRecords
from nsys2prv_ng.records.store import Store
from nsys2prv_ng.runtime.jit import compiled

EVENT_SYNC, STREAM_WAIT, STREAM_SYNC, CONTEXT_SYNC = 1, 2, 3, 4
"""Values of CUDA_SYNCHRONIZATION."""
_PAGEABLE = 1
"""Value of MEMORY_SOURCE_KIND and MEMORY_DESTINATION_KIND."""


def load_operations(report: ReportRecords, store: Store, names: Names, numbers: PlaceNumbers) -> dict[str, IntArray]:
    """Return what the streams of a report run, host functions included, ordered by stream and start."""
    operations = load_device_operations(report, store, host_functions=True)
    stream = numbers.stream[operations.place]
    order = np.lexsort((operations.end, operations.begin, stream))
    place, begin = operations.place[order], operations.begin[order]
    launches = load_launches(report, store)
    line = launches.find(place, begin)
    launch = find_launch(line >= 0, operations.is_node[order], stream[order])
    kind = operations.kind[order]
    return {
        "begin": begin,
        "end": operations.end[order],
        "place": place,
        "stream": stream[order],
        "device": numbers.device[place],
        "process": numbers.process[place],
        "thread": pick(numbers.thread[launches.thread], line, NONE),
        "launch": launch,
        "launched": np.where(launch >= 0, pick(launches.sent, pick(line, launch, NONE), NEVER), NEVER),
        "producer": np.full(begin.size, NONE, np.int64),
        "kind": kind,
        "kernel_class": operations.kernel_class[order],
        "name": names.number(operations.names, operations.name[order]),
    }


def find_copies(report: ReportRecords, store: Store, operations: dict[str, IntArray]) -> tuple[IntArray, IntArray]:
    """Return (operations that copy from or to the host, the ones among them that use pageable host memory)."""
    events = load_opened_events(report, source_names.MEMORY_OPERATIONS, store)
    kind = events.get_values(types.MEMORY_OPERATION)
    on_host = [value for value, name in events.get_names(types.MEMORY_OPERATION).items() if "host" in name]
    lines = np.flatnonzero(np.isin(kind, on_host) & ~mark_duplicates(events.place, events.begin))
    operation = find_rows([events.place[lines], events.begin[lines]], [operations["place"], operations["begin"]])
    sides = (types.MEMORY_SOURCE_KIND, types.MEMORY_DESTINATION_KIND)
    pageable = np.logical_or.reduce([events.get_values(side) == _PAGEABLE for side in sides])
    copies = np.flatnonzero(operation >= 0)
    return copies, copies[pageable[lines[operation[copies]]]]


class Streams:
    """The numbers of a report's streams and devices by process, context and stream id, as calls name them."""

    def __init__(self, report: ReportRecords, numbers: PlaceNumbers) -> None:
        keys: dict[tuple[int, int, int], tuple[int, int]] = {}
        for place, process, stream, device in zip(report.places.all, *(n.tolist() for n in numbers[1:]), strict=True):
            if isinstance(place, Stream):
                keys[process, place.context, place.stream] = stream, device
        self._keys = np.array(list(keys), np.int64).reshape(-1, 3).T
        self._stream, self._device = np.array(list(keys.values()), np.int64).reshape(-1, 2).T

    def find(self, process: IntArray, context: IntArray, stream: IntArray) -> IntArray:
        """Return the number of each stream; NONE for a stream without operations."""
        return pick(self._stream, find_rows(list(self._keys), [process, context, stream]), NONE)

    def find_device(self, process: IntArray, context: IntArray) -> IntArray:
        """Return the number of the device of each context; NONE for a context without operations."""
        return pick(self._device, find_rows(list(self._keys[:2]), [process, context]), NONE)


# ---- CUDA events -----------------------------------------------------------------------------------------------------


class EventLines(NamedTuple):
    """n records of CUDA events and synchronizations: ids, and the time of the call (ns)."""

    process: IntArray
    context: IntArray
    stream: IntArray
    event: IntArray
    time: IntArray


def read_events(syncs: OpenedEvents, which: IntArray, process_of_place: IntArray) -> EventLines:
    """Return the ids and times of the lines `which`."""
    ids = types.CUDA_CONTEXT_ID, types.CUDA_STREAM_ID, types.CUDA_EVENT_ID
    context, stream, event = (syncs.get_values(event_type)[which] for event_type in ids)
    waited = syncs.get_values(types.CUDA_STREAM_WAITED_FOR)[which]
    return EventLines(
        process_of_place[syncs.place[which]],
        context,
        np.where(stream == ABSENT, waited, stream),
        event,
        syncs.begin[which],
    )


LAUNCHES, RECORDS, WAITS, ASKS, ASKS_STREAM = range(5)
"""What happens to a stream or an event: a launch; a record; a stream waits; a call asks for the event or the stream."""


class EventSteps(NamedTuple):
    """n records of CUDA events and waits for them: time (ns), kind (RECORDS, WAITS, ASKS or ASKS_STREAM).

    `stream` is its number, or below -1 for a stream without operations, and `event` a number; both are unique within
    the report. `line`: index of the record.
    """

    time: IntArray
    kind: IntArray
    stream: IntArray
    event: IntArray
    line: IntArray


def list_event_steps(syncs: OpenedEvents, streams: Streams, process_of_place: IntArray) -> EventSteps:
    """Return what calls did with the CUDA events and streams of a report."""
    synchronization = syncs.get_values(types.CUDA_SYNCHRONIZATION)
    is_record = syncs.get_values(types.CUDA_EVENT_RECORD) != ABSENT
    lines = np.flatnonzero(is_record | np.isin(synchronization, (STREAM_WAIT, EVENT_SYNC, STREAM_SYNC)))
    events = read_events(syncs, lines, process_of_place)
    number = streams.find(events.process, events.context, events.stream)
    # A stream without operations passes on what it waits for, whether it has a number (its GPU is not chosen) or not.
    unnumbered, _ = encode_rows(events.process, events.context, events.stream)
    kind_of_synchronization = np.array([NONE, ASKS, WAITS, ASKS_STREAM])
    kind = np.where(
        is_record[lines], RECORDS, kind_of_synchronization[np.where(is_record[lines], 0, synchronization[lines])]
    )
    key, _ = encode_rows(events.process, events.event)
    return EventSteps(events.time, kind, np.where(number >= 0, number, NONE - 1 - unnumbered), key, lines)


def follow_events(steps: EventSteps, operations: dict[str, IntArray], lines: int) -> IntArray:
    """Set the producer of each operation; return the operation that each of `lines` records waits for by an event.

    An event completes when everything has ended that was in its stream before it, and whatever the stream had to wait
    for. A stream synchronization also waits for the latter, if it ends later than the stream's own operations.
    """
    launched = np.flatnonzero(operations["thread"] >= 0)
    last = np.arange(operations["begin"].size)
    has_launch = np.flatnonzero(operations["launch"] >= 0)
    last[operations["launch"][has_launch]] = has_launch  # for a graph, its last node
    kind = np.concatenate([np.full(launched.size, LAUNCHES), steps.kind])
    time = np.concatenate([operations["launched"][launched], steps.time])
    stream = np.concatenate([operations["stream"][launched], steps.stream])
    order = np.lexsort((kind, time))
    stream = find_distinct(stream)[0]
    in_turn = _StepsInTurn(kind[order], stream[order], np.concatenate([launched, steps.event])[order])
    given, awaited = np.full((2, int(stream.max(initial=0)) + 1), NONE)
    state = _StreamStates(given, awaited, np.full(int(steps.event.max(initial=0)) + 1, NONE))
    answer = np.full(order.size, NONE)
    _follow(in_turn, last, operations["end"], operations["producer"], state, answer)
    in_order = np.empty(order.size, np.int64)
    in_order[order] = answer
    waited = np.full(lines, NONE, np.int64)
    waited[steps.line] = in_order[launched.size :]
    return waited


class _StepsInTurn(NamedTuple):
    """n steps in the order of time: kind, stream, and the operation for a launch, else the event."""

    kind: IntArray
    stream: IntArray
    item: IntArray


class _StreamStates(NamedTuple):
    """Operations, NONE at first: the last of each stream, what it waits for, and the last before each event."""

    given: IntArray
    awaited: IntArray
    recorded: IntArray


@compiled
def _follow(
    steps: _StepsInTurn, last: IntArray, end: IntArray, producer: IntArray, state: _StreamStates, answer: IntArray
) -> None:
    """Replay steps: set the operation that each one waits for (`answer`), and the producers of operations.

    `last`: the operation that a launch of each operation (n) gives its stream last.
    """
    given, awaited, recorded = state
    step = steps.kind
    for i in range(step.size):
        s, n = steps.stream[i], steps.item[i]
        if step[i] == LAUNCHES:
            producer[n] = awaited[s]
            given[s], awaited[s] = last[n], NONE
        elif step[i] == RECORDS:
            recorded[n] = _choose_later(given[s], awaited[s], end)
        elif step[i] == WAITS:
            awaited[s] = _choose_later(awaited[s], recorded[n], end)
        elif step[i] == ASKS:
            answer[i] = recorded[n]
        elif _choose_later(given[s], awaited[s], end) != given[s]:
            answer[i] = awaited[s]


@compiled
def _choose_later(a: int, b: int, end: IntArray) -> int:
    """Return which of two operations ends later; NONE for neither."""
    if a < 0 or (b >= 0 and end[b] > end[a]):
        return b
    return a


# ---- a span of time --------------------------------------------------------------------------------------------------


Span = tuple[int, int]
"""First and last time (ns)."""


def cut_to_span(
    operations: dict[str, IntArray], calls: dict[str, IntArray], time: IntArray, call: IntArray, span: Span
) -> tuple[IntArray, IntArray]:
    """Keep only the operations and calls that run in a span, with their whole lengths; return (uses of events, calls).

    `time` (ns) and `call`: of each use of a CUDA event, as in `PathEvents`. Indices in the columns are those of what is
    kept: NONE for what is not. A call that waited for an operation that ended before the span waits for nothing.
    """
    kept = _mark_in_span(operations, span)
    launch = operations["launch"][kept]
    kept[launch[launch >= 0]] = True  # the first node of a graph that runs into the span
    operation = _renumber(kept)
    for name, column in operations.items():
        operations[name] = column[kept]
    for name in ("producer", "launch"):
        operations[name] = operation[operations[name]]
    kept = _mark_in_span(calls, span)
    number = _renumber(kept)
    for name, column in calls.items():
        calls[name] = column[kept]
    waits = np.flatnonzero(calls["sync"] == path.SYNC_OPERATION)
    calls["target"][waits] = operation[calls["target"][waits]]
    lost = waits[calls["target"][waits] == NONE]
    calls["sync"][lost] = path.NO_SYNC
    low, high = span
    kept_call = number[call]
    inside = np.flatnonzero((time >= low) & (time <= high) | (kept_call >= 0))
    return inside, kept_call[inside]


def _mark_in_span(columns: dict[str, IntArray], span: Span) -> BoolArray:
    low, high = span
    return np.asarray((columns["end"] >= low) & (columns["begin"] <= high), np.bool_)


def _renumber(kept: BoolArray) -> IntArray:
    """Return the new index of each item; NONE for what is not kept, and, at the end, for NONE."""
    return np.append(np.where(kept, np.cumsum(kept) - 1, NONE), NONE)
