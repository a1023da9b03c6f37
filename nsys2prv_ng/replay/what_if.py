"""Predicts what changes and an ideal network save: plays a job, or an excerpt of its steps, with each.

An excerpt has consecutive steps that count, as many as the limit allows, with a mean length near the median step. A few
steps before them (the lead-in) are replayed too, but not counted: they show what the first one follows. What starts
after the last step has no influence on it, so that it is not needed.

Ranks still wait for each other. BSC gets the same from Dimemas, for MPI. If much of the communication cannot be split
into waiting and moving data, nothing is known, because a replay keeps its whole length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from math import ceil
from typing import NamedTuple

import numpy as np

from nsys2prv_ng.analysis.host_activity import MPI_CALL
from nsys2prv_ng.analysis.path.critical_path import PATH_SOURCES, count_lane_events
from nsys2prv_ng.analysis.path.streams import Span
from nsys2prv_ng.arrays.row_keys import find_distinct_rows
from nsys2prv_ng.arrays.types import BoolArray, IntArray
from nsys2prv_ng.job.counted import list_counted
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.reading.read_reports import ReportRecords
from nsys2prv_ng.records.runs import load_times
from nsys2prv_ng.records.store import Store
from nsys2prv_ng.replay import changes as what
from nsys2prv_ng.replay.apply import apply_changes
from nsys2prv_ng.replay.changes import Change
from nsys2prv_ng.replay.graph import NAMES, NETWORK, NETWORK_TIME, NONE, UNSPLIT, mark_kinds, play
from nsys2prv_ng.replay.model import Model
from nsys2prv_ng.replay.numbers import Limit, RankSaving, Replayed, Scenario
from nsys2prv_ng.replay.step_clock import Outcome, StepClock
from nsys2prv_ng.steps.steps import Steps

MOST = 8_000_000
"""Most operations and calls to replay: each takes about 450 bytes, with two changes that are played at once."""
_ENOUGH = 3_000_000
"""Most operations and calls of an excerpt that has enough steps: more of these hardly change what is predicted.

