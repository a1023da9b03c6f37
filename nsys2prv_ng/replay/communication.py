"""Dependencies between ranks: in a collective data move once all ranks that are needed have entered, and a message
moves once both sides are there.

Which ranks need which is as in analysis/waits. An operation that is not split there (a member is missing, clocks are
too uncertain) depends on nothing here: its kernels and calls keep their lengths.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nsys2prv_ng import source_names
from nsys2prv_ng.analysis.path.lanes import Lanes
from nsys2prv_ng.analysis.waits.clocks import get_uncertainty, mark_mpi, place_parts
from nsys2prv_ng.analysis.waits.rules import mark_waiting_sends
from nsys2prv_ng.analysis.waits.waits import Waits
from nsys2prv_ng.arrays.row_keys import find_rows
from nsys2prv_ng.arrays.types import BoolArray, IntArray, pick
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.operations.parts import FROM_ROOT, SYNCHRONISING, TO_ROOT
from nsys2prv_ng.replay.graph import FAR, NEAR, NONE, TOGETHER, Edges, Numbers, make_edges
from nsys2prv_ng.report.database import NULL


class Items(NamedTuple):
    """Finds nodes by row and start: n operations on streams, c calls on threads. Times in ns."""

    numbers: Numbers
    operations: tuple[IntArray, IntArray]
    """Row and start of each operation; of those that start together on a row, the first counts."""
    calls: tuple[IntArray, IntArray]

    def find(self, is_call: BoolArray, row: IntArray, begin: IntArray) -> IntArray:
        """Return the node at which each operation or call starts; NONE if there is none."""
        found = np.full(row.size, NONE, np.int64)
        for which, known, first in ((~is_call, self.operations, 0), (is_call, self.calls, self.numbers.call_begin)):
            at = find_rows(known, [row[which], begin[which]])
            found[which] = np.where(at >= 0, first + at, NONE)
        return found

    def get_ends(self, begins: IntArray) -> IntArray:
        """Return the node at which each operation or call ends, by the node at which it starts."""
        length = np.where(begins >= self.numbers.call_begin, self.numbers.calls, self.numbers.operations)
        return np.where(begins >= 0, begins + length, NONE)


def make_items(lanes: Lanes, numbers: Numbers) -> Items:
    """Return the operations and calls of lanes by row and start."""
    thread_row = pick(lanes.thread_row, lanes.calls.thread, NONE)
    return Items(numbers, (lanes.operation_row, lanes.operations.begin), (thread_row, lanes.calls.begin))


class _Releases(NamedTuple):
    """n dependencies of operations or calls on what releases them: nodes, and whether they cross nodes of the job."""

    since: IntArray
    begin: IntArray
    """Node at which the operation or call that is released starts."""
    is_far: BoolArray


class Communication(NamedTuple):
    """Dependencies between ranks; when all ranks had entered each collective (ns); which nodes start communication.

    `starts`: the nodes at which kernels and calls start whose data move; `kind`: NEAR or FAR; `moving`: how long (ns).
    """

    edges: list[Edges]
    time: IntArray
    starts: IntArray
    kind: IntArray
    moving: IntArray


def list_communication(job: Job, waits: Waits, items: Items, first_node: int, time: IntArray) -> Communication:
    """Return the dependencies between ranks. `time`: of all nodes below `first_node`, which new ones follow (ns)."""
    gathered, together, reached = _list_collectives(job, waits, items, first_node)
    parts = [gathered, *_list_messages(job, items)]
    releases = _Releases._make([np.concatenate(columns) for columns in zip(*parts, strict=True)])
    every = np.concatenate([time, reached])
    end = items.get_ends(releases.begin)
    on_time = every[releases.since] <= every[end]
    releases = _Releases._make([column[on_time] for column in releases])
    end = end[on_time]
    starts, index = np.unique(releases.begin, return_inverse=True)
    latest = every[starts]
    np.maximum.at(latest, index, every[releases.since])
    far = np.zeros(starts.size, np.bool_)
    np.logical_or.at(far, index, releases.is_far)
    moving = every[items.get_ends(starts)] - latest
    edges = [together, make_edges(releases.since, end, np.where(releases.is_far, FAR, NEAR), moving[index])]
    return Communication(edges, reached, starts, np.where(far, FAR, NEAR), moving)


def _list_collectives(job: Job, waits: Waits, items: Items, first_node: int) -> tuple[_Releases, Edges, IntArray]:
    """Return (what collectives release, who must have entered, when all of them had (ns))."""
    operations, table = job.operations, job.operations.table
    parts = place_parts(job, operations.part)
    number = np.repeat(np.arange(len(operations)), np.diff(operations.first))
    is_call = mark_mpi(table, operations.part)
    begin = items.find(is_call, parts.row, parts.begin)
    is_split = pick(waits.has_parts, find_rows([waits.row, waits.begin], [parts.row, parts.begin]), False)
    known = (begin >= 0) & is_split
    kind = table.kind[operations.part].astype(np.int64)
    known &= np.isin(kind, (SYNCHRONISING, FROM_ROOT, TO_ROOT))
    lacking = np.zeros(len(operations), np.bool_)
    lacking[number[~known]] = True
    part = np.flatnonzero(~lacking[number])
    used, group = np.unique(number[part], return_inverse=True)
    is_root = table.is_root[operations.part][part]
    enters = (kind[part] != FROM_ROOT) | is_root
    is_released = (kind[part] != TO_ROOT) | is_root
    node = parts.node[part]
    low, high = np.full(used.size, np.iinfo(np.int64).max), np.full(used.size, -1)
    np.minimum.at(low, group, node)
    np.maximum.at(high, group, node)
    reached = np.full(used.size, np.iinfo(np.int64).min)
    np.maximum.at(reached, group[enters], parts.begin[part][enters])
    has_time = reached > np.iinfo(np.int64).min
    renumbered = np.cumsum(has_time) - 1
    enters &= has_time[group]
    is_released &= has_time[group]
    nodes = first_node + renumbered[group]
    releases = _Releases(nodes[is_released], begin[part][is_released], (low != high)[group][is_released])
    return releases, make_edges(begin[part][enters], nodes[enters], TOGETHER), reached[has_time]


def _list_messages(job: Job, items: Items) -> list[_Releases]:
    """Return what releases the sides of messages: a receive waits for its send, a send that is not eager for it."""
    node_of_row = np.array([task.node for task in job.whole.model.tasks], np.int64)[job.whole.task_of_row]
    bounds = get_uncertainty(job)
    found = []
    for joined in job.joined:
        for source, pairs in joined.messages.items():
            is_mpi = source == source_names.MPI
            sends, receives = pairs.send_end != NULL, pairs.receive_end != NULL
            if is_mpi:
                sends &= mark_waiting_sends(pairs, node_of_row, bounds) & (pairs.send_end >= pairs.receive_arrived)
            sides = (
                (pairs.receive_row, pairs.receive_begin, pairs.sender, pairs.send_arrived, receives),
                (pairs.send_row, pairs.send_begin, pairs.receiver, pairs.receive_arrived, sends),
            )
            for row, begin, poster, arrived, waits_for_it in sides:
                calls = np.full(row.size, is_mpi)
                since, own = items.find(calls, poster, arrived), items.find(calls, row, begin)
                known = np.flatnonzero((since >= 0) & (own >= 0) & waits_for_it)
                is_far = node_of_row[row[known]] != node_of_row[poster[known]]
                found.append(_Releases(since[known], own[known], is_far))
    return found


def merge_own(edges: Edges, communication: Communication, end_of: IntArray) -> Edges:
    """Return edges from starts to ends of which those that communicate are NEAR or FAR, and may take what moving does.

    `end_of`: the node at which what starts at each of `communication.starts` ends.
    """
    kind, least = edges.kind.copy(), edges.least.copy()
    order = np.argsort(communication.starts)
    starts = communication.starts[order]
    at = np.searchsorted(starts, edges.since)
    at = np.where(at < starts.size, at, 0)
    own = np.zeros(edges.to.size, np.bool_)
    if starts.size:
        own = (starts[at] == edges.since) & (end_of[order][at] == edges.to)
        kind[own] = communication.kind[order][at[own]]
        least[own] = np.minimum(communication.moving[order][at[own]], least[own])
    return Edges(edges.since, edges.to, kind, least)
