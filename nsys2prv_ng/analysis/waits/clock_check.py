"""Checks node clocks against the durations of NCCL kernels, which do not depend on any clock.

All ranks leave a collective at about the same time. So the rank that came last has the shortest kernel, and every other
rank waits for as long as its kernel is longer: that is its wait by durations. Its wait by clocks is the time from its
start to the latest start. The two agree if the clocks do. If the clock of one node is ahead of another's, waits by
durations exceed waits by clocks on that node by as much more than on the other.

A clock may also be wrong for only a part of a run, if it drifts or jumps. So each pair of nodes is compared in up to
eight parts of its operations, by the median of each part. In real reports of two nodes on one physical clock (1,894
collectives of four runs), the median of any 16 consecutive operations is within 25 us. One in twenty operations differs
by 0.02 to 0.5 ms, because a rank may leave later than the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from nsys2prv_ng.analysis.waits.placed_parts import mark_mpi, place_parts
from nsys2prv_ng.analysis.waits.uncertainty import get_uncertainty
from nsys2prv_ng.arrays.row_keys import find_starts
from nsys2prv_ng.arrays.types import BoolArray, FloatArray, IntArray
from nsys2prv_ng.clock.alignment import NONE, uses_collectives
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.operations.parts import SYNCHRONISING
from nsys2prv_ng.text.formatting import format_time

FLOOR_NS = 100_000
"""Difference (ns) that is not yet a clock error: four times the largest difference in real reports."""

FEWEST = 16
"""Fewest operations of two nodes in a part that are significant."""

_MOST_PARTS = 8

_NOTCH = 1.57
"""Half of the 95 % interval of a median of n values is this times the interquartile range / sqrt(n) (McGill, 1978)."""

_MOST_PAIRS = 3


class Differences(NamedTuple):
    """n pairs of nodes: how much more waits by durations exceed waits by clocks on one node than on the other.

    The values come from the part of the run in which the difference is most certain.
    """

    one: IntArray
    other: IntArray
    operations: IntArray
    """Operations that both nodes take part in, over all parts."""
    median: IntArray
    """How far (ns) the clock of `one` is ahead of the clock of `other`."""
    error: FloatArray
    """Error of the median (ns): half of its 95 % interval."""


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
    chosen = (table.kind[leader] == SYNCHRONISING) & ~mark_mpi(table, leader)
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
