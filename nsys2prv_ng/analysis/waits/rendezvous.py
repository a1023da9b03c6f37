"""Finds which MPI sends wait for their receive: small messages are buffered (eager), large ones are not (rendezvous).

A blocking send shows it: it ends before its receive starts, or not. A send that completes in a later call, as MPI_Isend
in MPI_Waitall, does not: the call may wait for something else. So it counts as waiting only if sends of its size were
seen to wait: calls that nothing else held up (all messages that they receive had been sent) returned only after the
receive had started, and no send of this size or a larger one left early.
"""

from __future__ import annotations

import numpy as np

from nsys2prv_ng.arrays.row_keys import encode_rows
from nsys2prv_ng.arrays.types import BoolArray, FloatArray, IntArray
from nsys2prv_ng.operations.parts import MessagePairs
from nsys2prv_ng.report.database import NULL

_FEWEST = 3
"""Fewest calls that show that sends of a size wait."""
_SHORTEST_NS = 20_000
"""Shortest wait (ns) that shows it: longer than calls take to return."""


def mark_waiting_sends(pairs: MessagePairs, node_of_row: IntArray, bounds: FloatArray) -> BoolArray:
    """Mark the sends of MPI messages (n) that wait for their receive, or that may do so as their calls block.

    `bounds`: the clock error of each node (ns).
    """
    blocks = (pairs.send_end != NULL) & (pairs.send_begin == pairs.send_arrived)
    return np.asarray(blocks | mark_rendezvous(pairs, node_of_row, bounds), np.bool_)


def mark_rendezvous(pairs: MessagePairs, node_of_row: IntArray, bounds: FloatArray) -> BoolArray:
    """Mark the sends of MPI messages (n) whose size was seen to wait for its receive. `bounds`: as above."""
    known = (pairs.send_begin != NULL) & (pairs.send_end != NULL)
    one, other = node_of_row[pairs.sender], node_of_row[pairs.receiver]
    apart = np.where(one == other, 0.0, bounds[one] + bounds[other])
    left = known & (pairs.send_end < pairs.receive_arrived - apart)
    released = _find_other_release(pairs, known)
    held = known & (pairs.receive_arrived - released > np.maximum(apart, _SHORTEST_NS))
    held &= pairs.send_end >= pairs.receive_arrived
    waits = np.zeros(known.size, np.bool_)
    for is_far in (False, True):
        here = known & ((one != other) == is_far)
        seen = np.sort(pairs.bytes[here & held])
        if seen.size >= _FEWEST:
            least = max(int(seen[_FEWEST - 1]), int(np.max(pairs.bytes[here & left], initial=-1)) + 1)
            waits |= here & (pairs.bytes >= least)
    return waits


def _find_other_release(pairs: MessagePairs, known: BoolArray) -> IntArray:
    """Return when everything else had arrived that the call of each send may wait for, or when the call began (ns).

    That are the sends of the messages that the call receives, and the receives of its other sends.
    """
    receives = np.flatnonzero(pairs.receive_end != NULL)
    sends = np.flatnonzero(known)
    row = np.concatenate([pairs.send_row[sends], pairs.receive_row[receives]])
    begin = np.concatenate([pairs.send_begin[sends], pairs.receive_begin[receives]])
    arrived = np.concatenate([pairs.receive_arrived[sends], pairs.send_arrived[receives]])
    call, _ = encode_rows(row, begin)
    order = np.lexsort((arrived, call))
    last = np.flatnonzero(np.append(call[order][1:] != call[order][:-1], True)[: order.size])
    count = int(call.max(initial=-1)) + 1
    latest, second = np.full((2, count), np.iinfo(np.int64).min)
    latest[call[order[last]]] = arrived[order[last]]
    has_second = last[(last > 0) & (call[order[last - 1]] == call[order[last]])]
    second[call[order[has_second]]] = arrived[order[has_second - 1]]
    own = call[: sends.size]
    others = np.where(arrived[: sends.size] == latest[own], second[own], latest[own])
    found = pairs.send_begin.copy()
    found[sends] = np.maximum(begin[: sends.size], others)
    return found
