"""Measures the steps of replays: when they start and end (steps/spans.py, steps/steps.py), from when nodes happen.

The steps that count begin at the same event of each rank in every replay: on hosts where the range of the step before
them ends, on GPUs where that step itself ends. What has happened by then is as observed, and times from there on are
those of a graph, in which an edge can only delay what comes later. So no step gets shorter if something grows.

A GPU that gets faster catches up with a host that is ahead of it, but only once, however many steps follow; so does a
host with its GPU. Therefore hosts are played from where they were, and measured by their ranges, and GPUs from where
they were, with hosts as far ahead as needed. Steps take as long as the slower of both. If they took longer than that
already when they were observed, because one was slower in some steps and the other in others, the rest is added.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nsys2prv_ng.analysis.path.columns import NEVER
from nsys2prv_ng.arrays.row_keys import find_starts
from nsys2prv_ng.arrays.types import BoolArray, FloatArray, IntArray, pick
from nsys2prv_ng.job.counted import list_counted
from nsys2prv_ng.replay.core import GONE, KEPT, Core, find_core, join_fates, measure_lengths, play_core, trace_back
from nsys2prv_ng.replay.graph import NONE
from nsys2prv_ng.replay.model import Model
from nsys2prv_ng.steps.steps import Steps


class Outcome(NamedTuple):
    """What a replay did to the steps that count. Times in ns."""

    time: IntArray
    """When each node of the core happens, in the replay of hosts or of GPUs that decides when the last step ends."""
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


class StepSpans:
    """The n spans of the steps of a job, one for each task and step, and the operations of each."""

    def __init__(self, model: Model, steps: Steps) -> None:
        self._model, self._steps = model, steps
        sent = self.sent
        span = steps.host.find(model.operation_rank, sent)
        inside = (span >= 0) & ((model.lanes.launch >= 0) | (not steps.has_ranges))
        inside &= sent >= pick(steps.host_begin, span, 0)
        self.operation = np.flatnonzero(inside)
        """The operations that belong to spans."""
        self.of_operation = span[self.operation]
        self._has_work = np.zeros(steps.task.size, np.bool_)
        self._has_work[self.of_operation] = True
        self.nodes = np.append(
            model.marks.first + np.arange(2 * steps.task.size), model.numbers.operation_end + self.operation
        )
        """What decides when spans start and end: the ends of their ranges, the starts, then the ends of operations."""
        self.task_starts = find_starts(steps.task)
        follows = np.append(False, steps.start[1:] == steps.stop[:-1])
        self.step_follows = follows & steps.on_gpu
        """Whether each step of the job starts when the one before it ends."""
        self.follows = self.step_follows[steps.step]
        self.follows[self.task_starts] = False

    @property
    def sent(self) -> IntArray:
        """When each operation of the job was launched (ns), or started if that is not known."""
        operations = self._model.lanes.operations
        return np.where(self._model.lanes.launch >= 0, operations.launched, operations.begin)

    @property
    def since(self) -> IntArray:
        """When what the host of each span did began to belong to it (ns)."""
        steps = self._steps
        return np.where(self.follows, np.append(steps.host_end[:1], steps.host_end[:-1]) + 1, steps.host_begin)

    def find_steps(self, time: IntArray) -> tuple[IntArray, IntArray, IntArray, IntArray]:
        """Return start and end (ns) of each step of the job (m), and of each span (n). `time`: of each of `nodes`."""
        steps = self._steps
        host_begin = time[steps.task.size : 2 * steps.task.size]
        end, count = self.find_ends(time), steps.number.size
        begin = np.where(self.follows, np.append(host_begin[:1], end[:-1]), host_begin)
        first = np.full(count, np.iinfo(np.int64).max)
        np.minimum.at(first, steps.step, host_begin)
        stop = self.unite(end)
        return np.where(self.step_follows, np.append(first[:1], stop[:-1]), first), stop, begin, end

    def find_ends(self, time: IntArray) -> IntArray:
        """Return the end (n, ns) of each span. `time`: of each of `nodes` (ns)."""
        steps = self._steps
        host_end, host_begin, work = np.split(time, (steps.task.size, 2 * steps.task.size))
        if not steps.on_gpu:
            return host_end.copy()
        end = host_end.copy() if steps.has_ranges else np.where(self._has_work, host_begin, host_end)
        np.maximum.at(end, self.of_operation, work)
        return self.accumulate(end)

    def accumulate(self, end: IntArray) -> IntArray:
        """Let no span of a task end before the one before it (n, ns), in place."""
        for task in np.split(end, self.task_starts[1:]):
            np.maximum.accumulate(task, out=task)
        return end

    def unite(self, end: IntArray) -> IntArray:
        """Return when each step of the job ends (m, ns), given when its spans do (n)."""
        stop = np.full(self._steps.number.size, NEVER)
        np.maximum.at(stop, self._steps.step, end)
        return stop


class Played(NamedTuple):
    """When each node of the core happens (ns), from where hosts were when the steps that count began, and GPUs."""

    by_hosts: IntArray
    by_gpus: IntArray


class StepClock:
    """Plays a model, and measures its steps that count; without any, all time as one step."""

    def __init__(self, model: Model) -> None:
        self._model = model
        steps = model.job.steps
        counted = np.zeros(0, np.int64) if steps is None else list_counted(model.job, steps)
        self._steps = steps if counted.size else None
        self._outside: BoolArray | None = None
        self.has_steps = self._steps is not None
        """Whether any steps count: else all time is one step."""
        if self._steps is not None:
            self._counted = counted
            self._spans = StepSpans(model, self._steps)
            self._core = self._find_opening(self._steps)
            self._at = self._core.number[self._spans.nodes]
            self._find_leads(self._steps)
        else:
            self._find_whole()
            fates = np.zeros(model.graph.time.size, np.int8)
            self._core = find_core(model.graph, self._whole, fates, np.iinfo(np.int64).min)

    def _find_whole(self) -> None:
        """Find what lasts as long as a job without steps: operations, main threads and threads that launch.

        Threads of libraries wait until the end.
        """
        model, lanes, numbers = self._model, self._model.lanes, self._model.numbers
        works = (lanes.is_main | lanes.threads.launches)[lanes.calls.thread]
        nodes = np.flatnonzero(np.append(np.ones(2 * numbers.operations, np.bool_), np.tile(works, 2)))
        self._whole = nodes if nodes.size else np.arange(numbers.others)
        self._tasks = np.unique(np.append(model.operation_rank, model.thread_rank[lanes.calls.thread]))

    def _find_opening(self, steps: Steps) -> Core:
        """Find what has happened when the steps that count begin, and return what decides when they end."""
        model, spans, numbers = self._model, self._spans, self._model.numbers
        calls, marks, low = model.lanes.calls, model.marks, steps.start[self._counted[0]]
        opening = np.full(len(model.job.whole.model.tasks), low)
        first = steps.step == self._counted[0]
        opening[steps.task[first]] = spans.since[first]
        opens = int(opening[steps.task].min()) - 1
        marks_end = marks.first + marks.time.size
        before = model.graph.time <= low
        before[: numbers.call_begin] = np.tile(spans.sent < opening[model.operation_rank], 2)
        before[numbers.call_begin : numbers.others] = np.tile(calls.begin < opening[model.thread_rank[calls.thread]], 2)
        before[marks.first : marks_end] = marks.time < np.tile(opening[steps.task], 2)
        for_gpus = np.where(before, KEPT, 0).astype(np.int8)
        for first_node, last_node in ((numbers.call_begin, numbers.others), (marks.first, marks_end)):
            for_gpus[first_node:last_node][before[first_node:last_node]] = GONE
        for_hosts = np.where(model.graph.time <= opens, KEPT, 0).astype(np.int8)
        self._outside = None if spans.step_follows[self._counted[1:]].all() else self._mark_outside(steps)
        start = spans.find_steps(model.graph.time[spans.nodes])[0]
        fates = join_fates(for_hosts, for_gpus if steps.on_gpu else for_hosts)
        return find_core(model.graph, spans.nodes, fates, int(start[self._counted[0]]))

    def _mark_outside(self, steps: Steps) -> BoolArray:
        """Mark the edges between steps that do not follow each other: their time does not count."""
        model, spans, numbers = self._model, self._spans, self._model.numbers
        calls, is_counted = model.lanes.calls, np.isin(steps.step, self._counted)
        task, time = model.thread_rank[calls.thread], np.append(spans.sent, calls.begin)
        span = steps.host.find(np.append(model.operation_rank, task), time)
        inside = pick(is_counted, span, True) & (time >= pick(spans.since, span, NEVER))
        of_node = np.ones(model.graph.time.size, np.bool_)
        of_node[: numbers.call_begin] = np.tile(inside[: numbers.operations], 2)
        of_node[numbers.call_begin : numbers.others] = np.tile(inside[numbers.operations :], 2)
        marks = np.append(is_counted, is_counted & spans.follows)
        of_node[model.marks.first : model.marks.first + marks.size] = marks
        return ~of_node[model.graph.to]

    def _find_leads(self, steps: Steps) -> None:
        """Find by how much (ns) each span ends at least after its range, and after what hosts and GPUs need."""
        spans, count, chosen = self._spans, steps.number.size, self._counted
        start, stop, begin, end = spans.find_steps(self._model.graph.time[spans.nodes])
        opens = np.zeros(count, np.int64)
        first = chosen[np.append(True, (np.diff(chosen) > 1) | ~spans.step_follows[chosen[1:]])]
        opens[first] = first
        number = np.repeat(np.arange(spans.task_starts.size), np.diff(np.append(spans.task_starts, end.size))) * count
        opening = np.searchsorted(number + steps.step, number + np.maximum.accumulate(opens)[steps.step])
        ahead = np.where(spans.follows, begin - spans.since + 1, 0)
        # Where a host is less far ahead when a step ends, it was held up by something else.
        self._lead = np.minimum(ahead[opening], end - steps.host_end)
        self._rest = np.zeros_like(end)
        self._rest = end - self._find_ends(self.play(self._model.graph.weight))
        # A capture begins when it did, whatever came before it.
        report = pick(self._model.lanes.thread_report, self._model.marks.thread[end.size :], NONE)
        opens_capture = (np.diff(steps.task) == 0) & (np.diff(report) != 0)
        is_first = np.isin(chosen[1:], steps.step[1:][opens_capture]) | (steps.on_gpu & ~spans.step_follows[chosen[1:]])
        captures = np.flatnonzero(is_first) + 1
        self._job = _find_between(start[chosen], stop[chosen], captures)
        self._of_tasks = None
        if end.size == spans.task_starts.size * count:
            of_tasks = [column.reshape(-1, count)[:, chosen] for column in (begin, end)]
            self._of_tasks = _find_between(of_tasks[0], of_tasks[1], captures)

    def play(self, weight: IntArray) -> Played:
        """Return when each node of the core happens if edges have these weights (ns) in the steps that count."""
        graph = self._model.graph
        if self._outside is not None:
            weight = np.where(self._outside, graph.weight, weight)
        return Played(*play_core(self._core, measure_lengths(graph, self._core, weight)).T)

    def play_longer(self, edges: IntArray, more: IntArray) -> Played:
        """Return when each node of the core happens if some edges take longer (ns) in the steps that count."""
        counts = self._core.part_of[edges] >= 0
        if self._outside is not None:
            counts &= ~self._outside[edges]
        length = self._core.weight.copy()
        np.add.at(length, self._core.part_of[edges[counts]], more[counts])
        return Played(*play_core(self._core, length).T)

    def trace_back(self, outcome: Outcome, weight: IntArray) -> IntArray:
        """Return the edges that decided when the last step ends, its end first. `weight`: of each edge (ns)."""
        time = np.ascontiguousarray(outcome.time)
        return trace_back(self._model.graph, self._core, weight, time, outcome.last_node, outcome.begin)

    def observe(self) -> Outcome:
        """Return the steps as they were observed."""
        graph = self._model.graph
        outcome = self.measure(self.play(graph.weight))
        if self._steps is None:
            return outcome
        nodes, _ = self._list_last(self._steps)
        latest = nodes[graph.time[nodes] == outcome.end]
        return outcome._replace(time=self._core.time, last_node=int(latest[0]) if latest.size else NONE)

    def measure(self, played: Played, *, balanced: bool = False) -> Outcome:
        """Return the steps of a replay. If `balanced`, each takes the mean of all tasks."""
        if self._steps is None:
            return self._measure_whole(played.by_hosts)
        tasks = self._steps.task[self._spans.task_starts]
        end = self._find_ends(played)
        stop = self._spans.unite(end)[self._counted]
        lengths = _list_lengths(stop, self._job)
        task_mean = np.full(tasks.size, lengths.mean())
        if self._of_tasks is not None:
            of_tasks = _list_lengths(end.reshape(tasks.size, -1)[:, self._counted], self._of_tasks)
            task_mean = of_tasks.mean(axis=1)
            if balanced:
                lengths = np.rint(of_tasks.mean(axis=0)).astype(np.int64)
        time, last = self._find_last(self._steps, played)
        return Outcome(time, lengths, int(self._job.low[0][0]), int(stop[-1]), last, tasks, task_mean)

    def _measure_whole(self, time: IntArray) -> Outcome:
        """Return all time as one step, which begins when it was observed to."""
        nodes, task = self._whole, self._tasks
        if not nodes.size:
            return Outcome(time, np.array([0]), 0, 0, NONE, task, np.zeros(0))
        low, ends = int(self._model.graph.time[nodes].min()), time[self._core.number[nodes]]
        high, last = max(int(ends.max()), low), int(nodes[np.argmax(ends)])
        return Outcome(time, np.array([high - low]), low, high, last, task, np.full(task.size, float(high - low)))

    def _find_ends(self, played: Played) -> IntArray:
        """Return the end (n, ns) of each span, by its host or its GPU, whichever is later."""
        end = self._spans.find_ends(played.by_gpus[self._at])
        np.maximum(end, played.by_hosts[self._at[: end.size]] + self._lead, out=end)
        end += self._rest
        return self._spans.accumulate(end)

    def _list_last(self, steps: Steps) -> tuple[IntArray, IntArray]:
        """Return (nodes at which the last step that counts may end: operations, then ranges; the span of each)."""
        spans = np.flatnonzero(steps.step == self._counted[-1])
        chosen = np.isin(self._spans.of_operation, spans)
        operations = self._model.numbers.operation_end + self._spans.operation[chosen]
        return np.append(operations, self._model.marks.first + spans), np.append(
            self._spans.of_operation[chosen], spans
        )

    def _find_last(self, steps: Steps, played: Played) -> tuple[IntArray, int]:
        """Return (the times that decide when the last step that counts ends, the node at which it does)."""
        nodes, span = self._list_last(steps)
        on_gpu = nodes < self._model.marks.first
        at = self._core.number[nodes]
        ends = np.where(on_gpu, played.by_gpus[at], played.by_hosts[at] + self._lead[span]) + self._rest[span]
        last = int(np.argmax(ends))
        return played.by_gpus if on_gpu[last] else played.by_hosts, int(nodes[last])


class _Between(NamedTuple):
    """When n steps of a job, or of each row, may begin. Times (ns) leave out what lies between the steps.

    `passed`: the time outside of steps until each one starts. `captures`: the steps, but the first, that begin a
    capture; `low`: when the first step of each capture begins.
    """

    passed: IntArray
    captures: IntArray
    low: list[IntArray]


def _find_between(start: IntArray, stop: IntArray, captures: IntArray) -> _Between:
    passed = np.concatenate([np.zeros_like(start[..., :1]), start[..., 1:] - stop[..., :-1]], axis=-1)
    passed = np.cumsum(passed, axis=-1)
    begin = start - passed
    return _Between(passed, captures, [begin[..., first : first + 1] for first in (0, *captures.tolist())])


def _list_lengths(stop: IntArray, between: _Between) -> IntArray:
    """Return the lengths (ns) of steps, or of those of each row, given when each stops; none is less than 0."""
    parts = np.split(stop - between.passed, between.captures, axis=-1)
    ends = [np.maximum.accumulate(np.maximum(part, low), axis=-1) for part, low in zip(parts, between.low, strict=True)]
    lengths = [np.diff(end, prepend=low) for end, low in zip(ends, between.low, strict=True)]
    return np.concatenate(lengths, axis=-1)
