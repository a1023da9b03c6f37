"""Finds the windows of time for efficiencies: the whole time, the steps of the program, and ranges that repeat.

Without a choice of the user, the whole time is the steps after the warm-up. The steps of GPUs are the same windows for
all tasks. Tasks reach the same NVTX range, or step without GPU operations, at different times: each task has its own
windows of it. Only steps and ranges count that no limit of a chosen time cuts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from nsys2prv_ng import source_names
from nsys2prv_ng.analysis.gpus.activity import list_activity_runs
from nsys2prv_ng.arrays.row_keys import list_rows
from nsys2prv_ng.arrays.types import IntArray, IntTable
from nsys2prv_ng.intervals.states import FlatStates, flatten
from nsys2prv_ng.intervals.step_functions import StepFunction, cut_to_windows, unite_windows
from nsys2prv_ng.job.counted import CountedEvents
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.job.placement import measure_gpu_time
from nsys2prv_ng.objects.places import Stream, Thread
from nsys2prv_ng.paraver.model import LONGEST_TRACE_NS
from nsys2prv_ng.reading.opened_events import RangeKey, load_repeated_ranges
from nsys2prv_ng.runtime.jit import compiled
from nsys2prv_ng.steps.steps import Steps
from nsys2prv_ng.value_class import ValueClass

MOST_STEPS = 5_000
"""Most steps that are measured one by one (the first ones): a loop of two kernels may have millions."""
_RECORDED = (source_names.KERNELS, source_names.MEMORY_OPERATIONS, source_names.CUDA_API, source_names.MPI)
"""Sources without records from before the capture. (The creation of graphs may be earlier.)"""

WHOLE, WORK, FIRST_STEP = range(3)
"""Sets of windows: the whole time, the work in it, then one set for each step and one for each range."""
MOST_WORK = 0.5
"""Largest share of a capture without steps that makes the time in which GPUs work a separate window."""


class RangeWindows(NamedTuple):
    """n ranges that repeat: task (of the trace), index into `keys`, begin and end (ns)."""

    task: IntArray
    key: IntArray
    begin: IntArray
    end: IntArray
    keys: list[RangeKey]


# ---- all windows -----------------------------------------------------------------------------------------------------


class WindowPlan(ValueClass):
    """The windows of a job that do not depend on ranges (ns, on the common clock).

    `work`: from the first step that counts to the last, or without steps the time in which GPUs work; else empty.
    `captures`: the captured time of each report.
    """

    whole: list[tuple[int, int]]
    work: list[tuple[int, int]]
    steps: Steps | None
    captures: list[tuple[int, int] | None]

    @property
    def first_range(self) -> int:
        """Number of the first set that belongs to a range."""
        return FIRST_STEP + (0 if self.steps is None else min(self.steps.number.size, MOST_STEPS))

    def number_sets(self, ranges: Sequence[RangeKey], keys: dict[RangeKey, int]) -> IntArray:
        """Return the job-wide number of each set of a part of the job with `ranges`; number new ranges in `keys`."""
        range_sets = [self.first_range + keys.setdefault(key, len(keys)) for key in ranges]
        return np.array([*range(self.first_range), *range_sets], np.int64)

    def unite_captures(self, reports: Sequence[int]) -> list[tuple[int, int]]:
        """Return the united captured time of some reports: sorted spans that do not overlap."""
        known = [capture for capture in (self.captures[n] for n in reports) if capture is not None]
        return unite_windows(*np.array(known, np.int64).reshape(-1, 2).T)

    def list_windows(self, tasks: Sequence[int], ranges: RangeWindows) -> FlatStates:
        """Return the united windows of some tasks (ascending), which use a GPU or thread: `row` is the set of each."""
        common = [(number, *window) for number, spans in ((WHOLE, self.whole), (WORK, self.work)) for window in spans]
        parts = [np.array(common, np.int64).reshape(-1, 3)]
        if self.steps is not None:
            parts.append(_list_step_windows(self.steps, tasks))
        at = np.flatnonzero(np.isin(ranges.task, tasks))
        parts.append(np.stack([self.first_range + ranges.key[at], ranges.begin[at], ranges.end[at]], axis=1))
        number, begin, end = np.concatenate(parts).T
        return flatten(number, begin, end, np.zeros(number.size, np.int64))


def make_plan(job: Job, steps: Steps | None) -> WindowPlan:
    """Return the windows of a job: the chosen time, the steps or the capture, and the work in it."""
    captures = _find_captures(job)
    known = [capture for capture in captures if capture is not None]
    known += [(run.facts.first, run.facts.last) for run in list_activity_runs(job)]
    known = known or [(job.scope.first, job.scope.last)]
    first, last = min(low for low, _ in known), max(high for _, high in known)
    # A chosen time may go on where nothing was captured: that would thin out every share.
    inside = [(max(low, first), min(high, last)) for low, high in job.scope.measured if low < last and high > first]
    whole = inside or job.scope.measured or [(first, last)]
    work: list[tuple[int, int]] = []
    if steps is not None:
        _, _, begin, end = cut_to_windows(steps.start[:1], steps.stop[-1:], whole)
        work = list(zip(begin.tolist(), end.tolist(), strict=True))
    elif not job.scope.selection.restricts_time and (gpu_time := measure_gpu_time(job.reports, job.tree)) is not None:
        # Much of a capture without steps may be the start-up of the program, whose efficiency is of no interest.
        is_small = 0 < gpu_time[1] - gpu_time[0] <= MOST_WORK * (whole[0][1] - whole[0][0])
        work = [gpu_time] if is_small else []
    return WindowPlan(whole, work, steps, captures)


def _list_step_windows(steps: Steps, tasks: Sequence[int]) -> IntArray:
    """Return set, start and end (ns) of the steps of some tasks (n x 3)."""
    if steps.on_gpu:
        step, begin, end = np.arange(steps.number.size), steps.start, steps.stop
    else:
        at = list_rows(steps.task, np.array(tasks, np.int64))
        step, begin, end = steps.step[at], steps.begin[at], steps.end[at]
    windows = np.stack([FIRST_STEP + step, begin, end], axis=1)
    return windows[step < MOST_STEPS]


def _find_captures(job: Job) -> list[tuple[int, int] | None]:
    """Return the limits (ns) of each report's capture, extended to everything that GPUs, CUDA and MPI did beyond it.

    None for reports of which the user chose no thread and no stream, or without a known time.
    """
    captures: list[tuple[int, int] | None] = []
    for report, rows in zip(job.reports, job.tree.rows, strict=True):
        limits: list[int] = []
        begin, length = report.metadata.begin, report.metadata.duration
        if 0 < length < LONGEST_TRACE_NS:
            limits += [report.clock.at(begin), report.clock.at(begin + length)]
        for run in report.runs(_RECORDED):
            limits += report.find_limits(run)
        is_chosen = any(
            row >= 0 and isinstance(place, Thread | Stream)  # not a GPU that the report sampled for another report
            for place, row in zip(report.places.all, rows.tolist(), strict=True)
        )
        captures.append((min(limits), max(limits)) if limits and is_chosen else None)
    return captures


def load_repeated(job: Job, reports: Sequence[int]) -> RangeWindows:
    """Return the repeating ranges of some reports that count (job/counted.py)."""
    keys: dict[RangeKey, int] = {}
    parts: list[tuple[IntArray, ...]] = [(np.zeros(0, np.int64),) * 4]
    for index in reports:
        ranges, _ = load_repeated_ranges(job.reports[index], job.store, job.scope.windows)
        row = job.tree.rows[index][ranges.place]
        task = job.tree.task_of_row[row]
        counts = (row >= 0) & CountedEvents(job, index).mark_host(ranges.place, ranges.begin)
        number = np.array([keys.setdefault(key, len(keys)) for key in ranges.keys], np.int64)
        columns = (task, number[ranges.key], ranges.begin, ranges.end)
        parts.append(tuple(column[counts] for column in columns))
    task, key, begin, end = (np.concatenate(column) for column in zip(*parts, strict=True))
    return RangeWindows(task, key, begin, end, list(keys))


def sum_in_windows(steps: StepFunction, before: int, windows: FlatStates, sets: int, values: int) -> IntArray:
    """Return how long (ns, sets x values) each value of a step function is in force in each set's windows.

    `windows`: the result of `list_windows`. `before`: the value before the first step.
    """
    limit = np.concatenate([windows.begin, windows.end])
    sign = np.repeat(np.array([-1, 1]), windows.row.size)
    order = np.argsort(limit, kind="stable")
    first = np.concatenate([limit, steps.time]).min(initial=np.iinfo(np.int64).max)
    time, value = np.append(first, steps.time), np.append(before, steps.value)
    sums = np.zeros((sets, values), np.int64)
    _add_lengths(
        time, value, limit[order], np.tile(windows.row, 2)[order], sign[order], np.zeros(values, np.int64), sums
    )
    return sums


@compiled
def _add_lengths(
    time: IntArray,
    value: IntArray,
    limit: IntArray,
    set_of_limit: IntArray,
    sign: IntArray,
    until: IntArray,
    sums: IntTable,
) -> None:
    """Add to each row of `sums`, by value, the time until the ends of its windows minus the time until their starts.

    `until`: the time that each value is in force until a limit, 0 at first.
    """
    i = 0
    for j in range(limit.size):
        while i + 1 < time.size and time[i + 1] <= limit[j]:
            until[value[i]] += time[i + 1] - time[i]
            i += 1
        for k in range(until.size):
            sums[set_of_limit[j], k] += sign[j] * until[k]
        sums[set_of_limit[j], value[i]] += sign[j] * (limit[j] - time[i])
