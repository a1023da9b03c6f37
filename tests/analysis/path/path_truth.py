"""The critical path of a small job as the longest path of a graph of all that happens, and the job as columns.

`find_longest` finds the longest path with networkx. `make_arrays` gives the job to the walk as the columns it reads.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import networkx as nx
import numpy as np

from nsys2prv_ng.analysis.path import columns as path
from tests.analysis.path.path_job import Call, Op, SmallJob

Lane = tuple[str, int]
STREAM, THREAD = "stream", "thread"


class Edge(NamedTuple):
    """What leads from one node of the graph to another: how long (ns), the kind of the walk, and the lane."""

    length: int
    kind: int
    lane: Lane


def make_graph(job: SmallJob) -> nx.DiGraph:
    """Return the graph: begins and ends of operations and calls, and the longest of the edges between each two."""
    graph: nx.DiGraph = nx.DiGraph()
    for op in job.ops:
        _add_operation(graph, job, op)
    last: dict[int, tuple[object, int]] = {}
    for call in sorted(job.calls, key=lambda call: call.begin):
        node, time = last.get(call.thread, ("start", 0))
        lane = THREAD, call.thread
        _add(graph, node, ("call", call), Edge(call.begin - time, path.CODE, lane))
        _add_end(graph, call, lane)
        assert call.end is not None
        last[call.thread] = ("return", call), call.end
    return graph


def _add_operation(graph: nx.DiGraph, job: SmallJob, op: Op) -> None:
    lane = STREAM, op.stream
    launch = next(call for call in job.calls if call.launched is op)
    _add(graph, ("call", launch), ("begin", op), Edge(op.latency, path.LAUNCH, lane))
    for cause in op.causes:
        _add(graph, ("end", cause), ("begin", op), Edge(op.latency, path.GAP, lane))
    kind = path.OPERATION if op.collective is None else path.MOVING
    for member in op.collective or [op]:
        _add(graph, ("begin", member), ("end", op), Edge(op.duration, kind, lane))


def _add_end(graph: nx.DiGraph, call: Call, lane: Lane) -> None:
    """Add what lets a call return."""
    assert call.end is not None
    end = "return", call
    if call.signal is not None:
        _add(graph, ("return", call.signal), end, Edge(0, path.CALL, lane))
        return
    if call.since is not None:  # a query: its thread has waited if the event came after the query before
        latest = max((op for op in call.waited), key=lambda op: op.end or 0, default=None)
        if latest is not None and latest.end is not None and call.since < latest.end <= call.end:
            _add(graph, ("end", latest), end, Edge(call.end - latest.end, path.CALL, lane))
            return
    elif call.sync != path.NO_SYNC:
        for op in call.waited:
            _add(graph, ("end", op), end, Edge(call.length, path.CALL, lane))
    for other in call.group or [call]:
        _add(graph, ("call", other), end, Edge(call.length, path.CALL, lane))


def _add(graph: nx.DiGraph, source: object, target: object, edge: Edge) -> None:
    if not graph.has_edge(source, target) or graph.edges[source, target]["weight"] < edge.length:
        graph.add_edge(source, target, weight=edge.length, edge=edge)


class Piece(NamedTuple):
    """A segment of a path."""

    begin: int
    end: int
    kind: int
    lane: Lane


class Longest(NamedTuple):
    """The longest path: its length and where it ends, its pieces in the order of time if it is the only one, and all
    pieces of which longest paths may consist."""

    length: int
    last: tuple[str, Any]
    pieces: list[Piece] | None
    possible: set[Piece]


def find_longest(job: SmallJob) -> Longest:
    """Return the longest path of a job."""
    graph = make_graph(job)
    length = int(nx.dag_longest_path_length(graph))
    last = nx.dag_longest_path(graph)[-1]
    time: dict[object, int] = {}
    for node in nx.topological_sort(graph):
        time[node] = max((time[source] + graph.edges[source, node]["weight"] for source in graph.pred[node]), default=0)
    for op in job.ops:
        assert (time["begin", op], time["end", op]) == (op.begin, op.end)
    for call in job.calls:
        assert (time["call", call], time["return", call]) == (call.begin, call.end)
    pieces: list[Piece] | None = [] if list(time.values()).count(length) == 1 else None
    possible: set[Piece] = set()
    reached, todo = {last}, [last]
    while todo:
        node = todo.pop()
        tight = [
            source for source in graph.pred[node] if time[source] + graph.edges[source, node]["weight"] == time[node]
        ]
        pieces = None if len(tight) > 1 else pieces
        for source in tight:
            edge = graph.edges[source, node]["edge"]
            piece = Piece(time[source], time[node], edge.kind, edge.lane)
            possible.add(piece)
            if pieces is not None and edge.length:
                pieces.insert(0, piece)
            if source not in reached:
                reached.add(source)
                todo.append(source)
    return Longest(length, last, pieces, possible)


# ---- columns of the walk ---------------------------------------------------------------------------------------------


class Arrays(NamedTuple):
    """Columns of the walk; numbers of operations and threads by object."""

    operations: path.PathOperations
    calls: path.PathCalls
    threads: path.PathThreads
    number: dict[Op, int]


def make_arrays(job: SmallJob) -> Arrays:
    """Return a job as columns."""
    ops = sorted(job.ops, key=lambda op: (op.stream, op.begin, op.number))
    number = {op: index for index, op in enumerate(ops)}
    rank_of = [job.streams[op.stream][0] for op in ops]

    def latest(candidates: list[Op]) -> int:
        return number[max(candidates, key=lambda op: op.end or 0)] if candidates else path.NONE

    culprits = [_find_last_member(op) for op in ops]
    operations = path.PathOperations(
        begin=_column(op.begin for op in ops),
        end=_column(op.end for op in ops),
        stream=_column(op.stream for op in ops),
        device=_column(job.streams[op.stream][0] * 2 + job.streams[op.stream][1] for op in ops),
        process=_column(rank_of),
        thread=_column(op.thread for op in ops),
        launched=_column(op.launched for op in ops),
        producer=_column(latest(op.producer) for op in ops),
        until=_column(other.begin for other in culprits),
        culprit=_column(
            path.NONE if other.begin == op.begin else number[other] for op, other in zip(ops, culprits, strict=True)
        ),
        kind=_column(path.OPERATION if op.collective is None else path.MOVING for op in ops),
    )
    calls = sorted(job.calls, key=lambda call: (call.thread, call.begin))
    first = np.searchsorted(_column(call.thread for call in calls), np.arange(len(job.threads) + 1))
    lasts = [max((other or call for other in call.group or [call]), key=lambda other: other.begin) for call in calls]
    waits = [last.begin > call.begin for call, last in zip(calls, lasts, strict=True)]
    columns = path.PathCalls(
        begin=_column(call.begin for call in calls),
        end=_column(call.end for call in calls),
        thread=_column(call.thread for call in calls),
        sync=_column(_get_sync(call) for call in calls),
        target=_column(
            latest(call.waited) if _get_sync(call) == path.SYNC_OPERATION else call.target for call in calls
        ),
        since=_column(call.begin if call.since is None else call.since for call in calls),
        until=_column(last.begin for last in lasts),
        culprit=_column(last.thread if late else path.NONE for last, late in zip(lasts, waits, strict=True)),
        culprit_begin=_column(last.begin for last in lasts),
    )
    return Arrays(operations, columns, _make_threads(job, first), number)


def _make_threads(job: SmallJob, first: np.ndarray) -> path.PathThreads:
    n = len(job.threads)
    return path.PathThreads(
        process=_column(job.threads),
        first=first.astype(np.int64),
        launches=np.ones(n, np.bool_),
        shortest_wait=np.ones(n, np.int64),
        creator=np.full(n, path.NONE),
        created=np.zeros(n, np.int64),
    )


def _get_sync(call: Call) -> int:
    """Return what a call waits for; a stream may wait for an operation of another one, by an event."""
    if call.sync == path.SYNC_OPERATION and not call.waited:
        return path.NO_SYNC
    if call.sync == path.SYNC_STREAM and call.waited:
        last = max(call.waited, key=lambda op: op.end or 0)
        return path.SYNC_STREAM if last.stream == call.target else path.SYNC_OPERATION
    return call.sync


def _find_last_member(op: Op) -> Op:
    return max((other or op for other in op.collective or [op]), key=lambda other: other.begin or 0)


def _column(values: object) -> np.ndarray:
    return np.array([int(value) for value in values], np.int64)  # type: ignore[attr-defined]


def read_segments(segments: path.Segments) -> list[Piece]:
    """Return the pieces of a path that was walked, in the order of time; lanes of streams have their operation."""
    pieces = []
    for begin, end, kind, operation, thread in zip(*(column.tolist() for column in segments[:5]), strict=True):
        pieces.insert(0, Piece(begin, end, kind, (THREAD, thread) if thread >= 0 else (STREAM, operation)))
    return pieces


def name_streams(pieces: list[Piece], operations: path.PathOperations) -> list[Piece]:
    """Return pieces whose lanes have the streams of their operations."""
    return [
        piece._replace(lane=(STREAM, int(operations.stream[piece.lane[1]]))) if piece.lane[0] == STREAM else piece
        for piece in pieces
    ]
