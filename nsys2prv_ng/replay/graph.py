"""The graph of a replay: builds it from observed times and dependencies, and plays it forward.

With nothing changed, each node happens when it was observed: of its dependencies the last one has the observed time as
its weight, and the others at most that. Weights are what a change alters. A larger weight never makes a node earlier.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nsys2prv_ng.arrays.row_keys import sort_rows, take_groups
from nsys2prv_ng.arrays.types import BoolArray, Int8Array, Int32Array, IntArray
from nsys2prv_ng.replay.columns import NONE, Edges
from nsys2prv_ng.runtime.jit import compiled


class Graph(NamedTuple):
    """n nodes with their observed times (ns), and m edges, ordered by the position of the node they lead to.

    `order`: the nodes in an order in which each follows all that it depends on; `position`: where each node is in it.
    Edges first[p] .. first[p + 1] - 1 lead to node order[p]. `weight` (ns) is what passes between them. `is_last` marks
    the edges that arrived last.
    """

    time: IntArray
    order: Int32Array
    position: Int32Array
    first: IntArray
    since: Int32Array
    to: Int32Array
    kind: Int8Array
    weight: IntArray
    is_last: BoolArray
    dropped: int
    """Dependencies that contradict the observed times, or go in circles: they are not in the graph."""


def build_graph(time: IntArray, edges: Edges) -> Graph:
    """Return the graph of nodes that were observed at a time (n, ns)."""
    passed = time[edges.to] - time[edges.since]
    possible = np.flatnonzero((passed >= 0) & (edges.since != edges.to))
    dropped = edges.to.size - possible.size
    edges = edges.take(possible)
    edges = edges.take(sort_rows(edges.to, time[edges.since], edges.kind))
    first = _count_up(edges.to, time.size)
    by_time = np.argsort(time, kind="stable")
    order, stack = np.empty((2, time.size), np.int32)
    kept = np.ones(edges.to.size, np.bool_)
    _sort(by_time, first, edges.since, first[:-1].copy(), np.zeros(time.size, np.int8), stack, order, kept)
    if not kept.all():
        dropped += int((~kept).sum())
        edges = edges.take(kept)
        first = _count_up(edges.to, time.size)
    position = np.empty_like(order)
    position[order] = np.arange(order.size)
    # Edges follow each other in the order of their nodes, so that a replay reads them once, from start to end.
    limits, by_order = take_groups(first, order)
    since, to, kind, least = edges.take(by_order)
    passed = time[to] - time[since]
    is_last = np.zeros(to.size, np.bool_)
    is_last[limits[1:][np.diff(limits) > 0] - 1] = True
    weight = np.where(is_last, passed, np.minimum(least, passed))
    return Graph(time, order, position, limits, since, to, kind, weight, is_last, dropped)


def _count_up(to: Int32Array, nodes: int) -> IntArray:
    """Return the first edge of each node (nodes + 1), for edges in ascending order of the node that they lead to."""
    return np.append(0, np.cumsum(np.bincount(to, minlength=nodes)))


@compiled
def _sort(
    by_time: IntArray,
    first: IntArray,
    since: Int32Array,
    at: IntArray,
    state: Int8Array,
    stack: Int32Array,
    order: Int32Array,
    kept: BoolArray,
) -> None:
    """Order nodes so that each follows all it depends on, and drop edges that close circles.

    Only nodes of the same time can be in the wrong order. Of each node: `at`, its first edge; `state`, 0 at first, 1 if
    it waits for others, 2 if it is placed. `stack`: room for nodes that wait. `kept`: True at first.
    """
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
            before = since[edge]
            if state[before] == 0:
                state[before] = 1
                stack[depth] = before
                depth += 1
            elif state[before] == 1:
                kept[edge] = False


def play(graph: Graph, weight: IntArray) -> IntArray:
    """Return when each node happens (n, ns) with other weights (m, ns)."""
    new = np.empty(graph.time.size, np.int64)
    _play(graph.time, graph.order, graph.first, graph.since, weight, new)
    return new


@compiled
def _play(
    time: IntArray, order: Int32Array, first: IntArray, since: Int32Array, weight: IntArray, new: IntArray
) -> None:
    for p in range(order.size):
        node = order[p]
        low, high = first[p], first[p + 1]
        if low == high:
            new[node] = time[node]
            continue
        latest = new[since[low]] + weight[low]
        for edge in range(low + 1, high):
            latest = max(latest, new[since[edge]] + weight[edge])
        new[node] = latest


def trace_back(graph: Graph, weight: IntArray, new: IntArray, node: int, low: int) -> IntArray:
    """Return the edges that decided when a node happens, back to a time (ns): the critical path, its end first."""
    path = np.empty(graph.order.size, np.int64)
    return path[: _trace_back(graph.position, graph.first, graph.since, weight, new, node, low, path)].copy()


@compiled
def _trace_back(
    position: Int32Array,
    first: IntArray,
    since: Int32Array,
    weight: IntArray,
    new: IntArray,
    node: int,
    low: int,
    path: IntArray,
) -> int:
    count = 0
    while new[node] > low:
        p = position[node]
        decided = NONE
        for edge in range(first[p + 1] - 1, first[p] - 1, -1):
            if new[since[edge]] + weight[edge] == new[node]:
                decided = edge
                break
        if decided == NONE:
            break
        path[count] = decided
        count += 1
        node = since[decided]
    return count
