"""Makes the records of the critical path and of the steps of the program.

The path has its kind on the row where it runs, and a line where it changes rows. Steps of the job are on main threads
and GPUs, those of each host on its main thread. `summary` measures each step in the same windows, so Paraver's
histograms by step show the same numbers. Without GPU operations, a step is the range of each task, on its main thread
and on the GPUs of which the task has other records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from nsys2prv_ng.analysis.gpus.activity import list_devices
from nsys2prv_ng.analysis.path.critical_path import CriticalPath
from nsys2prv_ng.arrays.pick import pick
from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.intervals.states import FlatStates, flatten
from nsys2prv_ng.job.open_job import Job, store_derived, store_joined
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver.event_type import EventType
from nsys2prv_ng.paraver.event_types import HOST_STEP, STEP
from nsys2prv_ng.paraver.labels import MAX_TYPE, Labels
from nsys2prv_ng.records.columns import Pair, make_communications, make_intervals
from nsys2prv_ng.sources.shared.source import JoinResult, Result, StateIntervals
from nsys2prv_ng.steps.numbered_names import number_step
from nsys2prv_ng.steps.steps import Steps

PATH, LINES = "critical_path", "path_lines"
"""Account names of the records that are derived from the critical path."""


def derive_path(job: Job, path: CriticalPath | None, labels: Labels) -> JoinResult:
    """Make and store the records of the critical path, if there is one, and declare their type in `labels`.

    An interval covers consecutive segments of the path on one row and of one kind, even if their operations or
    ranges differ.
    """
    joined = JoinResult()
    if path is None or not path.row.size:
        return joined
    follows = path.begin[1:] == path.end[:-1]  # otherwise another window starts
    same_row = path.row[1:] == path.row[:-1]
    first = np.append(0, 1 + np.flatnonzero(~(follows & same_row & (path.kind[1:] == path.kind[:-1]))))
    last = np.append(first[1:], path.row.size) - 1
    joined.accounts[PATH] = Result(read=first.size)
    number = types.CRITICAL_PATH.number
    pair = Pair(number, path.kind[first])
    joined.accounts[PATH].records = [
        make_intervals(path.row[first], path.begin[first], path.end[last], [pair], [number])
    ]
    after = 1 + np.flatnonzero(follows & ~same_row)
    if after.size:
        time = path.begin[after]
        lines = make_communications(path.row[after - 1], time, path.row[after], time, 0, types.TAG_PATH)
        joined.accounts[LINES] = Result(read=after.size, records=[lines])
    # The path ends with its window, which may end after the trace. A thread without events has row -1.
    store_joined(joined, np.append(job.new_row, -1), [(job.scope.first, job.scope.last)], job.store, job.engine)
    if joined.accounts[PATH].written:
        labels.declare(types.CRITICAL_PATH)
    return joined


# ---- steps -----------------------------------------------------------------------------------------------------------


STEPS = "steps"
"""Account name of the records that are derived from steps."""


def derive_steps(job: Job, labels: Labels) -> JoinResult:
    """Make and store the records of the steps of a job, if there are any, and declare their types in `labels`."""
    steps = job.steps
    if steps is None or not job.finds_waits:
        return JoinResult()
    listed = list_steps(job, steps)
    result = store_steps(job, listed)
    if result.written:
        texts = zip(_number_values(steps).tolist(), steps.number.tolist(), strict=True)
        values = {value: number_step(steps.name, str(number)) for value, number in texts}
        for event_type in listed:
            labels.declare(replace(event_type, values=values))
    return JoinResult(accounts={STEPS: result})


def list_steps(job: Job, steps: Steps) -> dict[EventType, StateIntervals]:
    """Return the steps of a job by their type: on rows of the trace, not cut to the chosen time.

    The state of an interval is the value of its step.
    """
    values = _number_values(steps)
    rows = pick(job.new_row, steps.row, -1)
    span = np.flatnonzero(rows >= 0)
    hosts = StateIntervals(rows[span], steps.host_begin[span], steps.host_end[span], values[steps.step[span]])
    if not steps.on_gpu:
        return {STEP: _join([hosts, *_list_on_gpus(job, steps, values)])}
    on_rows = np.unique(np.concatenate([hosts.place, np.array(list(list_devices(job).rows), np.int64)]))
    columns = (np.tile(column, on_rows.size) for column in (steps.start, steps.stop, values))
    return {STEP: StateIntervals(np.repeat(on_rows, values.size), *columns), HOST_STEP: hosts}


def _join(parts: Sequence[StateIntervals | FlatStates]) -> StateIntervals:
    return StateIntervals(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def store_steps(job: Job, steps: Mapping[EventType, StateIntervals]) -> Result:
    """Store the records of steps, cut to the chosen time."""
    result = Result()
    for kind, (place, begin, end, value) in steps.items():
        result.read += place.size
        result.records.append(make_intervals(place, begin, end, [Pair(kind.number, value)], [kind.number]))
    store_derived(JoinResult(accounts={STEPS: result}), job)
    return result


def _number_values(steps: Steps) -> IntArray:
    """Return the value of each step: its number plus 1; its position, counted from 1, if a number cannot be a value."""
    if steps.number[0] >= 0 and steps.number[-1] < MAX_TYPE:
        return steps.number + 1
    return np.arange(1, steps.number.size + 1)


def _list_on_gpus(job: Job, steps: Steps, values: IntArray) -> list[FlatStates]:
    """Return the steps of hosts on each GPU.

    If tasks share a GPU, the earlier of two overlapping steps is shown until it ends.
    """
    task = job.new_task[steps.task]
    parts = []
    for row, device in list_devices(job).rows.items():
        spans = np.flatnonzero(np.isin(task, list(device.tasks)))
        parts.append(flatten(np.full(spans.size, row), steps.begin[spans], steps.end[spans], values[steps.step[spans]]))
    return parts
