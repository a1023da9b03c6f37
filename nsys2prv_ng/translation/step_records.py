"""Makes the records of steps: the step of the program on main threads, and the step of the tasks that use a GPU on it.

`summary` measures each step in the same windows, so Paraver's histograms by step show the same numbers.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from nsys2prv_ng.analysis.gpus.activity import list_devices
from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.intervals.states import FlatStates, flatten
from nsys2prv_ng.job.open_job import Job, store_derived
from nsys2prv_ng.job.steps import Steps
from nsys2prv_ng.paraver.event_types import STEP
from nsys2prv_ng.paraver.labels import MAX_TYPE, Labels
from nsys2prv_ng.records.columns import Pair, make_intervals
from nsys2prv_ng.sources.shared.result import Result, StateIntervals
from nsys2prv_ng.sources.shared.source import JoinResult

STEPS = "steps"
"""Account name of the records that are derived from steps."""


def derive_steps(job: Job, labels: Labels) -> JoinResult:
    """Make and store the records of the steps of a job, if there are any, and declare their type in `labels`."""
    steps = job.steps
    if steps is None or not job.finds_waits:
        return JoinResult()
    result = store_steps(job, list_steps(job, steps))
    if result.written:
        texts = zip(_number_values(steps).tolist(), steps.number.tolist(), strict=True)
        labels.declare(replace(STEP, values={value: f"{steps.name} {number}" for value, number in texts}))
    return JoinResult(accounts={STEPS: result})


def list_steps(job: Job, steps: Steps) -> StateIntervals:
    """Return the steps of a job on main threads and on GPUs: on rows of the trace, not cut to the chosen time.

    The state of an interval is the value of its step.
    """
    values = _number_values(steps)
    rows = np.append(job.new_row, -1)[steps.row]
    on_threads = np.flatnonzero(rows >= 0)
    parts = [(rows[on_threads], *(column[on_threads] for column in (steps.begin, steps.end, values[steps.step])))]
    parts += _list_on_gpus(job, steps, values)
    return StateIntervals(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def store_steps(job: Job, steps: StateIntervals) -> Result:
    """Store the records of steps, cut to the chosen time."""
    pair = Pair(STEP.number, steps.state)
    records = [make_intervals(steps.place, steps.begin, steps.end, [pair], [STEP.number])]
    result = Result(read=steps.place.size, records=records)
    store_derived(JoinResult(accounts={STEPS: result}), job)
    return result


def _number_values(steps: Steps) -> IntArray:
    """Return the value of each step: its number plus 1; its position, counted from 1, if a number cannot be a value."""
    if steps.number[0] >= 0 and steps.number[-1] < MAX_TYPE:
        return steps.number + 1
    return np.arange(1, steps.number.size + 1)


def _list_on_gpus(job: Job, steps: Steps, values: IntArray) -> list[FlatStates]:
    """Return the steps on each GPU.

    If tasks share a GPU, the earlier of two overlapping steps is shown until it ends.
    """
    task = job.new_task[steps.task]
    parts = []
    for row, device in list_devices(job).rows.items():
        spans = np.flatnonzero(np.isin(task, list(device.tasks)))
        parts.append(flatten(np.full(spans.size, row), steps.begin[spans], steps.end[spans], values[steps.step[spans]]))
    return parts
