"""Finds what each physical GPU did over time, with its communication split into waiting and moving data.

A GPU has one value at any time: the times of all values add up to the time that its activity covers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from nsys2prv_ng.analysis.gpus.activity import list_activity_runs, list_devices, load_activity
from nsys2prv_ng.analysis.waits.waits import Waits
from nsys2prv_ng.arrays.row_keys import list_rows
from nsys2prv_ng.arrays.types import IntArray, pick
from nsys2prv_ng.intervals.device_sweep import COMMUNICATION, COMPUTE, IDLE
from nsys2prv_ng.intervals.device_sweep import WHOLE_GRAPH as IN_WHOLE_GRAPH
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.records.runs import Run
from nsys2prv_ng.runtime.jit import compiled

COMPUTE_ALONE, COMPUTE_OVER_MOVING, MOVING, WAITING, WAITING_HIDDEN, MEMORY_ALONE, NOTHING = range(1, 8)
UNSPLIT, COMPUTE_OVER_UNSPLIT, WHOLE_GRAPH = 8, 9, 10
"""Values, with the labels of event_types.GPU_WAITS. If several kernels communicate at once, moving counts before not
split, and not split before waiting. Memory operations during communication count as communication. A graph that was
traced as a whole and may contain NCCL counts whenever no other kernel computes, whatever else runs: it may compute."""


_WAITS, _MOVES, _IS_NOT_SPLIT = range(3)
"""What an NCCL kernel does."""


class GpuWaits(NamedTuple):
    """n changes of GPUs: row of the trace, time (ns), and the value from then on; 0 if nothing is known."""

    row: IntArray
    time: IntArray
    value: IntArray


def map_rows_to_gpus(job: Job) -> IntArray:
    """Return the GPU's row in the trace for each row of the whole tree; -1 for a row that is not a stream."""
    rows = np.full(job.whole.model.row_count, -1, np.int64)
    for row_of_place, gpu_of_place in zip(job.whole.rows, list_devices(job).rows_of_reports, strict=True):
        has_row = row_of_place >= 0
        rows[row_of_place[has_row]] = np.maximum(rows[row_of_place[has_row]], gpu_of_place[has_row])
    return rows


class GpuSweep:
    """Finds the changes of groups of GPUs from all waits of a job."""

    def __init__(self, job: Job, waits: Waits) -> None:
        gpu = np.where(waits.is_mpi, -1, pick(map_rows_to_gpus(job), waits.row, -1))
        self._job, self._waits, self._gpu = job, waits, gpu
        self._by_gpu = np.argsort(gpu, kind="stable")
        self._gpu_in_order = gpu[self._by_gpu]

    def find_changes(self, run: Run) -> GpuWaits:
        """Return the changes of the GPUs of a run from `list_activity_runs`."""
        row, time, activity = load_activity(self._job, run)
        here = np.sort(self._by_gpu[list_rows(self._gpu_in_order, np.unique(row))])
        return _sweep_changes(row, time, activity, self._gpu[here], self._waits.take(here))


def sweep_gpu_waits(job: Job, waits: Waits) -> Iterator[GpuWaits]:
    """Yield the changes of each group of GPUs. `waits`: all waits of the job."""
    sweep = GpuSweep(job, waits)
    yield from map(sweep.find_changes, list_activity_runs(job))


def _sweep_changes(row: IntArray, time: IntArray, activity: IntArray, gpu: IntArray, waits: Waits) -> GpuWaits:
    """Sweep over the changes of activity and of the number of kernels that wait, move or are not split."""
    split = waits.has_parts
    part = np.full(int(split.sum()), _WAITS)
    parts = (
        (gpu, waits.begin, np.where(split, _WAITS, _IS_NOT_SPLIT), 1),
        (gpu[split], waits.until[split], part, -1),
        (gpu[split], waits.until[split], part + (_MOVES - _WAITS), 1),
        (gpu, waits.end, np.where(split, _MOVES, _IS_NOT_SPLIT), -1),
    )
    kind = np.concatenate([np.full(row.size, -1), *(part[2] for part in parts)]).astype(np.int64)
    step = np.concatenate([activity, *(np.full(part[0].size, part[3]) for part in parts)]).astype(np.int64)
    rows = np.concatenate([row, *(part[0] for part in parts)])
    times = np.concatenate([time, *(part[1] for part in parts)])
    order = np.lexsort((times, rows))
    index, value = np.empty((2, order.size), np.int64)
    changes = _sweep_sorted(rows[order], times[order], kind[order], step[order], np.zeros(3, np.int64), index, value)
    at, value = order[index[:changes]], value[:changes]
    return GpuWaits(rows[at], times[at], value)


@compiled
def _sweep_sorted(
    row: IntArray, time: IntArray, kind: IntArray, step: IntArray, count: IntArray, index: IntArray, value: IntArray
) -> int:
    """Return how often the value changes; set the index of the last line of each such time, and the new value.

    `count` (3): room for the number of kernels by what they do.
    """
    n = row.size
    changes, shown, activity = 0, 0, 0
    for i in range(n):
        if i == 0 or row[i] != row[i - 1]:
            for k in range(count.size):
                count[k] = 0
            shown, activity = 0, 0
        if kind[i] < 0:
            activity = step[i]
        else:
            count[kind[i]] += step[i]
        if i + 1 < n and row[i + 1] == row[i] and time[i + 1] == time[i]:
            continue
        now = _choose_value(activity, count)
        if now != shown:
            index[changes], value[changes] = i, now
            changes += 1
            shown = now
    return changes


@compiled
def _choose_value(activity: int, count: IntArray) -> int:
    """Return the value of a GPU with this activity and these kernels; communication without kernels is not split."""
    if activity == 0:
        return 0
    if activity == IDLE:
        return NOTHING
    computes = activity & COMPUTE > 0
    if not computes and activity & IN_WHOLE_GRAPH > 0:
        return WHOLE_GRAPH
    if activity & COMMUNICATION == 0:
        return COMPUTE_ALONE if computes else MEMORY_ALONE
    if count[_MOVES] > 0:
        return COMPUTE_OVER_MOVING if computes else MOVING
    if count[_IS_NOT_SPLIT] > 0 or count[_WAITS] == 0:
        return COMPUTE_OVER_UNSPLIT if computes else UNSPLIT
    return WAITING_HIDDEN if computes else WAITING
