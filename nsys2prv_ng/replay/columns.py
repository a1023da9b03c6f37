"""Columns of a replay: events as nodes of a graph, dependencies as its edges, and what an edge stands for.

A node is the start or the end of an operation or call, the moment when all ranks have entered an operation over ranks,
when a stream has ended everything it was given, or when a range ends. Node v happens at the maximum of t(u) + weight
over its edges (u, v). A node without edges, as the first of a process, happens when it was observed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from nsys2prv_ng.arrays.types import BoolArray, Int8Array, Int32Array, IntArray, Integers
from nsys2prv_ng.runtime.jit import compiled

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
