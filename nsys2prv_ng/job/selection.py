"""Restricts a job to the user's selection: a time, ranks, GPUs, intervals of a minimum length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace

import numpy as np

from nsys2prv_ng.arrays.types import BoolArray, IntArray
from nsys2prv_ng.errors import UsageError
from nsys2prv_ng.intervals.windows import cut_to_windows, unite_windows
from nsys2prv_ng.job.steps import Steps
from nsys2prv_ng.light_dataclass import dataclass
from nsys2prv_ng.objects.tree import ObjectTree
from nsys2prv_ng.paraver.model import TraceModel
from nsys2prv_ng.records.clip import clip_to_windows, drop_short_intervals
from nsys2prv_ng.sources.shared.reasons import OUTSIDE_CHOSEN_TIME, TOO_SHORT
from nsys2prv_ng.sources.shared.source import Result, StateIntervals

Window = tuple[int | None, int | None]


@dataclass(frozen=True)
class Selection:
    """The user's selection; None and empty values restrict nothing.

    `window`: limits in ns from the start of the trace. `only_gpus`: from the first to the last GPU operation. `step`:
    name of the NVTX ranges that are the steps of the program; if empty, the steps are found. `steps`: first and last
    step, by number. `cuts_steps`: a choice of steps cuts records; otherwise it only restricts what numbers cover.
    `nvtx_range`: only while such a range is open on any rank (the NVTX source finds its times). `shortest`:
    the length (ns) below which intervals are dropped, by source. `folds_threads`: the idle threads of a task share a
    row.
    """

    window: Window | None = None
    only_gpus: bool = False
    step: str = ""
    steps: Window | None = None
    skips_warmup: bool = False
    nvtx_range: str = ""
    cuts_steps: bool = True
    ranks: frozenset[int] | None = None
    gpus: frozenset[int] | None = None
    shortest: Mapping[str, int] = field(default_factory=dict)
    folds_threads: bool = False

    @property
    def restricts_time(self) -> bool:
        return self.cuts_records or self.restricts_steps

    @property
    def takes_all(self) -> bool:
        """Whether the user chose all time, also that before the first step."""
        return self.window == (None, None) and not self.restricts_steps

    @property
    def cuts_records(self) -> bool:
        return (
            self.window not in (None, (None, None))
            or self.only_gpus
            or bool(self.nvtx_range)
            or (self.restricts_steps and self.cuts_steps)
        )

    @property
    def restricts_steps(self) -> bool:
        return self.steps is not None or self.skips_warmup


# ---- on records ------------------------------------------------------------------------------------------------------


def drop_short(result: Result, shortest: int) -> None:
    """Drop intervals shorter than `shortest` (ns); the nesting of the others, and states, stay as they are."""
    before = result.written
    result.records = [drop_short_intervals(records, shortest) for records in result.records]
    result.drop(TOO_SHORT, before - result.written)


def find_windows(
    selection: Selection,
    ranges: Sequence[IntArray],
    steps: Steps | None,
    gpu_time: tuple[int, int] | None,
    limits: tuple[int, int],
) -> list[tuple[int, int]]:
    """Return the times to show on the common clock (ns), sorted and apart. Raises UsageError if no time is left.

    `ranges`: begin and end of the chosen NVTX ranges, n x 2 for each report. `steps`: the steps of the job, if the user
    chose some. `gpu_time`: start of the first and end of the last operation of the chosen GPUs. `limits`: first and
    last time of the trace.
    """
    low, high = _find_span(selection, steps, gpu_time, limits)
    if not selection.nvtx_range:
        return [(low, high)]
    every = np.concatenate([*ranges, np.zeros((0, 2), np.int64)])
    if not len(every):
        text = selection.nvtx_range
        hint = "" if text.endswith("*") else f"; if the texts end in numbers, try '{text}*'"
        raise UsageError(
            f"no NVTX range in any report has this text{hint}",
            parameter="nvtx_range",
            value=text,
        )
    begin, end = np.clip(every, low, min(high, limits[1])).T
    windows = unite_windows(begin[end > begin], end[end > begin])
    if not windows:
        raise UsageError(
            "none of these ranges is in the chosen time", parameter="nvtx_range", value=selection.nvtx_range
        )
    return windows


def _find_span(
    selection: Selection, steps: Steps | None, gpu_time: tuple[int, int] | None, limits: tuple[int, int]
) -> tuple[int, int]:
    """Return the limits (ns) that the chosen time and the chosen steps set together."""
    first, last = limits
    low, high = selection.window or (None, None)
    low, high = (None if limit is None else first + limit for limit in (low, high))
    if selection.only_gpus:
        if gpu_time is None:
            raise UsageError("no operation of a GPU was read", parameter="time", value="gpu")
        # As for steps, 1 ns longer at both ends, so that the first and last operation do not count as cut.
        low, high = gpu_time[0] - 1, gpu_time[1] + 1
    if low is not None and low >= last:
        length = (last - first) / 1e9
        after = (low - first) / 1e9
        raise UsageError(f"starts {after:g} s into a trace that lasts {length:g} s", parameter="time")
    if selection.restricts_steps:
        begin, end = _find_step_span(selection, steps)
        begin, end = begin if low is None else max(low, begin), end if high is None else min(high, end)
        if begin >= end:
            raise UsageError("none of the chosen steps is in this time", parameter="time")
        low, high = begin, end
    return first if low is None else low, last if high is None else high


def _find_step_span(selection: Selection, steps: Steps | None) -> tuple[int, int]:
    """Return the time (ns) of the chosen steps.

    The end is 1 ns later, so that what ends with the last step does not count as cut. So is the start earlier, unless
    it is the end of the step before. Raises UsageError if there are no such steps.
    """
    first, last = choose_steps(selection, steps)
    assert steps is not None
    follows = steps.on_gpu and first > 0
    return int(steps.start[first]) - (not follows), int(steps.stop[last]) + 1


def choose_steps(selection: Selection, steps: Steps | None) -> tuple[int, int]:
    """Return the indices of the first and last chosen step; without a choice, of the steps after the warm-up.

    Raises UsageError if there are no such steps.
    """
    parameter = "skip_warmup" if selection.steps is None else "steps"
    if steps is None:
        raise UsageError(
            "no NVTX range with a number, and no sequence of kernels, shows the steps of this program;"
            " read both sources, or name its ranges",
            parameter=parameter,
            see=("step",),
        )
    low, high = selection.steps or (None, None)
    number = steps.number
    chosen = (number >= (number[0] if low is None else low)) & (number <= (number[-1] if high is None else high))
    if selection.skips_warmup or selection.steps is None:
        chosen &= np.arange(number.size) >= steps.warmup
    if not chosen.any():
        held = f"the steps of this job are {number[0]} to {number[-1]}, and {number[steps.warmup]} is the first after"
        raise UsageError(f"there is no such step; {held} the warm-up", parameter=parameter)
    first, last = np.flatnonzero(chosen)[[0, -1]].tolist()
    return first, last


def cut_result(result: Result, windows: Sequence[tuple[int, int]]) -> None:
    """Cut records to windows; events outside count as dropped."""
    before = result.written
    for i, records in enumerate(result.records):
        result.records[i], pieces = clip_to_windows(records, windows)
        result.pieces += pieces
    result.drop(OUTSIDE_CHOSEN_TIME, before - result.written)


def cut_states(states: StateIntervals, windows: Sequence[tuple[int, int]]) -> StateIntervals:
    """Return the pieces of states within windows (ns), which are sorted and apart."""
    index, _, begin, end = cut_to_windows(states.begin, states.end, windows)
    return StateIntervals(states.place[index], begin, end, states.state[index])


# ---- on objects ------------------------------------------------------------------------------------------------------


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
