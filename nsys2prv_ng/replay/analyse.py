"""Makes a what-if analysis of a job: what changes save that the user named, or that are likely to, and slack."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import ceil
from typing import Any

import numpy as np

from nsys2prv_ng.analysis.path.critical_path import count_lane_events
from nsys2prv_ng.analysis.path.lanes import Lanes
from nsys2prv_ng.analysis.waits.waits import Waits
from nsys2prv_ng.arrays.types import BoolArray, IntArray, pick
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.paraver.value_tables import HANDS_OVER
from nsys2prv_ng.replay import changes as what
from nsys2prv_ng.replay.apply import apply_changes, can_apply
from nsys2prv_ng.replay.changes import Change
from nsys2prv_ng.replay.graph import CALL, CODE, COPY, FAR, KERNEL, NEAR, NONE, mark_at, mark_kinds, run_all
from nsys2prv_ng.replay.model import Model, load_model
from nsys2prv_ng.replay.numbers import Limit, Scenario, Slack, WhatIfNumbers
from nsys2prv_ng.replay.repeats import list_repeated
from nsys2prv_ng.replay.step_clock import Outcome
from nsys2prv_ng.replay.what_if import Excerpt, Experiment, choose_excerpt, is_too_large
from nsys2prv_ng.runtime.limits import get_default_memory
from nsys2prv_ng.runtime.parallel import LocalEngine, run_in_threads
from nsys2prv_ng.runtime.progress import Progress
from nsys2prv_ng.sources.cuda.kernel_classes import OTHER
from nsys2prv_ng.steps.numbered_names import is_step

_LEAST_GAIN = 0.02
"""Least part of a step that ideal hosts must save for hosts to set the pace.

A choice: below it, GPUs are about as fast, and which of the two is first changes from step to step."""
_AT_ONCE = 2
"""Scenarios that are played at once whatever the memory, if there are cores for them."""
_BYTES = 100
"""Memory to play a scenario (bytes for each edge of the graph): its weights, and the times of the core's nodes."""
_MOST_SLACK = 6
"""Most ranges, and most classes of kernels, whose slack is measured."""
_MOST = {what.RANGE: 8, what.CALL: 5, what.CLASS: 5, what.KERNEL: 2}
"""Most changes of ranges, calls, classes of kernels, and kernels of no known class: those with most time."""
_FINDERS = 4
"""Most ranges of which the time is measured at once: each needs memory for all of its edges."""
_MOST_MEASURED = 24
"""Most names of ranges of which the time is measured: those that are open longest."""
_LEAST_SHARE = 0.005
"""Least part of the steps of all ranks that must be spent in something for its change to be tried.

No change saves more than that time; a choice between the time of an analysis and what it may miss."""
_FASTER = 0.5
"""Factor of kernels, and of ranges that launch them, which cannot vanish: they get twice as fast."""
_REPEATS = 3
"""Least number of calls of a thread that are not its start-up, in a job without steps."""
_STARTS = ("MPI_Init", "MPI_Finalize", "cuInit", "cuModuleLoad", "cuLibraryLoad", "cuLibraryGet", "ncclCommInit")
"""Beginnings of the names of calls that start or end a program, however often they are made."""
_MOST_COVERED = 0.8
"""Most of the steps that a range may cover that launches, if its change is to be tried: it is the step by another name.

A choice: `cycle` of the program `solver` covers 0.94, and to halve it is no advice."""
_LEAST_ON_DEVICE = 0.05
"""Least part of the time of a range in what it launched that makes it one that launches.

A choice: too large, and a range with kernels is said to vanish."""
_HOST_PER_LAUNCH_NS = 100_000
"""Host time for each operation launched in a range below which the range does little but launch.

A launch takes 5 to 10 us in an eager framework."""
_TOLERANCE = 0.001
"""A step grows if it does so by more than this part of it. A choice, far above what rounding does to a step."""
_LONGEST = 4.0
"""The most by which something is made longer, in steps: beyond, no limit is known."""
_PARTS = 1 << 10
"""The slack is found to such a part of the longest."""


def load_experiment(job: Job, waits: Waits) -> Experiment | None:
    """Return what replays a job, or an excerpt if the job is too large; None if even one step of it is."""
    if not is_too_large(job):
        return make_experiment(job, waits)
    excerpt = choose_excerpt(job)
    return None if excerpt is None else make_experiment(job, waits, excerpt)


