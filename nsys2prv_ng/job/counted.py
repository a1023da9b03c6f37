"""Marks the events that numbers count: those that belong to the chosen steps, or without a choice all but the warm-up.

What a host did, and what it launched, belongs to a step by the definitions of steps/spans.py, whenever it ran. The
events of tasks that have no steps, and operations without a recorded launch, count by time. If records are cut to a
chosen time, all that are left count.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from nsys2prv_ng.arrays.row_keys import find_rows
from nsys2prv_ng.arrays.types import BoolArray, IntArray, mark, pick
from nsys2prv_ng.intervals.step_functions import mark_inside
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.reading.device_operations import LaunchedOperations, load_launched_operations
from nsys2prv_ng.steps.spans import HostSpans
from nsys2prv_ng.steps.steps import Steps


def list_counted_steps(job: Job) -> Steps | None:
    """Return the steps that numbers count, on tasks and rows of the trace; None if there are none.

    Of a chosen time, these are the steps within it; of all time, the steps after the warm-up.
    """
    if job.steps is None:
        return None
    shown = list_counted(job, job.steps)
    return _place(job, job.steps.take(shown)) if shown.size else None


def list_counted(job: Job, steps: Steps) -> IntArray:
    """Return the indices of the steps of a job that numbers count."""
    if job.scope.counted is not None:
        return job.scope.counted
    number = np.arange(steps.number.size)
    if job.scope.windows:  # a range on a limit of the time that records are cut to does not count as whole
        return number[mark_inside(steps.start - (not steps.on_gpu), steps.stop + 1, job.scope.windows)]
    return number[steps.warmup :]


def _place(job: Job, steps: Steps) -> Steps:
    """Return the steps on tasks and rows of the trace."""
    return steps._replace(task=job.new_task[steps.task], row=pick(job.new_row, steps.row, -1))


def mark_counted(job: Job, row: IntArray, time: IntArray) -> BoolArray:
    """Mark the times (n, ns) on hosts that belong to steps that count. `row`: of the trace, or -1."""
    steps = job.steps
    if steps is None or job.scope.counted is None:
        return np.ones(row.size, np.bool_)
    marks = find_counted_step(job, row, time) >= 0
    tasks, index = np.unique(job.find_tasks(row), return_inverse=True)  # few, of the many that a job has
    others = ~np.isin(tasks, job.new_task[steps.task])[index]
    marks[others] = mark_inside(time[others], time[others], job.scope.measured)
    return np.asarray(marks, np.bool_)


def find_step(job: Job, row: IntArray, time: IntArray) -> IntArray:
    """Return the index of the step to which each time (n, ns) on hosts belongs; -1 if it is in none."""
    if job.steps is None:
        return np.full(row.size, -1, np.int64)
    task = job.find_tasks(row)
    steps, of_task = job.steps, job.new_task[job.steps.task]
    # Events of one report are those of few tasks: steps of all others need not be sorted for each report.
    here = np.flatnonzero(np.isin(of_task, np.unique(task)))
    spans = HostSpans(of_task[here], steps.host_begin[here], steps.host_end[here])
    return pick(steps.step[here], spans.find(task, time), -1)


def find_counted_step(job: Job, row: IntArray, time: IntArray) -> IntArray:
    """Return the index of the step that counts to which each time (n, ns) on hosts belongs; -1 if it is in none."""
    if job.steps is None or job.scope.counted is None:
        return np.full(row.size, -1, np.int64)
    step = find_step(job, row, time)
    counts = mark(job.scope.counted, job.steps.number.size)
    return np.where(pick(counts, step, False), step, -1)


def count_steps(job: Job) -> int:
    """Return the number of steps that numbers count; 0 if they cover other times."""
    return 0 if job.scope.counted is None else job.scope.counted.size


class CountedEvents:
    """Marks the events of a report that numbers count."""

    def __init__(self, job: Job, index: int) -> None:
        self._job, self._report, self._rows = job, job.reports[index], job.tree.rows[index]
        self._marked: dict[tuple[int, int], tuple[IntArray, IntArray, BoolArray]] = {}
        """Operations that were marked, and their marks, by the ids of their columns."""

    @cached_property
    def launched(self) -> LaunchedOperations:
        """All operations of the report, counted or not."""
        return load_launched_operations(self._report, self._job.store)

    def mark_host(self, place: IntArray, time: IntArray) -> BoolArray:
        """Mark the times (n, ns) of threads, given by their place, that belong to steps that count."""
        return mark_counted(self._job, self._rows[place], time)

    def find_step(self, place: IntArray, time: IntArray) -> IntArray:
        """Return the index of the step that counts of times (n, ns) of threads, given by their place; -1 for none."""
        return find_counted_step(self._job, self._rows[place], time)

    @property
    def steps(self) -> int:
        """Number of steps that count."""
        return count_steps(self._job)

    def mark_operations(self, place: IntArray, begin: IntArray) -> BoolArray:
        """Mark the GPU operations (n), given by place and start (ns), that were launched in steps that count.

        Operations without a recorded launch count by time. The same columns are marked once: do not change the marks.
        """
        if self._job.scope.counted is None:
            return np.ones(place.size, np.bool_)
        key = id(place), id(begin)
        if key not in self._marked:
            is_known, launched = self._find_launched(place, begin)
            by_time = mark_inside(begin, begin, self._job.scope.measured)
            self._marked[key] = place, begin, np.where(is_known, self.mark_host(place, launched), by_time)
        return self._marked[key][2]

    def find_launches(self, place: IntArray, begin: IntArray) -> tuple[IntArray, IntArray]:
        """Return (index of the step that counts, time of the launch) of GPU operations, given by place and start (ns).

        The step is -1 if the operation was launched in none, or if its launch is not recorded.
        """
        is_known, launched = self._find_launched(place, begin)
        return np.where(is_known, self.find_step(place, launched), -1), launched

    def _find_launched(self, place: IntArray, begin: IntArray) -> tuple[BoolArray, IntArray]:
        """Return whether the launch of each operation is recorded, and its time (ns)."""
        at = find_rows([self.launched.place, self.launched.begin], [place, begin])
        return pick(self.launched.is_known, at, False), pick(self.launched.launched, at, 0)
