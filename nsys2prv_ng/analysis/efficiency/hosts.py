"""Measures what main threads do in windows of time: they are in MPI, else in CUDA, else useful (see efficiency.py)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from nsys2prv_ng import source_names
from nsys2prv_ng.analysis.efficiency.times import IN_CUDA, IN_MPI, USEFUL, Totals
from nsys2prv_ng.analysis.efficiency.windows import WindowPlan, load_repeated, sum_in_windows
from nsys2prv_ng.analysis.host_activity import map_main_threads
from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.intervals.states import FlatStates, flatten, overlay
from nsys2prv_ng.intervals.step_functions import make_row_steps
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.reading.nvtx_ranges import RangeKey
from nsys2prv_ng.reading.opened_events import ABSENT, load_opened_events


class HostPart(NamedTuple):
    """Totals of some main threads, with the ranges of their reports: how often each occurs, on how many tasks."""

    node: int | None
    """Node of the threads; None without threads."""
    totals: Totals
    keys: list[RangeKey]
    occurrences: IntArray
    tasks: IntArray


def list_main_threads(job: Job) -> list[IntArray]:
    """Return the places of the main threads that count, for each report; none if their calls were not read."""
    if any(source not in job.reports[0].results for source in (source_names.CUDA_API, source_names.MPI)):
        return [np.zeros(0, np.int64) for _ in job.reports]
    listed = []
    for report, rows in zip(job.reports, job.tree.rows, strict=True):
        main = {process: thread for process, thread in map_main_threads(report).items() if rows[thread] >= 0}
        application = [thread for process, thread in main.items() if process in report.places.application]
        listed.append((list(main.values()), application))
    has_application = any(application for _, application in listed)
    return [np.array(application if has_application else main, np.int64) for main, application in listed]


def measure_hosts(job: Job, group: Sequence[int], main_threads: Sequence[IntArray], plan: WindowPlan) -> HostPart:
    """Measure the main threads of a group of reports. `main_threads`: their places, for each report of the job."""
    ranges = load_repeated(job, group)
    totals = Totals(3, 1, plan.first_range + len(ranges.keys))
    flat = load_host_calls(job, group, main_threads)
    rows = np.unique(np.concatenate([job.tree.rows[index][main_threads[index]] for index in group]))
    for number in rows.tolist():
        steps = make_row_steps(flat, number, USEFUL)
        windows = plan.list_windows([int(job.tree.task_of_row[number])], ranges)
        sums = sum_in_windows(steps, USEFUL, windows, totals.count.size, 3)
        totals.add(windows, sums, [sums[:, USEFUL] + sums[:, IN_CUDA]])
    size = len(ranges.keys)
    pairs = np.unique(np.stack([ranges.key, ranges.task]), axis=1)
    node = job.tree.model.tasks[int(job.tree.task_of_row[rows[0]])].node if rows.size else None
    return HostPart(
        node, totals, ranges.keys, np.bincount(ranges.key, minlength=size), np.bincount(pairs[0], minlength=size)
    )


def load_host_calls(job: Job, group: Sequence[int], main_threads: Sequence[IntArray]) -> FlatStates:
    """Return when the main threads of a group of reports are in CUDA or MPI (IN_CUDA, IN_MPI), by row of the trace."""
    kinds = (  # being in MPI counts before being in CUDA
        (source_names.CUDA_API, IN_CUDA, [types.CUDA_API]),
        (source_names.MPI, IN_MPI, list(types.MPI_CALLS.values())),
    )
    layers = []
    for source, kind, event_types in kinds:
        parts = []
        for index in group:
            events = load_opened_events(job.reports[index], source, job.store)
            is_call = np.isin(events.place, main_threads[index]) & (events.get_values(*event_types) != ABSENT)
            row = job.tree.rows[index][events.place]
            parts.append([column[is_call] for column in (row, events.begin, events.end)])
        row, begin, end = (np.concatenate(column) for column in zip(*parts, strict=True))
        layers.append(flatten(row, begin, end, np.full(row.size, kind, np.int64)))
    return overlay(*layers)
