"""Measures quantities by row and time: states of GPUs and threads, and in bins shares, lateness, metrics and memory.

Rows are rows of the trace, except that the rows of lateness are tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from nsys2prv_ng import source_names
from nsys2prv_ng.analysis.efficiency.measure import list_main_threads, load_host_calls
from nsys2prv_ng.analysis.efficiency.times import IN_CUDA, IN_MPI
from nsys2prv_ng.analysis.efficiency.windows import WindowPlan
from nsys2prv_ng.analysis.gpus import metrics
from nsys2prv_ng.analysis.gpus.activity import Devices, list_activity_runs, load_activity
from nsys2prv_ng.analysis.gpus.waiting import sweep_gpu_waits
from nsys2prv_ng.analysis.waits.waits import Waits
from nsys2prv_ng.arrays.row_keys import list_indices, list_rows
from nsys2prv_ng.arrays.types import FloatArray, IntArray
from nsys2prv_ng.intervals import step_functions
from nsys2prv_ng.intervals.states import FlatStates, flatten, overlay, sum_held, sum_states
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.objects.tree import group_reports_by_task
from nsys2prv_ng.paraver import families


class Map(NamedTuple):
    """Values (r x b) of r rows, or tasks, in b bins; NaN if unknown."""

    row: IntArray
    value: FloatArray


class Shares:
    """How long (ns) rows were in each kind of states in each bin, by key of the kind, and how long that is known."""

    def __init__(self, rows: IntArray, edges: IntArray, kinds: Mapping[str, Sequence[int]], states: int) -> None:
        """Take `kinds`, the states (1 to `states` - 1) of each kind, and `rows`, which are ascending."""
        self.rows, self._edges, self._kinds, self._states = rows, edges, kinds, states
        self.known = np.zeros((rows.size, edges.size - 1), np.int64)
        self.ns = {key: np.zeros_like(self.known) for key in kinds}

    def add(self, flat: FlatStates) -> None:
        """Add the states of some rows; each row is added only once."""
        rows, index = np.unique(flat.row, return_inverse=True)
        sums = sum_states(flat._replace(row=index.astype(np.int64)), self._edges, rows.size, self._states)
        at = np.searchsorted(self.rows, rows)
        self.known[at] = sums[:, :, 1:].sum(axis=2)
        for key, states in self._kinds.items():
            self.ns[key][at] = sums[:, :, list(states)].sum(axis=2)

    def get_percent(self, key: str) -> Map:
        """Return the share of the known time that was spent in a kind of states, in percent."""
        return Map(self.rows, np.where(self.known > 0, 100 * self.ns[key] / np.maximum(self.known, 1), np.nan))


# ---- lateness --------------------------------------------------------------------------------------------------------


def find_lateness(job: Job, waits: Waits, edges: IntArray) -> Map:
    """Return the largest lateness (ns) of each task, among the operations over ranks that it started in a bin.

    It is 0 if nobody waited for the task there. It is unknown if the task started no operation there, or only
    operations that are not split into waiting and moving. Rows are the tasks with any operation over ranks.
    """
    parted = np.flatnonzero(waits.has_parts & (job.new_row[waits.row] >= 0))
    blamed = np.flatnonzero((waits.culprit >= 0) & (waits.until > waits.begin))
    blamed = blamed[job.new_row[waits.culprit[blamed]] >= 0]
    row = job.new_row[np.concatenate([waits.row[parted], waits.culprit[blamed]])]
    time = np.concatenate([waits.begin[parted], waits.culprit_begin[blamed]])
    margin = np.concatenate([np.zeros(parted.size, np.int64), waits.margin[blamed]])
    inside = (time >= edges[0]) & (time <= edges[-1]) & step_functions.mark_inside(time, time, job.scope.measured)
    task, margin = job.tree.task_of_row[row[inside]], margin[inside]
    bins = np.searchsorted(edges[:-1], time[inside], "right") - 1
    over_ranks = job.new_row[waits.row]
    tasks = np.unique(job.tree.task_of_row[over_ranks[over_ranks >= 0]])
    values = np.full((tasks.size, edges.size - 1), -1, np.int64)
    known = np.isin(task, tasks)
    np.maximum.at(values, (np.searchsorted(tasks, task[known]), bins[known]), margin[known])
    return Map(tasks, np.where(values < 0, np.nan, values))


# ---- GPU metrics -----------------------------------------------------------------------------------------------------


def average_metrics(
    job: Job, wanted: Mapping[str, Sequence[str]], edges: IntArray, groups: Mapping[int, int] | None = None
) -> dict[str, Map]:
    """Return the mean of metrics in each bin, by key, weighted by how long their values are in force.

    `wanted`: patterns of names for each key. If a key has several, their means are added up, if all are known. Keys
    that no GPU has are omitted. `groups`: the number of a group for each row; the values of a group have one mean, and
    its number is their row.
    """
    patterns = [pattern for key_patterns in wanted.values() for pattern in key_patterns]
    sums: dict[int, FloatArray] = {}
    for row, both in sum_metrics(job, lambda name: metrics.find_pattern(name, patterns), len(patterns), edges).items():
        group = groups[row] if groups else row
        sums[group] = sums.get(group, 0.0) + both
    maps: dict[str, Map] = {}
    for key, key_patterns in wanted.items():
        at = [patterns.index(pattern) for pattern in key_patterns]
        rows = [row for row in sorted(sums) if (sums[row][0][:, at] > 0).any()]
        if rows:
            ns, weighted = np.stack([sums[row][:, :, at] for row in rows], axis=1)
            mean = np.where(ns > 0, weighted / np.where(ns > 0, ns, 1), np.nan)
            maps[key] = Map(np.array(rows, np.int64), mean.sum(axis=2))
    return maps


def sum_metrics(job: Job, match: Callable[[str], int], size: int, edges: IntArray) -> dict[int, FloatArray]:
    """Return ns, and value x ns, of metrics by row (2 x bins x `size`).

    `match` returns the column of the metric with a name; -1 for none. If several metrics of a GPU have one column, the
    first by name counts. Each worker has the records of one report in memory.
    """

    def add_up(group: Sequence[metrics.SampledReport]) -> list[tuple[int, FloatArray]]:
        return [(sampled.row, _sum_held(sampled, match, size, edges)) for sampled in metrics.list_samples(job, group)]

    sums: dict[int, FloatArray] = {}
    for found in job.engine.map(add_up, metrics.split_sampled(job)):
        for row, both in found:
            sums[row] = sums.get(row, 0.0) + both
    return sums


def _sum_held(sampled: metrics.Samples, match: Callable[[str], int], size: int, edges: IntArray) -> FloatArray:
    """Return the sums of `sum_metrics` over these samples."""
    names = [(kind.label, kind.unit) for kind in sampled.types]
    columns = [match(kind.member) if kind.family == families.GPU_METRICS else -1 for kind in sampled.types]
    begin, end, first, after, _ = metrics.list_spans(sampled.columns, (np.array(columns) >= 0).astype(np.int64))
    words, span = list_indices(first, after - first), np.repeat(np.arange(begin.size), after - first)
    handle = sampled.columns.handle[words]
    chosen = {-1: -1}
    for number in sorted(np.unique(handle).tolist(), key=names.__getitem__):
        chosen.setdefault(columns[number], number)
    at = np.flatnonzero(np.isin(handle, list(chosen.values())))
    handle, span = handle[at], span[at]
    value = sampled.columns.value[words[at]] / np.array([10.0**kind.precision for kind in sampled.types])[handle]
    flat = FlatStates(np.zeros_like(span), begin[span], end[span], np.array(columns, np.int64)[handle])
    return np.stack([sum_held(flat, amount, edges, 1, size)[0] for amount in (np.ones_like(value), value)])


# ---- states ----------------------------------------------------------------------------------------------------------

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
        end = changes.time + step_functions.measure_durations(changes.row, changes.time)
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
        index, _, begin, end = step_functions.cut_to_windows(begin, end, job.scope.windows)
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
        index, _, begin, end = step_functions.cut_to_windows(begin, end, job.scope.windows)
    return flatten(np.tile(row, 2)[index], begin, end, state[index])
