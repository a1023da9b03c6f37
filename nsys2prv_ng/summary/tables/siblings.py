"""Joins ranges whose names differ only by a number: `backward mb0` to `backward mb7` become `backward mb*`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from nsys2prv_ng.summary.numbers.range_tree import RangeOfTask, RepeatedRange
from nsys2prv_ng.text.formatting import shorten_range_name
from nsys2prv_ng.text.grid import Cell, Count, Grid, Name, Ns, Share, make_columns

_FEW = 3
"""Siblings that are shown one by one."""
_SUMS = ("count", "total_ns", "waiting_ns", "gpu_waiting_ns", "unsplit_ns")
_LAST_NUMBER = re.compile(r"(?<![0-9])[0-9]+(?![0-9])(?=[^0-9]*$)")
"""The search begins only where a number starts, because names may be long."""


def join_siblings(ranges: Sequence[RepeatedRange]) -> list[RepeatedRange]:
    """Return the ranges, with many siblings as one range, the longest time first.

    Siblings share domain and depth, so that none is within another. In the name of the joined range, * replaces the
    number, as users type it to choose ranges.
    """
    siblings: dict[tuple[str, int, str], list[RepeatedRange]] = {}
    for repeated in ranges:
        name = _LAST_NUMBER.sub("*", repeated.name)
        siblings.setdefault((repeated.domain, repeated.depth, name), []).append(repeated)
    shown = []
    for (_, _, name), group in siblings.items():
        shown += [_join(name, group)] if len(group) > _FEW else group
    return sorted(shown, key=lambda repeated: -repeated.total_ns)


def _join(name: str, group: Sequence[RepeatedRange]) -> RepeatedRange:
    """Return the sum of siblings. A task is the slowest only if it is the slowest in each of them."""
    parts: dict[tuple[int | None, str], list[RangeOfTask]] = {}
    for repeated in group:
        for task in repeated.tasks:
            parts.setdefault((task.rank, task.task), []).append(task)
    tasks = [
        RangeOfTask(
            rank=rank,
            task=task,
            min_ns=min(range_.min_ns for range_ in ranges),
            max_ns=max(range_.max_ns for range_ in ranges),
            **{name: sum(getattr(range_, name) for range_ in ranges) for name in _SUMS},
        )
        for (rank, task), ranges in parts.items()
    ]
    slowest = {repeated.slowest_task for repeated in group}
    return replace(group[0], name=name, tasks=tasks, slowest_task=slowest.pop() if len(slowest) == 1 else None)


def tabulate_ranges(ranges: Sequence[RepeatedRange]) -> Grid:
    """Return the NVTX ranges that repeat, the longest time first."""
    caption = "CPU time of repeating NVTX ranges"
    if any(task.gpu_waiting_ns for repeated in ranges for task in repeated.tasks):
        caption += ", slowest task and spread without waits"
    return Grid(
        caption=caption,
        columns=make_columns("NVTX range", "slowest task", "tasks", "count", "mean", "min", "max", "rank spread"),
        rows=[_make_range_row(repeated) for repeated in join_siblings(ranges) if repeated.tasks],
        names=2,
        more="ranges",
    )


def _make_range_row(repeated: RepeatedRange) -> list[Cell]:
    mean = repeated.total_ns / repeated.count
    return [
        Name(shorten_range_name(repeated.domain, repeated.name)),
        Name(repeated.slowest_task or "-"),
        Count(len(repeated.tasks)),
        Count(repeated.count),
        Ns(mean),
        Ns(min(task.min_ns for task in repeated.tasks)),
        Ns(max(task.max_ns for task in repeated.tasks)),
        Share(repeated.spread_ns, mean if len(repeated.tasks) > 1 else 0),
    ]
