"""Measures the times of GPUs and main threads, over windows of time, that POP efficiencies are computed from.

Each ns of a GPU has one class, so the classes add up to the window times the number of GPUs:

- The GPU runs a kernel that is not NCCL's, or a graph that was traced as a whole and cannot contain NCCL (COMPUTE).
- Otherwise it runs a graph that was traced as a whole, and it is unknown whether the graph computes (WHOLE_GRAPH).
- Otherwise it runs NCCL kernels: some move data (MOVING), some are not split (NOT_SPLIT), or all wait for other ranks
  (WAITING); analysis/gpus/waiting.py defines their order.
- Otherwise it copies or sets memory (MEMORY).
- Otherwise it is idle between two operations, with the causes of analysis/gpus/times.py.
- The time is before the first operation of a capture or after its last (BEFORE, AFTER).
- No report captured the time (NOT_CAPTURED).

Each ns of COMPUTE has the class of one kernel. Where kernels overlap, the earliest counts; on a tie, the longest.

A GPU counts if it ran an operation in the capture, in any process. The host is the main thread of each process with
GPU, MPI or NCCL events, or of any process if none has such events: it is in MPI, else in CUDA, else useful.

Windows are:

- The whole: the chosen time, else the steps after the warm-up, else the capture (from its start in the first report to
  its end in the last one).
- The steps from the first start to the last end, or without steps the time in which GPUs work, if that is at most half
  of the capture.
- Each step, which is the same time for all GPUs and threads.
- Each task's ranges of one name, and without GPU operations of one step. For a GPU, the ranges of all tasks that use it
  are united. Such a window is as long as the longest time of any GPU or thread; what others lack to it has no class.

Definitions: POP; TALP of DLB 3.7 (perf_metrics.c); BasicAnalysis 2026.10 (nsys2prvmetrics.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from nsys2prv_ng.analysis.efficiency import times as window_times
from nsys2prv_ng.analysis.efficiency.measure import list_main_threads, measure_all_gpus, measure_hosts
from nsys2prv_ng.analysis.efficiency.windows import FIRST_STEP, WHOLE, WORK, make_plan
from nsys2prv_ng.analysis.gpus.activity import list_devices
from nsys2prv_ng.analysis.gpus.times import GpuTime
from nsys2prv_ng.analysis.waits.waits import Waits
from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.job.counted import list_counted_steps
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.objects.tree import group_reports_by_task
from nsys2prv_ng.reading.opened_events import RangeKey
from nsys2prv_ng.steps.steps import Steps


class RangeTimes(NamedTuple):
    """A range that repeats: how often it occurs, on how many tasks, and its times."""

    domain: str
    name: str
    occurrences: int
    tasks: int
    times: window_times.WindowTimes


class Efficiency(NamedTuple):
    """The times of a job that its efficiencies are computed from. Windows are ns, on the common clock.

    `windows`: the chosen time, else the steps after the warm-up, else the capture. `in_steps`: from the first start of
    a step that counts to the last end. `at_work`: when GPUs work, if that is only a small part of a capture without
    steps; `in_work`: the times then. `ranges`: those with most time first. `gpu_times`: of each GPU with any activity,
    by row.
    """

    windows: list[tuple[int, int]]
    whole: window_times.WindowTimes
    steps: Steps | None
    in_steps: window_times.WindowTimes | None
    at_work: tuple[int, int] | None
    in_work: window_times.WindowTimes | None
    by_step: list[window_times.WindowTimes]
    ranges: list[RangeTimes]
    gpu_times: dict[int, GpuTime]


def compute_efficiency(job: Job, waits: Waits) -> Efficiency:
    """Measure GPUs and main threads over all windows.

    Each worker has the records of one report (of its main threads) or of one group of GPUs in memory.
    """
    plan = make_plan(job, list_counted_steps(job))
    nodes = [window_times.Totals(3, 1) for _ in job.tree.model.nodes]
    gpus = window_times.Totals(len(window_times.CLASSES) + len(window_times.KERNELS_BY_CLASS) + 1, 3)
    keys: dict[RangeKey, int] = {}
    counted: list[tuple[IntArray, IntArray, IntArray]] = []
    main = list_main_threads(job)
    by_task = group_reports_by_task([report.places for report in job.reports], job.tree)
    for host_part in job.engine.sum_up(lambda group: measure_hosts(job, group, main, plan), by_task):
        index = plan.number_sets(host_part.keys, keys)
        if host_part.node is not None:
            nodes[host_part.node].merge(host_part.totals, index)
        counted.append((index[plan.first_range :] - plan.first_range, host_part.occurrences, host_part.tasks))
    idle_by_range: list[Counter[str]] = [Counter(), Counter()]
    devices = list_devices(job)
    gpu_times: dict[int, GpuTime] = {}
    for gpu_part in measure_all_gpus(job, waits, devices, plan):
        gpus.merge(gpu_part.totals, plan.number_sets(gpu_part.keys, keys))
        for sums, more in zip(idle_by_range, gpu_part.idle_by_range, strict=True):
            sums.update(more)
        gpu_times |= gpu_part.times
    size = plan.first_range + len(keys)
    gpus.grow(size)
    hosts = window_times.unite_nodes(nodes, size)
    times = [window_times.make_times(*hosts, gpus, index) for index in range(size)]
    work = times[WORK]._replace(idle_by_range=dict(idle_by_range[1]))
    at_work = plan.work[0] if plan.work and plan.steps is None else None
    return Efficiency(
        windows=plan.whole,
        whole=times[WHOLE]._replace(idle_by_range=dict(idle_by_range[0])),
        steps=plan.steps,
        in_steps=None if plan.steps is None else work,
        at_work=at_work,
        in_work=None if at_work is None else work,
        by_step=times[FIRST_STEP : plan.first_range],
        ranges=_list_ranges(list(keys), times[plan.first_range :], counted),
        gpu_times=gpu_times,
    )


def _list_ranges(
    keys: Sequence[RangeKey],
    times: Sequence[window_times.WindowTimes],
    counted: Sequence[tuple[IntArray, IntArray, IntArray]],
) -> list[RangeTimes]:
    """Return the ranges with GPUs or main threads, ordered by time. `counted`: ranges, their occurrences and tasks."""
    occurrences, tasks = np.zeros((2, len(keys)), np.int64)
    for index, more_occurrences, more_tasks in counted:
        occurrences[index] += more_occurrences
        tasks[index] += more_tasks
    listed = [
        RangeTimes(*key, int(occurrences[n]), int(tasks[n]), times[n])
        for n, key in enumerate(keys)
        if times[n].devices is not None or times[n].host is not None
    ]
    return sorted(listed, key=lambda row: (-row.times.ns, row.domain, row.name))
