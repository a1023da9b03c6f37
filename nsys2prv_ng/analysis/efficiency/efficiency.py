"""Times of GPUs and main threads that the efficiencies of POP are made of, over windows of time.

Each ns of a GPU is of one class, so that the classes add up to the window times the GPUs:

- it runs a kernel other than NCCL's, or a graph that was traced as a whole and in which no NCCL can be (COMPUTE);
- else it runs a graph that was traced as a whole, and it is not known whether that computes (WHOLE_GRAPH);
- else it runs kernels of NCCL, of which some move data (MOVING), some are not split (NOT_SPLIT), or all wait for other
  ranks (WAITING); analysis/gpus/waiting.py says in which order these count;
- else it copies or sets memory (MEMORY);
- else it is idle between two operations, by the causes of analysis/gpus/idle_causes.py;
- or it is before the first operation of a capture or after its last (BEFORE, AFTER);
- or no report captured it (NOT_CAPTURED).

Each ns of COMPUTE is of the class of one kernel: of those that run, the one that began first, of several the longest.

A GPU is one that ran an operation in the capture, over all processes. The host is the main thread of each process with
events of GPUs, MPI or NCCL, of any process if none has these: it is in MPI, else in CUDA, else useful.

Windows are: the chosen time, or else the capture (from its begin in the first report to its end in the last one); the
steps from the first begin to the last end, or without steps the time in which GPUs work, if it is at most half of the
capture; and the own ranges of each task, of one step or of one name. Own ranges are
those of the tasks that use a GPU, all together; the window is then the longest time of any GPU or thread, and what the
others lack to it is of no class. Definitions: POP; TALP of DLB 3.7 (perf_metrics.c); BasicAnalysis 2026.10
(nsys2prvmetrics.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from nsys2prv_ng.analysis.efficiency.gpus import list_groups, measure_gpus
from nsys2prv_ng.analysis.efficiency.hosts import list_main_threads, measure_hosts
from nsys2prv_ng.analysis.efficiency.times import (
    CLASSES,
    KERNELS_BY_CLASS,
    Totals,
    WindowTimes,
    make_times,
    unite_nodes,
)
from nsys2prv_ng.analysis.efficiency.windows import (
    FIRST_STEP,
    WHOLE,
    WORK,
    RangeKey,
    StepWindows,
    list_steps,
    make_plan,
)
from nsys2prv_ng.analysis.gpus.activity import list_devices
from nsys2prv_ng.analysis.waits.waits import Waits
from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.objects.tree import group_reports_by_task


class RangeTimes(NamedTuple):
    """A range that repeats: how often it counts, on how many tasks, and its times."""

    domain: str
    name: str
    occurrences: int
    tasks: int
    times: WindowTimes


class Efficiency(NamedTuple):
    """The times of a job that its efficiencies are made of."""

    windows: list[tuple[int, int]]
    """The chosen time, or the capture (ns, on the common clock)."""
    whole: WindowTimes
    steps: StepWindows | None
    in_steps: WindowTimes | None
    """From the first begin of a step that counts to the last end."""
    at_work: tuple[int, int] | None
    """When GPUs work (ns, on the common clock), if that is a small part of a capture without steps."""
    in_work: WindowTimes | None
    """In that time."""
    by_step: list[WindowTimes]
    ranges: list[RangeTimes]
    """Those with most time first."""


def compute_efficiency(job: Job, waits: Waits) -> Efficiency:
    """Measure GPUs and main threads over all windows.

    The records of one report (of its main threads) or of one group of GPUs are in memory for each worker.
    """
    plan = make_plan(job, list_steps(job))
    nodes = [Totals(3, 1) for _ in job.tree.model.nodes]
    gpus = Totals(len(CLASSES) + len(KERNELS_BY_CLASS), 3)
    keys: dict[RangeKey, int] = {}
    counted: list[tuple[IntArray, IntArray, IntArray]] = []
    main = list_main_threads(job)
    by_task = group_reports_by_task([report.places for report in job.reports], job.tree)
    for part in job.engine.map(lambda group: measure_hosts(job, group, main, plan), by_task):
        index = plan.number_sets(part.keys, keys)
        if part.node is not None:
            nodes[part.node].merge(part.totals, index)
        counted.append((index[plan.first_range :] - plan.first_range, part.occurrences, part.tasks))
    idle_by_range: list[Counter[str]] = [Counter(), Counter()]
    devices = list_devices(job)
    groups = list_groups(job, waits, devices)
    for own in job.engine.map(lambda group: measure_gpus(job, devices, group, plan), groups):
        gpus.merge(own.totals, plan.number_sets(own.keys, keys))
        for sums, more in zip(idle_by_range, own.idle_by_range, strict=True):
            sums.update(more)
    size = plan.first_range + len(keys)
    gpus.grow(size)
    hosts = unite_nodes(nodes, size)
    times = [make_times(*hosts, gpus, index) for index in range(size)]
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
    )


def _list_ranges(
    keys: Sequence[RangeKey], times: Sequence[WindowTimes], counted: Sequence[tuple[IntArray, IntArray, IntArray]]
) -> list[RangeTimes]:
    """Return the ranges of GPUs or main threads, by their time; `counted`: ranges, their occurrences and tasks."""
    occurrences, tasks = np.zeros((2, len(keys)), np.int64)
    for index, own_occurrences, own_tasks in counted:
        occurrences[index] += own_occurrences
        tasks[index] += own_tasks
    listed = [
        RangeTimes(*key, int(occurrences[n]), int(tasks[n]), times[n])
        for n, key in enumerate(keys)
        if times[n].devices is not None or times[n].host is not None
    ]
    return sorted(listed, key=lambda row: (-row.times.ns, row.domain, row.name))
