"""Dependencies of operations on GPUs: their launches, streams and CUDA events, and the calls that wait for them.

What each stream was given is followed in the order of the host's calls. So an operation depends on what its stream had
to end before, whether by order or through CUDA events, and a call that waits for a stream, device or event on the same.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nsys2prv_ng.analysis.path import columns as path
from nsys2prv_ng.analysis.path.columns import NEVER, PathCalls, PathEvents, PathLists, PathOperations, PathThreads
from nsys2prv_ng.analysis.path.lanes import Lanes
from nsys2prv_ng.analysis.path.streams import ASKS, ASKS_STREAM, LAUNCHES, RECORDS, WAITS
from nsys2prv_ng.analysis.path.walk import find_cause
from nsys2prv_ng.analysis.waits.late_origins import PROMPT_NS
from nsys2prv_ng.arrays.row_keys import find_starts
from nsys2prv_ng.arrays.types import IntArray, IntTable, pick
from nsys2prv_ng.intervals.step_functions import find_latest
from nsys2prv_ng.replay.graph import AFTER, ALWAYS, FREE, GAP, LAUNCH, NONE, STAGE, WAKE, Edges, Numbers, make_edges
from nsys2prv_ng.replay.threads import find_before
from nsys2prv_ng.runtime.jit import compiled

_ASKS_DEVICE, _ASKS_PROCESS = 5, 6
"""Further kinds of steps beside those of path/streams.py: a call waits for all streams of a device or process."""
QUEUE = 1_022
"""Operations of a stream that launch calls put into its queue before they block, as real reports show."""
_USUAL_GAP, _USUAL_LAUNCH = 1_000, 5_000
"""Time (ns) between two operations of a stream, and from a launch call to its operation, if a job shows none:
those of an idle GPU. A job with a queue shows its own."""


def find_launching(operations: PathOperations, calls: PathCalls) -> IntArray:
    """Return the outermost call that launched each operation; NONE if it is not known."""
    call = find_latest(calls.thread, calls.begin, operations.thread, operations.launched)
    inside = (operations.thread >= 0) & (call >= 0)
    inside &= operations.launched <= pick(calls.end, call, NEVER)
    return np.where(inside, call, NONE)


def list_device_edges(lanes: Lanes, numbers: Numbers, launching: IntArray) -> tuple[list[Edges], IntArray]:
    """Return the dependencies of operations and of calls that wait for them, and the times of further nodes (ns).

    `launching`: the result of `find_launching`.
    """
    operations, calls, threads = lanes.operations, lanes.calls, lanes.threads
    every = np.arange(numbers.operations)
    sent = np.where(launching >= 0, numbers.call_begin + launching, NONE)
    launched = pick(calls.begin, launching, NEVER)
    (since, to, kind), (one, other, time) = _follow_streams(operations, calls, threads, lanes.events, numbers)
    all_times = np.concatenate([operations.begin, operations.end, calls.begin, calls.end, time])
    on_time = all_times[since] <= all_times[to]
    # An operation that started before the one before it on its stream had ended follows that one's start.
    early = ~on_time & (kind == GAP) & (since < numbers.call_begin)
    latest = np.full(numbers.operations, NEVER)
    gaps = (kind == GAP) & on_time
    np.maximum.at(latest, to[gaps], all_times[since[gaps]])
    usual_gap, usual_launch = _measure_usual(operations, latest, launched)
    known = np.maximum(latest, launched)
    cause = np.full(known.size, NONE)
    _find_unexplained(lanes.tables.operations, lanes.tables.lists, known, cause)
    alone = np.flatnonzero((launched == NEVER) & (known < operations.begin - PROMPT_NS))
    host = find_before(lanes, numbers, threads.process, operations.process[alone], operations.begin[alone])
    after = np.where(early, since - numbers.operation_end, since)
    markers = numbers.others + np.arange(time.size)
    return [
        make_edges(sent, every, LAUNCH, usual_launch),
        make_edges(after, to, kind, np.where(kind == GAP, usual_gap, ALWAYS)),
        make_edges(np.where(cause >= 0, numbers.operation_end + cause, NONE), every, GAP, usual_gap),
        make_edges(host, alone, AFTER),
        make_edges(one, markers, GAP),
        make_edges(other, markers, GAP),
        _list_own_waits(operations, calls, launching, numbers),
        _list_full_queues(operations, calls, launching, numbers),
    ], time


def _measure_usual(operations: PathOperations, latest: IntArray, launched: IntArray) -> tuple[int, int]:
    """Return the usual time (ns) between two operations of a stream, and from a launch call to its operation.

    `latest`: when each operation's stream had ended what came before (ns), `launched`: when its launch call started.
    """
    queued = (latest > NEVER) & (launched > NEVER) & (launched + PROMPT_NS < latest)
    idle = (latest > NEVER) & (latest < launched)  # without one, it may overlap the operation before it
    gap = np.median((operations.begin - latest)[queued]) if queued.any() else _USUAL_GAP
    launch = np.median((operations.begin - launched)[idle]) if idle.any() else _USUAL_LAUNCH
    return int(gap), int(launch)


@compiled
def _find_unexplained(operations: IntTable, lists: PathLists, known: IntArray, found: IntArray) -> None:
    """Set the operation after which each one started that nothing known explains (path/walk.py), NONE at first."""
    for k in range(known.size):
        if known[k] < operations[path.BEGIN, k] - PROMPT_NS:
            cause, _, kind = find_cause(operations, k, operations[path.BEGIN, k], lists)
            if kind == path.GAP and cause >= 0 and operations[path.END, cause] > known[k]:
                found[k] = cause


# ---- calls that wait -------------------------------------------------------------------------------------------------


def _list_own_waits(operations: PathOperations, calls: PathCalls, launching: IntArray, numbers: Numbers) -> Edges:
    """Return the waits of calls for one operation: that of their own copy, or one that freed a place in the queue.

    A copy from pageable memory ends some microseconds after its call, which has read that memory by then: such a call
    takes as long after the start of the copy as was observed.
    """
    waits = np.flatnonzero((calls.sync == path.SYNC_OPERATION) & (calls.target >= 0))
    target = calls.target[waits]
    is_staged = (launching[target] == waits) & (operations.end[target] > calls.end[waits])
    since = np.where(is_staged, target, numbers.operation_end + target)
    kind = np.where(is_staged, STAGE, WAKE)
    return make_edges(since, numbers.call_end + waits, kind, ALWAYS)


def _list_full_queues(operations: PathOperations, calls: PathCalls, launching: IntArray, numbers: Numbers) -> Edges:
    """Let each launch call return only after its stream has a free place in the queue.

    A queue has as many places as were seen in use, and at least QUEUE: operations take more or less than one place.
    """
    launched = np.flatnonzero(launching >= 0)
    keys = operations.begin[launched], operations.launched[launched], operations.stream[launched]
    order = launched[np.lexsort(keys)]
    # The nodes of a graph that one call launched take one place.
    order = order[find_starts(operations.stream[order], launching[order])]
    call, stream = launching[order], operations.stream[order]
    starts = find_starts(stream)
    first = np.repeat(starts, np.diff(np.append(starts, order.size)))
    at = np.arange(order.size)
    parts = np.split(operations.end[order], starts[1:])
    ended = np.concatenate([np.maximum.accumulate(part) for part in parts])
    done = find_latest(stream, ended, stream, calls.end[call] if order.size else stream)
    places = np.maximum.reduceat(at - np.where(done >= 0, done, first - 1), starts) if starts.size else starts
    ahead = at - np.repeat(np.maximum(places, QUEUE), np.diff(np.append(starts, order.size)))
    freed = np.where(ahead >= first, order[np.maximum(ahead, 0)], NONE)
    return make_edges(np.where(freed >= 0, numbers.operation_end + freed, NONE), numbers.call_end + call, FREE, ALWAYS)


# ---- streams and CUDA events -----------------------------------------------------------------------------------------


def _follow_streams(
    operations: PathOperations, calls: PathCalls, threads: PathThreads, events: PathEvents, numbers: Numbers
) -> tuple[IntTable, IntTable]:
    """Follow what streams were given, in the order of the host's calls.

    Return edges between nodes (rows since, to, kind), and the two nodes that each marker joins and its time (ns), the
    later one of theirs, as rows.
    """
    every = np.arange(numbers.operations)
    sent = np.empty(numbers.operations, np.int64)
    _find_sent(operations.launched, operations.begin, operations.stream, sent)
    asked = (events.call >= 0) & (pick(calls.sync, events.call, path.NO_SYNC) != path.NO_SYNC)
    kept = np.flatnonzero(asked | np.isin(events.kind, (RECORDS, WAITS)))
    by_event = np.zeros(numbers.calls, np.bool_)
    by_event[events.call[asked]] = True
    none = np.full(every.size, NONE)
    time = events.time[kept]
    steps = [
        (np.full(every.size, LAUNCHES), operations.stream, every, none, none, sent, operations.begin),
        (events.kind[kept], events.stream[kept], kept, events.event[kept], events.call[kept], time, time),
    ]
    process = threads.process[calls.thread]
    for kind_of_step, sync, target in (
        (ASKS_STREAM, path.SYNC_STREAM, calls.target),
        (_ASKS_DEVICE, path.SYNC_DEVICE, calls.target),
        (_ASKS_PROCESS, path.SYNC_PROCESS, process),
    ):
        which = np.flatnonzero((calls.sync == sync) & ~by_event)
        none, time = np.full(which.size, NONE), calls.since[which]
        steps.append((np.full(which.size, kind_of_step), target[which], which, none, which, time, time))
    kind, where, index, event, call, time, begin = (np.concatenate(column) for column in zip(*steps, strict=True))
    order = np.lexsort((begin, kind, time))
    devices, processes = (_group_streams(operations.stream, of) for of in (operations.device, operations.process))
    # Each step makes at most one edge and one marker, or an edge from each stream of a device or process.
    more = devices.count(where[kind == _ASKS_DEVICE]) + processes.count(where[kind == _ASKS_PROCESS])
    given = _Given(*(column[order] for column in (kind, where, index, event, call)))
    tail, recorded = (np.full(int(number.max(initial=NONE)) + 1, NONE) for number in (where, event))
    edges, markers = np.empty((3, kind.size + more), np.int64), np.empty((3, kind.size), np.int64)
    room = _Room(tail, recorded, edges, markers, operations.end)
    count, made = _follow(given, devices, processes, numbers, room)
    return edges[:, :count], markers[:, :made]


@compiled
def _find_sent(launched: IntArray, begin: IntArray, stream: IntArray, sent: IntArray) -> None:
    """Set when each operation was given to its stream (ns): that of an unknown launch by the order of the stream.

    Then it is the latest possible time: its start, or an earlier launch of what ran after it.
    """
    latest = np.int64(0)
    for k in range(sent.size - 1, -1, -1):
        if k == sent.size - 1 or stream[k + 1] != stream[k]:
            latest = begin[k]
        sent[k] = launched[k] if launched[k] > NEVER else min(begin[k], latest)
        latest = min(latest, sent[k])


class _Given(NamedTuple):
    """n steps in the order of calls: what a stream was given, or what a call asks a stream, device or process for.

    `kind`: as in path/streams.py, and _ASKS_DEVICE and _ASKS_PROCESS; `where`: the stream, device or process;
    `operation`: its number; `event`: the CUDA event; `call`: the call that waits. What a kind lacks has no meaning.
    """

    kind: IntArray
    where: IntArray
    operation: IntArray
    event: IntArray
    call: IntArray


class _Room(NamedTuple):
    """What `_follow` fills.

    `tail`: the node after which everything in a stream has ended; `recorded`: that node when an event was recorded; all
    are NONE at first. `edges` has since, to and kind as rows; `markers` the two nodes that each joins, and its time.
    """

    tail: IntArray
    recorded: IntArray
    edges: IntTable
    markers: IntTable
    op_end: IntArray
    """When each operation ended (ns); given."""


class _Groups(NamedTuple):
    """The streams of groups: streams[first[i]] .. streams[first[i + 1] - 1] are those of group i."""

    streams: IntArray
    first: IntArray

    def count(self, groups: IntArray) -> int:
        """Return how many streams groups have in all; numbers of other groups have none."""
        known = groups[(groups >= 0) & (groups < self.first.size - 1)]
        return int((self.first[known + 1] - self.first[known]).sum())


def _group_streams(stream: IntArray, group: IntArray) -> _Groups:
    """Return the streams by device or process. `stream`, `group`: of each operation; one without any is in NONE."""
    of_stream = np.full(int(stream.max(initial=NONE)) + 1, NONE)
    of_stream[stream] = group
    streams = np.argsort(of_stream, kind="stable")
    return _Groups(streams, np.searchsorted(of_stream[streams], np.arange(int(of_stream.max(initial=NONE)) + 2)))


@compiled
def _follow(given: _Given, devices: _Groups, processes: _Groups, numbers: Numbers, room: _Room) -> tuple[int, int]:
    """Replay n steps in the order of calls: fill the room, and return how many edges and markers there are."""
    kind, where, operation, event, call = given
    tail, recorded, edges, _, op_end = room
    count, made = 0, 0
    operation_end, call_end, others = numbers[0], 2 * numbers[0] + numbers[1], 2 * (numbers[0] + numbers[1])
    for i in range(kind.size):
        s, n = where[i], operation[i]
        if kind[i] == LAUNCHES:
            before = tail[s]
            count = _add_edge(edges, count, before, n, GAP)
            tail[s] = operation_end + n
            if before >= 0 and _get_time(before, room, operation_end, others) > op_end[n]:
                made = _add_marker(room, made, before, tail[s], operation_end, others)
                tail[s] = others + made - 1
        elif kind[i] == RECORDS:
            recorded[event[i]] = tail[s]
        elif kind[i] == WAITS:
            other = recorded[event[i]]
            if other >= 0 and other != tail[s]:
                if tail[s] >= 0:
                    made = _add_marker(room, made, tail[s], other, operation_end, others)
                    other = others + made - 1
                tail[s] = other
        elif kind[i] == ASKS:
            count = _add_edge(edges, count, recorded[event[i]], call_end + call[i], WAKE)
        elif kind[i] == ASKS_STREAM:
            count = _add_edge(edges, count, tail[s], call_end + call[i], WAKE)
        else:
            streams, first = devices if kind[i] == _ASKS_DEVICE else processes
            if 0 <= s < first.size - 1:  # a device or process without operations has no streams
                for k in range(first[s], first[s + 1]):
                    count = _add_edge(edges, count, tail[streams[k]], call_end + call[i], WAKE)
    return count, made


@compiled
def _add_edge(edges: IntTable, count: int, since: int, to: int, kind: int) -> int:
    """Add an edge, unless it comes from NONE, and return how many there are."""
    if since < 0:
        return count
    edges[0, count], edges[1, count], edges[2, count] = since, to, kind
    return count + 1


@compiled
def _add_marker(room: _Room, made: int, one: int, other: int, operation_end: int, others: int) -> int:
    """Add a marker, which is reached when the later of two nodes was, and return how many there are."""
    latest = max(_get_time(one, room, operation_end, others), _get_time(other, room, operation_end, others))
    room.markers[0, made], room.markers[1, made], room.markers[2, made] = one, other, latest
    return made + 1


@compiled
def _get_time(node: int, room: _Room, operation_end: int, others: int) -> int:
    """Return when a tail was reached: the end of an operation, or the time of a marker (ns)."""
    return room.markers[2, node - others] if node >= others else room.op_end[node - operation_end]
