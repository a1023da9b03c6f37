"""Lets some ranks of a replay be as fast as the median of the others, by class of kernels and by range of hosts."""

from __future__ import annotations

import numpy as np

from nsys2prv_ng.arrays.types import BoolArray, BoolTable, FloatTable, Int32Array, IntArray, IntTable
from nsys2prv_ng.replay.columns import CALL, CODE, NETWORK, NONE, STAGE, mark_kinds
from nsys2prv_ng.replay.model import Model
from nsys2prv_ng.runtime.jit import compiled
from nsys2prv_ng.runtime.kernels import search
from nsys2prv_ng.sources.cuda.kernel_classes import OTHER


def equalise(model: Model, ranks: BoolArray, weight: IntArray) -> None:
    """Change the weights of the marked edges, those of the ranks that are to be as fast as the others.

    Kernels of no known class count by name: those of one class have names by shape, which may differ between ranks.
    Times are compared in the windows that numbers cover: what ranks do at start-up is no measure of their steps.
    """
    graph = model.graph
    operation = model.edge_operation
    runs = (operation >= 0) & (graph.since + model.numbers.operations == graph.to) & ~mark_kinds(graph.kind, NETWORK)
    classes, texts = model.kernel_class
    known = (classes >= 0) & (classes != (texts.index(OTHER) if OTHER in texts else NONE))
    kinds = np.where(known, classes, len(texts) + model.lanes.operation_name)
    before = weight[runs]
    equalise_keys(model, runs, np.append(kinds, NONE).astype(np.int32)[operation], ranks, weight)
    factor = np.ones(model.numbers.operations)
    factor[operation[runs]] = np.divide(weight[runs], before, out=np.ones(before.size), where=before > 0)
    staged = np.flatnonzero(graph.kind == STAGE)
    scaled = np.rint(weight[staged] * factor[graph.since[staged]])
    weight[staged] = np.where(weight[staged] < 0, weight[staged], scaled)  # what was removed stays so
    on_host = mark_kinds(graph.kind, (CODE, CALL)) & (model.edge_thread >= 0)
    equalise_keys(model, on_host, model.edge_range, ranks, weight)


def equalise_keys(model: Model, edges: BoolArray, key: Int32Array, ranks: BoolArray, weight: IntArray) -> None:
    """Cut the time of some ranks by key to the median of the others (of all, without others).

    A rank loses at most what it takes longer than they do in sum: what one spends in one key, another may in another.
    `edges` marks those that are compared, `key` (from NONE) says what they do.
    """
    graph, rank = model.graph, model.edge_rank
    windows = np.array(model.job.scope.measured or [(np.iinfo(np.int64).min, np.iinfo(np.int64).max)], np.int64)
    sums = np.zeros((int(rank.max(initial=NONE)) + 1, int(key.max(initial=NONE)) + 2), np.int64)
    found = np.zeros((2, sums.shape[0]), np.bool_)
    end, lows, highs = graph.time, windows[:, 0].copy(), windows[:, 1].copy()
    _sum_keys(edges, ranks, rank, key, end, graph.to, graph.weight, lows, highs, sums, found)
    has_edges, is_chosen = found
    if not is_chosen.any():
        return
    factor = np.ones(sums.shape)
    factor[has_edges] = _find_factors(sums[has_edges].astype(np.float64), is_chosen[has_edges])
    _scale_keys(edges, ranks, rank, key, factor, weight)


def _find_factors(total: FloatTable, is_chosen: BoolArray) -> FloatTable:
    """Return the factor (ranks x keys) of the times of each rank, given all times (ns) and the ranks that change."""
    others = total if is_chosen.all() else total[~is_chosen]
    cut = np.maximum(total - np.median(others, axis=0), 0)
    most = np.maximum(total.sum(axis=1) - np.median(others.sum(axis=1)), 0)
    cut *= np.minimum(most / np.maximum(cut.sum(axis=1), 1), 1)[:, None]
    factor: FloatTable = 1 - np.divide(cut, total, out=np.zeros_like(total), where=total > 0)
    return factor


@compiled
def _sum_keys(
    edges: BoolArray,
    ranks: BoolArray,
    rank: Int32Array,
    key: Int32Array,
    time: IntArray,
    to: Int32Array,
    length: IntArray,
    lows: IntArray,
    highs: IntArray,
    sums: IntTable,
    found: BoolTable,
) -> None:
    """Add up the lengths (ns) of edges that end in windows, by rank and key (the first one is for NONE).

    `found` (2 x ranks): mark the ranks with edges, and those with edges that change.
    """
    for e in range(edges.size):
        if edges[e]:
            found[0, rank[e]] = True
            found[1, rank[e]] |= ranks[e]
            end = time[to[e]]
            window = search(highs, 0, highs.size, end)
            if window < highs.size and lows[window] <= end:
                sums[rank[e], key[e] + 1] += length[e]


@compiled
def _scale_keys(
    edges: BoolArray, ranks: BoolArray, rank: Int32Array, key: Int32Array, factor: FloatTable, weight: IntArray
) -> None:
    """Shorten edges by factors (0 to 1) of their rank and key. What was removed stays so."""
    for e in range(edges.size):
        if edges[e] and ranks[e] and weight[e] > 0:
            weight[e] = np.int64(np.rint(weight[e] * factor[rank[e], key[e] + 1]))
