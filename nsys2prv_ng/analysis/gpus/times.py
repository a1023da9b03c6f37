"""Measures the time of GPUs that numbers cover: by activity, in gaps, and why they were idle."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nsys2prv_ng.analysis.gpus.activity import (
    NO_ACTIVITY,
    Activity,
    Devices,
    Gaps,
    list_activity_runs,
    load_gaps,
    measure_activity,
)
from nsys2prv_ng.analysis.gpus.idle_causes import IdlePieces, knows_causes, split_gaps, sum_causes
from nsys2prv_ng.arrays.groups import Table
from nsys2prv_ng.intervals.windows import cut_to_windows
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.records.runs import Run


class GpuTime(NamedTuple):
    """Time of a GPU by activity, its gaps, and their causes as `sum_causes` returns them; None if none is known."""

    activity: Activity = NO_ACTIVITY
    gaps: int = 0
    longest_ns: int = 0
    longest_at: int | None = None
    """Start of the longest gap (ns, on the common clock)."""
    causes: Table | None = None


def measure_gpu_times(job: Job, devices: Devices) -> dict[int, GpuTime]:
    """Return the time of each GPU with any activity, by row. Each worker has the records of one group of GPUs."""

    def measure(run: Run) -> dict[int, GpuTime]:
        gaps = load_gaps(job, run)
        if job.scope.measured:
            gaps = gaps.take(np.unique(cut_to_windows(gaps.begin, gaps.end, job.scope.measured)[0]))
        return sum_gpu_times(job, run, gaps, split_gaps(job, devices, devices.find_reports(gaps.row), gaps))

    times: dict[int, GpuTime] = {}
    for found in job.engine.sum_up(measure, list_activity_runs(job)):
        times |= found
    return times


def sum_gpu_times(job: Job, run: Run, gaps: Gaps, pieces: IdlePieces) -> dict[int, GpuTime]:
    """Return the time of the GPUs of a run from `list_activity_runs`, by row.

    `gaps`: of these GPUs, with all that have a part in the time that numbers cover; `pieces`: of these gaps.
    """
    causes = sum_causes(job, gaps, pieces) if knows_causes(job) else None
    shown = gaps.cut(job.scope.measured)
    return {
        row: _make_time(activity, shown.take(np.flatnonzero(shown.row == row)), causes, row)
        for row, activity in measure_activity(job, run).items()
    }


def _make_time(activity: Activity, gaps: Gaps, causes: Table | None, row: int) -> GpuTime:
    length = gaps.end - gaps.begin
    longest = int(np.argmax(length)) if length.size else None
    own = None if causes is None else np.flatnonzero(causes["row"] == row)
    return GpuTime(
        activity=activity,
        gaps=int(length.size),
        longest_ns=0 if longest is None else int(length[longest]),
        longest_at=None if longest is None else int(gaps.begin[longest]),
        causes=None if causes is None else {name: column[own] for name, column in causes.items() if name != "row"},
    )
