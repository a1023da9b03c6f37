"""The graph of a replay: events as nodes, dependencies as edges; builds it from observed times, and plays it forward.

A node is the start or the end of an operation or call, the moment when all ranks have entered an operation over ranks,
when a stream has ended everything it was given, or when a range ends. Node v happens at the maximum of t(u) + weight
over its edges (u, v). A node without edges, as the first of a process, happens when it was observed.

With nothing changed, each node happens when it was observed: of its dependencies the last one has the observed time as
its weight, and the others at most that. Weights are what a change alters. A larger weight never makes a node earlier.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from nsys2prv_ng.arrays.row_keys import sort_rows, take_groups
from nsys2prv_ng.arrays.types import BoolArray, Int8Array, Int32Array, IntArray, Integers
from nsys2prv_ng.runtime.jit import compiled
from nsys2prv_ng.runtime.parallel import run_in_threads

CODE, CALL, WAKE, LAUNCH, GAP, KERNEL, COPY, NEAR, FAR, UNSPLIT, TOGETHER, FREE, HANDOVER, STAGE, AFTER = range(15)
"""What passes along an edge:

CODE: host code between two calls, or a host function; CALL: a call's own work; WAKE: a call returns after what it
waited for has ended; LAUNCH: an operation starts after its launch call; GAP: it starts after the operation before
it; KERNEL and COPY: a kernel (or graph) and a copy run; NEAR and FAR: data move between ranks of one node, or of
several, once all ranks have entered; UNSPLIT: an NCCL kernel waits or moves data, which is not known; TOGETHER: a
rank enters an operation over ranks; FREE: a launch call gets a place in the queue; HANDOVER: a thread goes on after
another one; STAGE: a call returns once its copy has read most of the host's pageable memory; AFTER: what shows no
cause follows what its process did before, and no change alters the time between them."""
ON_HOST = (CODE, CALL, WAKE, FREE, HANDOVER)
"""Edges whose time a host thread passes."""
NETWORK = (NEAR, FAR)
NETWORK_TIME = "network"
_KINDS = {
    "host": (CODE, CALL, WAKE, HANDOVER, AFTER),
    "launch": (LAUNCH,),
    "GPU": (GAP, KERNEL, FREE),
    "copies": (COPY, STAGE),
    NETWORK_TIME: (NEAR, FAR, UNSPLIT, TOGETHER),
}
NAMES = {kind: name for name, kinds in _KINDS.items() for kind in kinds}
"""What limits a job while its time passes along an edge of each kind."""
NONE = -1
ALWAYS = np.iinfo(np.int64).max
"""A weight that no observed time lowers: an edge that is not the last to arrive may take any time."""
REMOVED = np.iinfo(np.int64).min // 4
"""A weight so low that the edge no longer matters."""


def mark_kinds(kind: Integers, kinds: Iterable[int]) -> BoolArray:
    """Mark the edges of some kinds."""
    marked = np.zeros(kind.shape, np.bool_)
    for each in kinds:  # a few, and each comparison of bytes is far faster than looking all of them up
        marked |= kind == each
    return marked


def mark_at(marked: BoolArray, index: Int32Array) -> BoolArray:
    """Mark the items (n) whose index is that of a marked one; the index NONE is of none."""
    found = np.empty(index.size, np.bool_)
    _mark_at(marked, index, found)
    return found


@compiled
def _mark_at(marked: BoolArray, index: Int32Array, found: BoolArray) -> None:
    for i in range(index.size):
        found[i] = index[i] >= 0 and marked[index[i]]


class Edges(NamedTuple):
    """n dependencies: node `to` happens at the earliest `least` ns after node `since`, and after the last of them all.

    The dependency that was observed last has the observed time as its weight, whatever `least` is.
    """

    since: Int32Array
    to: Int32Array
    kind: Int8Array
    least: IntArray

    def take(self, which: IntArray | BoolArray) -> Edges:
        """Return the edges that indices or a mask select."""
        return Edges._make(column[which] for column in self)


def make_edges(since: IntArray, to: IntArray, kind: IntArray | int, least: IntArray | int = 0) -> Edges:
    """Return edges without those from or to no node (NONE)."""
    known = np.flatnonzero((since >= 0) & (to >= 0))
    kinds = np.broadcast_to(np.asarray(kind).astype(np.int8), since.shape)
    shortest = np.broadcast_to(np.asarray(least, np.int64), since.shape)
    return Edges(since[known].astype(np.int32), to[known].astype(np.int32), kinds[known], shortest[known])


def join_edges(parts: list[Edges]) -> Edges:
    """Return all edges."""
    return Edges._make(np.concatenate(columns) for columns in zip(*parts, strict=True))


class Numbers(NamedTuple):
    """The numbers of nodes: n operations and c calls have a start and an end each; then come all other nodes."""

    operations: int
    calls: int

    @property
    def operation_end(self) -> int:
        """Number of the end of operation 0; the starts begin at 0."""
        return self.operations

    @property
    def call_begin(self) -> int:
        return 2 * self.operations

    @property
    def call_end(self) -> int:
        return 2 * self.operations + self.calls

    @property
    def others(self) -> int:
        """Number of the first node that is neither."""
        return 2 * (self.operations + self.calls)


class Graph(NamedTuple):
    """n nodes with their observed times (ns), and m edges, ordered by the position of the node they lead to.

    `order`: the nodes in an order in which each follows all that it depends on; `position`: where each node is in it.
    Edges first[p] .. first[p + 1] - 1 lead to node order[p]; the last of them arrived last. `weight` (ns) passes along
    an edge.
    """

    time: IntArray
    order: Int32Array
    position: Int32Array
    first: IntArray
    since: Int32Array
    to: Int32Array
    kind: Int8Array
    weight: IntArray
    dropped: int
    """Dependencies that contradict the observed times, or go in circles: they are not in the graph."""


_FEW = 16
"""Most edges to one node that are sorted by insertion."""


def build_graph(time: IntArray, edges: Edges, threads: int = 1) -> Graph:
    """Return the graph of nodes that were observed at a time (n, ns)."""
    by_time, (first, grouped) = run_all([lambda: sort_rows(time), lambda: _group(time, edges)], threads)
    order, stack = np.empty(time.size, np.int32), np.empty(time.size, np.int32)
    kept = np.ones(grouped.size, np.bool_)
    room = _SortRoom(first[:-1].copy(), np.zeros(time.size, np.int8), stack)
    _sort(by_time, first, edges.since, grouped, room, order, kept)
    del by_time, stack, room
    count = int(np.count_nonzero(kept))
    placed = Edges(*(np.empty(count, column.dtype) for column in edges))
    limits = np.zeros(time.size + 1, np.int64)
    _count_kept(order, first, kept, limits)
    position = np.empty_like(order)
    parts = np.linspace(0, order.size, threads + 1).astype(np.int64).tolist()

    def place(low: int, high: int) -> None:
        _place_edges(time, edges, order[low:high], first, grouped, kept, placed, limits[low:])
        position[order[low:high]] = np.arange(low, high, dtype=np.int32)

    run_all([partial(place, low, high) for low, high in pairwise(parts)], threads)
    return Graph(time, order, position, limits, *placed, dropped=edges.to.size - count)


def run_all(functions: Sequence[Callable[[], Any]], threads: int) -> list[Any]:
    """Return the results of functions that need nothing of each other."""
    return list(run_in_threads(lambda function: function(), functions, min(len(functions), threads)))


def _group(time: IntArray, edges: Edges) -> tuple[IntArray, Int32Array]:
    """Return the numbers of the edges by the node they lead to: (limits of the nodes, edges).

    Edges are moved once, at the end; until then their numbers stand for them.
    """
    first = np.zeros(time.size + 1, np.int64)
    _count_edges(time, edges.since, edges.to, first)
    np.cumsum(first, out=first)
    grouped = np.empty(int(first[-1]), np.int32)
    _group_edges(time, edges, first, first[:-1].copy(), grouped)
    _sort_large_groups(time, edges, first, grouped)
    return first, grouped


@compiled
def _count_edges(time: IntArray, since: Int32Array, to: Int32Array, count: IntArray) -> None:
    """Add 1 to count[node + 1] for each edge to a node that does not contradict the observed times."""
    for e in range(to.size):
        if time[to[e]] >= time[since[e]] and since[e] != to[e]:
            count[to[e] + 1] += 1


@compiled
def _group_edges(time: IntArray, edges: Edges, first: IntArray, at: IntArray, grouped: Int32Array) -> None:
    """Set the numbers of the edges that lead to each node, and order small groups by the time that edges come from.

    Edges of one time are ordered by kind. `at`: a copy of `first`, without its end.
    """
    since, to, kind, _ = edges
    for e in range(to.size):
        node = to[e]
        if time[node] >= time[since[e]] and since[e] != node:
            grouped[at[node]] = e
            at[node] += 1
    for node in range(at.size):
        low, high = first[node], first[node + 1]
        if high - low > _FEW:
            continue
        for i in range(low + 1, high):
            e = grouped[i]
            left = i
            while left > low and (
                time[since[grouped[left - 1]]] > time[since[e]]
                or (time[since[grouped[left - 1]]] == time[since[e]] and kind[grouped[left - 1]] > kind[e])
            ):
                grouped[left] = grouped[left - 1]
                left -= 1
            grouped[left] = e


def _sort_large_groups(time: IntArray, edges: Edges, first: IntArray, grouped: Int32Array) -> None:
    """Order the edges of the groups that are not small, as `_group_edges` orders those of the others."""
    large = np.flatnonzero(np.diff(first) > _FEW)
    _, at = take_groups(first, large)
    edge = grouped[at]
    grouped[at] = edge[np.lexsort((edges.kind[edge], time[edges.since[edge]], edges.to[edge]))]


class _SortRoom(NamedTuple):
    """What `_sort` keeps of each of n nodes: the next edge to look at (its first one, at the start), and its state.

    `state`: 0 at the start, 1 while a node waits for others, 2 once it is placed. `stack`: room for those that wait.
    """

    at: IntArray
    state: Int8Array
    stack: Int32Array


@compiled
def _sort(
    by_time: IntArray,
    first: IntArray,
    since: Int32Array,
    grouped: Int32Array,
    room: _SortRoom,
    order: Int32Array,
    kept: BoolArray,
) -> None:
    """Order nodes so that each follows all it depends on, and drop edges that close circles.

    Only nodes of the same time can be in the wrong order. `kept`: True at first.
    """
    at, state, stack = room
    filled = 0
    for node in by_time:
        if state[node] == 2:
            continue
        depth = 1
        stack[0] = node
        state[node] = 1
        while depth:
            top = stack[depth - 1]
            if at[top] == first[top + 1]:
                state[top] = 2
                order[filled] = top
                filled += 1
                depth -= 1
                continue
            edge = at[top]
            at[top] += 1
            before = since[grouped[edge]]
            if state[before] == 0:
                state[before] = 1
                stack[depth] = before
                depth += 1
            elif state[before] == 1:
                kept[edge] = False


@compiled
def _count_kept(order: Int32Array, first: IntArray, kept: BoolArray, limits: IntArray) -> None:
    """Set where the kept edges to each node end, in the order of nodes."""
    for p in range(order.size):
        count = 0
        for i in range(first[order[p]], first[order[p] + 1]):
            count += kept[i]
        limits[p + 1] = limits[p] + count


@compiled
def _place_edges(
    time: IntArray,
    edges: Edges,
    order: Int32Array,
    first: IntArray,
    grouped: Int32Array,
    kept: BoolArray,
    placed: Edges,
    limits: IntArray,
) -> None:
    """Place the edges to some nodes in their order, so that a replay reads them once, and set their weights.

    `limits`: where those to each node are.
    `least` of the placed edges becomes their weight: the observed time for the last one to each node.
    """
    for p in range(order.size):
        node, count = order[p], limits[p]
        for i in range(first[node], first[node + 1]):
            if kept[i]:
                e = grouped[i]
                placed.since[count] = edges.since[e]
                placed.to[count] = node
                placed.kind[count] = edges.kind[e]
                placed.least[count] = min(edges.least[e], time[node] - time[edges.since[e]])
                count += 1
        if count > limits[p]:
            placed.least[count - 1] = time[node] - time[placed.since[count - 1]]


def play(graph: Graph, weight: IntArray) -> IntArray:
    """Return when each node happens (n, ns) with other weights (m, ns)."""
    new = np.empty(graph.time.size, np.int64)
    _play(graph, weight, new)
    return new


@compiled
def _play(graph: Graph, weight: IntArray, new: IntArray) -> None:
    time, order, first, since = graph.time, graph.order, graph.first, graph.since
    for p in range(order.size):
        node = order[p]
        low, high = first[p], first[p + 1]
        if low == high:
            new[node] = time[node]
            continue
        latest = new[since[low]] + weight[low]
        for edge in range(low + 1, high):
            latest = max(latest, new[since[edge]] + weight[edge])
        new[node] = max(latest, REMOVED)  # so that no sum leaves 64 bits