def make_experiment(job: Job, waits: Waits, excerpt: Excerpt | None = None, lanes: Lanes | None = None) -> Experiment:
    """Return what replays a job, or an excerpt of it. `lanes`: what is replayed, if the caller already has it."""
    model = load_model(job, waits, lanes) if excerpt is None else load_model(excerpt.job, waits, lanes, excerpt.span)
    finders = [] if job.steps is None else _list_finders(model)
    experiment: Experiment = run_all([lambda: Experiment(model, excerpt), *finders], job.engine.cores)[0]
    return experiment


def _list_finders(model: Model) -> list[Callable[[], Any]]:
    """Return functions that find what changes are applied to. They need nothing of each other."""
    _ = model.edge_thread  # else each would find it
    return [
        lambda: model.in_ranges,
        lambda: (model.is_memory, model.is_kernel, model.repeats, model.recomputed),
        lambda: (model.scaled_operation, model.is_between),
    ]


def describe_size(job: Job) -> str:
    """Return why a job without an experiment was not replayed."""
    count = count_lane_events(job)
    return f"savings were not predicted: {count:,} operations and calls are too many; choose a shorter time"


def analyse(
    experiment: Experiment,
    scenarios: Sequence[Sequence[Change]] = (),
    *,
    proposed: Sequence[Sequence[Change]] = (),
    with_slack: bool = True,
    progress: Progress | None = None,
) -> WhatIfNumbers:
    """Return what scenarios save, each of which has one or more changes; without any, those that are likely to.

    `proposed`: further scenarios that may save something, tried if the job has what they change. Raises UsageError for
    a change that matches nothing.
    """
    model, observed = experiment.model, experiment.observed
    run_all(_list_finders(model), model.job.engine.cores)  # else each process would find it
    totals = Totals(model, observed)
    ranges, classes = (totals.measure_ranges(), totals.measure_classes()) if with_slack or not scenarios else ({}, {})
    limits = experiment.list_limits(observed, model.graph.weight)
    slowest = next((limit.rank for limit in limits if limit.rank is not None), None)
    likely: list[Sequence[Change]] = []
    if not scenarios:
        likely = [(change,) for change in list_candidates(totals, ranges, classes, slowest)]
        likely += [each for each in proposed if each not in likely and can_apply(model, each)]
    sums = {what.RANGE: ranges, what.CLASS: classes} if with_slack else {}
    parts = max(observed.lengths.size * observed.tasks.size, 1)
    targets = [
        (kind, name, ns // parts)
        for kind, times in sums.items()
        for name, ns in choose_largest(times, _MOST_SLACK, totals.least_ns)
    ]
    # What takes longest is first.
    pieces: list[Callable[[], Any]] = [partial(measure_slack, experiment, *target) for target in targets]
    pieces += [partial(experiment.run, changes) for changes in (*scenarios, *likely)]
    results: list[Any] = []
    with (progress or Progress()).step("replaying changes", len(pieces), "change", logged=False) as step:
        for result in _choose_engine(model, len(pieces)).map(lambda do: do(), pieces):
            results.append(result)
            step.update(1)
    slack, tried = results[: len(targets)], results[len(targets) :]
    # Those with an influence on the steps that may be a gain.
    found = [
        each for each in tried[len(scenarios) :] if each.connected and (each.saving_ns >= 0 or not each.measurable)
    ]
    tried[len(scenarios) :] = sorted(found, key=lambda scenario: -scenario.saving_ns)
    return WhatIfNumbers(
        steps=0 if model.job.steps is None else int(observed.lengths.size),
        step_ns=round(observed.mean_ns),
        noise_ns=experiment.noise_ns,
        limited_by=_confirm_limit(experiment, limits, tried),
        scenarios=tried,
        slack=slack,
        unsplit_ns=experiment.measure_unsplit(),
        replayed=experiment.replayed,
        repeats=list_repeated(model.repeats),
    )


def _choose_engine(model: Model, pieces: int) -> LocalEngine:
    """Return what plays scenarios, no more at once than save time: processes that share the model, or threads."""
    size, cores = _BYTES * model.graph.to.size, model.job.engine.cores
    at_once = min(cores, max(_AT_ONCE, get_default_memory() // max(size, 1)))
    turns = -(-pieces // at_once)
    # The more cores, the more threads would wait for each other, and the less it matters what processes take to start.
    return LocalEngine(-(-pieces // max(turns, 1)) or 1, cores, size * cores // 2)


def _confirm_limit(experiment: Experiment, limits: Sequence[Limit], tried: Sequence[Scenario]) -> Limit | None:
    """Return what sets the pace; None if hosts do, but nothing measurable is gained without them (or was, in `tried`).

    Then GPUs are about as fast: which of the two is first changes from step to step.
    """
    first = next(iter(limits), None)
    if first is None or first.what != "host":
        return first
    ideal = Change(what.HOST)
    without = next((each for each in tried if each.only == ideal), None) or experiment.run([ideal])
    return first if without.measurable and without.share > _LEAST_GAIN else None


# ---- candidates ------------------------------------------------------------------------------------------------------


class Totals:
    """Time within the steps that count, by NVTX range, call and class of kernels (ns, added up over ranks).

    On hosts, main threads and those that launch count.
    """

    def __init__(self, model: Model, observed: Outcome) -> None:
        self._model = model
        graph = model.graph
        ends = graph.time[graph.to]
        self._inside = (ends > observed.begin) & (ends <= observed.end)
        self._runs = self._inside & mark_kinds(graph.kind, (KERNEL, COPY)) & (model.edge_operation >= 0)
        works = mark_at(model.lanes.threads.launches | model.lanes.is_main, model.edge_thread)
        self._on_host = self._inside & mark_kinds(graph.kind, (CODE, CALL)) & works
        self._span = observed.begin, observed.end
        self.launching: set[str] = set()
        self.covering: set[str] = set()
        self.least_ns = _LEAST_SHARE * (observed.end - observed.begin) * max(observed.tasks.size, 1)

    def measure_ranges(self) -> dict[str, int]:
        """Return the host time and the time of the operations launched in each range, except in that of the steps.

        Keep which ones launch operations in `launching`, and which cover nearly all of the steps in `covering`.
        """
        model = self._model
        lengths = model.ranges.sum_lengths()
        steps = model.job.steps
        skipped = "" if steps is None else steps.name
        order = np.argsort(-lengths, kind="stable").tolist()
        chosen = [n for n in order if not is_step(model.ranges.names[n], skipped)][:_MOST_MEASURED]
        weight = model.graph.weight
        runs = np.bincount(model.edge_operation[self._runs], weight[self._runs], model.numbers.operations)
        in_ranges = model.in_ranges

        def measure(n: int) -> tuple[float, int, int, bool]:
            edges, share, operations = in_ranges.find([n])
            host = float((share * weight[edges])[self._on_host[edges]].sum())
            own = runs[operations]
            return host, round(own.sum()), int(np.count_nonzero(own)), self._covers_steps(n)

        found = {}
        measured = run_in_threads(measure, chosen, min(_FINDERS, model.job.engine.cores))
        for n, (host, device, launches, covers) in zip(chosen, measured, strict=True):
            name = model.ranges.names[n]
            found[name] = round(host) + device
            if device > _LEAST_ON_DEVICE * (host + device) or host < _HOST_PER_LAUNCH_NS * launches:
                self.launching.add(name)
            if covers:
                self.covering.add(name)
        return found

    def _covers_steps(self, name: int) -> bool:
        """Return whether main threads are in a range for nearly all of the steps."""
        limits = self._model.ranges.find_limits([name])
        is_main = np.repeat(self._model.lanes.is_main, np.diff(limits.first))
        begin, end = self._span
        open_ns = (np.minimum(limits.end, end) - np.maximum(limits.begin, begin))[is_main]
        return int(open_ns[open_ns > 0].sum()) > _MOST_COVERED * (end - begin) * self._model.lanes.is_main.sum()

    def measure_calls(self) -> dict[str, int]:
        """Return the time of calls by name, without what they waited for, and without calls that wait for threads."""
        lanes = self._model.lanes
        chosen = self._on_host & (self._model.graph.kind == CALL)
        sums = self._add_up(chosen, pick(lanes.call_name, self._model.edge_call, NONE), lanes.names)
        skipped = HANDS_OVER if self._model.job.steps is not None else {*HANDS_OVER, *self._list_starting()}
        return {name: ns for name, ns in sums.items() if name not in skipped}

    def _list_starting(self) -> list[str]:
        """Return the names of calls that start or end a program: no thread makes them repeatedly, or they load code."""
        lanes = self._model.lanes
        index, count = np.unique(np.stack([lanes.call_name, lanes.calls.thread]), axis=1, return_counts=True)
        most = np.zeros(len(lanes.names), np.int64)
        np.maximum.at(most, index[0], count)
        return [
            name for name, n in zip(lanes.names, most.tolist(), strict=True) if n < _REPEATS or name.startswith(_STARTS)
        ]

    def measure_classes(self) -> dict[str, int]:
        """Return the time of kernels by class."""
        index, names = self._model.kernel_class
        key = pick(index, self._model.edge_operation, NONE)
        return self._add_up(self._runs & (key >= 0), key, names)

    def measure_unknown(self) -> dict[str, int]:
        """Return the time of kernels of no known class by name."""
        index, names = self._model.kernel_class
        is_unknown = index == names.index(OTHER) if OTHER in names else np.zeros(index.size, np.bool_)
        key = pick(self._model.lanes.operation_name, self._model.edge_operation, NONE)
        return self._add_up(self._runs & mark_at(is_unknown, self._model.edge_operation), key, self._model.lanes.names)

    def measure_kinds(self, *kinds: int) -> int:
        """Return the time of edges of some kinds."""
        return int(self._model.graph.weight[self._inside & mark_kinds(self._model.graph.kind, kinds)].sum())

    def measure_between(self) -> int:
        """Return the time of copies between GPUs."""
        return int(self._model.graph.weight[self._inside & self._model.is_between].sum())

    def _add_up(self, chosen: BoolArray, key: IntArray, names: list[str]) -> dict[str, int]:
        sums = np.bincount(key[chosen], weights=self._model.graph.weight[chosen], minlength=len(names))
        return {names[n]: round(sums[n]) for n in np.flatnonzero(sums).tolist()}


def choose_largest(sums: dict[str, int], most: int, least: float) -> list[tuple[str, int]]:
    """Return the names with most time, in descending order."""
    largest = sorted(sums.items(), key=lambda item: (-item[1], item[0]))[:most]
    return [(name, ns) for name, ns in largest if ns > least]


def list_candidates(
    totals: Totals, ranges: dict[str, int], classes: dict[str, int], slowest: int | None
) -> list[Change]:
    """Return the changes to try. `ranges`, `classes`: their times (ns); `slowest`: the rank that sets the pace."""
    inner = {name: ns for name, ns in ranges.items() if name not in totals.launching & totals.covering}
    known = {name: ns for name, ns in classes.items() if name != OTHER}
    named = {
        what.RANGE: inner,
        what.CALL: totals.measure_calls(),
        what.CLASS: known,
        what.KERNEL: totals.measure_unknown(),
    }
    changes = [
        Change(
            target,
            what.escape_name(name),
            _FASTER if target in (what.CLASS, what.KERNEL) or name in totals.launching else 0.0,
        )
        for target, sums in named.items()
        for name, _ in choose_largest(sums, _MOST[target], totals.least_ns)
    ]
    near, far = totals.measure_kinds(NEAR), totals.measure_kinds(FAR)
    if near + far + totals.measure_between():
        changes.append(Change(what.NETWORK))
    if near and far:
        changes.append(Change(what.NETWORK, what.BETWEEN))
    if totals.measure_kinds(CODE, CALL):
        changes.append(Change(what.HOST))
    if totals.measure_kinds(COPY):
        changes.append(Change(what.COPIES))
    if near + far:
        changes.append(Change(what.WAITS))
        if slowest is not None:
            changes.append(Change(what.RANK, ranks=(slowest,)))
    return changes


# ---- slack -----------------------------------------------------------------------------------------------------------


def measure_slack(experiment: Experiment, target: str, name: str, own_ns: int) -> Slack:
    """Return the slack of a target that takes `own_ns` (a step, on average over ranks).

    The mean step never shrinks if something grows (step_clock.py).
    """
    observed, weight = experiment.observed.mean_ns, experiment.model.graph.weight
    label = f"{target} {name!r}"
    if not own_ns:
        return Slack(target=label, own_ns=own_ns, slack_ns=None)
    more = (apply_changes(experiment.model, [Change(target, what.escape_name(name), 2.0)]) - weight) / own_ns
    edges = np.flatnonzero(more)
    more, part = more[edges], _LONGEST * observed / _PARTS

    def measure(parts: int) -> float:
        return experiment.measure_longer(edges, np.rint(more * (part * parts)).astype(np.int64))

    parts = find_limit(measure, observed * (1 + _TOLERANCE))
    return Slack(target=label, own_ns=own_ns, slack_ns=None if parts == _PARTS else round(part * parts))


def find_limit(measure: Callable[[int], float], limit: float) -> int:
    """Return the last of 0 .. _PARTS of which the measure, which ascends, is not above a limit. That of 0 is not.

    The longest path grows ever faster as something gets longer. So a line through two points above the limit meets it
    near the one that is searched, and not before it.
    """
    low, high = 0, _PARTS
    value = measure(high)
    if value <= limit:
        return _PARTS
    slope, is_near = 0.0, False
    while high - low > 1:
        guess = (low + high) // 2
        if slope and not is_near:
            guess = min(max(high - ceil((value - limit) / slope), low + 1), high - 1)
        found = measure(guess)
        if found > limit:
            slope, high, value = (value - found) / (high - guess), guess, found
        else:
            is_near = guess == low + 1
            low = guess
    return low
