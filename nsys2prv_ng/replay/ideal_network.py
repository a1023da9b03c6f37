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
    played = experiment.replay(np.where(moves, 0, graph.weight))

    ends = graph.time[graph.to[moves]]

    def save(before: tuple[int, int], after: tuple[int, int]) -> int | None:
        low, high = before
        if not ((ends > low) & (ends <= high)).any() or _measure_unknown(model, low, high) > MOST_UNKNOWN:
            return None
        return (high - low) - (after[1] - after[0])

    in_steps = save((observed.begin, observed.end), (played.begin, played.end)) if experiment.has_steps else None
    if np.unique(model.lanes.thread_row).size < model.lanes.thread_row.size:
        # Steps of GPUs do not contain what lies between two captures. What that depends on is not known.
        tiles = in_steps is not None and job.scope.counted is not None and job.steps is not None and job.steps.on_gpu
        by_step = int((observed.lengths - played.lengths).sum()) if tiles else None
        return by_step, by_step, None
    whole, in_work = None, None
    if job.scope.counted is not None:
        whole = in_steps
    elif not job.scope.selection.restricts_time:
        numbers = model.numbers
        is_shown = np.tile(job.new_row[model.lanes.operation_row] >= 0, 2)
        whole, in_work = (
            save(_find_limits(graph.time[part]), _find_limits(played.time[part])) if part.size else None
            for part in (np.arange(numbers.others), np.flatnonzero(is_shown))
        )
    return whole, in_steps, in_work


def _find_limits(time: IntArray) -> tuple[int, int]:
    return int(time.min()), int(time.max())


def _measure_unknown(model: Model, low: int, high: int) -> float:
    """Return which part of a window (ns) main threads spend, on average, in MPI calls without a known partner."""
    lanes, calls = model.lanes, model.lanes.calls
    known = np.zeros(model.numbers.calls, np.bool_)
    known[model.edge_call[mark_kinds(model.graph.kind, NETWORK) & (model.edge_call >= 0)]] = True
    unknown = (lanes.call_kind == MPI_CALL) & lanes.is_main[calls.thread] & ~known
    inside = np.clip(calls.end[unknown], low, high) - np.clip(calls.begin[unknown], low, high)
    return float(inside.sum()) / (max(int(lanes.is_main.sum()), 1) * max(high - low, 1))
