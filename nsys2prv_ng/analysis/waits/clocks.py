"""Places the parts of ranks in operations on rows and on the common clock, and finds how far node clocks may be wrong.

The bounds of a fit are valid only as long as the fit is. A clock that jumps during a run is wrong by more after the
jump: ranks then seem to leave operations before others have entered. All ranks leave an operation at about the same
time, so the difference of their ends shows how wrong the clocks are. The violation of causality is smaller, by the time
in which data moved, and is not enough as a bound: with a jump of 1 to 20 ms before the last fifth of a real run of two
nodes, 132 kernels waited for the wrong rank with it, and none with the difference of the ends.

The durations of NCCL kernels do not depend on any clock, so clocks are checked against them. The rank that came last
has the shortest kernel, and every other rank waits for as long as its kernel is longer: that is its wait by durations.
Its wait by clocks is the time from its start to the latest start. The two agree if the clocks do. If the clock of one
node is ahead of another's, waits by durations exceed waits by clocks on that node by as much more than on the other.

A clock may also be wrong for only a part of a run, if it drifts or jumps. So each pair of nodes is compared in up to
eight parts of its operations, by the median of each part. In real reports of two nodes on one physical clock (1,894
collectives of four runs), the median of any 16 consecutive operations is within 25 us. One in twenty operations differs
by 0.02 to 0.5 ms, because a rank may leave later than the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from nsys2prv_ng.arrays.row_keys import find_starts
from nsys2prv_ng.arrays.types import BoolArray, FloatArray, IntArray, pick
from nsys2prv_ng.clock.alignment import NONE, uses_collectives
from nsys2prv_ng.clock.matches import mark_roles
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.operations.matching import PartTable
from nsys2prv_ng.operations.parts import SYNCHRONISING
from nsys2prv_ng.report.database import NULL
from nsys2prv_ng.runtime.jit import compiled
from nsys2prv_ng.text.formatting import format_time


class Parts(NamedTuple):
    """n parts of ranks in operations, in columns: row of the whole tree, times (ns, on the common clock), node."""

    row: IntArray
    begin: IntArray
    end: IntArray
    node: IntArray


def place_parts(job: Job, part: IntArray) -> Parts:
    """Return row (-1 without one), node and times of the parts of the table with these indices."""
    table = job.operations.table
    report, place = table.report[part], table.place[part].astype(np.int64)
    row, node = np.full(part.size, -1, np.int64), np.zeros(part.size, np.int64)
    begin, end = np.zeros(part.size, np.int64), np.zeros(part.size, np.int64)
    by_report = np.argsort(report, kind="stable")
    limits = np.searchsorted(report[by_report], np.arange(len(job.reports) + 1))
    for index, records in enumerate(job.reports):
        here = by_report[limits[index] : limits[index + 1]]
        rows = job.whole.rows[index]
        placed = (place[here] >= 0) & (place[here] < rows.size)
        row[here] = np.where(placed, pick(rows, np.where(placed, place[here], -1), -1), -1)
        node[here] = records.node
        offset = job.offsets[index]
        begin[here] = records.clock(table.begin[part[here]] - offset)
        end[here] = records.clock(table.end[part[here]] - offset)
    return Parts(row, begin, end, node)


def mark_mpi(table: PartTable, part: IntArray) -> BoolArray:
    """Mark the parts that MPI calls carry out."""
    is_mpi = np.array([name.startswith("mpi ") for name in table.communicators], np.bool_)
    return np.asarray(is_mpi[table.communicator[part]], np.bool_)


# ---- uncertainty -----------------------------------------------------------------------------------------------------


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


def separate_corrected_gpus(job: Job, bounds: FloatArray) -> tuple[IntArray, IntArray, FloatArray]:
    """Return the clock of each report, the clock of each row of the whole tree, and the error bound (ns) of each clock.

    Clocks are those of nodes, with their `bounds`. A report with a GPU clock that was corrected has a clock of its own,
    whose error is larger by what the correction leaves open.
    """
    of_report = np.array([report.node for report in job.reports], np.int64)
    of_row = np.array([task.node for task in job.whole.model.tasks], np.int64)[job.whole.task_of_row]
    if bounds.size == 1:  # nothing else is uncertain within a single node
        bounds = np.zeros(1)
    errors = [report.metadata.gpu_clock_error for report in job.reports]
    for number, index in enumerate(np.flatnonzero(errors).tolist(), bounds.size):
        rows = job.whole.rows[index]
        of_row[rows[rows >= 0]] = number
        bounds = np.append(bounds, bounds[of_report[index]] + errors[index])
        of_report[index] = number
    return of_report, of_row, bounds


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


# ---- check by durations ----------------------------------------------------------------------------------------------


FLOOR_NS = 100_000
"""Difference (ns) that is not yet a clock error: four times the largest difference in real reports."""

FEWEST = 16
"""Fewest operations of two nodes in a part that are significant."""

_MOST_PARTS = 8
"""Maximum number of parts of a run: more of them find shorter jumps, with fewer operations to be sure."""

_NOTCH = 1.57
"""Half of the 95 % interval of a median of n values is this times the interquartile range / sqrt(n) (McGill, 1978)."""

_MOST_PAIRS = 3
"""Maximum number of pairs that the warning names."""


class Differences(NamedTuple):
    """n pairs of nodes: how much more waits by durations exceed waits by clocks on one node than on the other.

    The values come from the part of the run in which the difference is most certain. `operations`: those that both
    nodes take part in, over all parts. `median`: how far (ns) the clock of `one` is ahead of the clock of `other`;
    `error`: half of its 95 % interval (ns).
    """

    one: IntArray
    other: IntArray
    operations: IntArray
    median: IntArray
    error: FloatArray


def check_clocks(job: Job) -> list[str]:
    """Return a warning that names the nodes whose clocks contradict the durations of NCCL kernels; [] if none do.

    Fitted clocks may be wrong by up to their bounds. For clocks aligned by UTC or a file, the whole difference is an
    error. Nothing is checked if no waits between nodes are shown.
    """
    nodes = job.alignment.nodes
    if not job.finds_waits or job.alignment.way == NONE or len(nodes) < 2:
        return []
    table, leader = job.operations.table, job.operations.leader
    parts = place_parts(job, job.operations.part)
    chosen = (table.kind[leader] == SYNCHRONISING) & ~mark_mpi(table, leader) & ~table.mark_ordered(leader)
    pairs = measure_differences(job.operations.first, chosen, parts.node, parts.begin, parts.end)
    is_fitted = np.array([bool(node.model) for node in nodes])
    bounds = np.where(is_fitted, get_uncertainty(job), 0.0)
    limit = np.maximum(FLOOR_NS, bounds[pairs.one] + bounds[pairs.other]) + pairs.error
    wrong = np.flatnonzero((pairs.operations >= FEWEST) & (np.abs(pairs.median) > limit))
    wrong = wrong[np.argsort(-np.abs(pairs.median[wrong]), kind="stable")]
    if not wrong.size:
        return []
    pairs = Differences._make([column[wrong] for column in pairs])
    return [_describe_differences([node.name for node in nodes], pairs, uses_collectives(job.alignment.way))]


def measure_differences(
    first: IntArray, chosen: BoolArray, node: IntArray, begin: IntArray, end: IntArray
) -> Differences:
    """Compare waits by durations with waits by clocks (ns) between the nodes of operations.

    Operation i has the parts first[i] .. first[i + 1] - 1, ordered by node, and counts if `chosen[i]`. On each node,
    the rank with the smallest difference counts: it is the first to leave. Each other node is compared with the first
    node of the operation.
    """
    operation = np.repeat(np.arange(chosen.size), np.diff(first))
    duration = end - begin
    by_durations = duration - np.minimum.reduceat(duration, first[:-1])[operation] if chosen.size else duration
    by_clocks = np.maximum.reduceat(begin, first[:-1])[operation] - begin if chosen.size else begin
    starts = find_starts(operation, node)
    operation, node = operation[starts], node[starts]
    excess = np.minimum.reduceat(by_durations - by_clocks, starts) if starts.size else duration
    reference = np.searchsorted(operation, operation)
    which = np.flatnonzero(chosen[operation] & (reference < np.arange(starts.size)))
    reference = reference[which]
    time = np.maximum.reduceat(begin, starts) if starts.size else begin
    return _find_largest_medians(node[which], node[reference], time[which], excess[which] - excess[reference])


def _find_largest_medians(one: IntArray, other: IntArray, time: IntArray, difference: IntArray) -> Differences:
    """Return, for each pair of nodes, the median that exceeds its error most, over the parts of its operations."""
    order = np.lexsort((time, other, one))
    one, other, difference = one[order], other[order], difference[order]
    first = find_starts(one, other)
    count = np.diff(np.append(first, one.size))
    parts = np.clip(count // FEWEST, 1, _MOST_PARTS)
    pair = np.repeat(np.arange(first.size), count)
    part = (np.arange(one.size) - first[pair]) * parts[pair] // count[pair]

    difference = difference[np.lexsort((difference, part, pair))]
    low = find_starts(pair, part)
    size = np.diff(np.append(low, pair.size))
    median = difference[low + size // 2]
    error = _NOTCH * (difference[low + 3 * size // 4] - difference[low + size // 4]) / np.sqrt(size)
    best = np.lexsort((error - np.abs(median), pair[low]))
    best = best[find_starts(pair[low])]
    return Differences(one[first], other[first], count, median[best], error[best])


def _describe_differences(names: Sequence[str], pairs: Differences, is_fitted: bool) -> str:
    """Return the warning for some pairs of nodes, the largest difference first."""
    is_ahead = pairs.median > 0
    early, late = np.where(is_ahead, pairs.other, pairs.one), np.where(is_ahead, pairs.one, pairs.other)
    columns = (late, np.abs(pairs.median), early)
    shown = [
        f"{names[one]} is up to {format_time(ahead)} ahead of {names[other]}"
        for one, ahead, other in zip(*(column[:_MOST_PAIRS].tolist() for column in columns), strict=True)
    ]
    more = pairs.one.size - len(shown)
    rest = f" and {more:,} more" if more else ""
    remedy = "trust no shorter wait between them" if is_fitted else "align by collectives"
    return (
        f"the clocks of nodes contradict the durations of NCCL kernels: {', '.join(shown)}{rest};"
        f" waits between them may be wrong by as much: {remedy}"
    )
