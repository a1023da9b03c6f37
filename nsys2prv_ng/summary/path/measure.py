"""Sums up the critical path by class, task, name, NVTX range and step; and computes what changes save.

Both follow from the order of all operations and calls. This takes as long as the rest of a
summary and needs nothing of it, so a process of its own can do it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from nsys2prv_ng.analysis.path.columns import NONE
from nsys2prv_ng.analysis.path.critical_path import CriticalPath, check_size, find_critical_path, load_path_lanes
from nsys2prv_ng.analysis.path.lanes import Lanes, LoadedReport, join_lanes, load_reports
from nsys2prv_ng.analysis.waits.waits import Waits
from nsys2prv_ng.arrays.row_keys import encode_rows, find_distinct_rows
from nsys2prv_ng.arrays.types import IntArray, sum_at
from nsys2prv_ng.grouping import group_by_key
from nsys2prv_ng.intervals.step_functions import StepFunction, split_at_steps
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.replay.analyse import analyse, make_experiment
from nsys2prv_ng.replay.changes import Change
from nsys2prv_ng.replay.numbers import WhatIfNumbers
from nsys2prv_ng.replay.what_if import Excerpt, Experiment, Savings, choose_excerpt, is_too_large, measure_savings
from nsys2prv_ng.summary.path.numbers import PathName, PathNumbers, PathOfRank, PathPart, PathStep

_OPERATIONS = (types.PATH_COMPUTE, types.PATH_MOVING, types.PATH_MEMORY)
"""Kinds of segments with an imbalance."""
_ON_HOST = (types.PATH_CUDA_CALL, types.PATH_SYSTEM_CALL, types.PATH_HOST, types.PATH_MPI)
"""Kinds of segments on host threads."""
_MOST_PARTS = 100
"""Most parts of a path that are listed, the parts with most time first; names and ranges are listed completely."""


def sum_critical_path(job: Job, path: CriticalPath) -> PathNumbers:
    """Return the numbers of the critical path of a job."""
    tasks = job.whole.task_of_row[path.row].astype(np.int64)
    kinds = path.kind.astype(np.int64)
    return PathNumbers(
        length_ns=int(path.length.sum()),
        windows_ns=[(low - job.scope.origin, high - job.scope.origin) for low, high in path.windows],
        step_name=None if path.steps is None else path.steps.name,
        steps=_sum_steps(path),
        classes={types.PATH_KINDS[kind]: ns for (kind,), ns in _add_up(path.length, kinds)},
        ranks=[_make_rank(job, task, ns) for (task,), ns in _add_up(path.length, tasks)],
        names=_sum_names(path, kinds),
        parts=_sum_parts(job, path, kinds, tasks),
        switches=int(((tasks[1:] != tasks[:-1]) & (path.begin[1:] == path.end[:-1])).sum()),
        followed=path.followed,
        unsure=path.unsure,
    )


def _add_up(ns: IntArray, *keys: IntArray) -> list[tuple[tuple[int, ...], int]]:
    """Return (keys, sum of the times) of the segments with the same keys, the largest sum first, then by keys."""
    code, distinct = find_distinct_rows(*keys)
    sums = sum_at(ns, code, len(distinct))
    return sorted(zip(distinct, sums.tolist(), strict=True), key=lambda row: (-row[1], row[0]))


def _count_operations(path: CriticalPath, *keys: IntArray) -> dict[tuple[int, ...], int]:
    """Return the number of operations, calls and stretches of host code in the segments with the same keys.

    The pieces of one operation or call count as one; each stretch of host code counts.
    """
    operation = np.where(path.operation >= 0, path.operation, -2 - np.arange(path.begin.size))
    code, distinct = find_distinct_rows(*keys)
    _, first = encode_rows(code, operation)
    return dict(zip(distinct, np.bincount(code[first], minlength=len(distinct)).tolist(), strict=True))


def _get_text(texts: list[str], index: int) -> str:
    return texts[index] if index >= 0 else ""


def _make_rank(job: Job, task: int, ns: int) -> PathOfRank:
    return PathOfRank(rank=job.whole.ranks[task], task=job.whole.model.tasks[task].name, ns=ns)


def _sum_names(path: CriticalPath, kinds: IntArray) -> list[PathName]:
    """Return the operations on the path by name."""
    counts = _count_operations(path, kinds, path.name)
    return [
        PathName(
            path_class=types.PATH_KINDS[kind],
            name=path.names[name],
            count=counts[kind, name],
            ns=ns,
            imbalance_ns=max(0, ns - int(path.mean[name])),
        )
        for (kind, name), ns in _add_up(path.length, kinds, path.name)
        if kind in _OPERATIONS
    ]


def _sum_parts(job: Job, path: CriticalPath, kinds: IntArray, tasks: IntArray) -> list[PathPart]:
    """Return the parts of the path with most time, the longest first."""
    # Host code and calls are divided by range. An operation, and what precedes it, has its name only.
    ranges = np.where(np.isin(kinds, _ON_HOST), path.range, NONE)
    keys = kinds, path.name, ranges
    counts = _count_operations(path, *keys)
    by_task = _add_up(path.length, *keys, tasks)
    ranks = group_by_key((tuple(part), _make_rank(job, task, ns)) for (*part, task), ns in by_task)
    return [
        PathPart(
            path_class=types.PATH_KINDS[kind],
            name=_get_text(path.names, name),
            range=_get_text(path.ranges, in_range),
            count=counts[kind, name, in_range],
            ns=ns,
            ranks=ranks[kind, name, in_range],
        )
        for (kind, name, in_range), ns in _add_up(path.length, *keys)[:_MOST_PARTS]
    ]


def _sum_steps(path: CriticalPath) -> list[PathStep]:
    """Return the time by class from the start of each step to the start of the next; [] without steps."""
    if path.steps is None:
        return []
    begin = path.steps.start
    pieces = split_at_steps(path.begin, path.end, StepFunction(begin, np.arange(begin.size)))
    numbers = path.steps.number.tolist()
    classes: list[dict[str, int]] = [{} for _ in numbers]
    kinds = path.kind[pieces.interval].astype(np.int64)
    for (step, kind), ns in _add_up(pieces.end - pieces.begin, pieces.value, kinds):
        if 0 <= step < len(numbers):
            classes[step][types.PATH_KINDS[kind]] = ns
    steps = zip(numbers, classes, strict=True)
    return [PathStep(number=number, ns=sum(times.values()), classes=times) for number, times in steps]


class PathAndSavings(NamedTuple):
    """The critical path of a job, what an ideal network saves, and what changes save.

    `on_ideal_network`: nothing is known if only an excerpt was replayed. `is_too_large`: whether there was too much to
    replay even one step.
    """

    path: PathNumbers | None = None
    on_ideal_network: Savings = Savings()
    what_if: WhatIfNumbers | None = None
    is_too_large: bool = False


def compute_path_and_savings(
    job: Job,
    waits: Waits,
    lanes: Lanes | None = None,
    path: CriticalPath | None = None,
    proposed: Sequence[Sequence[Change]] = (),
) -> PathAndSavings:
    """Return the critical path of a job and its savings.

    `lanes`, `path`: if the caller already has them; `proposed`: changes to try beside those that follow from the job.
    """
    too_large = job.finds_waits and is_too_large(job)
    excerpt = choose_excerpt(job) if too_large else None
    if excerpt is not None:
        return _compute_beside(job, waits, excerpt, path, proposed)
    if lanes is None and job.finds_waits:
        lanes = load_path_lanes(job, waits)
    if path is None:
        path = find_critical_path(job, lanes)
    numbers = None if path is None else sum_critical_path(job, path)
    if lanes is None or too_large:
        return PathAndSavings(numbers, is_too_large=too_large)
    experiment = make_experiment(job, waits, None, lanes)
    lanes = None  # the experiment has its own columns
    return _measure(experiment, numbers, proposed)


def _compute_beside(
    job: Job, waits: Waits, excerpt: Excerpt, path: CriticalPath | None, proposed: Sequence[Sequence[Change]]
) -> PathAndSavings:
    """Return the path of a job and the savings of an excerpt, which another process may replay meanwhile."""
    whole: list[LoadedReport] = []
    part: list[LoadedReport] = []
    if path is None and not check_size(job):
        whole, part = load_reports(job, (None, excerpt.span))

    def replay() -> PathAndSavings:
        whole.clear()  # the path is found elsewhere, or already was
        lanes = join_lanes(excerpt.job, waits, part) if part else None
        return _measure(make_experiment(job, waits, excerpt, lanes), None, proposed)

    with job.engine.beside(replay) as wait_for_savings:
        if whole:
            path = find_critical_path(job, join_lanes(job, waits, whole))
        numbers = None if path is None else sum_critical_path(job, path)
        return wait_for_savings()._replace(path=numbers)


def _measure(experiment: Experiment, path: PathNumbers | None, proposed: Sequence[Sequence[Change]]) -> PathAndSavings:
    """Return the savings of a job or an excerpt, beside the path of the job."""
    return PathAndSavings(
        path=path,
        on_ideal_network=measure_savings(experiment) if experiment.is_whole else Savings(),
        what_if=analyse(experiment, proposed=proposed, with_slack=False) if experiment.has_steps else None,
    )
