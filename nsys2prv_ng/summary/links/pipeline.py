"""Measures the bubble of a pipeline: how long each stage waits for its neighbours in each step.

A stage waits in an NCCL kernel until the messages of the kernel have both sides (analysis/waits/waits.py). The message
whose other side came last decides what the wait is for: a message to receive, or a neighbour that is not ready to
receive yet. Idle time of the GPU counts if such a wait for a message to receive follows at once, since an earlier
launch would only have waited longer. It counts as well after the last operation of a step on the stage, until the other
stages have ended the step. Compute and moving data take precedence over waiting, as in `analysis/gpus/waiting.py`.

What is not certain is not claimed: waits within the clock error, and kernels that are not split. Their number and their
longest possible time are counted. There are no numbers without steps that end on GPUs, without the reports and payloads
of all ranks, and without certain stages (stages.py).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nsys2prv_ng.analysis.efficiency.windows import MOST_STEPS
from nsys2prv_ng.analysis.gpus import waiting
from nsys2prv_ng.analysis.gpus.activity import DeviceRow
from nsys2prv_ng.analysis.gpus.waiting import GpuWaits, map_rows_to_gpus, sweep_gpu_waits
from nsys2prv_ng.analysis.waits.rules import BELOW_UNCERTAINTY
from nsys2prv_ng.analysis.waits.waits import Waits
from nsys2prv_ng.arrays.row_keys import encode_rows, find_rows, list_rows
from nsys2prv_ng.arrays.types import IntArray, IntCube, put, sum_at
from nsys2prv_ng.job.counted import list_counted_steps
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.runtime.jit import compiled
from nsys2prv_ng.steps.steps import Steps
from nsys2prv_ng.summary.links import stages
from nsys2prv_ng.summary.links.messages import mark_without_payload
from nsys2prv_ng.summary.links.numbers import LinkEnd, PipelineNumbers, PipelineStage

_LEAST_LEAD = 0.02
"""Least lead of the stage that sets the pace over any other, as a share of a step: 2 %, by which captures differ."""
_LEADS_IN = 0.75
"""Least share of the steps in which it has this lead, three quarters, as docs/reference/summary.md says."""
_COMPUTE, _RECEIVE_WAIT, _IDLE, _SEND_WAIT, _COLLECTIVE_WAIT, _TRANSFER, _OTHER = range(7)
"""Parts of the time of a GPU, in the order of the fields of PipelineStage."""
_FIELDS = ("compute_ns", "receive_wait_ns", "idle_ns", "send_wait_ns", "collective_wait_ns", "transfer_ns", "other_ns")
_STEP, _VALUE = -2, -1
_NEVER = np.iinfo(np.int64).min


def measure_pipeline(job: Job, waits: Waits, devices: dict[int, DeviceRow]) -> PipelineNumbers | None:
    """Return the numbers of the pipeline of a job; None without one that is certain.

    `devices`: the GPUs by their row in the trace.
    """
    steps = list_counted_steps(job)
    if steps is None or not steps.on_gpu or job.lacks_ranks or mark_without_payload(job).any():
        return None
    sides = stages.load_sides(job, steps)
    if sides is None:
        return None
    count = steps.number.size
    messages = stages.list_step_messages(sides)
    rows_of_stages = stages.find_stages(messages, count)
    if rows_of_stages is None or any(len(devices[gpu].tasks) > 1 for stage in rows_of_stages for gpu in stage):
        return None
    kernels = stages.find_message_kernels(job, waits, sides)
    if not waits.has_parts[kernels.at].any():
        return None
    gpus = np.array([gpu for stage in rows_of_stages for gpu in stage], np.int64)
    stage = np.repeat(np.arange(len(rows_of_stages)), len(rows_of_stages[0]))
    stage_of_gpu = put(stage, gpus, max(devices) + 2)  # the last one stands for no GPU
    tasks = np.array([min(devices[gpu].tasks) for gpu in gpus.tolist()], np.int64)
    marks = _join(_mark_waits(job, waits, kernels, stage_of_gpu), _mark_drained(job, steps, gpus, tasks, stage_of_gpu))
    sums = _sweep(job, waits, steps, gpus, stage_of_gpu.size, marks)
    sums = sums.reshape(len(rows_of_stages), len(rows_of_stages[0]), count, -1)
    unclaimed, unclaimed_ns = _sum_unclaimed(waits, kernels, stage_of_gpu, len(rows_of_stages))
    length = steps.stop - steps.start
    listed = [
        PipelineStage(
            ends=[_name_end(job, devices[gpu]) for gpu in stage],
            **dict(zip(_FIELDS, parts.sum((0, 1)).tolist(), strict=True)),
            unclaimed=int(unclaimed[number]),
            unclaimed_ns=int(unclaimed_ns[number]),
            bubble_by_step=(parts[..., _RECEIVE_WAIT] + parts[..., _IDLE]).sum(0)[:MOST_STEPS].tolist(),
        )
        for number, (stage, parts) in enumerate(zip(rows_of_stages, sums, strict=True))
    ]
    pace, lead = _find_pace(sums, length, unclaimed_ns)
    error = sides.error[np.isfinite(sides.error)]
    return PipelineNumbers(
        stages=listed,
        pipelines=len(rows_of_stages[0]),
        micro_batches=stages.count_micro_batches(messages, count),
        backward=bool((stage_of_gpu[messages.sender] > stage_of_gpu[messages.receiver]).any()),
        pace=pace,
        lead_ns=lead,
        clock_error_ns=round(error.max(initial=0.0)),
        steps=steps.number[:MOST_STEPS].tolist(),
        step_ns=length[:MOST_STEPS].tolist(),
    )


def _name_end(job: Job, device: DeviceRow) -> LinkEnd:
    task = min(device.tasks)
    rank, name = job.tree.ranks[task], job.tree.model.tasks[task].name
    return LinkEnd(node=device.node, gpu=device.gpu.number, rank=rank, task=name)


# ---- time of GPUs ----------------------------------------------------------------------------------------------------


class _Marks(NamedTuple):
    """n marked stretches of GPUs: row of the GPU, begin and end (ns), the part that they may be."""

    gpu: IntArray
    begin: IntArray
    end: IntArray
    part: IntArray


def _join(*parts: _Marks) -> _Marks:
    return _Marks._make([np.concatenate(columns) for columns in zip(*parts, strict=True)])


def _sweep(job: Job, waits: Waits, steps: Steps, gpus: IntArray, size: int, marks: _Marks) -> IntArray:
    """Return the time (ns) of each GPU in each step by part (GPUs x steps x parts). All rows of GPUs are below `size`.

    `gpus`: the GPUs of the pipeline by their row.
    """
    marks = _Marks._make([column[np.argsort(marks.gpu, kind="stable")] for column in marks])
    index = put(np.arange(gpus.size), gpus, size)
    sums = np.zeros((gpus.size, steps.number.size, len(_FIELDS)), np.int64)
    for changes in sweep_gpu_waits(job, waits):
        own = GpuWaits._make([column[index[changes.row] >= 0] for column in changes])
        if own.row.size:
            here = _Marks._make([column[list_rows(marks.gpu, np.unique(own.row))] for column in marks])
            _sweep_group(own, _add_idle(own, here), steps, index, sums)
    return sums


def _mark_waits(job: Job, waits: Waits, kernels: stages.MessageKernels, stage_of_gpu: IntArray) -> _Marks:
    """Mark the waits in messages of the pipeline, and the waits in collectives for another stage."""
    gpu_of_row = np.append(map_rows_to_gpus(job), -1)
    in_message = waits.operation[kernels.at] < 0
    at, gpu = kernels.at[in_message], kernels.gpu[in_message]
    part = np.where(kernels.receives[in_message], _RECEIVE_WAIT, _SEND_WAIT)
    stage, other = (stage_of_gpu[np.where(rows >= 0, gpu_of_row[rows], -1)] for rows in (waits.row, waits.culprit))
    across = np.flatnonzero((waits.operation >= 0) & ~waits.is_mpi & (stage >= 0) & (other >= 0) & (stage != other))
    at = np.append(at, across)
    gpu, part = np.append(gpu, gpu_of_row[waits.row[across]]), np.append(part, np.full(across.size, _COLLECTIVE_WAIT))
    marks = _Marks(gpu, waits.begin[at], waits.until[at], part)
    return _Marks._make([column[marks.end > marks.begin] for column in marks])


def _add_idle(changes: GpuWaits, marks: _Marks) -> _Marks:
    """Return the marks, and those of idle stretches that end when a wait for a message to receive begins."""
    last = np.append(changes.row[1:] != changes.row[:-1], True)
    idle = np.flatnonzero((changes.value == waiting.NOTHING) & ~last)
    receives = marks.part == _RECEIVE_WAIT
    _, once = encode_rows(marks.gpu[receives], marks.begin[receives])
    starts = [column[receives][once] for column in (marks.gpu, marks.begin)]
    idle = idle[find_rows(starts, [changes.row[idle], changes.time[idle + 1]]) >= 0]
    more = _Marks(changes.row[idle], changes.time[idle], changes.time[idle + 1], np.full(idle.size, _IDLE))
    return _join(marks, more)


def _mark_drained(job: Job, steps: Steps, gpus: IntArray, task_of_gpu: IntArray, stage_of_gpu: IntArray) -> _Marks:
    """Mark the time from each GPU's end of a step to the last end of another stage, while its report was captured.

    `task_of_gpu`: the task of each of `gpus`.
    """
    ends = np.full((int(task_of_gpu.max()) + 1, steps.number.size), _NEVER)
    of_pipeline = np.isin(steps.task, task_of_gpu)
    ends[steps.task[of_pipeline], steps.step[of_pipeline]] = steps.end[of_pipeline]
    own, stage = ends[task_of_gpu], stage_of_gpu[gpus]
    last = np.full((int(stage.max()) + 1, steps.number.size), _NEVER)
    np.maximum.at(last, stage, own)
    others = np.array([np.delete(last, number, 0).max(0) for number in range(last.shape[0])])
    captured = np.full(ends.shape[0], _NEVER)
    for report, rows in zip(job.reports, job.tree.rows, strict=True):
        tasks = np.unique(job.tree.task_of_row[rows[rows >= 0]])
        end = report.clock.at(report.metadata.begin + report.metadata.duration)
        known = tasks[tasks < captured.size]
        captured[known] = np.maximum(captured[known], end)
    until = np.minimum(others[stage], captured[task_of_gpu][:, None])
    gpu, step = np.nonzero((until > own) & (own != _NEVER))
    return _Marks(gpus[gpu], own[gpu, step], until[gpu, step], np.full(gpu.size, _IDLE))


def _sweep_group(changes: GpuWaits, marks: _Marks, steps: Steps, index: IntArray, sums: IntArray) -> None:
    """Add the times of a group of GPUs to `sums`. `index`: of each GPU in `sums`."""
    gpus = np.unique(changes.row)
    number = np.arange(steps.number.size)
    every = np.repeat(gpus, number.size)
    events = (
        (every, np.tile(steps.stop, gpus.size), np.full(every.size, _STEP), np.full(every.size, -1)),
        (every, np.tile(steps.start, gpus.size), np.full(every.size, _STEP), np.tile(number, gpus.size)),
        (changes.row, changes.time, np.full(changes.row.size, _VALUE), changes.value),
        (marks.gpu, marks.begin, marks.part, np.full(marks.gpu.size, 1)),
        (marks.gpu, marks.end, marks.part, np.full(marks.gpu.size, -1)),
    )
    row, time, kind, change = (np.concatenate(columns) for columns in zip(*events, strict=True))
    order = np.lexsort((time, row))  # at equal times, steps end before others start
    _add_times(index[row[order]], time[order], kind[order], change[order], np.zeros(_OTHER, np.int64), sums)


@compiled
def _add_times(gpu: IntArray, time: IntArray, kind: IntArray, change: IntArray, marks: IntArray, sums: IntCube) -> None:
    """Add the time between sorted events of GPUs to `sums` (GPUs x steps x parts).

    `marks`: room for the number of marked stretches by part.
    """
    value, step = 0, -1
    for i in range(gpu.size):
        if i == 0 or gpu[i] != gpu[i - 1]:
            for part in range(marks.size):
                marks[part] = 0
            value, step = 0, -1
        elif step >= 0:
            sums[gpu[i], step, _choose_part(value, marks)] += time[i] - time[i - 1]
        if kind[i] == _STEP:
            step = change[i]
        elif kind[i] == _VALUE:
            value = change[i]
        else:
            marks[kind[i]] += change[i]


@compiled
def _choose_part(value: int, marks: IntArray) -> int:
    """Return the part of a GPU with this value (analysis/gpus/waiting.py) and these marked stretches."""
    if value in _COMPUTES:
        return _COMPUTE
    if value == waiting.MOVING:
        return _TRANSFER
    if value in (0, waiting.NOTHING) and marks[_IDLE] > 0:  # 0: after the last operation of the capture
        return _IDLE
    if value == waiting.WAITING:
        for part in (_RECEIVE_WAIT, _SEND_WAIT, _COLLECTIVE_WAIT):
            if marks[part] > 0:
                return part
    return _OTHER


_COMPUTES = (waiting.COMPUTE_ALONE, waiting.COMPUTE_OVER_MOVING, waiting.WAITING_HIDDEN, waiting.COMPUTE_OVER_UNSPLIT)


# ---- pace ------------------------------------------------------------------------------------------------------------


def _find_pace(sums: IntArray, length: IntArray, unclaimed: IntArray) -> tuple[int | None, int]:
    """Return (the stage that sets the pace, how much longer (ns) it works in a step than any other); (None, 0) if none.

    `sums`: stages x GPUs x steps x parts. `unclaimed`: the longest possible waits (ns) of each stage that are not
    claimed; a lead that these could explain is none.
    """
    _, gpus, steps, _ = sums.shape
    stalled = sums[..., _RECEIVE_WAIT : _COLLECTIVE_WAIT + 1].sum(3)
    works = (length - stalled).mean(1)  # stages x steps
    mean = works.mean(1)
    first = int(np.argmax(mean))
    lead = works[first] - np.delete(works, first, 0).max(0)
    least = max(_LEAST_LEAD * length.mean(), unclaimed[first] / gpus / steps)
    mean_lead = mean[first] - np.delete(mean, first).max()
    leads = mean_lead > least and (lead > least).mean() >= _LEADS_IN
    return (first, round(mean_lead)) if leads else (None, 0)


# ---- what is left out ----------------------------------------------------------------------------------------------


def _sum_unclaimed(
    waits: Waits, kernels: stages.MessageKernels, stage_of_gpu: IntArray, count: int
) -> tuple[IntArray, IntArray]:
    """Return (kernels, longest possible waits (ns)) of each stage that are not claimed as waits."""
    verdict = waits.verdict[kernels.at]
    length = waits.end[kernels.at] - waits.begin[kernels.at]
    is_open = (verdict == BELOW_UNCERTAINTY) & (kernels.error > 0)
    is_unknown = ~waits.has_parts[kernels.at]
    most = np.where(is_unknown, length, np.minimum(length, kernels.error)).astype(np.int64)
    left = is_open | is_unknown
    stage = stage_of_gpu[kernels.gpu[left]]
    sums = sum_at(most[left], stage, count)
    return np.bincount(stage, minlength=count), sums
