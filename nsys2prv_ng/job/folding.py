"""Drops what the user did not choose: rows, events of threads that share a row, short intervals, other times.

Calls of different threads do not nest, so no row can show those of several threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from nsys2prv_ng.arrays.types import BoolArray, IntArray
from nsys2prv_ng.errors import UsageError
from nsys2prv_ng.job.open_reports import Selection
from nsys2prv_ng.job.read_reports import ReportRecords
from nsys2prv_ng.job.spill import change_records
from nsys2prv_ng.objects.tree import ObjectTree
from nsys2prv_ng.paraver.model import TraceModel
from nsys2prv_ng.records.clip import clip_to_windows, drop_short_intervals
from nsys2prv_ng.records.store import Store
from nsys2prv_ng.runtime.engine import Engine
from nsys2prv_ng.sources.shared.reasons import NOT_SELECTED, ON_FOLDED_THREAD, OUTSIDE_CHOSEN_TIME, TOO_SHORT
from nsys2prv_ng.sources.shared.result import Result

# ---- rows ------------------------------------------------------------------------------------------------------------


def select_rows(tree: ObjectTree, selection: Selection) -> BoolArray:
    """Mark the rows of the chosen ranks and GPUs. Raises UsageError if there are none.

    The child processes of a rank, and the nodes that it ran on, belong to it.
    """
    kept = np.ones(tree.model.row_count, np.bool_)
    if selection.ranks is not None:
        ranks = np.array([-1 if rank is None else rank for rank in tree.belongs_to], np.int64)
        wanted = np.isin(ranks, list(selection.ranks))
        nodes = {task.node for task, is_wanted in zip(tree.model.tasks, wanted, strict=True) if is_wanted}
        for i, task in enumerate(tree.model.tasks):
            wanted[i] |= tree.is_node[i] and task.node in nodes
        kept &= wanted[tree.task_of_row]
        if not kept.any():
            known = ", ".join(str(rank) for rank in sorted(set(ranks.tolist())) if rank >= 0)
            raise UsageError(f"none of them is in the reports, which hold {known or 'no ranks'}", parameter="ranks")
    if selection.gpus is not None:
        kept &= (tree.gpu_of_row < 0) | np.isin(tree.gpu_of_row, list(selection.gpus))
        if not (kept & (tree.gpu_of_row >= 0)).any():
            known = ", ".join(map(str, sorted(set(tree.gpu_of_row[tree.gpu_of_row >= 0].tolist()))))
            held = f"GPU {known}" if known else "no GPU"
            raise UsageError(f"none of them is in the selected reports, which hold {held}", parameter="gpus")
    return kept


def prune_tree(tree: ObjectTree, kept: BoolArray) -> tuple[ObjectTree, IntArray]:
    """Return the tree with only the rows of a mask, and the new row of each old row (-1 for a row that is not kept)."""
    new_row = np.where(kept, np.cumsum(kept) - 1, -1)
    tasks = [i for i in range(len(tree.model.tasks)) if kept[tree.task_of_row == i].any()]
    nodes = sorted({tree.model.tasks[i].node for i in tasks})
    rows = []
    for i in tasks:
        is_row_kept = kept[tree.task_of_row == i]
        names = [name for name, is_kept in zip(tree.model.tasks[i].threads, is_row_kept, strict=True) if is_kept]
        rows.append(replace(tree.model.tasks[i], node=nodes.index(tree.model.tasks[i].node), threads=names))
    host = new_row[tree.host_rows]
    return (
        replace(
            tree,
            model=TraceModel([tree.model.nodes[node] for node in nodes], rows),
            rows=[np.where(rows_of_report >= 0, new_row[rows_of_report], -1) for rows_of_report in tree.rows],
            host_rows=host[host >= 0],
            task_of_row=np.repeat(np.arange(len(rows)), [len(task.threads) for task in rows]),
            ranks=[tree.ranks[i] for i in tasks],
            belongs_to=[tree.belongs_to[i] for i in tasks],
            is_node=[tree.is_node[i] for i in tasks],
            gpu_of_row=tree.gpu_of_row[kept],
            is_idle=tree.is_idle[kept],
        ),
        new_row,
    )


def drop_unselected_rows(
    reports: Sequence[ReportRecords], tree: ObjectTree, kept: BoolArray, store: Store, engine: Engine
) -> None:
    """Drop records on rows that the user did not choose (`kept` is false).

    Expects all records of a result on one clock. Leaves the records that set the limits of the trace. Raises UsageError
    if there are none.
    """

    changes = [
        (result, None, unwanted)
        for report, rows in zip(reports, tree.rows, strict=True)
        if (unwanted := (rows >= 0) & ~kept[rows]).any()
        for result in report.results.values()
    ]
    change_records(changes, lambda result, unwanted: result.drop_places(unwanted, NOT_SELECTED), store, engine)
    if not any(report.limits() for report in reports):
        raise UsageError("no event is left in the trace; choose more ranks or GPUs")


def has_folded_events(result: Result, folded: BoolArray) -> bool:
    """Return whether a result has events on folded threads. `folded`: mask by place."""
    places = np.flatnonzero(folded)
    return any(run.facts.has_events_on(places) for run in result.runs)


def take_folded(result: Result, folded: BoolArray) -> Result:
    """Move the records on folded threads to a new result, and return it. `folded`: mask by place."""
    taken = Result()
    for i, records in enumerate(result.records):
        is_folded = folded[records.place]
        result.records[i] = records.take(np.flatnonzero(~is_folded))
        taken.records.append(records.take(np.flatnonzero(is_folded)))
    return taken


def drop_folded(result: Result, taken: Result) -> None:
    """Count the events of `taken` as dropped: its remaining events are on folded threads."""
    result.add_dropped(taken)
    result.drop(ON_FOLDED_THREAD, taken.written)


# ---- time ------------------------------------------------------------------------------------------------------------


def drop_short(result: Result, shortest: int) -> None:
    """Drop intervals shorter than `shortest` (ns); the nesting of the others, and states, stay as they are."""
    before = result.written
    result.records = [drop_short_intervals(records, shortest) for records in result.records]
    result.drop(TOO_SHORT, before - result.written)


def cut_result(result: Result, windows: Sequence[tuple[int, int]]) -> None:
    """Cut records to windows; events outside count as dropped."""
    before = result.written
    for i, records in enumerate(result.records):
        result.records[i], pieces = clip_to_windows(records, windows)
        result.pieces += pieces
    result.drop(OUTSIDE_CHOSEN_TIME, before - result.written)
