"""Measures what each physical GPU did: time by activity, gaps, memory. The records cover all processes of the GPU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nsys2prv_ng import source_names
from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.intervals.device_sweep import COMMUNICATION, COMPUTE, IDLE, MEMORY, WHOLE_GRAPH
from nsys2prv_ng.intervals.step_functions import cut_to_windows, find_peaks, measure_durations, sum_parts
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.objects.places import Device, Stream
from nsys2prv_ng.objects.tree import make_gpu_key
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver.event_type import EventType
from nsys2prv_ng.records.columns import Records
from nsys2prv_ng.records.runs import Run, load_records
from nsys2prv_ng.report.gpus import Gpu
from nsys2prv_ng.sources.cuda import cuda_memory
from nsys2prv_ng.value_class import ValueClass


class DeviceRow(ValueClass):
    """A GPU of the trace: its node, the GPU, and the tasks that ran operations on it."""

    node: str
    gpu: Gpu
    tasks: set[int] = field(default_factory=set)

    def list_ranks(self, rank_of_task: Sequence[int | None]) -> list[int]:
        """Return the ranks of these tasks, ascending."""
        return sorted({rank for task in self.tasks if (rank := rank_of_task[task]) is not None})


class Devices(ValueClass):
    """The GPUs of a job by row, and for each report the row of each place's GPU (-1: no GPU)."""

    rows: dict[int, DeviceRow]
    rows_of_reports: list[IntArray]

    def find_reports(self, rows: IntArray) -> list[int]:
        """Return the indices of the reports with operations on any of these rows' GPUs."""
        return sorted({index for row in np.unique(rows).tolist() for index in self._reports_by_row.get(row, ())})

    @cached_property
    def _reports_by_row(self) -> dict[int, list[int]]:
        reports: dict[int, list[int]] = {}
        for index, rows in enumerate(self.rows_of_reports):
            for row in np.unique(rows[rows >= 0]).tolist():
                reports.setdefault(row, []).append(index)
        return reports


def list_devices(job: Job) -> Devices:
    """Return the GPUs that have a row in the trace."""
    rows: dict[int, DeviceRow] = {}
    row_of_gpu: dict[tuple[int, tuple[str, int]], int] = {}
    for report, row_of_place in zip(job.reports, job.tree.rows, strict=True):
        for place, row in zip(report.places.all, row_of_place.tolist(), strict=True):
            if isinstance(place, Device) and row >= 0:
                gpu = report.metadata.get_gpu(place.gpu)
                node = job.tree.model.nodes[job.tree.model.tasks[job.tree.task_of_row[row]].node]
                rows.setdefault(row, DeviceRow(node, gpu))
                row_of_gpu[report.node, make_gpu_key(gpu)] = row
    rows_of_reports = []
    for report, row_of_place in zip(job.reports, job.tree.rows, strict=True):
        gpu_rows = np.full(row_of_place.size, -1, np.int64)
        for number, (place, row) in enumerate(zip(report.places.all, row_of_place.tolist(), strict=True)):
            if isinstance(place, Stream) and row >= 0:
                key = report.node, make_gpu_key(report.metadata.gpu(place.process, place.device))
                gpu_rows[number] = row_of_gpu.get(key, -1)
                if gpu_rows[number] >= 0:
                    rows[int(gpu_rows[number])].tasks.add(int(job.tree.task_of_row[row]))
        rows_of_reports.append(gpu_rows)
    return Devices(rows, rows_of_reports)


class Gaps(NamedTuple):
    """n idle stretches of GPUs, in columns: row of the GPU, begin and end (ns)."""

    row: IntArray
    begin: IntArray
    end: IntArray

    def take(self, which: IntArray) -> Gaps:
        """Return the gaps at these indices."""
        return Gaps(*(column[which] for column in self))

    def cut(self, windows: Sequence[tuple[int, int]]) -> Gaps:
        """Return the parts of the gaps that are in windows of time (ns); all of them without windows."""
        if not windows:
            return self
        index, _, begin, end = cut_to_windows(self.begin, self.end, windows)
        return Gaps(self.row[index], begin, end)


NO_GAPS = Gaps(*(np.zeros(0, np.int64) for _ in range(3)))


class Activity(NamedTuple):
    """Time (ns) in which a GPU runs operations of each kind; `overlap`: compute and communication; `idle`: nothing.

    `whole_graph`: graphs traced as a whole that may contain NCCL.
    """

    busy: int
    compute: int
    communication: int
    overlap: int
    memory: int
    whole_graph: int
    idle: int


