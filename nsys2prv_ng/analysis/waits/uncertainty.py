"""Finds how far node clocks may differ, from the way they were aligned and from what still contradicts them.

The bounds of a fit are valid only as long as the fit is. A clock that jumps during a run is wrong by more after the
jump: ranks then seem to leave operations before others have entered. All ranks leave an operation at about the same
time, so the difference of their ends shows how wrong the clocks are. The violation of causality is smaller, by the time
in which data moved, and is not enough as a bound: with a jump of 1 to 20 ms before the last fifth of a real run of two
nodes, 132 kernels waited for the wrong rank with it, and none with the difference of the ends.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np

from nsys2prv_ng.analysis.waits.placed_parts import place_parts
from nsys2prv_ng.arrays.types import BoolArray, FloatArray, IntArray
from nsys2prv_ng.clock.matches import mark_roles
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.report.database import NULL
from nsys2prv_ng.runtime.jit import compiled


def get_uncertainty(job: Job) -> FloatArray:
    """Return the bound (ns) on the clock error of each node: 0 for the reference of a fit, infinite if it is not known.

    The clocks of two nodes differ by at most the sum of their bounds. Bounds are errors against the reference of a
    node. Only bounds against the reference of most nodes are comparable: between sets of nodes that share nothing to
    align by, any error is possible. If operations violate causality by more than the bounds, nodes are at least as
    uncertain as these operations show.
    """
    nodes = job.alignment.nodes
    references = Counter(clock.reference for clock in nodes if clock.reference)
    usual = max(references, key=references.__getitem__, default=None)
    is_reference = np.array([clock.name == clock.reference for clock in nodes], np.bool_)
    bounds = np.full(len(nodes), np.inf)
    for i, clock in enumerate(nodes):
        bound = 0.0 if is_reference[i] and clock.model and clock.bound is None else clock.bound
        if bound is not None and clock.reference == usual:
            bounds[i] = bound
    if not job.alignment.after.broken:
        return bounds
    errors = np.maximum(_find_collective_errors(job, bounds), _find_message_errors(job, bounds))
    return np.where(is_reference, bounds, np.maximum(bounds, errors))


def _find_collective_errors(job: Job, bounds: FloatArray) -> FloatArray:
    """Return the largest clock error (ns) of each node that violations of causality in collectives reveal."""
    parts = place_parts(job, job.operations.part)
    roles = mark_roles(job.operations.table, job.operations.part)
    return measure_errors(job.operations.first, Entries(parts.node, parts.begin, parts.end, *roles), bounds)


def _find_message_errors(job: Job, bounds: FloatArray) -> FloatArray:
    """Return the largest clock error (ns) of each node that messages reveal: no receive ends before its send starts."""
    node_of_row = np.array([task.node for task in job.whole.model.tasks], np.int64)[job.whole.task_of_row]
    errors = np.zeros(bounds.size)
    for joined in job.joined:
        for pairs in joined.messages.values():
            kept = (pairs.send_begin != NULL) & (pairs.receive_end != NULL)
            begin, end = pairs.send_begin[kept], pairs.receive_end[kept]
            send_end = np.where(pairs.send_end[kept] == NULL, begin, pairs.send_end[kept])
            node = np.stack([node_of_row[pairs.sender[kept]], node_of_row[pairs.receiver[kept]]], axis=1)
            ends = np.stack([send_end, end], axis=1)
            is_send = np.tile([True, False], begin.size)
            entries = Entries(node.ravel(), np.repeat(begin, 2), ends.ravel(), is_send, ~is_send)
            errors = np.maximum(errors, measure_errors(np.arange(0, 2 * begin.size + 1, 2), entries, bounds))
    return errors


class Entries(NamedTuple):
    """n parts of ranks in operations: node, times (ns), whether others wait for it, and whether it waits for others."""

    node: IntArray
    begin: IntArray
    end: IntArray
    enters: BoolArray
    leaves: BoolArray


def measure_errors(first: IntArray, entries: Entries, bounds: FloatArray) -> FloatArray:
    """Return the largest error (ns) of each node that violations of causality beyond the bounds reveal; 0 without any.

    Operation i has the entries first[i] .. first[i + 1] - 1. The error is how much later the first rank left on the
    node that entered last than on the node that left first, or the violation if that is larger.
    """
    errors = np.zeros(bounds.size)
    _raise_errors(first, entries, bounds, errors)
    return errors


@compiled
def _raise_errors(first: IntArray, entries: Entries, bounds: FloatArray, errors: FloatArray) -> None:
    node, begin, end, enters, leaves = entries
    for i in range(first.size - 1):
        late, early = -1, -1
        for k in range(first[i], first[i + 1]):
            if enters[k] and (late < 0 or begin[k] > begin[late]):
                late = k
            if leaves[k] and (early < 0 or end[k] < end[early]):
                early = k
        if late < 0 or early < 0 or node[late] == node[early]:
            continue
        violation = begin[late] - end[early]
        if violation <= bounds[node[late]] + bounds[node[early]]:
            continue
        left = end[late]
        for k in range(first[i], first[i + 1]):
            if node[k] == node[late]:
                left = min(left, end[k])
        error = max(violation, left - end[early])
        for k in (late, early):
            errors[node[k]] = max(errors[node[k]], error)
