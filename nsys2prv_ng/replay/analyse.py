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
from nsys2prv_ng.replay.model import load_model
from nsys2prv_ng.replay.numbers import Limit, Scenario, Slack, WhatIfNumbers
from nsys2prv_ng.replay.slack import measure_slack
from nsys2prv_ng.replay.what_if import Experiment

_MOST = 6_000_000
"""Most operations and calls to play: each takes about 530 bytes."""
_LEAST_GAIN = 0.02
"""Least part of a step that ideal hosts must save for hosts to set the pace."""
_MOST_SLACK = 6
"""Most ranges, and most classes of kernels, whose slack is measured."""


def check_model_size(job: Job) -> list[str]:
    """Return a warning if the reports contain too many operations and calls to play them again; else []."""
    count = count_lane_events(job)
    if count <= _MOST:
        return []
    return [f"savings were not predicted: {count:,} operations and calls are too many; choose a shorter time"]


def load_experiment(job: Job, waits: Waits, lanes: Lanes | None) -> Experiment | None:
    """Return what plays a job; None without lanes, and for a job that is too large."""
    if lanes is None or check_model_size(job):
        return None
    return Experiment(load_model(job, waits, lanes))


def analyse(
    experiment: Experiment, scenarios: Sequence[Sequence[Change]] = (), *, with_slack: bool = True
) -> WhatIfNumbers:
    """Return what scenarios save, each of which has one or more changes; without any, those that are likely to.

    Raises UsageError for a change that matches nothing.
    """
    model, observed = experiment.model, experiment.observed
    totals = Totals(model, observed)
    ranges, classes = (totals.measure_ranges(), totals.measure_classes()) if with_slack or not scenarios else ({}, {})
    limits = experiment.list_limits(observed, model.graph.weight)
    tried = [experiment.run(changes) for changes in scenarios]
    if not scenarios:
        slowest = next((limit.rank for limit in limits if limit.rank is not None), None)
        likely = list_candidates(totals, ranges, classes, slowest)
        tried = [scenario for change in likely if _is_likely(scenario := experiment.run([change]))]
        tried.sort(key=lambda scenario: -scenario.saving_ns)
    slack = _list_slack(experiment, totals, {what.RANGE: ranges, what.CLASS: classes}) if with_slack else []
    return WhatIfNumbers(
        steps=0 if model.job.steps is None else int(observed.lengths.size),
        step_ns=round(observed.mean_ns),
        noise_ns=experiment.noise_ns,
        limited_by=_confirm_limit(experiment, limits),
        scenarios=tried,
        slack=slack,
        unsplit_ns=experiment.measure_unsplit(),
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


def _list_slack(experiment: Experiment, totals: Totals, sums: dict[str, dict[str, int]]) -> list[Slack]:
    """Return the slack of the largest ranges and classes of kernels."""
    observed = experiment.observed
    parts = max(observed.lengths.size * observed.tasks.size, 1)
    return [
        measure_slack(experiment, target, name, ns // parts)
        for target, times in sums.items()
        for name, ns in choose_largest(times, _MOST_SLACK, totals.least_ns)
    ]
