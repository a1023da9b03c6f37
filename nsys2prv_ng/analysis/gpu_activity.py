"""What each physical GPU did: time by activity, gaps, memory, from the records that were made of all its processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.intervals.device_sweep import COMMUNICATION, COMPUTE, IDLE, MEMORY
from nsys2prv_ng.intervals.step_functions import find_peaks, measure_durations
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.objects.places import Device, Stream
from nsys2prv_ng.objects.tree import make_gpu_key
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.records.columns import Records
from nsys2prv_ng.records.runs import Run, load_records
from nsys2prv_ng.report.metadata import Gpu
from nsys2prv_ng.sources.cuda import cuda_memory, device_activity


@dataclass
class DeviceRow:
    """A GPU of the trace: its node and what it is, and the tasks that ran operations on it."""

    node: str
    gpu: Gpu
    tasks: set[int] = field(default_factory=set)


@dataclass(frozen=True)
class Devices:
    """The GPUs of a job by their row, and for each report the row of the GPU of each place (-1: none)."""

    rows: dict[int, DeviceRow]
    rows_of_reports: list[IntArray]

    def find_reports(self, rows: IntArray) -> list[int]:
        """Reports, by index, with operations on any of some GPUs."""
        return [index for index, of_report in enumerate(self.rows_of_reports) if np.isin(of_report, rows).any()]


def list_devices(job: Job) -> Devices:
    """GPUs of which something as a whole is in the trace."""
    rows: dict[int, DeviceRow] = {}
    row_of: dict[tuple[int, tuple[str, int]], int] = {}
    for report, row_of_place in zip(job.reports, job.tree.rows, strict=True):
        for place, row in zip(report.places.all, row_of_place.tolist(), strict=True):
            if isinstance(place, Device) and row >= 0:
                gpu = report.metadata.gpus.get(place.gpu) or Gpu(place.gpu, "", "")
                node = job.tree.model.nodes[job.tree.model.tasks[job.tree.task_of_row[row]].node]
                rows.setdefault(row, DeviceRow(node, gpu))
                row_of[report.node, make_gpu_key(gpu)] = row
    rows_of_reports = []
    for report, row_of_place in zip(job.reports, job.tree.rows, strict=True):
        found = np.full(row_of_place.size, -1, np.int64)
        for number, (place, row) in enumerate(zip(report.places.all, row_of_place.tolist(), strict=True)):
            if isinstance(place, Stream) and row >= 0:
                key = report.node, make_gpu_key(report.metadata.gpu(place.process, place.device))
                found[number] = row_of.get(key, -1)
                if found[number] >= 0:
                    rows[int(found[number])].tasks.add(int(job.tree.task_of_row[row]))
        rows_of_reports.append(found)
    return Devices(rows, rows_of_reports)


class Gaps(NamedTuple):
    """Idle stretches of GPUs, of n: row of the GPU, begin and end (ns)."""

    row: IntArray
    begin: IntArray
    end: IntArray

    def take(self, which: IntArray) -> Gaps:
        return Gaps(*(column[which] for column in self))


NO_GAPS = Gaps(*(np.zeros(0, np.int64) for _ in range(3)))


class Activity(NamedTuple):
    """ns of a GPU in which anything of a kind runs, in both of the first two, and in which nothing does."""

    busy: int
    compute: int
    communication: int
    overlap: int
    memory: int
    idle: int


NO_ACTIVITY = Activity(0, 0, 0, 0, 0, 0)


def measure_activity(job: Job, run: Run) -> tuple[dict[int, Activity], Gaps]:
    """Activity by row, and the gaps, of the GPUs of a run of `activity_runs`."""
    records = load_records(run, job.store)
    row, time, value = _get_values(records, types.GPU_ACTIVITY.number)
    length = measure_durations(row, time)
    found = {int(each): _sum_activity(value[row == each], length[row == each]) for each in np.unique(row)}
    row, end, stretch = _get_values(records, types.GPU_IDLE_STRETCH.number)
    return found, Gaps(row, end - stretch, end)


def list_activity_runs(job: Job) -> list[Run]:
    """What GPUs do as a whole, one run for those that have reports in common."""
    return _list_runs(job, device_activity.NAME)


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
        idle=time(value == IDLE),
    )


class PeakMemory(NamedTuple):
    """Most bytes in use of a GPU at a time, by the allocations that the reports know of, and when (ns) first."""

    bytes: int
    time: int


def find_peak_memory(job: Job, rows: Mapping[int, DeviceRow]) -> dict[int, PeakMemory]:
    """By row of a GPU: those of which allocations are known."""
    numbers = [each.number for each in types.MEMORY_LEVELS]
    found: dict[int, PeakMemory] = {}
    for run in _list_runs(job, cuda_memory.LEVEL):
        records = load_records(run, job.store)
        parts = [(kind, *_get_values(records, number)) for kind, number in enumerate(numbers)]
        row, time, level = (np.concatenate([part[i] for part in parts]) for i in (1, 2, 3))
        kind = np.repeat([part[0] for part in parts], [part[1].size for part in parts])
        of_gpus = np.isin(row, list(rows))
        columns = (column[of_gpus] for column in (row, kind, time, level))
        found |= {row: PeakMemory(*peak) for row, peak in find_peaks(*columns).items()}
    return found


def _list_runs(job: Job, name: str) -> list[Run]:
    return [run for each in job.joined if name in each.accounts for run in each.accounts[name].runs]


def _get_values(records: Records, number: int) -> tuple[IntArray, IntArray, IntArray]:
    """Row, time (ns) and value of the events of a type, in the order of rows and times.

    What was made of all reports has the rows and numbers of the trace.
    """
    words = np.flatnonzero(records.handle == number)
    lines = np.searchsorted(records.first, words, "right") - 1
    row, time = records.place[lines].astype(np.int64), records.time[lines]
    order = np.lexsort((time, row))
    return row[order], time[order], records.value[words][order]
