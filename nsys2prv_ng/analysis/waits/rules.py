"""Splits the part of a rank in an operation into waiting and moving: who releases whom, and what is unknown.

The definitions come from Scalasca 2.5 (MPI.pattern): Wait at NxN, Late Broadcast, Early Reduce, Late Sender and Late
Receiver. Everything here works on columns, with times on the common clock (ns) and bounds on the clocks' errors. Times
on one node are exact, because it has one clock: in 4,000 collectives of real reports no rank left too early.

Small MPI messages are buffered (eager): their sends do not wait. Large ones are not (rendezvous). A blocking send shows
it: it ends before its receive starts, or not. A send that completes in a later call, as MPI_Isend in MPI_Waitall, does
not: the call may wait for something else. So it counts as waiting only if sends of its size were seen to wait: calls
that nothing else held up (all messages that they receive had been sent) returned only after the receive had started,
and no send of this size or a larger one left early.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nsys2prv_ng.analysis.waits.clocks import Parts
from nsys2prv_ng.arrays.row_keys import encode_rows
from nsys2prv_ng.arrays.types import BoolArray, FloatArray, IntArray
from nsys2prv_ng.operations.parts import FROM_ROOT, SYNCHRONISING, TO_ROOT, MessagePairs, Side
from nsys2prv_ng.report.database import NULL
from nsys2prv_ng.runtime.jit import compiled, inlined
from nsys2prv_ng.sources.shared import reasons

SPLIT, BELOW_UNCERTAINTY, MEMBER_MISSING, NOT_SYNCHRONISED, UNKNOWN_ROLES, NO_COMMUNICATOR, NOT_MATCHED, NOT_ALIGNED = (
    range(8)
)
"""Verdicts. If a kernel or call gets several, the highest counts."""
REASONS = {
    MEMBER_MISSING: reasons.MEMBER_MISSING,
    NOT_SYNCHRONISED: reasons.NOT_SYNCHRONISED,
    BELOW_UNCERTAINTY: reasons.WITHIN_CLOCK_ERROR,
    UNKNOWN_ROLES: reasons.ROLES_UNKNOWN,
    NO_COMMUNICATOR: reasons.COMMUNICATORS_ALIKE,
    NOT_MATCHED: reasons.COUNTERPART_MISSING,
    NOT_ALIGNED: reasons.NOT_ALIGNED,
}
"""Why kernels and calls are not split."""

NOBODY = -1


# ---- collectives -----------------------------------------------------------------------------------------------------


class Split(NamedTuple):
    """n parts: end of waiting (ns), verdict, the part that was waited for or NOBODY, and how late that started (ns)."""

    until: IntArray
    verdict: IntArray
    culprit: IntArray
    margin: IntArray


def split_operations(
    first: IntArray, kind: IntArray, complete: BoolArray, parts: Parts, is_root: BoolArray, bounds: FloatArray
) -> Split:
    """Return how each part is split.

    Operation i has the parts first[i] .. first[i + 1] - 1. `kind` and `complete` (no member is missing) belong to
    operations, `parts` and `is_root` to parts. `bounds`: the clock error of each node (ns).
    """
    n = parts.begin.size
    split = Split(parts.begin.copy(), np.full(n, SPLIT), np.full(n, NOBODY), np.zeros(n, np.int64))
    _split(first, kind, complete, parts, is_root, bounds, split)
    return split


@compiled
def _split(
    first: IntArray,
    kind: IntArray,
    complete: BoolArray,
    parts: Parts,
    is_root: BoolArray,
    bounds: FloatArray,
    split: Split,
) -> None:
    _, begin, end, node = parts
    until, verdict, culprit, margin = split
    for i in range(first.size - 1):
        low, high = first[i], first[i + 1]
        root = _find_root(is_root, low, high)
        release = _find_release(kind[i], root, begin, low, high)
        failed = SPLIT
        if not complete[i]:
            failed = MEMBER_MISSING
        elif release < 0:
            failed = UNKNOWN_ROLES
        elif not _has_synchronised(kind[i], root, release, parts, bounds, low, high):
            failed = NOT_SYNCHRONISED
        for k in range(low, high):
            verdict[k] = failed
        if failed == SPLIT:
            lead = _measure_lead(kind[i], root, release, parts, bounds, low, high)
            for k in range(low, high):
                if not _may_wait(kind[i], root, release, k):
                    continue
                ahead, apart = begin[release] - begin[k], _get_apart(node, bounds, k, release)
                if node[k] != node[release] and abs(ahead) <= apart:
                    verdict[k] = BELOW_UNCERTAINTY
                    if kind[i] == SYNCHRONISING:  # either of them may have been last
                        verdict[release] = BELOW_UNCERTAINTY
                elif ahead > 0:
                    until[k] = min(begin[release], end[k])
                    if lead > 0 and until[k] > begin[k]:
                        culprit[k], margin[k] = release, lead


@inlined
def _find_root(is_root: BoolArray, low: int, high: int) -> int:
    """Return the index of the only root; -1 without a root or with several."""
    root = -1
    for k in range(low, high):
        if is_root[k]:
            if root >= 0:
                return -1
            root = k
    return root


@inlined
def _find_release(kind: int, root: int, begin: IntArray, low: int, high: int) -> int:
    """Return the part that releases those that wait: the last of all, the root, or the first of the others; else -1."""
    if kind == FROM_ROOT:
        return root
    release = -1
    for k in range(low, high):
        if (kind == SYNCHRONISING and (release < 0 or begin[k] > begin[release])) or (
            kind == TO_ROOT and root >= 0 and k != root and (release < 0 or begin[k] < begin[release])
        ):
            release = k
    return release


@inlined
def _may_wait(kind: int, root: int, release: int, k: int) -> bool:
    """Return whether a part waits for the one that releases."""
    return k != release and (kind != TO_ROOT or k == root)


@inlined
def _get_apart(node: IntArray, bounds: FloatArray, one: int, other: int) -> float:
    """Return how far the clocks of two parts may differ (ns)."""
    return 0.0 if node[one] == node[other] else bounds[node[one]] + bounds[node[other]]


@inlined
def _has_synchronised(
    kind: int, root: int, release: int, parts: Parts, bounds: FloatArray, low: int, high: int
) -> bool:
    """Return whether no part is certain to have ended before what it should have waited for."""
    _, begin, end, node = parts
    for k in range(low, high):
        if _may_wait(kind, root, release, k) and end[k] < begin[release] - _get_apart(node, bounds, k, release):
            return False
    return True


@inlined
def _measure_lead(kind: int, root: int, release: int, parts: Parts, bounds: FloatArray, low: int, high: int) -> int:
    """Return how late (ns) the part that releases was; 0 if another part may have released the others.

    Compare the last of all with the last of the others; compare a root, or the first to send to it, with the first part
    that waits.
    """
    _, begin, _, node = parts
    lead = 0
    for k in range(low, high):
        ahead = begin[release] - begin[k]
        if k == release:
            continue
        if kind == SYNCHRONISING:
            if ahead <= _get_apart(node, bounds, k, release):
                return 0
            lead = ahead if lead == 0 else min(lead, ahead)
        elif _may_wait(kind, root, release, k):
            lead = max(lead, ahead)
        elif -ahead <= _get_apart(node, bounds, k, release):
            return 0
    return lead


# ---- messages --------------------------------------------------------------------------------------------------------


def split_side(
    waiting: Side, other: Side, node_of_row: IntArray, bounds: FloatArray, *, may_leave: bool
) -> tuple[IntArray, IntArray]:
    """Return (wait (ns), verdict) of the kernels and calls of one side, which waits for the other side to arrive.

    `may_leave`: the side may end before the other side starts, like a buffered MPI send.
    """
    one_node, other_node = node_of_row[waiting.row], node_of_row[other.poster]
    apart = np.where(one_node == other_node, 0.0, bounds[one_node] + bounds[other_node])
    ahead = other.arrived - waiting.begin
    left = waiting.end < other.arrived - apart
    is_unsure = (np.abs(ahead) <= apart) & (one_node != other_node)
    verdict = np.full(ahead.size, SPLIT, np.int64)
    verdict[is_unsure] = BELOW_UNCERTAINTY
    if not may_leave:
        verdict[left] = NOT_SYNCHRONISED
    wait = np.clip(np.minimum(other.arrived, waiting.end) - waiting.begin, 0, None)
    wait[left | is_unsure] = 0
    return wait, verdict


# ---- sends that wait -------------------------------------------------------------------------------------------------


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
    call_of_send = call[: sends.size]
    others = np.where(arrived[: sends.size] == latest[call_of_send], second[call_of_send], latest[call_of_send])
    found = pairs.send_begin.copy()
    found[sends] = np.maximum(begin[: sends.size], others)
    return found
