"""Predicts what changes save: plays a job with each of them, and compares when its steps start and end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from math import ceil
from typing import NamedTuple

import numpy as np

from nsys2prv_ng.analysis.path.columns import NEVER
from nsys2prv_ng.arrays.pick import pick
from nsys2prv_ng.arrays.row_keys import find_distinct_rows, find_starts
from nsys2prv_ng.arrays.types import BoolArray, FloatArray, IntArray
from nsys2prv_ng.intervals.windows import mark_inside
from nsys2prv_ng.job.counted import list_counted
from nsys2prv_ng.replay import changes as what
from nsys2prv_ng.replay.apply import apply_changes
from nsys2prv_ng.replay.changes import Change
from nsys2prv_ng.replay.columns import NAMES, NETWORK_TIME, NONE, REMOVED, UNSPLIT
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


class Played(NamedTuple):
    """When each node happens (ns), with hosts and GPUs as they were where the steps that count begin."""

    by_hosts: IntArray
    by_gpus: IntArray
    """The same if hosts were as far ahead of their GPUs as needed: then only GPUs hold them up, and what waits for them."""


class StepClock:
    """Finds when the steps of a model start and end, from when its nodes happen (steps/spans.py, steps/steps.py).

    The steps that count begin at the same event of each rank in every replay: on hosts where the range before them
    ended, on GPUs where the step before them did. What a replay keeps in these moments is as observed, so that a length
    is the time of an event in a graph whose edges can only delay it: it never shrinks if something grows.

    A GPU that gets faster catches up with a host that runs ahead, but only once, and a host with its GPU. So hosts are
    measured from where hosts were, GPUs from where GPUs were, and the longer of both counts. By how much it is shorter
    than what was observed, because a path changes from one to the other, is added.
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        steps = model.job.steps
        self._steps = steps if steps is not None and list_counted(model.job, steps).size else None
        self.has_steps = self._steps is not None
        """Whether any steps count: else all time is one step."""
        ends = model.graph.time[: model.numbers.others]
        self._limits = (int(ends.min()), int(ends.max())) if ends.size else (0, 0)
        if self._steps is not None:
            self._counted = list_counted(model.job, self._steps)
            self._find_work(self._steps)
            self._find_opening(self._steps)
            self._find_leads(self._steps)

    def _find_work(self, steps: Steps) -> None:
        """Find the operations of each span, and which spans follow each other."""
        model = self._model
        operations = model.lanes.operations
        is_known = model.lanes.launch >= 0
        self._sent = np.where(is_known, operations.launched, operations.begin)
        span = steps.host.find(model.operation_rank, self._sent)
        inside = (span >= 0) & (is_known | (not steps.has_ranges))
        inside &= self._sent >= pick(steps.host_begin, span, 0)
        self._operation = np.flatnonzero(inside)
        self._span = span[self._operation]
        self._has_work = np.zeros(steps.task.size, np.bool_)
        self._has_work[self._span] = True
        self._task_starts = find_starts(steps.task)
        follows = np.append(False, steps.start[1:] == steps.stop[:-1])
        self._follows = follows & steps.on_gpu
        self._span_follows = self._follows[steps.step]
        self._span_follows[self._task_starts] = False

    def _find_opening(self, steps: Steps) -> None:
        """Find what happens before the steps that count, and which edges are outside of them afterwards."""
        model, time, counted = self._model, self._model.graph.time, self._counted
        calls, marks, numbers = model.lanes.calls, model.marks, model.numbers
        since = np.where(self._span_follows, np.append(steps.host_end[:1], steps.host_end[:-1]) + 1, steps.host_begin)
        first = np.flatnonzero(steps.step == counted[0])
        opening = np.full(len(model.job.whole.model.tasks), steps.start[counted[0]])
        opening[steps.task[first]] = since[first]
        self._opens = int(opening[steps.task].min()) - 1
        of_call = model.thread_rank[calls.thread]
        before = time <= steps.start[counted[0]]
        before[: numbers.call_begin] = np.tile(self._sent < opening[model.operation_rank], 2)
        before[numbers.call_begin : numbers.others] = np.tile(calls.begin < opening[of_call], 2)
        before[marks.first : marks.first + 2 * steps.task.size] = marks.time < np.tile(opening[steps.task], 2)
        on_host = np.zeros(time.size, np.bool_)
        on_host[numbers.call_begin : numbers.others] = on_host[marks.first : marks.first + marks.time.size] = True
        self._before = before
        self._at_gpus = np.where(on_host, REMOVED, time)
        self._outside = None
        is_counted = np.isin(steps.step, counted)
        if not self._follows[counted[1:]].all():
            inside = np.ones(time.size, np.bool_)
            times = np.concatenate([self._sent, calls.begin])
            span = steps.host.find(np.append(model.operation_rank, of_call), times)
            is_in = pick(is_counted, span, True) & (times >= pick(since, span, NEVER))
            inside[: numbers.others] = np.concatenate([np.tile(part, 2) for part in np.split(is_in, [self._sent.size])])
            of_marks = np.append(is_counted, is_counted & self._span_follows)
            inside[marks.first : marks.first + of_marks.size] = of_marks
            self._outside = ~inside[model.graph.to]

    def _find_leads(self, steps: Steps) -> None:
        """Find how long after its range each span ends at the least, and what passes outside of the steps (ns)."""
        start, stop, begin, end = self.find_steps(self._model.graph.time)
        count, chosen = steps.number.size, self._counted
        opens = np.zeros(count, np.int64)
        first = np.append(True, (np.diff(chosen) > 1) | ~self._follows[chosen[1:]])
        opens[chosen[first]] = chosen[first]
        opens = np.maximum.accumulate(opens)[steps.step]
        number = np.repeat(np.arange(self._task_starts.size), np.diff(np.append(self._task_starts, steps.task.size)))
        opening = np.searchsorted(number * count + steps.step, number * count + opens)
        ahead = np.where(self._span_follows, begin - np.append(begin[:1], steps.host_end[:-1]), 0)
        self._lead = np.minimum(ahead[opening], end - steps.host_end)
        self._rest = np.zeros_like(end)  # for `_find_bounds`
        self._rest = end - self._find_bounds(self.play(self._model.graph.weight))
        self._low, self._between = _find_between(start[chosen], stop[chosen])
        tasks = self._task_starts.size
        self._of_tasks = None
        if steps.task.size == tasks * count:
            self._of_tasks = _find_between(*(column.reshape(tasks, count)[:, chosen] for column in (begin, end)))

    def play(self, weight: IntArray) -> Played:
        """Return when each node happens if edges have these weights (ns) in the steps that count."""
        graph = self._model.graph
        if self._steps is None:
            time = play(graph, weight)
            return Played(time, time)
        if self._outside is not None:
            weight = np.where(self._outside, graph.weight, weight)
        by_hosts = play(graph, weight, (graph.time <= self._opens, graph.time))
        if not self._steps.on_gpu:
            return Played(by_hosts, by_hosts)
        return Played(by_hosts, play(graph, weight, (self._before, self._at_gpus)))

    def observe(self) -> Outcome:
        """Return the steps as they were observed."""
        graph = self._model.graph
        outcome = self.measure(self.play(graph.weight))
        if self._steps is None:
            return outcome
        nodes = self._list_last(self._steps)[0]
        latest = nodes[graph.time[nodes] == outcome.end]
        return outcome._replace(time=graph.time, last_node=int(latest[0]) if latest.size else NONE)

    def measure(self, played: Played, *, balanced: bool = False) -> Outcome:
        """Return the steps of a replay. If `balanced`, each takes the mean of all tasks."""
        if self._steps is None:
            return self._measure_whole(played.by_hosts)
        steps, counted = self._steps, self._counted
        tasks = steps.task[self._task_starts]
        end = self._find_bounds(played)
        stop = np.full(steps.number.size, NEVER)
        np.maximum.at(stop, steps.step, end)
        lengths = _list_lengths(stop[counted], self._low, self._between)
        task_mean = np.full(tasks.size, lengths.mean())
        if self._of_tasks is not None:
            of_tasks = _list_lengths(end.reshape(tasks.size, -1)[:, counted], *self._of_tasks)
            task_mean = of_tasks.mean(axis=1)
            if balanced:
                lengths = np.rint(of_tasks.mean(axis=0)).astype(np.int64)
        low = int(self._low[0])
        time, last = self._find_last(steps, played, int(stop[counted[-1]]))
        return Outcome(time, lengths, low, int(stop[counted[-1]]), last, tasks, task_mean)

    def _measure_whole(self, time: IntArray) -> Outcome:
        """Return all time as one step, from the first event that was observed."""
        model, low = self._model, self._limits[0]
        ends = time[: model.numbers.others]
        task = np.unique(np.append(model.operation_rank, model.thread_rank[model.lanes.calls.thread]))
        if not ends.size:
            return Outcome(time, np.array([0]), 0, 0, NONE, task, np.zeros(0))
        high, last = max(int(ends.max()), low), int(np.argmax(ends))
        return Outcome(time, np.array([high - low]), low, high, last, task, np.full(task.size, float(high - low)))

    def find_steps(self, time: IntArray) -> tuple[IntArray, IntArray, IntArray, IntArray]:
        """Return start and end (ns) of each step of the job (m), and of each step on its task (n)."""
        steps = self._steps
        assert steps is not None
        host_begin = time[self._model.marks.first + steps.task.size :][: steps.task.size]
        end, count = self._find_ends(time), steps.number.size
        begin = np.where(self._span_follows, np.append(host_begin[:1], end[:-1]), host_begin)
        stop, first = np.full(count, np.iinfo(np.int64).min), np.full(count, np.iinfo(np.int64).max)
        np.maximum.at(stop, steps.step, end)
        np.minimum.at(first, steps.step, host_begin)
        return np.where(self._follows, np.append(first[:1], stop[:-1]), first), stop, begin, end

    def _find_ends(self, time: IntArray) -> IntArray:
        """Return the end (ns) of each step on its task (n)."""
        steps, model = self._steps, self._model
        assert steps is not None
        host_end, host_begin = time[model.marks.first :][: 2 * steps.task.size].reshape(2, -1)
        end = host_end.copy()
        if steps.on_gpu:
            if not steps.has_ranges:
                end = np.where(self._has_work, host_begin, host_end)
            np.maximum.at(end, self._span, time[model.numbers.operation_end + self._operation])
            self._accumulate(end)
        return end

    def _find_bounds(self, played: Played) -> IntArray:
        """Return the end (ns) of each step on its task (n), by hosts or by GPUs, whichever is later."""
        first = self._model.marks.first
        end = self._find_ends(played.by_gpus)
        np.maximum(end, played.by_hosts[first : first + end.size] + self._lead, out=end)
        end += self._rest
        self._accumulate(end)
        return end

    def _accumulate(self, end: IntArray) -> None:
        """Let no step on a task end before the one before it (n, ns), in place."""
        for task in np.split(end, self._task_starts[1:]):
            np.maximum.accumulate(task, out=task)

    def _list_last(self, steps: Steps) -> tuple[IntArray, IntArray]:
        """Return (nodes at which the last step that counts may end: operations, then ranges; the span of each)."""
        spans = np.flatnonzero(steps.step == self._counted[-1])
        chosen = np.isin(self._span, spans)
        operations = self._model.numbers.operation_end + self._operation[chosen]
        return np.append(operations, self._model.marks.first + spans), np.append(self._span[chosen], spans)

    def _find_last(self, steps: Steps, played: Played, high: int) -> tuple[IntArray, int]:
        """Return (the times that decide when the last step that counts ends, the node at which it does, or NONE)."""
        nodes, span = self._list_last(steps)
        for time, lead in ((played.by_gpus, 0), (played.by_hosts, self._lead[span])):
            kind = (nodes < self._model.marks.first) == (time is played.by_gpus)
            latest = nodes[kind & (time[nodes] + lead + self._rest[span] == high)]
            if latest.size:
                return time, int(latest[0])
        return played.by_hosts, NONE


def _find_between(start: IntArray, stop: IntArray) -> tuple[IntArray, IntArray]:
    """Return (start of the first of n steps, the time outside of them until each one starts (ns)), or rows of these."""
    passed = start[..., 1:] - stop[..., :-1]
    return start[..., :1], np.cumsum(np.concatenate([np.zeros_like(start[..., :1]), passed], axis=-1), axis=-1)


def _list_lengths(stop: IntArray, low: IntArray, between: IntArray) -> IntArray:
    """Return the lengths (ns) of steps, or of those of each row, that follow each other from `low` to each `stop`.

    `low`, `between`: as `_find_between` returns them. No step takes less than no time.
    """
    ends = np.maximum.accumulate(np.maximum(stop - between, low), axis=-1)
    return np.diff(ends, prepend=low)


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
