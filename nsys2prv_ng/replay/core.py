"""The core of a graph: all that decides when the nodes happen that a replay measures.

In a graph of a job, most nodes follow one other node, and one follows them: such chains are one edge each. Many others
have no influence on what is measured, such as the calls of idle threads. So the core has a third of the nodes, and to
play it takes a fifth of the time, though it gives the same times.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nsys2prv_ng.arrays.types import Int8Array, Int32Array, IntArray, IntTable
from nsys2prv_ng.replay.graph import NONE, REMOVED, Graph
from nsys2prv_ng.runtime.jit import compiled

KEPT, GONE = 1, 2
"""What becomes of a node that does not follow its edges: it happens when it was observed, or before anything waits."""
_MEASURED = 2
"""Uses of a node that is measured: it is no part of a chain."""
_CHAIN = -1


class Core(NamedTuple):
    """n nodes of a graph, each after all that it depends on, and m edges, ordered by the node they lead to.

    Edges first[i] .. first[i + 1] - 1 lead to node i. `number`: the index of each node of the graph; NONE if it is none
    of these. `fates`: what becomes of each node in two replays. `weight`: as observed (ns). `last`: the last edge of
    the graph on each edge; `part_of`: the edge on which each edge of the graph is; NONE if it is on none.
    """

    number: Int32Array
    time: IntArray
    fates: Int8Array
    first: Int32Array
    since: Int32Array
    weight: IntArray
    last: Int32Array
    part_of: Int32Array


def join_fates(one: Int8Array, other: Int8Array) -> Int8Array:
    """Return what `find_core` takes, given what becomes of each node (n) in two replays: 0, KEPT or GONE."""
    return one + np.int8(3) * other


def find_core(graph: Graph, measured: IntArray, fates: Int8Array, low: int) -> Core:
    """Return the core for some nodes. What led to nodes before a time (ns) that follow no edges does not count."""
    uses = np.zeros(graph.time.size, np.int32)
    uses[measured] = _MEASURED
    nodes, edges = _count_core(graph, fates, low, uses)
    core = Core(
        number=np.empty(uses.size, np.int32),
        time=np.empty(nodes, np.int64),
        fates=np.empty(nodes, np.int8),
        first=np.zeros(nodes + 1, np.int32),
        since=np.empty(edges, np.int32),
        weight=np.empty(edges, np.int64),
        last=np.empty(edges, np.int32),
        part_of=np.full(graph.to.size, NONE, np.int32),
    )
    _fill_core(graph, fates, low, uses, core)
    return core


@compiled
def _has_cause(time: int, fate: int, low: int) -> bool:
    """Return whether any edge to a node counts."""
    return fate % 3 == 0 or fate // 3 == 0 or time > low


@compiled
def _count_core(graph: Graph, fates: Int8Array, low: int, uses: Int32Array) -> tuple[int, int]:
    """Count the edges from each node that count, or mark it as one of a chain. Return the size of the core."""
    nodes, edges = 0, 0
    for p in range(graph.order.size - 1, -1, -1):
        node = graph.order[p]
        if not uses[node]:
            continue
        begin, end = graph.first[p], graph.first[p + 1]
        if not _has_cause(graph.time[node], fates[node], low):
            end = begin
        for edge in range(begin, end):
            uses[graph.since[edge]] += 1
        if uses[node] == 1 and end - begin == 1 and not fates[node]:
            uses[node] = _CHAIN
        else:
            nodes += 1
            edges += end - begin
    return nodes, edges


@compiled
def _fill_core(graph: Graph, fates: Int8Array, low: int, uses: Int32Array, core: Core) -> None:
    """Fill the columns of a core. `uses`: as `_count_core` leaves them."""
    order, position, first, since = graph.order, graph.position, graph.first, graph.since
    count, n = 0, 0
    for p in range(order.size):
        node = order[p]
        core.number[node] = NONE
        if uses[node] <= 0:
            continue
        if _has_cause(graph.time[node], fates[node], low):
            for edge in range(first[p], first[p + 1]):
                core.last[count], core.part_of[edge] = edge, count
                length, before = graph.weight[edge], since[edge]
                while uses[before] == _CHAIN:
                    link = first[position[before]]
                    core.part_of[link] = count
                    length += graph.weight[link]
                    before = since[link]
                core.since[count], core.weight[count] = core.number[before], length
                count += 1
        core.number[node] = n
        core.time[n], core.fates[n], core.first[n + 1] = graph.time[node], fates[node], count
        n += 1


def measure_lengths(graph: Graph, core: Core, weight: IntArray) -> IntArray:
    """Return the length of each edge of the core (ns) if the graph has these weights (ns)."""
    length = core.weight.copy()
    _lengthen(graph.weight, weight, core.part_of, length)
    return length


def play_core(core: Core, length: IntArray) -> IntTable:
    """Return when each node of the core happens in two replays (n x 2, ns), given the lengths of its edges (ns)."""
    new = np.empty((core.time.size, 2), np.int64)
    _play_core(core, length, new)
    return new


@compiled
def _lengthen(old: IntArray, weight: IntArray, part_of: Int32Array, length: IntArray) -> None:
    """Change the lengths (ns) of the edges of a core by what the weights of the graph changed."""
    for edge in range(weight.size):
        if weight[edge] != old[edge] and part_of[edge] >= 0:
            changed = length[part_of[edge]] + weight[edge] - old[edge]
            length[part_of[edge]] = max(changed, REMOVED)  # so that no sum leaves 64 bits


@compiled
def _play_core(core: Core, length: IntArray, new: IntTable) -> None:
    time, fates, first, since = core.time, core.fates, core.first, core.since
    for n in range(time.size):
        low, high = first[n], first[n + 1]
        one = other = time[n] if low == high else REMOVED
        for edge in range(low, high):
            one = max(one, new[since[edge], 0] + length[edge])
            other = max(other, new[since[edge], 1] + length[edge])
        if fates[n]:
            fate = fates[n] % 3
            if fate:
                one = time[n] if fate == KEPT else REMOVED
            fate = fates[n] // 3
            if fate:
                other = time[n] if fate == KEPT else REMOVED
        new[n, 0], new[n, 1] = one, other


def trace_back(graph: Graph, core: Core, weight: IntArray, new: IntArray, node: int, low: int) -> IntArray:
    """Return the edges of the graph that decided when a node happens, back to a time (ns), its end first.

    `weight`: of each edge of the graph; `new`: when each node of the core happens (ns).
    """
    path = np.empty(graph.order.size, np.int64)
    return path[: _trace_back(graph, core, weight, new, int(core.number[node]), low, path)].copy()


@compiled
def _trace_back(graph: Graph, core: Core, weight: IntArray, new: IntArray, at: int, low: int, path: IntArray) -> int:
    position, first, since, number = graph.position, graph.first, graph.since, core.number
    count = 0
    while new[at] > low:
        decided = NONE
        for part in range(core.first[at + 1] - 1, core.first[at] - 1, -1):
            edge = core.last[part]
            length = weight[edge]
            while number[since[edge]] == NONE:
                edge = first[position[since[edge]]]
                length = max(length + weight[edge], REMOVED)
            if new[number[since[edge]]] + length == new[at]:
                decided = core.last[part]
                break
        if decided == NONE:
            break
        edge, time = decided, new[at]
        while True:
            path[count] = edge
            count += 1
            time -= weight[edge]
            at = number[since[edge]]
            if at != NONE:
                break
            if time <= low:
                return count
            edge = first[position[since[edge]]]
    return count