Measured on 16 copies of ddplong-2x2: of 59 steps, 46 and 22 save the same as all within 0.1 and 1 % of a step."""
_LEADS = (2, 1)
"""Numbers of steps of a lead-in, the best first. Without one, predictions for real captures were wrong by up to 40%."""


class Excerpt(NamedTuple):
    """A job whose steps are only those of the excerpt, and the span of time (ns) to load."""

    job: Job
    span: Span
    lengths: IntArray
    """Lengths (ns) of all steps of the whole job that count."""
    replayed: Replayed | None
    """Which steps were chosen; None if these are all that count, because the user chose few."""


def is_too_large(job: Job) -> bool:
    """Return whether a job has too many operations and calls to be replayed as a whole."""
    return count_lane_events(job) > MOST


def choose_excerpt(job: Job) -> Excerpt | None:
    """Return an excerpt of a job; None without steps, or if even one step with its lead-in is too large."""
    steps = job.steps
    counted = np.zeros(0, np.int64) if steps is None else list_counted(job, steps)
    if steps is None or not counted.size:
        return None
    lows, highs = _find_limits(steps)
    before_low, before_high = np.split(_count_before(job, np.append(lows, highs)), 2)
    for most, lead in ((min(_ENOUGH, MOST), _LEADS[0]), *((MOST, lead) for lead in _LEADS)):
        first, last = _choose_run(steps, counted, before_low, before_high, lead, most) or (0, -1)
        if last - first + 1 >= (_FEW if most < MOST else 1):
            break
    else:
        return None
    opens = max(first - lead, 0)
    base = max(opens - 1, 0)  # the first step starts when the step before it ends
    lengths = (steps.stop - steps.start)[counted]
    replayed = None
    if last - first + 1 < counted.size:
        numbers = int(steps.number[first]), int(steps.number[last])
        replayed = Replayed(steps=numbers, of_steps=counted.size, of_operations=count_lane_events(job))
    scope = replace(job.scope, counted=np.arange(first, last + 1) - base)
    part = replace(job, steps=steps.take(np.arange(base, last + 1)), scope=scope)
    return Excerpt(part, (int(lows[opens]), int(highs[last])), lengths, replayed)


def _find_limits(steps: Steps) -> tuple[IntArray, IntArray]:
    """Return the first and last time (m, ns) that each step depends on, both ascending.

    The first one includes the end of the step before on each task.
    """
    low, high = np.full(steps.number.size, np.iinfo(np.int64).max), steps.stop.copy()
    np.minimum.at(low, steps.step, steps.host_begin)
    np.maximum.at(high, steps.step, steps.host_end)
    later = steps.step + 1 < low.size
    np.minimum.at(low, steps.step[later] + 1, steps.end[later])
    return np.minimum.accumulate(low[::-1])[::-1], np.maximum.accumulate(high)


def _count_before(job: Job, times: IntArray) -> IntArray:
    """Return the number of operations and calls of a job before each time (n, ns)."""
    store = job.store
    counts = job.engine.map(lambda report: _count_in_report(report, times, store), job.reports)
    return np.sum(list(counts), axis=0, dtype=np.int64) // 2  # each has a line for its start and one for its end


def _count_in_report(report: ReportRecords, times: IntArray, store: Store) -> IntArray:
    """Return the number of lines of operations and calls of a report before each time (n, ns)."""
    total = np.zeros(times.size, np.int64)
    for run in report.runs(PATH_SOURCES):
        own = load_times(run, store)
        total += np.searchsorted(own if run.on_common_clock else report.clock(own), times)
    return total


def _choose_run(
    steps: Steps, counted: IntArray, before_low: IntArray, before_high: IntArray, lead: int, most: int
) -> tuple[int, int] | None:
    """Return the first and last step of the excerpt with a lead-in of some steps; None if the lead-in is longer.

    `counted`: the steps that count. `before_low`, `before_high`: operations and calls before the limits of each step;
    `most`: those of the excerpt and its lead-in.
    """
    at = np.arange(counted.size)
    until = before_low[np.maximum(counted - lead, 0)] + most
    last = np.searchsorted(before_high[counted], until, "right") - 1
    gaps = counted - at  # constant while steps follow each other
    last = np.minimum(last, np.searchsorted(gaps, gaps, "right") - 1)
    count = last - at + 1
    # A run that ends where the one before it does is only a part of that one.
    longest = np.flatnonzero((count >= lead) & np.append(True, last[1:] > last[:-1]))
    if not longest.size:
        return None
    longest = longest[count[longest] >= np.median(count[longest])]
    lengths = (steps.stop - steps.start)[counted]
    sums = np.append(0, np.cumsum(lengths))
    mean = (sums[last[longest] + 1] - sums[longest]) / count[longest]
    best = longest[np.argmin(np.abs(mean - np.median(lengths)))]
    return int(counted[best]), int(counted[last[best]])


_NORMAL = 1.4826
"""Sigma of a normal distribution in units of its median deviation."""
_FEW = 8
"""The median deviation of fewer steps is often far too small, such as 0 if two of three are alike. So an excerpt has
more, if they fit."""
_CONTROL = 10.0
"""How much longer the control makes what a change shortens."""


class Experiment:
    """Plays a model with changes, and measures the steps that count."""

    def __init__(self, model: Model, excerpt: Excerpt | None = None) -> None:
        """`excerpt`: what the model is of, if it is not of the whole job."""
        self.model = model
        self.is_whole = excerpt is None
        self.replayed = None if excerpt is None else excerpt.replayed
        self._clock = StepClock(model)
        self.observed = self._clock.observe()
        self.has_steps = self._clock.has_steps
        self.noise_ns = measure_noise(self.observed.lengths if excerpt is None else excerpt.lengths)

    def play(self, changes: Sequence[Change]) -> tuple[Outcome, IntArray]:
        """Return (the steps with changes in those that count, the weights of the edges)."""
        weight = apply_changes(self.model, changes)
        return self.replay(weight, balanced=any(change.target == what.WAITS for change in changes)), weight

    def replay(self, weight: IntArray, *, balanced: bool = False) -> Outcome:
        """Return the steps if the edges have these weights (ns). If `balanced`, each takes the mean of all tasks."""
        outcome = self._clock.measure(self._clock.play(weight), balanced=balanced)
        return outcome._replace(lengths=outcome.lengths - self._excess_ns) if balanced else outcome

    def measure_longer(self, edges: IntArray, more: IntArray) -> float:
        """Return the mean step (ns) if some edges take longer (ns)."""
        return self._clock.measure(self._clock.play_longer(edges, more)).mean_ns

    @cached_property
    def _excess_ns(self) -> int:
        """By how much (ns) steps in which nobody waits would be longer than the observed ones: ranks began apart.

        Without waits no step gets longer, so this is left out whatever else changes.
        """
        weight = apply_changes(self.model, [Change(what.WAITS)])
        alone = self._clock.measure(self._clock.play(weight), balanced=True)
        return max(ceil(alone.mean_ns - self.observed.mean_ns), 0)

    def predict_times(self, changes: Sequence[Change]) -> IntArray:
        """Return when each node happens (ns) with changes at all times, as a predicted trace shows."""
        return play(self.model.graph, apply_changes(self.model, changes))

    def run(self, changes: Sequence[Change]) -> Scenario:
        """Return what changes do together."""
        outcome, weight = self.play(changes)
        saving = self.observed.mean_ns - outcome.mean_ns
        measurable = abs(saving) > self.noise_ns
        return Scenario(
            changes=tuple(changes),
            predicted_step_ns=round(outcome.mean_ns),
            saving_ns=round(saving),
            share=saving / self.observed.mean_ns if self.observed.mean_ns else 0.0,
            limited_by=next(iter(self.list_limits(outcome, weight)), None),
            connected=measurable or self._is_connected(changes, saving),
            measurable=measurable,
            ranks=self._list_ranks(outcome),
        )

    def _is_connected(self, changes: Sequence[Change], saving: float) -> bool:
        """Return whether what changes alter, made ten times longer, shows in the steps."""
        if abs(saving) >= 1:
            return True
        unlike = (what.WAITS, what.RANK, what.READBACKS)
        longer = [replace(change, factor=_CONTROL) for change in changes if change.target not in unlike]
        return bool(longer) and self.play(longer)[0].mean_ns > self.observed.mean_ns + 1

    def _list_ranks(self, outcome: Outcome) -> list[RankSaving]:
        whole = self.model.job.whole
        means = zip(outcome.tasks.tolist(), self.observed.task_mean_ns, outcome.task_mean_ns, strict=True)
        return [
            RankSaving(rank=whole.ranks[task], task=whole.model.tasks[task].name, saving_ns=round(before - after))
            for task, before, after in means
        ]

    def list_limits(self, outcome: Outcome, weight: IntArray) -> list[Limit]:
        """Return what takes the time of the path that decides when the last step ends, the most time first."""
        if outcome.last_node == NONE:
            return []
        graph, ranks = self.model.graph, self.model.job.whole.ranks
        path = self._clock.trace_back(outcome, weight)
        kind = _WHAT_OF_KIND[graph.kind[path]]
        task = np.where(kind == _WHATS.index(NETWORK_TIME), NONE, self.model.edge_rank[path])
        code, owners = find_distinct_rows(kind, task)
        sums = np.bincount(code, weights=weight[path])
        total = max(float(sums.sum()), 1.0)
        limits = [
            Limit(what=_WHATS[owner], rank=ranks[task] if task >= 0 else None, share=ns / total)
            for (owner, task), ns in zip(owners, sums.tolist(), strict=True)
        ]
        return sorted(limits, key=lambda limit: -limit.share)

    def measure_unsplit(self) -> int:
        """Return the time (ns a step) of NCCL kernels that is not known to be waiting or moving."""
        graph = self.model.graph
        ends = graph.time[graph.to]
        inside = (graph.kind == UNSPLIT) & (ends > self.observed.begin) & (ends <= self.observed.end)
        return int(graph.weight[inside].sum()) // max(self.observed.lengths.size, 1)


def measure_noise(lengths: IntArray) -> int:
    """Return sigma (ns) of the lengths of steps; 0 of one step. With at least _FEW, outliers do not count."""
    if lengths.size < _FEW:
        return round(float(lengths.std(ddof=1))) if lengths.size > 1 else 0
    return round(_NORMAL * float(np.median(np.abs(lengths - np.median(lengths)))))


_WHATS = sorted(set(NAMES.values()))
_WHAT_OF_KIND = np.array([_WHATS.index(NAMES[kind]) for kind in range(len(NAMES))], np.int64)


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
