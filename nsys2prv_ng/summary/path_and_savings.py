"""Computes what follows from the order of all operations and calls: the critical path, and what changes save.

This takes as long as the rest of a summary and needs nothing of it, so a process of its own can do it.
"""

from __future__ import annotations

from typing import NamedTuple

from nsys2prv_ng.analysis.path.critical_path import CriticalPath, find_critical_path, load_path_lanes
from nsys2prv_ng.analysis.path.lanes import Lanes
from nsys2prv_ng.analysis.waits.waits import Waits
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.replay.analyse import analyse, load_experiment
from nsys2prv_ng.replay.excerpt import is_too_large
from nsys2prv_ng.replay.ideal_network import Savings, measure_savings
from nsys2prv_ng.replay.numbers import WhatIfNumbers
from nsys2prv_ng.summary.path.measure import sum_critical_path
from nsys2prv_ng.summary.path.numbers import PathNumbers


class PathAndSavings(NamedTuple):
    """The critical path of a job, what an ideal network saves, and what changes save."""

    path: PathNumbers | None = None
    on_ideal_network: Savings = Savings()
    """Nothing is known if only an excerpt was replayed."""
    what_if: WhatIfNumbers | None = None
    is_too_large: bool = False
    """Whether there was too much to replay even one step."""


def compute_path_and_savings(
    job: Job, waits: Waits, lanes: Lanes | None = None, path: CriticalPath | None = None
) -> PathAndSavings:
    """Return the critical path of a job and its savings; `lanes` and `path` if the caller already has them."""
    if lanes is None and job.finds_waits:
        lanes = load_path_lanes(job, waits)
    if path is None:
        path = find_critical_path(job, lanes)
    numbers = None if path is None else sum_critical_path(job, path)
    too_large = is_too_large(job)
    if not job.finds_waits or (lanes is None and not too_large):
        return PathAndSavings(numbers)
    if too_large:
        lanes = None  # makes room: the experiment loads an excerpt
    experiment = load_experiment(job, waits, lanes)
    if experiment is None:
        return PathAndSavings(numbers, is_too_large=True)
    lanes = None  # the experiment has its own columns
    return PathAndSavings(
        path=numbers,
        on_ideal_network=measure_savings(experiment) if experiment.is_whole else Savings(),
        what_if=analyse(experiment, with_slack=False) if experiment.has_steps else None,
    )
