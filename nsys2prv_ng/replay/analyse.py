"""Makes a what-if analysis of a job: the changes that the user named, or those that are likely to save most."""

from __future__ import annotations

from collections.abc import Sequence

from nsys2prv_ng.analysis.path.critical_path import count_lane_events
from nsys2prv_ng.analysis.path.lanes import Lanes
from nsys2prv_ng.analysis.waits.waits import Waits
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.replay import changes as what
from nsys2prv_ng.replay.candidates import Totals, choose_largest, list_candidates
from nsys2prv_ng.replay.changes import Change
from nsys2prv_ng.replay.excerpt import choose_excerpt, is_too_large
from nsys2prv_ng.replay.model import load_model
from nsys2prv_ng.replay.numbers import Limit, Scenario, WhatIfNumbers
from nsys2prv_ng.replay.slack import measure_slack
from nsys2prv_ng.replay.what_if import Experiment
from nsys2prv_ng.runtime.parallel import run_in_threads
from nsys2prv_ng.runtime.progress import Progress

_LEAST_GAIN = 0.02
"""Least part of a step that ideal hosts must save for hosts to set the pace."""
_AT_ONCE = 2
"""Most scenarios that are played at once; each needs memory for the times and weights of the whole graph."""
_MOST_SLACK = 6
"""Most ranges, and most classes of kernels, whose slack is measured."""


def load_experiment(job: Job, waits: Waits, lanes: Lanes | None = None) -> Experiment | None:
    """Return what replays a job, or an excerpt if the job is too large; None if even one step of it is.

    `lanes`: everything of the job, if the caller already has it.
    """
    if not is_too_large(job):
        return Experiment(load_model(job, waits, lanes))
    excerpt = choose_excerpt(job)
    return None if excerpt is None else Experiment(load_model(excerpt.job, waits, span=excerpt.span), excerpt)


def describe_size(job: Job) -> str:
    """Return why a job without an experiment was not replayed."""
    count = count_lane_events(job)
    return f"savings were not predicted: {count:,} operations and calls are too many; choose a shorter time"


def analyse(
    experiment: Experiment,
    scenarios: Sequence[Sequence[Change]] = (),
    *,
    with_slack: bool = True,
    progress: Progress | None = None,
) -> WhatIfNumbers:
    """Return what scenarios save, each of which has one or more changes; without any, those that are likely to.

    Raises UsageError for a change that matches nothing.
    """
    model, observed = experiment.model, experiment.observed
    totals = Totals(model, observed)
    ranges, classes = (totals.measure_ranges(), totals.measure_classes()) if with_slack or not scenarios else ({}, {})
    limits = experiment.list_limits(observed, model.graph.weight)
    slowest = next((limit.rank for limit in limits if limit.rank is not None), None)
    likely = [] if scenarios else [[change] for change in list_candidates(totals, ranges, classes, slowest)]
    sums = {what.RANGE: ranges, what.CLASS: classes} if with_slack else {}
    targets = _choose_targets(totals, sums)
    threads = min(_AT_ONCE, model.job.engine.cores)
    _ = model.scaled_operation, model.is_memory  # from Python 3.12 on, each thread would compute them
    todo = len(scenarios) + len(likely) + len(targets)
    with (progress or Progress()).step("replaying changes", todo, "change", logged=False) as step:
        tried: list[Scenario] = []
        for scenario in run_in_threads(experiment.run, [*scenarios, *likely], threads):
            tried.append(scenario)
            step.update(1)
        found = filter(_is_likely, tried[len(scenarios) :])
        tried[len(scenarios) :] = sorted(found, key=lambda scenario: -scenario.saving_ns)
        slack = []
        for target in targets:
            slack.append(measure_slack(experiment, *target))
            step.update(1)
    return WhatIfNumbers(
        steps=0 if model.job.steps is None else int(observed.lengths.size),
        step_ns=round(observed.mean_ns),
        noise_ns=experiment.noise_ns,
        limited_by=_confirm_limit(experiment, limits),
        scenarios=tried,
        slack=slack,
        unsplit_ns=experiment.measure_unsplit(),
        replayed=experiment.replayed,
    )


def _is_likely(scenario: Scenario) -> bool:
    """Return whether a change has an influence on the steps that may be a gain."""
    return scenario.connected and (scenario.saving_ns >= 0 or not scenario.measurable)


def _confirm_limit(experiment: Experiment, limits: Sequence[Limit]) -> Limit | None:
    """Return what sets the pace; None if hosts do, but nothing measurable is gained without them.

    Then GPUs are about as fast: which of the two is first changes from step to step.
    """
    first = next(iter(limits), None)
    if first is None or first.what != "host":
        return first
    without = experiment.run([Change(what.HOST)])
    return first if without.measurable and without.share > _LEAST_GAIN else None


def _choose_targets(totals: Totals, sums: dict[str, dict[str, int]]) -> list[tuple[str, str, int]]:
    """Return (kind, name, time in ns of a step on a rank) of the largest ranges and classes of kernels."""
    observed = totals.observed
    parts = max(observed.lengths.size * observed.tasks.size, 1)
    return [
        (kind, name, ns // parts)
        for kind, times in sums.items()
        for name, ns in choose_largest(times, _MOST_SLACK, totals.least_ns)
    ]
