"""Checks the clocks of nodes by the durations of NCCL kernels, which need no clock.

All ranks leave a collective at about the same time. The rank that came last then has the shortest kernel, and every
other one waits by as much as its own kernel is longer: that is its wait by durations. Its wait by clocks is the time
from its own begin to the latest begin. The two agree if clocks do. If the clock of a node is ahead, waits on it are
longer by durations than by clocks, and more so than on other nodes, by as much as it is ahead of theirs.

A clock may also be wrong for a part of a run alone, if it drifts or jumps. So each pair of nodes is compared in up to
eight parts of its operations, by the median of each part. In real reports of two nodes on one physical clock (1,894
collectives of four runs), that of any 16 operations in a row is within 25 us. A twentieth of the operations differs by
0.02 to 0.5 ms, since a rank may leave later than others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from nsys2prv_ng.analysis.waits.placed_parts import mark_mpi, place_collectives
from nsys2prv_ng.analysis.waits.uncertainty import get_uncertainty
from nsys2prv_ng.arrays.row_keys import find_starts
from nsys2prv_ng.arrays.types import BoolArray, FloatArray, IntArray
from nsys2prv_ng.clock.alignment import NONE, uses_collectives
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.operations.parts import SYNCHRONISING
from nsys2prv_ng.text.formatting import format_time

FLOOR_NS = 100_000
"""Difference that is no error of clocks: four times what is seen in real reports."""

FEWEST = 16
"""Fewest operations of two nodes in a part that show something."""

_MOST_PARTS = 8

_NOTCH = 1.57
"""Half of the 95 % interval of a median of n values is this times the interquartile range / sqrt(n) (McGill, 1978)."""

_MOST_PAIRS = 3


class Differences(NamedTuple):
    """n pairs of nodes: by how much waits by durations exceed those by clocks on one node, more than on the other.

    Of the parts of a run, the one in which that is most certain.
    """

    one: IntArray
    other: IntArray
    operations: IntArray
    """Operations of both nodes, in all parts."""
    median: IntArray
    """By how much (ns) the clock of `one` is ahead of that of `other`."""
    error: FloatArray
    """Limit of the median's own error (ns), 95 times out of 100."""


def check_clocks(job: Job) -> list[str]:
    """Return a warning that names the nodes whose clocks contradict the durations of NCCL kernels; [] if none do.

    Clocks that were fitted may be wrong by their bounds; by UTC or a file, all of a difference is their error. Nothing
    is checked where no waits between nodes are shown.
    """
    nodes = job.alignment.nodes
    if not job.finds_waits or job.alignment.way == NONE or len(nodes) < 2:
        return []
    table, leader = job.operations.table, job.operations.leader
    parts = place_collectives(job)
    chosen = (table.kind[leader] == SYNCHRONISING) & ~mark_mpi(table, leader)
    pairs = measure_differences(job.operations.first, chosen, parts.node, parts.begin, parts.end)
    is_fitted = np.array([bool(node.model) for node in nodes])
    bounds = np.where(is_fitted, get_uncertainty(job), 0.0)
    limit = np.maximum(FLOOR_NS, bounds[pairs.one] + bounds[pairs.other]) + pairs.error
    wrong = np.flatnonzero((pairs.operations >= FEWEST) & (np.abs(pairs.median) > limit))
    wrong = wrong[np.argsort(-np.abs(pairs.median[wrong]), kind="stable")]
    if not wrong.size:
        return []
    names = [node.name for node in nodes]
    return [
        _describe(names, Differences._make([column[wrong] for column in pairs]), uses_collectives(job.alignment.way))
    ]


def measure_differences(
    first: IntArray, chosen: BoolArray, node: IntArray, begin: IntArray, end: IntArray
) -> Differences:
    """Compare waits by durations with waits by clocks (ns) between the nodes of operations.

    Operation i has the parts first[i] .. first[i + 1] - 1, ordered by node, and counts if `chosen[i]`. On each node,
    the rank counts with the least difference: the first to leave. Of several nodes, each is compared with the first of
    the operation.
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
    return _summarise(node[which], node[reference], time[which], excess[which] - excess[reference])


def _summarise(one: IntArray, other: IntArray, time: IntArray, difference: IntArray) -> Differences:
    """Return the largest median of each pair of nodes in parts of its operations, beyond its error."""
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


def _describe(names: Sequence[str], pairs: Differences, is_fitted: bool) -> str:
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