NO_ACTIVITY = Activity(0, 0, 0, 0, 0, 0, 0)


def measure_activity(job: Job, run: Run) -> dict[int, Activity]:
    """Return the activity of the GPUs of a run from `list_activity_runs`, by row, in the time that numbers cover."""
    row, time, value = load_activity(job, run)
    end, known = time + measure_durations(row, time), np.unique(row)
    if job.scope.measured:
        index, _, time, end = cut_to_windows(time, end, job.scope.measured)
        row, value = row[index], value[index]
    length = end - time
    return {int(gpu): _sum_activity(value[row == gpu], length[row == gpu]) for gpu in known}


def load_gaps(job: Job, run: Run) -> Gaps:
    """Return all gaps of the GPUs of a run from `list_activity_runs`."""
    row, end, stretch = get_values(load_records(run, job.store), types.GPU_IDLE_STRETCH.number)
    return Gaps(row, end - stretch, end)


def load_activity(job: Job, run: Run) -> tuple[IntArray, IntArray, IntArray]:
    """Return (row, time (ns), new activity) of the changes of GPUs, ordered by row and time."""
    return get_values(load_records(run, job.store), types.GPU_ACTIVITY.number)


def list_activity_runs(job: Job) -> list[Run]:
    """Return the runs with the activity of whole GPUs, one for each group of GPUs that share reports."""
    return list_runs(job, source_names.DEVICE_ACTIVITY)


def _sum_activity(value: IntArray, length: IntArray) -> Activity:
    def time(which: npt.NDArray[np.bool_]) -> int:
        return int(length[which].sum())

    both = COMPUTE | COMMUNICATION
    works = (value > 0) & (value != IDLE)
    return Activity(
        busy=time(works),
        compute=time(works & (value & COMPUTE > 0)),
        communication=time(works & (value & COMMUNICATION > 0)),
        overlap=time(works & (value & both == both)),
        memory=time(works & (value & MEMORY > 0)),
        whole_graph=time(works & (value & WHOLE_GRAPH > 0)),
        idle=time(value == IDLE),
    )


def find_peak_memory(job: Job, rows: Mapping[int, DeviceRow]) -> dict[int, int]:
    """Return the peak memory (bytes) in the time that numbers cover of each GPU with known allocations, by row."""
    peaks = {}
    for row, time, level in load_memory(job, rows):
        is_last = np.append(row[1:] != row[:-1], True)[: row.size]
        end = np.where(is_last, job.scope.last, np.roll(time, -1))
        index, _, time, _ = cut_to_windows(time, end, job.scope.covered)
        peaks.update({gpu: peak for gpu, (peak, _) in find_peaks(row[index], time, level[index]).items()})
    return peaks


def load_memory(
    job: Job, rows: Mapping[int, DeviceRow], kinds: Sequence[EventType] = types.MEMORY_LEVELS
) -> Iterator[tuple[IntArray, IntArray, IntArray]]:
    """Yield (row, time (ns), bytes of these kinds of memory in use from then on) of each group of GPUs."""
    for run in list_runs(job, cuda_memory.LEVEL):
        records = load_records(run, job.store)
        levels = [get_values(records, event_type.number) for event_type in kinds]
        row, time, level = (np.concatenate(columns) for columns in zip(*levels, strict=True))
        kind = np.repeat(np.arange(len(levels)), [rows.size for rows, _, _ in levels])
        is_on_gpu = np.isin(row, list(rows))
        yield sum_parts(*(column[is_on_gpu] for column in (row, kind, time, level)))


def list_runs(job: Job, name: str) -> list[Run]:
    """Return the runs of the records with this name that were made of all reports."""
    return [run for joined in job.joined if name in joined.accounts for run in joined.accounts[name].runs]


def get_values(records: Records, number: int) -> tuple[IntArray, IntArray, IntArray]:
    """Return (row, time (ns), value) of the events of a type, ordered by row and time.

    The records must have been made of all reports: they contain the rows and type numbers of the trace.
    """
    words = np.flatnonzero(records.handle == number)
    lines = np.searchsorted(records.first, words, "right") - 1
    row, time = records.place[lines].astype(np.int64), records.time[lines]
    order = np.lexsort((time, row))
    return row[order], time[order], records.value[words][order]
