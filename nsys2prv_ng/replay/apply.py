"""Applies changes to the weights of a model's edges.

What takes no time at all is not done: operations then need neither time nor a gap before them, and calls wait for
nothing. A range that takes another time does so on its host and in the kernels and copies launched in it, while data
move between ranks as before. Everything else keeps the time that was observed, and what it waits for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import NamedTuple

import numpy as np

from nsys2prv_ng.analysis.path.calls import COPY_CALLS
from nsys2prv_ng.arrays.types import BoolArray, BoolTable, FloatArray, FloatTable, Int32Array, IntArray, IntTable
from nsys2prv_ng.errors import UsageError
from nsys2prv_ng.paraver.event_types import SYNCHRONIZATION
from nsys2prv_ng.replay import changes as what
from nsys2prv_ng.replay import graph as columns
from nsys2prv_ng.replay.changes import Change
from nsys2prv_ng.replay.graph import CODE, NETWORK, NONE, REMOVED, STAGE, mark_at, mark_kinds
from nsys2prv_ng.replay.model import Model
from nsys2prv_ng.replay.repeats import KINDS, MERGED, Repeats, mark_calls, match_kinds
from nsys2prv_ng.runtime.jit import compiled, search
from nsys2prv_ng.sources.cuda.cuda_api import choose_call_state
from nsys2prv_ng.sources.cuda.kernel_classes import OTHER
from nsys2prv_ng.text.formatting import quote_shortened

_WAITING = (columns.WAKE, columns.FREE, columns.HANDOVER, columns.NEAR, columns.FAR, STAGE)
"""Edges that a call which is not made lacks."""
_LONGEST = 2**61
"""Most time (ns) that changes may add: times of nodes are below 2**62."""
_TOO_LONG = "the job would take longer than 64 bits can hold; choose a smaller factor"


def apply_changes(model: Model, changes: Sequence[Change]) -> IntArray:
    """Return the weight of each edge (ns) after all changes, in whatever order they are given.

    Raises UsageError for names that match nothing, and for times that no replay can add up.
    """
    weight = model.graph.weight.astype(np.float64)
    for change in sorted(changes, key=str):  # a product of factors depends on their order, if only in its last bit
        ranks = _mark_ranks(model, change)
        if change.target == what.HOST:
            on_host = mark_kinds(model.graph.kind, columns.ON_HOST)
            _scale(weight, np.flatnonzero(on_host & ranks), change.factor)
        elif change.target == what.COPIES:
            _scale_operations(model, model.is_memory, ranks, change.factor, weight)
        elif change.target == what.READBACKS:
            _remove_readbacks(model, ranks, weight)
        elif change.target == what.WAITS:
            weight[mark_crossing(model)] = REMOVED
        elif change.target == what.RANK:
            equalise(model, ranks, weight)
        else:
            others = {
                what.NETWORK: _scale_network,
                what.RANGE: _scale_ranges,
                what.CALL: _scale_calls,
                what.REPEATS: _scale_repeats,
                what.RECOMPUTATION: _scale_recomputed,
            }
            others.get(change.target, _scale_kernels)(model, change, ranks, weight)
    if any(change.factor > 1 for change in changes):
        # No node is later than before by more than all that edges have grown.
        grown = np.maximum(weight - model.graph.weight, 0).sum(dtype=np.float64)
        if grown > _LONGEST:
            raise UsageError(_TOO_LONG)
    rounded = weight.view(np.int64)
    _round(weight, rounded)
    return rounded


def can_apply(model: Model, changes: Sequence[Change]) -> bool:
    """Return whether a job has the kernels and classes that changes name, and read-backs if they are changed."""
    try:
        for change in changes:
            if change.target in (what.KERNEL, what.CLASS):
                _find_kernels(model, change)
            elif change.target == what.READBACKS:
                _find_readbacks(model)
            elif change.target == what.REPEATS:
                _find_repeats(model, change)
            elif change.target == what.RECOMPUTATION:
                _check_recomputed(model)
    except UsageError:
        return False
    return True


@compiled
def _round(weight: FloatArray, rounded: IntArray) -> None:
    """Set the rounded weights, which may be in the same place."""
    for i in range(weight.size):
        rounded[i] = np.int64(np.rint(weight[i]))


def _scale(weight: FloatArray, edges: IntArray, factor: float | FloatArray) -> None:
    """Scale the weights (ns) of edges by one factor or by one for each; what was removed stays so.

    Raises UsageError beyond 64 bits.
    """
    if not _scale_edges(weight, edges, np.atleast_1d(np.asarray(factor, np.float64))):
        raise UsageError(_TOO_LONG)


@compiled
def _scale_edges(weight: FloatArray, edges: IntArray, factor: FloatArray) -> bool:
    """Do what `_scale` does; return whether all weights fit."""
    for i in range(edges.size):
        if weight[edges[i]] >= 0:
            weight[edges[i]] *= factor[i if factor.size > 1 else 0]
            if weight[edges[i]] > _LONGEST:
                return False
    return True


def _mark_ranks(model: Model, change: Change) -> BoolArray:
    """Mark the edges of the ranks that change. Raises UsageError for a rank that the job lacks."""
    if change.ranks is None:
        return np.ones(model.graph.to.size, np.bool_)
    known = {rank: task for task, rank in enumerate(model.job.whole.ranks) if rank is not None}
    for rank in change.ranks:
        if rank not in known:
            raise UsageError(f"the job has no rank {rank}")
    return np.isin(model.edge_rank, [known[rank] for rank in change.ranks])


def match_names(pattern: str, names: Iterable[str], kind: str) -> list[int]:
    """Return the indices of the names that match a pattern. Raises UsageError, with the nearest names, for none."""
    texts = list(names)
    matches = what.compile_pattern(pattern)
    found = [n for n, name in enumerate(texts) if matches(name)]
    if not found:
        near = get_close_matches(pattern, texts, n=3, cutoff=0.4)
        hint = f"; the nearest are {', '.join(map(what.quote_exactly, near))}" if near else ""
        raise UsageError(f"no {kind} is named {quote_shortened(pattern)}{hint}")
    return found


# ---- operations ------------------------------------------------------------------------------------------------------


def _scale_operations(model: Model, chosen: BoolArray, ranks: BoolArray, factor: float, weight: FloatArray) -> None:
    """Scale the lengths of operations, and of what reads their memory; those of no length need no gap or launch."""
    graph = model.graph
    own = np.flatnonzero(mark_at(chosen, model.scaled_operation) & ranks)
    is_end = graph.to[own] >= model.numbers.operation_end
    ends = own[is_end]
    _scale(weight, ends, factor)
    if not factor:
        begins = own[~is_end]
        begins = begins[mark_kinds(graph.kind[begins], (columns.GAP, columns.LAUNCH, columns.AFTER))]
        weight[begins] = np.minimum(weight[begins], 0)
        weight[ends[mark_kinds(graph.kind[ends], NETWORK) & (graph.since[ends] >= model.numbers.others)]] = REMOVED


def _scale_kernels(model: Model, change: Change, ranks: BoolArray, weight: FloatArray) -> None:
    _scale_operations(model, _find_kernels(model, change), ranks, change.factor, weight)


def _find_kernels(model: Model, change: Change) -> BoolArray:
    """Mark the kernels that a change names, by name or class. Raises UsageError if there are none."""
    if change.target == what.CLASS:
        index, names = model.kernel_class
    else:
        index = np.where(model.is_kernel, model.lanes.operation_name, NONE)
        names = model.lanes.names
    used = _list_used(index)
    found = used[match_names(change.name, [names[n] for n in used.tolist()], change.target)]
    return np.isin(index, found)


def _list_used(index: IntArray) -> IntArray:
    """Return the different values from 0, which are few, ascending."""
    return np.flatnonzero(np.bincount(index[index >= 0]))


# ---- hosts -----------------------------------------------------------------------------------------------------------


def _scale_calls(model: Model, change: Change, ranks: BoolArray, weight: FloatArray) -> None:
    used = _list_used(model.lanes.call_name)
    found = used[match_names(change.name, [model.lanes.names[n] for n in used.tolist()], change.target)]
    named = np.isin(model.lanes.call_name, found)
    kept = (CODE, columns.AFTER, STAGE) if change.factor else (CODE, columns.AFTER)
    chosen = mark_at(named, model.edge_call) & ranks & ~mark_kinds(model.graph.kind, kept)
    edges = np.flatnonzero(chosen)
    _scale_host(model, edges, np.ones(edges.size), change.factor, weight)


def _find_readbacks(model: Model) -> tuple[BoolArray, BoolArray]:
    """Mark the edges by which calls that synchronise or copy wait for operations, and the own work of the former.

    Raises UsageError if no call waits.
    """
    names, kind = model.lanes.names, model.graph.kind
    synchronises = np.array([choose_call_state(name) == SYNCHRONIZATION for name in names], np.bool_)
    copies = np.array([name.startswith(COPY_CALLS) for name in names], np.bool_)
    marks = [mark_at(named[model.lanes.call_name], model.edge_call) for named in (synchronises | copies, synchronises)]
    waits = marks[0] & (kind == columns.WAKE)
    if not waits.any():
        raise UsageError("no call waits for the GPU")
    return waits, marks[1] & (kind == columns.CALL)


def _remove_readbacks(model: Model, ranks: BoolArray, weight: FloatArray) -> None:
    """Let calls that synchronise or copy not wait for operations; those that synchronise have nothing else to do."""
    waits, own = _find_readbacks(model)
    weight[waits & ranks] = REMOVED
    _scale(weight, np.flatnonzero(own & ranks), 0.0)


def _scale_host(model: Model, edges: IntArray, share: FloatArray, factor: float, weight: FloatArray) -> None:
    """Scale a share of the time of host edges (indices). A call that is not made at all waits for nothing."""
    _scale(weight, edges, 1 - (1 - factor) * share)
    if not factor:
        graph, whole = model.graph, edges[share >= 1]
        own = graph.since[whole] + model.numbers.calls == graph.to[whole]
        weight[whole[mark_kinds(graph.kind[whole], _WAITING) & ~own]] = REMOVED


def _scale_repeats(model: Model, change: Change, ranks: BoolArray, weight: FloatArray) -> None:
    """Scale the host time of repetitions after the first; of those that merge, one operation does the work of all.

    Nor does a batch wait for what each repetition reads: without these waits, savings of evalloop, pltrainer and ppo
    are within 7% of the measured ones; with them, evalloop's is a quarter of it.
    """
    repeats = _find_repeats(model, change)
    _scale_launches(model, repeats.low, repeats.high, ranks, change.factor, weight)
    for kind, factor in MERGED.items() if not change.factor else ():
        merged = match_kinds(repeats, [KINDS.index(kind)])
        if not merged.low.size:
            continue
        chosen = mark_at(mark_calls(model.numbers.calls, merged.low, merged.high), model.launching.astype(np.int32))
        length = np.flatnonzero(
            mark_at(chosen, model.edge_operation) & mark_kinds(model.graph.kind, (columns.KERNEL, columns.COPY)) & ranks
        )
        kept = weight[length] * factor
        _scale_operations(model, chosen, ranks, 0, weight)
        weight[length] = kept


def _find_repeats(model: Model, change: Change) -> Repeats:
    """Return the sequences of a kind. Raises UsageError if there are none."""
    kinds = np.unique(model.repeats.kind).tolist()
    found = match_names(change.name, [KINDS[kind] for kind in kinds], "repeated sequence")
    return match_kinds(model.repeats, [kinds[n] for n in found])


def _scale_recomputed(model: Model, change: Change, ranks: BoolArray, weight: FloatArray) -> None:
    _check_recomputed(model)
    found = model.recomputed
    _scale_launches(model, found.low, found.high, ranks, change.factor, weight)
    chosen = np.zeros(model.numbers.operations, np.bool_)
    chosen[found.operation] = True
    _scale_operations(model, chosen, ranks, change.factor, weight)


def _check_recomputed(model: Model) -> None:
    if not model.recomputed.operation.size:
        raise UsageError("no backward pass launches what a forward pass did")


def _scale_launches(
    model: Model, low: IntArray, high: IntArray, ranks: BoolArray, factor: float, weight: FloatArray
) -> None:
    """Scale the calls between pairs of calls of one thread, and the code before each."""
    calls = mark_calls(model.numbers.calls, low, high)
    edges = np.flatnonzero(mark_at(calls, model.edge_call) & mark_kinds(model.graph.kind, columns.ON_HOST) & ranks)
    _scale_host(model, edges, np.ones(edges.size), factor, weight)


def _scale_ranges(model: Model, change: Change, ranks: BoolArray, weight: FloatArray) -> None:
    names = match_names(change.name, model.ranges.names, change.target)
    edges, share, operations = model.in_ranges.find(names)
    chosen = ranks if not change.factor else ranks & ~mark_kinds(model.graph.kind, NETWORK)
    changed = chosen[edges] & (not change.factor or model.graph.kind[edges] != STAGE)
    _scale_host(model, edges[changed].astype(np.int64), share[changed], change.factor, weight)
    launched = np.zeros(model.numbers.operations, np.bool_)
    launched[operations] = True
    _scale_operations(model, launched, chosen, change.factor, weight)


# ---- network and ranks -----------------------------------------------------------------------------------------------


def _scale_network(model: Model, change: Change, ranks: BoolArray, weight: FloatArray) -> None:
    kinds = {what.WITHIN: (columns.NEAR,), what.BETWEEN: (columns.FAR,)}.get(change.name, NETWORK)
    chosen = mark_kinds(model.graph.kind, kinds) & ranks
    if columns.NEAR in kinds:
        chosen |= model.is_between & ranks
    if not chosen.any():
        raise UsageError(f"no communication {change.name or 'between ranks'} can be split into waiting and moving")
    _scale(weight, np.flatnonzero(chosen), change.factor)


def mark_crossing(model: Model) -> BoolArray:
    """Mark the edges by which a rank waits for other ranks."""
    graph, numbers = model.graph, model.numbers
    crossing = graph.kind == columns.TOGETHER
    moving = np.flatnonzero(mark_kinds(graph.kind, NETWORK))
    to = graph.to[moving]
    begin = np.where(to >= numbers.call_end, to - numbers.calls, NONE)
    begin = np.where(to < numbers.call_begin, to - numbers.operations, begin)
    crossing[moving] = graph.since[moving] != begin
    return crossing


def equalise(model: Model, ranks: BoolArray, weight: FloatArray) -> None:
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
    weight[staged] *= np.where(weight[staged] < 0, 1, factor[graph.since[staged]])  # what was removed stays so
    on_host = mark_kinds(graph.kind, (CODE, columns.CALL)) & (model.edge_thread >= 0)
    equalise_keys(model, on_host, model.edge_range, ranks, weight)


class _Keys(NamedTuple):
    """Which of m edges are compared, and which change; of which rank they are, and what they do, as a key from NONE.

    The first two are masks.
    """

    edges: BoolArray
    changes: BoolArray
    rank: Int32Array
    key: Int32Array


def equalise_keys(model: Model, edges: BoolArray, key: Int32Array, ranks: BoolArray, weight: FloatArray) -> None:
    """Cut the time of some ranks by key to the median of the others (of all, without others).

    A rank loses at most what it takes longer than they do in sum: what one spends in one key, another may in another.
    `edges` marks those that are compared, `key` (from NONE) says what they do.
    """
    graph, keys = model.graph, _Keys(edges, ranks, model.edge_rank, key)
    windows = np.array(model.job.scope.measured or [(np.iinfo(np.int64).min, np.iinfo(np.int64).max)], np.int64)
    sums = np.zeros((int(keys.rank.max(initial=NONE)) + 1, int(key.max(initial=NONE)) + 2), np.int64)
    found = np.zeros((2, sums.shape[0]), np.bool_)
    _sum_keys(keys, graph.time, graph.to, graph.weight, np.ascontiguousarray(windows.T), sums, found)
    has_edges, is_chosen = found
    if not is_chosen.any():
        return
    factor = np.ones(sums.shape)
    factor[has_edges] = _find_factors(sums[has_edges].astype(np.float64), is_chosen[has_edges])
    _scale_keys(keys, factor, weight)


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
    keys: _Keys, time: IntArray, to: Int32Array, length: IntArray, windows: IntTable, sums: IntTable, found: BoolTable
) -> None:
    """Add up the lengths (ns) of edges that end in windows (2 x n), by rank and key (the first one is for NONE).

    `found` (2 x ranks): mark the ranks with edges, and those with edges that change.
    """
    edges, changes, rank, key = keys
    lows, highs = windows[0], windows[1]
    for e in range(edges.size):
        if edges[e]:
            found[0, rank[e]] = True
            found[1, rank[e]] |= changes[e]
            end = time[to[e]]
            window = search(highs, 0, highs.size, end)
            if window < highs.size and lows[window] <= end:
                sums[rank[e], key[e] + 1] += length[e]


@compiled
def _scale_keys(keys: _Keys, factor: FloatTable, weight: FloatArray) -> None:
    """Shorten edges by factors (0 to 1) of their rank and key. What was removed stays so."""
    for e in range(keys.edges.size):
        if keys.edges[e] and keys.changes[e] and weight[e] > 0:
            weight[e] *= factor[keys.rank[e], keys.key[e] + 1]
