"""Sums up the critical path: by class, task, name, NVTX range and step."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nsys2prv_ng.analysis.critical_path import CriticalPath
from nsys2prv_ng.analysis.path_columns import NONE
from nsys2prv_ng.intervals.step_functions import StepFunction, split_at_steps
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.paraver.event_types import (
    PATH_COMPUTE,
    PATH_CUDA_CALL,
    PATH_HOST,
    PATH_KINDS,
    PATH_MEMORY,
    PATH_MOVING,
    PATH_MPI,
    PATH_SYSTEM_CALL,
)
from nsys2prv_ng.summary.path_model import PathName, PathNumbers, PathOfRank, PathPart, PathRange, PathStep

_OPERATIONS = (PATH_COMPUTE, PATH_MOVING, PATH_MEMORY)
"""Kinds of segments that have an imbalance."""
_ON_HOST = (PATH_CUDA_CALL, PATH_SYSTEM_CALL, PATH_HOST, PATH_MPI)
"""Kinds of segments of host threads."""
_MOST_PARTS = 100
"""Most parts of a path, those with most time first; names and ranges are complete."""


def sum_critical_path(job: Job, path: CriticalPath) -> PathNumbers:
    """Return the numbers of the critical path of a job."""
    tasks = job.whole.task_of_row[path.row]
    table = pd.DataFrame(
        {
            "kind": path.kind,
            "task": tasks,
            "name": path.name,
            "range": path.range,
            # Pieces of one operation or call count once; each stretch of host code counts.
            "operation": np.where(path.operation >= 0, path.operation, -2 - np.arange(path.begin.size)),
            "ns": path.length,
        }
    )
    by_kind = table.groupby("kind")["ns"].sum().sort_values(ascending=False, kind="stable")
    by_range = table.groupby("range")["ns"].sum().sort_values(ascending=False, kind="stable")
    return PathNumbers(
        window_ns=int(path.length.sum()),
        windows_ns=[(low - job.origin, high - job.origin) for low, high in path.windows],
        step_name=None if path.steps is None else path.steps.name,
        steps=_sum_steps(path),
        classes={PATH_KINDS[kind]: int(ns) for kind, ns in by_kind.items()},  # type: ignore[index]
        ranks=_sum_tasks(job, table),
        names=_sum_names(path, table),
        ranges=[PathRange(_get_text(path.ranges, index), int(ns)) for index, ns in by_range.items()],
        parts=_sum_parts(job, path, table),
        switches=int(((tasks[1:] != tasks[:-1]) & (path.begin[1:] == path.end[:-1])).sum()),
        followed=path.followed,
        unsure=path.unsure,
    )


def _get_text(texts: list[str], index: object) -> str:
    return texts[index] if isinstance(index, int | np.integer) and index >= 0 else ""


def _sum_tasks(job: Job, table: pd.DataFrame) -> list[PathOfRank]:
    """Return the time on each task, the most first."""
    by_task = table.groupby("task")["ns"].sum().sort_values(ascending=False, kind="stable")
    return [
        PathOfRank(job.whole.ranks[task], job.whole.model.tasks[task].name, ns)
        for task, ns in zip(by_task.index.tolist(), by_task.tolist(), strict=True)
    ]


def _sum_names(path: CriticalPath, table: pd.DataFrame) -> list[PathName]:
    """Return the operations on the path by name."""
    some = table[table["kind"].isin(_OPERATIONS)]
    sums = some.groupby(["kind", "name"]).agg(ns=("ns", "sum"), count=("operation", "nunique"))
    sums = sums.sort_values("ns", ascending=False, kind="stable")
    return [
        PathName(PATH_KINDS[kind], path.names[name], count, ns, max(0, ns - int(path.mean[name])))
        for (kind, name), ns, count in zip(
            sums.index.tolist(), sums["ns"].tolist(), sums["count"].tolist(), strict=True
        )
    ]


def _sum_parts(job: Job, path: CriticalPath, table: pd.DataFrame) -> list[PathPart]:
    """Return the parts of the path with most time."""
    keys = ["kind", "name", "range"]
    # The range tells host code and calls apart; an operation, and what is before it, is known by its name.
    table = table.assign(range=np.where(table["kind"].isin(_ON_HOST), table["range"], NONE))
    sums = table.groupby(keys).agg(ns=("ns", "sum"), count=("operation", "nunique")).reset_index()
    sums = sums.sort_values("ns", ascending=False, kind="stable").head(_MOST_PARTS)
    parts = []
    groups = table.groupby(keys)
    for kind, name, in_range, ns, count in sums[[*keys, "ns", "count"]].to_numpy().tolist():
        ranks = _sum_tasks(job, groups.get_group((kind, name, in_range)))
        texts = _get_text(path.names, name), _get_text(path.ranges, in_range)
        parts.append(PathPart(PATH_KINDS[kind], *texts, count, ns, ranks))
    return parts


def _sum_steps(path: CriticalPath) -> list[PathStep]:
    """Return the time by class from the begin of each step to that of the next; none without steps."""
    if path.steps is None:
        return []
    warmup = path.steps.warmup
    begin = path.steps.find_latest(path.steps.begin)[warmup:]
    pieces = split_at_steps(path.begin, path.end, StepFunction(begin, np.arange(begin.size)))
    table = pd.DataFrame({"step": pieces.value, "kind": path.kind[pieces.interval], "ns": pieces.end - pieces.begin})
    sums = table.groupby(["step", "kind"])["ns"].sum()
    steps = []
    for step, number in enumerate(path.steps.number[warmup:].tolist()):
        own = sums.loc[step].sort_values(ascending=False, kind="stable") if step in sums.index else sums.iloc[:0]
        classes = {PATH_KINDS[kind]: ns for kind, ns in zip(own.index.tolist(), own.tolist(), strict=True)}
        steps.append(PathStep(number, sum(classes.values()), classes))
    return steps
