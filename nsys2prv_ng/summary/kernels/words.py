"""Names the tasks and steps of slow kernels."""

from __future__ import annotations

from nsys2prv_ng.summary.kernels.numbers import SlowMode
from nsys2prv_ng.text.formatting import format_number_ranges, format_ranks, join_first
from nsys2prv_ng.text.names import clean_name

_MOST_NUMBERS, _MOST_TASKS = 4, 3


def name_tasks(mode: SlowMode) -> str:
    """Return the ranks of a mode, or else its tasks."""
    ranks = sorted(task.rank for task in mode.tasks if task.rank is not None)
    if len(ranks) == len(mode.tasks):
        return format_ranks(ranks)
    return join_first([clean_name(task.task) for task in mode.tasks], _MOST_TASKS)


def name_steps(mode: SlowMode) -> str:
    """Return the numbers of the slow steps."""
    numbers = format_number_ranges(mode.steps).split(",")
    return f"step{'s' * (len(mode.steps) > 1)} {join_first(numbers, _MOST_NUMBERS)}"
