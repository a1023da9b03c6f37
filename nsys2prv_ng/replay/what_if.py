"""Predicts what changes save: plays a job with each of them, and compares when its steps start and end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from nsys2prv_ng.arrays.pick import pick
from nsys2prv_ng.arrays.row_keys import find_distinct_rows, find_starts
from nsys2prv_ng.arrays.types import FloatArray, IntArray
from nsys2prv_ng.job.counted import list_counted
from nsys2prv_ng.replay import changes as what
from nsys2prv_ng.replay.apply import apply_changes
from nsys2prv_ng.replay.changes import Change
from nsys2prv_ng.replay.columns import NAMES, NETWORK_TIME, NONE, UNSPLIT
from nsys2prv_ng.replay.excerpt import Excerpt
from nsys2prv_ng.replay.graph import play, trace_back
from nsys2prv_ng.replay.model import Model
from nsys2prv_ng.replay.numbers import Limit, RankSaving, Scenario
from nsys2prv_ng.steps.steps import Steps


class Outcome(NamedTuple):
    """What a replay did to the steps that count. Times in ns."""

    time: IntArray
    """When each node happens."""
    lengths: IntArray
    """Length of each step of the job; without steps, of the whole time."""
    begin: int
    end: int
    last_node: int
    """The node at which the last step ends; NONE if none is known."""
    tasks: IntArray
    """The tasks of the whole tree that have steps."""
    task_mean_ns: FloatArray
    """Mean length of the steps of each of these tasks."""

    @property
    def mean_ns(self) -> float:
        """Mean length of a step of the job."""
        return float(self.lengths.mean())


class StepClock:
    """Finds when the steps of a model start and end, from when its nodes happen (steps/spans.py, steps/steps.py)."""

    def __init__(self, model: Model) -> None:
        self._model = model
        steps = model.job.steps
        self._steps = steps if steps is not None and list_counted(model.job, steps).size else None
        self.has_steps = self._steps is not None
        """Whether any steps count: else all time is one step."""
        if self._steps is not None:
            self._find_work(self._steps)

    def _find_work(self, steps: Steps) -> None:
        """Find the operations of each span, which spans follow each other, and which steps count."""
        model, job = self._model, self._model.job
        operations = model.lanes.operations
        is_known = model.lanes.launch >= 0
        sent = np.where(is_known, operations.launched, operations.begin)
        span = steps.host.find(model.operation_rank, sent)
        inside = (span >= 0) & (is_known | (not steps.has_ranges))
        inside &= sent >= pick(steps.host_begin, span, 0)
        self._operation = np.flatnonzero(inside)
        self._span = span[self._operation]
        self._has_work = np.zeros(steps.task.size, np.bool_)
        self._has_work[self._span] = True
        self._task_starts = find_starts(steps.task)
        follows = np.append(False, steps.start[1:] == steps.stop[:-1])
        self._follows = follows & steps.on_gpu
        self._counted = list_counted(job, steps)

    def measure(self, time: IntArray, *, balanced: bool = False) -> Outcome:
        """Return the steps if each node happens at a time (ns). If `balanced`, each takes the mean of all tasks."""
        if self._steps is None:
            return self._measure_whole(time)
        start, stop, begin, end = self.find_steps(time)
        steps, counted = self._steps, self._counted
        tasks = steps.task[self._task_starts]
        shape = (tasks.size, -1)
        is_full = steps.task.size == tasks.size * steps.number.size
        lengths = (stop - start)[counted]
        task_mean = np.full(tasks.size, lengths.mean())
        if is_full:
            of_task = (end - begin).reshape(shape)[:, counted]
            task_mean = of_task.mean(axis=1)
            if balanced:
                lengths = np.rint(of_task.mean(axis=0)).astype(np.int64)
        low, high = int(start[counted][0]), int(stop[counted][-1])
        return Outcome(time, lengths, low, high, self._find_last(time, high), tasks, task_mean)

    def _measure_whole(self, time: IntArray) -> Outcome:
        """Return all time as one step."""
        model = self._model
        ends = time[: model.numbers.others]
        task = np.unique(np.append(model.operation_rank, model.thread_rank[model.lanes.calls.thread]))
        if not ends.size:
            return Outcome(time, np.array([0]), 0, 0, NONE, task, np.zeros(0))
        low, high, last = int(ends.min()), int(ends.max()), int(np.argmax(ends))
        return Outcome(time, np.array([high - low]), low, high, last, task, np.full(task.size, float(high - low)))

    def find_steps(self, time: IntArray) -> tuple[IntArray, IntArray, IntArray, IntArray]:
        """Return start and end (ns) of each step of the job (m), and of each step on its task (n)."""
        steps, model = self._steps, self._model
        assert steps is not None
        n, count = steps.task.size, steps.number.size
        marks = time[model.marks.first : model.marks.first + 2 * n]
        host_end, host_begin = marks[:n], marks[n:]
        end, begin = host_end.copy(), host_begin.copy()
        if steps.on_gpu:
            if not steps.has_ranges:
                end = np.where(self._has_work, host_begin, host_end)
            np.maximum.at(end, self._span, time[model.numbers.operation_end + self._operation])
            for task in np.split(np.arange(n), self._task_starts[1:]):
                end[task] = np.maximum.accumulate(end[task])
            follows = self._follows[steps.step]
            follows[self._task_starts] = False
            begin = np.where(follows, np.append(begin[:1], end[:-1]), begin)
        stop, first = np.full(count, np.iinfo(np.int64).min), np.full(count, np.iinfo(np.int64).max)
        np.maximum.at(stop, steps.step, end)
        np.minimum.at(first, steps.step, host_begin)
        return np.where(self._follows, np.append(first[:1], stop[:-1]), first), stop, begin, end

    def _find_last(self, time: IntArray, high: int) -> int:
        """Return the node at which the last step that counts ends; NONE if none is known."""
        steps, model = self._steps, self._model
        assert steps is not None
        spans = np.flatnonzero(steps.step == self._counted[-1])
        operations = self._operation[np.isin(self._span, spans)]
        nodes = np.concatenate([model.numbers.operation_end + operations, model.marks.first + spans])
        latest = nodes[time[nodes] == high]
        return int(latest[0]) if latest.size else NONE


_NORMAL = 1.4826
"""Sigma of a normal distribution in units of its median deviation."""
_FEW = 8
"""The median deviation of fewer steps is often far too small, such as 0 if two of three are alike."""
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
        self.observed = self._clock.measure(model.graph.time)
        self.has_steps = self._clock.has_steps
        self.noise_ns = measure_noise(self.observed.lengths if excerpt is None else excerpt.lengths)

    def play(self, changes: Sequence[Change]) -> tuple[Outcome, IntArray]:
        """Return (the steps with changes, the weights of the edges)."""
        weight = apply_changes(self.model, changes)
        return self.replay(weight, balanced=any(change.target == what.WAITS for change in changes)), weight

    def replay(self, weight: IntArray, *, balanced: bool = False) -> Outcome:
        """Return the steps if the edges have these weights (ns). If `balanced`, each takes the mean of all tasks."""
        return self._clock.measure(play(self.model.graph, weight), balanced=balanced)

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
        unlike = (what.WAITS, what.RANK)
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
        path = trace_back(graph, weight, outcome.time, outcome.last_node, outcome.begin)
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
