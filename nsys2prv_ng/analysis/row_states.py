"""Lists what GPUs and main threads did over time: at most one state of a row at any time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from nsys2prv_ng import source_names
from nsys2prv_ng.analysis.efficiency.measure import list_main_threads, load_host_calls
from nsys2prv_ng.analysis.efficiency.times import IN_CUDA, IN_MPI
from nsys2prv_ng.analysis.efficiency.windows import WindowPlan
from nsys2prv_ng.analysis.gpus.activity import Devices, list_activity_runs, load_activity
from nsys2prv_ng.analysis.gpus.waiting import sweep_gpu_waits
from nsys2prv_ng.analysis.waits.waits import Waits
from nsys2prv_ng.arrays.row_keys import list_rows
from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.intervals.states import FlatStates, flatten, overlay
from nsys2prv_ng.intervals.step_functions import measure_durations
from nsys2prv_ng.intervals.windows import cut_to_windows
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.objects.tree import group_reports_by_task

OWN_CODE, CUDA, MPI_WAITING, MPI_MOVING, MPI_NOT_SPLIT = range(1, 6)
"""States of main threads. MPI_NOT_SPLIT includes calls that carry out no operation over ranks."""


def find_gpu_rows(job: Job, devices: Devices) -> IntArray:
    """Return the rows of the GPUs that ran operations at any time; none if their activity was not read."""
    if source_names.DEVICE_ACTIVITY not in job.reports[0].results:
        return np.zeros(0, np.int64)
    used = [row for row, device in devices.rows.items() if device.tasks]
    active = [np.flatnonzero(run.facts.place_first <= run.facts.place_last) for run in list_activity_runs(job)]
    return np.unique(np.concatenate([np.array(used, np.int64), *active]))


def find_host_rows(job: Job) -> IntArray:
    """Return the rows of the main threads."""
    rows = [rows[main] for rows, main in zip(job.tree.rows, list_main_threads(job), strict=True)]
    return np.unique(np.concatenate(rows))


def find_span(job: Job, waits: Waits, *, gpus: bool) -> tuple[int, int]:
    """Return the time (ns) that numbers cover, as one span; else from the first GPU operation to the last.

    Or from the first MPI operation over ranks, if that is earlier, to the last. Time before the first operation and
    after the last is seldom of interest. Without GPUs, the span is that of all MPI calls; without MPI calls, it is all
    time.
    """
    if job.scope.measured:
        return job.scope.measured[0][0], min(job.scope.measured[-1][1], job.scope.last)
    limits: list[int] = []
    if gpus:
        for run in list_activity_runs(job):  # their records start with launches, before any operation
            time = load_activity(job, run)[1]
            limits += [int(time.min()) if time.size else run.facts.first, run.facts.last]
        in_mpi = waits.is_mpi & (job.new_row[waits.row] >= 0)
        limits += [int(waits.begin[in_mpi].min()), int(waits.end[in_mpi].max())] if in_mpi.any() else []
    else:
        for report in job.reports:
            for run in report.runs((source_names.MPI,)):
                limits += report.find_limits(run)
    return (min(limits), max(limits)) if limits else (job.scope.first, job.scope.last)


def list_gpu_states(job: Job, waits: Waits) -> Iterator[FlatStates]:
    """Yield the states of each group of GPUs, ordered by row of the trace and time."""
    for changes in sweep_gpu_waits(job, waits):
        end = changes.time + measure_durations(changes.row, changes.time)
        known = changes.value > 0
        yield FlatStates(changes.row[known], changes.time[known], end[known], changes.value[known])


def list_host_states(job: Job, waits: Waits, plan: WindowPlan) -> Iterator[FlatStates]:
    """Yield the states of each task's main threads, ordered by row of the trace and time.

    The states are known only while the reports were captured.
    """
    main = list_main_threads(job)
    parts = _split_calls(job, waits)
    groups = group_reports_by_task([report.places for report in job.reports], job.tree)
    yield from job.engine.map(lambda group: _load_host_states(job, group, main, parts, plan), groups)


def _load_host_states(
    job: Job, group: Sequence[int], main: Sequence[IntArray], parts: FlatStates, plan: WindowPlan
) -> FlatStates:
    rows = {index: job.tree.rows[index][main[index]] for index in group}
    captured = []
    for row in np.unique(np.concatenate(list(rows.values()))).tolist():
        for low, high in plan.unite_captures([index for index in group if row in rows[index]]):
            captured.append((row, low, high))
    captured_row, begin, end = np.array(captured, np.int64).reshape(-1, 3).T
    if job.scope.windows:
        index, _, begin, end = cut_to_windows(begin, end, job.scope.windows)
        captured_row = captured_row[index]
    calls = load_host_calls(job, group, main)
    state = np.where(calls.state == IN_MPI, MPI_NOT_SPLIT, np.where(calls.state == IN_CUDA, CUDA, OWN_CODE))
    chosen = list_rows(parts.row, np.unique(captured_row))
    in_mpi = FlatStates(*(column[chosen] for column in parts))
    return overlay(
        FlatStates(captured_row, begin, end, np.full(begin.size, OWN_CODE)),
        overlay(calls._replace(state=state), in_mpi),
    )


def _split_calls(job: Job, waits: Waits) -> FlatStates:
    """Return what MPI calls over ranks do, on rows of the trace and in the chosen time."""
    split = np.flatnonzero(waits.is_mpi & waits.has_parts & (job.new_row[waits.row] >= 0))
    row, begin, until, end = (column[split] for column in (job.new_row[waits.row], waits.begin, waits.until, waits.end))
    begin, end = np.concatenate([begin, until]), np.concatenate([until, end])
    state = np.repeat([MPI_WAITING, MPI_MOVING], split.size)
    index = np.arange(state.size)
    if job.scope.windows:
        index, _, begin, end = cut_to_windows(begin, end, job.scope.windows)
    return flatten(np.tile(row, 2)[index], begin, end, state[index])
