"""Measures how long tasks wait for others in their NVTX ranges, and finds the task that is slowest in a range.

A range on the host lasts longer if its thread waits for others: in an MPI call, or in a CUDA call that returns when the
GPU has finished. While the GPU of a task only waits in NCCL kernels, a thread of the task in such a CUDA call can wait
for nothing else: this is waiting too.

A thread that does not wait may still be ahead of the others, while its GPU waits for them. So a task is called the
slowest only if it has the largest mean without the waiting of its GPU as well. If another task, which runs ahead, takes
longer on the host, the slowest task must also be the task for which others wait most.

No task is called the slowest if another one could be slower, because some waiting is not known: in kernels and calls
that are not split, in CUDA graphs that were traced as a whole, in waits below the uncertainty of the clocks, of tasks
with several GPUs, and of GPUs with several tasks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np

from nsys2prv_ng import source_names
from nsys2prv_ng.analysis.gpus.activity import list_activity_runs, list_devices
from nsys2prv_ng.analysis.gpus.waiting import UNSPLIT, WAITING, WHOLE_GRAPH, GpuSweep
from nsys2prv_ng.analysis.waits.clocks import get_uncertainty
from nsys2prv_ng.analysis.waits.rules import BELOW_UNCERTAINTY
from nsys2prv_ng.analysis.waits.waits import Waits
from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.intervals.step_functions import NO_INTERVALS, CoveredTime, Intervals, find_intervals, join_intervals
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.reading.opened_events import load_opened_events
from nsys2prv_ng.records.runs import Run
from nsys2prv_ng.summary.ranges.numbers import RangeOfTask

_BLOCKING = re.compile("Synchronize|Memcpy")
"""CUDA calls that wait, or may wait, for a GPU; a copy of pageable memory waits even if its name ends in Async."""


class WaitingInRanges:
    """Time in which tasks wait, or may wait, for others in any interval on their threads."""

    def __init__(self, job: Job, waits: Waits) -> None:
        self._task_of_row = job.tree.task_of_row
        users = [(row, task) for row, device in list_devices(job).rows.items() for task in sorted(device.tasks)]
        gpu, task = np.array(users, np.int64).reshape(-1, 2).T
        is_only = (np.bincount(gpu)[gpu] == 1) & (np.bincount(task)[task] == 1)
        waiting, unsplit = _collect_gpus(job, waits)
        on_streams, in_calls = _collect_unknown(job, waits)
        known = _pass_on(waiting, gpu[is_only], task[is_only])
        shared = _pass_on(waiting, gpu[~is_only], task[~is_only])
        streams = self._task_of_row[on_streams[0]], *on_streams[1:]
        unknown = join_intervals([_pass_on(unsplit, gpu, task), shared, streams])
        in_mpi = _collect_waiting_calls(job, waits)
        self._known = _Layers(known, in_mpi, self._task_of_row)
        blocked = _collect_blocked(job, CoveredTime(known), self._task_of_row)
        self._threads = CoveredTime(join_intervals([in_mpi, blocked]))
        self._unknown = _Layers(unknown, in_calls, self._task_of_row)

    def measure_threads(self, row: IntArray, begin: IntArray, end: IntArray) -> IntArray:
        """Return the time (ns) in which the thread waits, in each of n intervals on threads (rows of the trace)."""
        return self._threads.measure(row, begin, end)

    def measure_all(self, row: IntArray, begin: IntArray, end: IntArray) -> IntArray:
        """Return the time (ns) in which the thread or the GPU of its task waits, in each of n intervals."""
        return self._known.measure(row, begin, end)

    def measure_unknown(self, row: IntArray, begin: IntArray, end: IntArray) -> IntArray:
        """Return the time (ns) that may be waiting as well, in each of n intervals."""
        return np.minimum(self._unknown.measure(row, begin, end), end - begin - self.measure_all(row, begin, end))


def choose_slowest(tasks: Sequence[RangeOfTask], caused: Mapping[str, int]) -> str | None:
    """Return the name of the slowest task in a range; None if it is not certain.

    `caused`: how long (ns) others waited for each task, by the name of the task.
    """
    slowest = max(tasks, key=lambda task: task.needed_mean_ns)
    longest = max(tasks, key=lambda task: task.own_mean_ns)
    if any(task.needed_mean_ns > slowest.least_needed_mean_ns for task in tasks if task is not slowest):
        return None
    most = max(caused.values(), default=0)
    is_waited_for = most > 0 and caused.get(slowest.task, 0) == most
    return slowest.task if slowest is longest or is_waited_for else None


class _Layers:
    """Intervals of whole tasks, which apply to all their threads, and intervals of single threads; they may overlap."""

    def __init__(self, task_intervals: Intervals, thread_intervals: Intervals, task_of_row: IntArray) -> None:
        self._task_of_row = task_of_row
        self._tasks = CoveredTime(task_intervals)
        self._threads = np.unique(thread_intervals[0])
        inherited = _pass_on(self._tasks.intervals, task_of_row[self._threads], self._threads)
        self._with_tasks = CoveredTime(join_intervals([thread_intervals, inherited]))

    def measure(self, row: IntArray, begin: IntArray, end: IntArray) -> IntArray:
        """Return how much (ns) of each of n intervals on threads is covered."""
        return np.where(
            np.isin(row, self._threads),
            self._with_tasks.measure(row, begin, end),
            self._tasks.measure(self._task_of_row[row], begin, end),
        )


def _pass_on(intervals: Intervals, giver: IntArray, taker: IntArray) -> Intervals:
    """Return the intervals (sorted by row) of each giver as intervals of its taker. `giver`, `taker`: n pairs of rows.

    A row is that of a GPU or a thread, or the number of a task.
    """
    parts = []
    for row, number in zip(giver.tolist(), taker.tolist(), strict=True):
        low, high = np.searchsorted(intervals[0], [row, row + 1])
        parts.append((np.full(high - low, number, np.int64), intervals[1][low:high], intervals[2][low:high]))
    return join_intervals(parts)


def _collect_gpus(job: Job, waits: Waits) -> tuple[Intervals, Intervals]:
    """Return (when GPUs, by row, only wait in NCCL kernels, when they may wait).

    They may wait in kernels that are not split and in graphs that were traced as a whole.
    """
    sweep = GpuSweep(job, waits)

    def find(run: Run) -> tuple[Intervals, Intervals]:
        row, time, value = sweep.find_changes(run)
        may_wait = (value == UNSPLIT) | (value == WHOLE_GRAPH)
        return find_intervals(row, time, value == WAITING), find_intervals(row, time, may_wait)

    parts = [(NO_INTERVALS, NO_INTERVALS), *job.engine.sum_up(find, list_activity_runs(job))]
    waiting, unsplit = (CoveredTime(join_intervals(each)).intervals for each in zip(*parts, strict=True))
    return waiting, unsplit


def _collect_waiting_calls(job: Job, waits: Waits) -> Intervals:
    """Return when threads, by row, wait in MPI calls."""
    at = np.flatnonzero(waits.is_mpi & (waits.wait > 0) & (job.new_row[waits.row] >= 0))
    return job.new_row[waits.row[at]], waits.begin[at], waits.until[at]


def _collect_blocked(job: Job, waiting: CoveredTime, task_of_row: IntArray) -> Intervals:
    """Return when threads, by row, are in a call that waits for a GPU while the GPU of their task waits."""

    def intersect(report: int) -> Intervals:
        events = load_opened_events(job.reports[report], source_names.CUDA_API, job.store)
        blocking = [value for value, name in events.get_names(types.CUDA_API).items() if _BLOCKING.search(name)]
        row = job.tree.rows[report][events.place]
        lines = np.flatnonzero(np.isin(events.get_values(types.CUDA_API), blocking) & (row >= 0))
        row, begin, end = row[lines], events.begin[lines], events.end[lines]
        call, low, high = waiting.intersect(task_of_row[row], begin, end)
        return row[call], low, high

    return join_intervals(job.engine.sum_up(intersect, range(len(job.reports))))


def _collect_unknown(job: Job, waits: Waits) -> tuple[Intervals, Intervals]:
    """Return (when kernels on streams may wait as well, when calls on threads may), by row.

    Kernels that are not split are left to `_collect_gpus`.
    """
    bounds = np.sort(get_uncertainty(job))
    apart = bounds[-2:].sum()
    below = waits.verdict == BELOW_UNCERTAINTY
    length = (waits.end - waits.begin).astype(np.float64)
    until = waits.begin + np.where(below, np.minimum(length, apart), length).astype(np.int64)
    shown = job.new_row[waits.row] >= 0
    kernels = np.flatnonzero(shown & below & ~waits.is_mpi)
    calls = np.flatnonzero(shown & waits.is_mpi & ~waits.is_split)
    on_streams, in_calls = ((job.new_row[waits.row[at]], waits.begin[at], until[at]) for at in (kernels, calls))
    return on_streams, in_calls
