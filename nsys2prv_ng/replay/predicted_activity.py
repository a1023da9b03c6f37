"""Sweeps over predicted operations for what each GPU does as a whole (sources/cuda/device_activity.py).

Streams of one GPU may move differently, so its activity cannot be moved by any one clock.
"""

from __future__ import annotations

import numpy as np

from nsys2prv_ng.analysis.gpus.activity import load_activity
from nsys2prv_ng.analysis.gpus.waiting import map_rows_to_gpus
from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.intervals.device_sweep import IN_FLIGHT, MEMORY, sweep_devices
from nsys2prv_ng.intervals.step_functions import find_latest
from nsys2prv_ng.records.runs import store_records
from nsys2prv_ng.replay.columns import NONE
from nsys2prv_ng.replay.model import Model
from nsys2prv_ng.replay.row_clock import RowClock
from nsys2prv_ng.sources.cuda.device_activity import make_change_records
from nsys2prv_ng.sources.shared.source import Result


def predict_activity(observed: Result, model: Model, time: IntArray, clock: RowClock) -> Result:
    """Return an event at each change on each GPU. `time`: when each node happens in a replay (ns).

    `observed`: the activity that reports show, which also shows the stretches of time in which a GPU was captured.
    """
    job, lanes, numbers = model.job, model.lanes, model.numbers
    gpu = np.append(map_rows_to_gpus(job), -1)[lanes.operation_row]
    begin, end = time[: numbers.operations], time[numbers.operation_end : numbers.call_begin]
    flight = np.minimum(_find_launches(model, clock, begin), begin)
    predicted = Result()
    for run in observed.runs:
        row, at, activity = load_activity(job, run)
        ends = np.flatnonzero(activity == 0)
        ends = ends[np.lexsort((at[ends], row[ends]))]
        here = np.flatnonzero(np.isin(gpu, row))
        # As in the reports, each captured stretch is a device of its own: time without a capture is not idle.
        stretch = find_latest(row[ends], at[ends], gpu[here], model.graph.time[here] - 1) + 1
        device, kind = gpu[here] * (ends.size + 1) + stretch, lanes.operation_kind[here]
        flies = np.flatnonzero(kind != MEMORY)
        operations = device, begin[here], end[here], kind
        flights = device[flies], flight[here][flies], end[here][flies], np.full(flies.size, IN_FLIGHT)
        changes = sweep_devices(*map(np.concatenate, zip(operations, flights, strict=True)))
        records = make_change_records(changes, changes.device // (ends.size + 1))
        predicted.read += changes.device.size
        predicted.runs += store_records(records, job.store, on_common_clock=True)
    return predicted


def _find_launches(model: Model, clock: RowClock, begin: IntArray) -> IntArray:
    """Return when each operation is launched (ns); its own start if that is not known."""
    lanes = model.lanes
    thread = np.append(lanes.operations.thread, NONE)[lanes.launch]
    known = thread >= 0
    row = np.append(lanes.thread_row, -1)[thread]
    return np.where(known, clock(row, np.where(known, lanes.operations.launched, 0)), begin)
