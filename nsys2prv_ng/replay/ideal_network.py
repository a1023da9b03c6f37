"""Measures what a job would save on an ideal network, which moves data in no time: POP's transfer efficiency.

Ranks still wait for each other. BSC gets the same from Dimemas, for MPI. If much of the communication cannot be split
into waiting and moving data, nothing is known, because a replay keeps its whole length.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nsys2prv_ng.analysis.host_activity import MPI_CALL
from nsys2prv_ng.arrays.types import BoolArray, IntArray
from nsys2prv_ng.replay.columns import NETWORK, mark_kinds
from nsys2prv_ng.replay.graph import play
from nsys2prv_ng.replay.model import Model
from nsys2prv_ng.replay.what_if import Experiment

MOST_UNKNOWN = 0.05
"""Most time in communication that may wait or move data, as a part of a window: efficiencies may be off by
so much, a twentieth."""


class Saving(NamedTuple):
    """How much shorter (ns) a window is on an ideal network, and if only MPI moves data in no time.

    None if that is not known, or if nothing moves in the window.
    """

    network: int | None = None
    mpi: int | None = None


class Savings(NamedTuple):
    """What windows of a job save."""

    whole: Saving = Saving()
    """The time that numbers cover."""
    in_steps: Saving = Saving()
    """The steps that count."""
    in_work: Saving = Saving()
    """From the first operation of any GPU to the last, in a job without steps."""


def measure_savings(experiment: Experiment) -> Savings:
    """Play a job with an ideal network, and with one that is ideal for MPI."""
    model = experiment.model
    moves = mark_kinds(model.graph.kind, NETWORK)
    windows = zip(*(_measure(experiment, edges) for edges in (moves, moves & (model.edge_call >= 0))), strict=True)
    return Savings._make(Saving(*saved) for saved in windows)


def _measure(experiment: Experiment, moves: BoolArray) -> tuple[int | None, int | None, int | None]:
    """Return the savings in the windows of Savings if edges by which data move take no time."""
    model, observed = experiment.model, experiment.observed
    job, graph = model.job, model.graph
    if not moves.any():
        return None, None, None
    ends = graph.time[graph.to[moves]]

    def is_known(low: int, high: int) -> bool:
        moves_in_it = ((ends > low) & (ends <= high)).any()
        return bool(moves_in_it) and _measure_unknown(model, low, high) <= MOST_UNKNOWN

    def save_within(part: IntArray) -> int | None:
        """Return what is saved from the first of some nodes, where the change begins, to the last."""
        times = graph.time[part]
        if not part.size or not is_known(low := int(times.min()), high := int(times.max())):
            return None
        played = play(graph, np.where(moves & (graph.time[graph.to] > low), 0, graph.weight))
        return high - max(int(played[part].max()), low)

    by_step = in_steps = None
    if experiment.has_steps:
        played = experiment.replay(np.where(moves, 0, graph.weight))
        by_step = int((observed.lengths - played.lengths).sum())
        in_steps = by_step if is_known(observed.begin, observed.end) else None
    if np.unique(model.lanes.thread_row).size < model.lanes.thread_row.size:
        # Steps of GPUs do not contain what lies between two captures. What that depends on is not known.
        tiles = in_steps is not None and job.scope.counted is not None and job.steps is not None and job.steps.on_gpu
        return (by_step, by_step, None) if tiles else (None, None, None)
    whole, in_work = None, None
    if job.scope.counted is not None:
        whole = in_steps
    elif not job.scope.selection.restricts_time:
        numbers = model.numbers
        is_shown = np.tile(job.new_row[model.lanes.operation_row] >= 0, 2)
        whole = save_within(np.arange(numbers.others))
        in_work = save_within(np.flatnonzero(is_shown))
    return whole, in_steps, in_work


def _measure_unknown(model: Model, low: int, high: int) -> float:
    """Return which part of a window (ns) main threads spend, on average, in MPI calls without a known partner."""
    lanes, calls = model.lanes, model.lanes.calls
    known = np.zeros(model.numbers.calls, np.bool_)
    known[model.edge_call[mark_kinds(model.graph.kind, NETWORK) & (model.edge_call >= 0)]] = True
    unknown = (lanes.call_kind == MPI_CALL) & lanes.is_main[calls.thread] & ~known
    inside = np.clip(calls.end[unknown], low, high) - np.clip(calls.begin[unknown], low, high)
    return float(inside.sum()) / (max(int(lanes.is_main.sum()), 1) * max(high - low, 1))
