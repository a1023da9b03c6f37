"""Moves a job to predicted times: everything on a row moves with the clock of the row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from nsys2prv_ng import source_names
from nsys2prv_ng.analysis.gpus.activity import load_activity
from nsys2prv_ng.analysis.gpus.waiting import map_rows_to_gpus
from nsys2prv_ng.analysis.waits.clocks import place_parts
from nsys2prv_ng.arrays.row_keys import encode_rows, find_starts
from nsys2prv_ng.arrays.types import BoolArray, IntArray, pick
from nsys2prv_ng.clock.applying import ClockMap
from nsys2prv_ng.intervals.device_sweep import IN_FLIGHT, MEMORY, sweep_devices
from nsys2prv_ng.intervals.step_functions import find_latest
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.job.placement import measure_limits
from nsys2prv_ng.objects.tree import ObjectTree
from nsys2prv_ng.operations.matching import Operations
from nsys2prv_ng.operations.parts import MessagePairs
from nsys2prv_ng.reading.device_operations import HOST_FUNCTION
from nsys2prv_ng.reading.read_reports import ReportRecords, load_on_clock, load_states, spill_states
from nsys2prv_ng.records.clip import retime_rows
from nsys2prv_ng.records.runs import store_records
from nsys2prv_ng.records.store import Store
from nsys2prv_ng.replay.graph import NONE
from nsys2prv_ng.replay.model import Model
from nsys2prv_ng.replay.step_clock import StepSpans
from nsys2prv_ng.report.database import NULL
from nsys2prv_ng.runtime.jit import compiled, search
from nsys2prv_ng.sources.cuda.device_activity import make_change_records
from nsys2prv_ng.sources.shared.source import JoinResult, Result, StateIntervals
from nsys2prv_ng.steps.steps import Steps


def predict_job(model: Model, time: IntArray) -> Job:
    """Return the job of a model with predicted times: its records are copies, on the common clock.

    `time`: when each node happens in a replay (ns). Expects a job whose records no window has cut.
    """
    job = model.job
    clock = make_row_clock(model, time)
    reports = [
        _move_report(report, rows, clock, job.store) for report, rows in zip(job.reports, job.whole.rows, strict=True)
    ]
    old_row = np.flatnonzero(job.new_row >= 0)

    def move_account(name: str, result: Result) -> Result:
        if name == source_names.DEVICE_ACTIVITY:
            return predict_activity(result, model, time, clock)
        return _move_result(result, old_row, clock, job.store)

    joined = [_move_joined(part, move_account, clock) for part in job.joined]
    spans = [_move_spans(span, rows, clock) for span, rows in zip(job.spans, job.whole.rows, strict=True)]
    steps = None if job.steps is None else _move_steps(model, job.steps, time, clock)
    limits = measure_limits(reports, joined)  # records of joins on GPUs may be before those of hosts
    scope = replace(job.scope, first=limits.first, last=limits.last, zero=limits.first)
    if steps is not None and scope.counted is not None:
        scope = scope.cover_steps(steps, scope.counted)
    return replace(
        job,
        reports=reports,
        joined=joined,
        spans=spans,
        steps=steps,
        operations=_move_operations(job, clock),
        offsets=[0] * len(reports),
        scope=scope,
    )


def _move_report(report: ReportRecords, rows: IntArray, clock: RowClock, store: Store) -> ReportRecords:
    results = {name: _move_result(result, rows, clock, store, report.clock) for name, result in report.results.items()}
    place, begin, end, state = load_states(report.states, len(report.places.all), store)
    row = rows[place]
    begin, end = (clock(row, report.clock(times), is_end=is_end) for times, is_end in ((begin, False), (end, True)))
    states = spill_states([StateIntervals(place, begin, np.maximum(begin, end), state)], store)
    return replace(report, results=results, states=states, clock=ClockMap())


def _move_result(result: Result, rows: IntArray, clock: RowClock, store: Store, own: ClockMap | None = None) -> Result:
    """Return a copy of a result with moved records. `rows`: row of the whole tree by place.

    Runs stay apart: the trace has records of equal time in the order of the runs.
    """
    moved = result.copy_records()
    moved.runs = []
    for run in result.runs:
        records = load_on_clock(run, store, own)
        records = retime_rows(records, rows, lambda row, time, is_end: clock(row, time, is_end=is_end))
        moved.runs += store_records(records, store, on_common_clock=True)
    return moved


def _move_joined(part: JoinResult, move_account: Callable[[str, Result], Result], clock: RowClock) -> JoinResult:
    accounts = {name: move_account(name, result) for name, result in part.accounts.items()}
    messages = {name: _move_messages(pairs, clock) for name, pairs in part.messages.items()}
    return replace(part, accounts=accounts, messages=messages)


def _move_messages(pairs: MessagePairs, clock: RowClock) -> MessagePairs:
    def move(row: IntArray, times: IntArray, *, is_end: bool = False) -> IntArray:
        return np.where(times == NULL, NULL, clock(row, times, is_end=is_end))

    return pairs._replace(
        send_arrived=move(pairs.sender, pairs.send_arrived),
        send_begin=move(pairs.send_row, pairs.send_begin),
        send_end=move(pairs.send_row, pairs.send_end, is_end=True),
        receive_arrived=move(pairs.receiver, pairs.receive_arrived),
        receive_begin=move(pairs.receive_row, pairs.receive_begin),
        receive_end=move(pairs.receive_row, pairs.receive_end, is_end=True),
    )


def _move_spans(span: tuple[IntArray, IntArray], rows: IntArray, clock: RowClock) -> tuple[IntArray, IntArray]:
    """Return the predicted first and last time of the events on each place; places without events stay without."""
    first, last = span
    used = first <= last
    begin, end = clock(rows, np.where(used, first, 0)), clock(rows, np.where(used, last, 0), is_end=True)
    return np.where(used, begin, first), np.where(used, end, last)


def _move_operations(job: Job, clock: RowClock) -> Operations:
    operations = job.operations
    table = operations.table
    parts = place_parts(job, np.arange(table.begin.size))
    begin, end = clock(parts.row, parts.begin), clock(parts.row, parts.end, is_end=True)
    moved = table._replace(begin=begin, end=np.maximum(begin, end))
    # _replace does not take a tuple whose length is not that of its fields.
    return Operations(moved, operations.first, operations.group, operations.members, operations.part)


def _move_steps(model: Model, steps: Steps, time: IntArray, clock: RowClock) -> Steps:
    """Return the steps, which end with what they launched."""
    row = np.where(steps.row >= 0, steps.row, -1)
    host_begin, host_end = clock(row, steps.host_begin), clock(row, steps.host_end, is_end=True)
    marked = time.copy()
    marked[model.marks.first : model.marks.first + 2 * row.size] = np.concatenate([host_end, host_begin])
    spans = StepSpans(model, steps)
    start, stop, begin, end = spans.find_steps(marked[spans.nodes])
    return steps._replace(start=start, stop=stop, begin=begin, end=end, host_begin=host_begin, host_end=host_end)


def predict_activity(observed: Result, model: Model, time: IntArray, clock: RowClock) -> Result:
    """Return an event at each change on each GPU. `time`: when each node happens in a replay (ns).

    `observed`: the activity that reports show, which also shows the stretches of time in which a GPU was captured.
    """
    job, lanes, numbers = model.job, model.lanes, model.numbers
    gpu = pick(map_rows_to_gpus(job), lanes.operation_row, -1)
    begin, end = time[: numbers.operations], time[numbers.operation_end : numbers.call_begin]
    flight = np.minimum(_find_launches(model, clock, begin), begin)
    predicted = Result()
    for run in observed.runs:
        row, at, activity = load_activity(job, run)
        ends = np.flatnonzero(activity == 0)
        ends = ends[np.lexsort((at[ends], row[ends]))]
        here = np.flatnonzero(np.isin(gpu, row) & (lanes.operation_kind != HOST_FUNCTION))
        # As in the reports, each captured stretch is a device of its own: time without a capture is not idle.
        stretch = find_latest(row[ends], at[ends], gpu[here], model.graph.time[here] - 1) + 1
        device, kind = gpu[here] * (ends.size + 1) + stretch, lanes.operation_kind[here]
        flies = np.flatnonzero(kind & MEMORY == 0)
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
    thread = pick(lanes.operations.thread, lanes.launch, NONE)
    known = thread >= 0
    row = pick(lanes.thread_row, thread, -1)
    return np.where(known, clock(row, np.where(known, lanes.operations.launched, 0)), begin)


class Instants(NamedTuple):
    """n known times of rows (ns): observed, and predicted."""

    row: IntArray
    time: IntArray
    new: IntArray


class _Known(NamedTuple):
    """Distinct known times of rows (ns): those of row r are limits[r] .. limits[r + 1] - 1.

    `ends`, `begins`: when what ends and what starts then does so in the prediction.
    """

    limits: IntArray
    time: IntArray
    ends: IntArray
    begins: IntArray


class RowClock:
    """The predicted times of each row. Where several things happen at one observed time, they may part.

    What ends then ends at the first of the predicted times, and what starts then starts at the last: an operation may
    start when the one before it ends, and later in the prediction.
    """

    def __init__(self, instants: Instants, leader: IntArray) -> None:
        """`leader`: the row whose instants each row has (r); -1 for a row whose times stay."""
        order = np.lexsort((instants.new, instants.time, instants.row))
        row, time, new = (column[order] for column in instants)
        _make_monotone(row, new)
        starts = find_starts(row, time)
        last = np.append(starts[1:], row.size) - 1 if starts.size else starts
        self._leader = np.append(leader, -1)
        limits = np.searchsorted(row[starts], np.arange(leader.size + 1))
        self._known = _Known(limits, time[starts], new[starts], new[last])

    def __call__(self, row: IntArray, time: IntArray, *, is_end: BoolArray | bool = False) -> IntArray:
        """Return the predicted times (ns) of n times of rows (ns); row -1 keeps its times."""
        leader = self._leader[row]
        ends = np.broadcast_to(np.asarray(is_end, np.bool_), time.shape)
        mapped = np.empty(time.size, np.int64)
        _map(leader.astype(np.int64), np.ascontiguousarray(time, np.int64), ends, self._known, mapped)
        return mapped

    def limit(self, instants: Instants) -> Instants:
        """Return instants between known ones, none predicted before the one before it or after the one after it.

        Those at a known time are left out.
        """
        row, time, new = instants
        known, kept = self._known, []
        for one in np.unique(row).tolist():
            which = np.flatnonzero(row == one)
            low, high = known.limits[one], known.limits[one + 1]
            k = low + np.searchsorted(known.time[low:high], time[which])
            is_known = (k < high) & (pick(known.time, k, 0) == time[which])
            least = np.where(k > low, pick(known.begins, k - 1, 0), np.iinfo(np.int64).min)
            most = np.where(k < high, pick(known.ends, k, 0), np.iinfo(np.int64).max)
            new[which] = np.clip(new[which], least, most)
            kept.append(which[~is_known])
        which = np.concatenate([np.zeros(0, np.int64), *kept])
        return Instants(row[which], time[which], new[which])


def make_row_clock(model: Model, time: IntArray) -> RowClock:
    """Return the clock of the rows of the whole tree. `time`: when each node happens in a replay (ns)."""
    lanes, numbers, observed, tree = model.lanes, model.numbers, model.graph.time, model.job.whole
    on_thread = pick(lanes.thread_row, lanes.calls.thread, -1)
    row = np.concatenate([np.tile(lanes.operation_row, 2), np.tile(on_thread, 2)])
    known = np.flatnonzero(row >= 0)
    exact = Instants(row[known], observed[: numbers.others][known], time[: numbers.others][known])
    busy = np.bincount(exact.row, minlength=tree.model.row_count)
    own = np.where(busy > 0, np.arange(busy.size), -1)
    marks = _limit_marks(model, time, RowClock(exact, own))
    gpus, gpu_of_row = _join_gpus(exact, tree)
    leader = np.where(own >= 0, own, _find_leaders(busy, tree))
    leader = np.where((own < 0) & (gpu_of_row >= 0), gpu_of_row, leader)
    whole = Instants(*(np.concatenate(columns) for columns in zip(exact, marks, gpus, strict=True)))
    # Rows of GPUs follow those of the tree.
    more = np.arange(busy.size, int(whole.row.max(initial=busy.size - 1)) + 1)
    return RowClock(whole, np.concatenate([leader, more]))


def _limit_marks(model: Model, time: IntArray, clock: RowClock) -> Instants:
    """Return the instants of the marks of steps, none of which leaves its place between operations and calls."""
    marks = model.marks
    row = pick(model.lanes.thread_row, marks.thread, -1)
    known = np.flatnonzero(row >= 0)
    return clock.limit(Instants(row[known], marks.time[known], time[marks.first + known]))


def _join_gpus(exact: Instants, tree: ObjectTree) -> tuple[Instants, IntArray]:
    """Return the instants of the streams of each GPU on a row of its own, and this row for each row; -1 for others."""
    node = np.array([task.node for task in tree.model.tasks], np.int64)[tree.task_of_row]
    of_gpu = np.flatnonzero(tree.gpu_of_row >= 0)
    of_row = np.full(tree.gpu_of_row.size, -1, np.int64)
    of_row[of_gpu] = tree.model.row_count + encode_rows(node[of_gpu], tree.gpu_of_row[of_gpu])[0]
    chosen = np.flatnonzero(of_row[exact.row] >= 0)
    joined = Instants(of_row[exact.row[chosen]], exact.time[chosen], exact.new[chosen])
    return joined, np.where(np.isin(of_row, joined.row), of_row, -1)


def _find_leaders(busy: IntArray, tree: ObjectTree) -> IntArray:
    """Return the busiest row of the task of each row, else of its node, else of the job; -1 without any."""
    task = tree.task_of_row
    node = np.array([task.node for task in tree.model.tasks], np.int64)[task]
    found = np.full(busy.size, -1, np.int64)
    for group in (np.zeros(busy.size, np.int64), node, task):
        order = np.lexsort((-np.arange(busy.size), busy, group))
        last = np.searchsorted(group[order], group, "right") - 1
        busiest = order[last]
        found = np.where(busy[busiest] > 0, busiest, found)
    return found


@compiled
def _make_monotone(row: IntArray, new: IntArray) -> None:
    """Raise each predicted time to the highest before it on its row, in place."""
    for i in range(1, row.size):
        if row[i] == row[i - 1] and new[i] < new[i - 1]:
            new[i] = new[i - 1]


@compiled
def _map(leader: IntArray, time: IntArray, is_end: BoolArray, known: _Known, mapped: IntArray) -> None:
    """Set the predicted time of each time of a leader's row (ns)."""
    limits, times, ends, begins = known
    for i in range(time.size):
        t = time[i]
        mapped[i] = t
        if leader[i] < 0:
            continue
        low, high = limits[leader[i]], limits[leader[i] + 1]
        if low == high:
            continue
        k = search(times, low, high, t)
        if k < high and times[k] == t:
            mapped[i] = ends[k] if is_end[i] else begins[k]
        elif k == low:
            mapped[i] = t + ends[low] - times[low]
        elif k == high:
            mapped[i] = t + begins[high - 1] - times[high - 1]
        else:
            share = (t - times[k - 1]) / (times[k] - times[k - 1])
            mapped[i] = begins[k - 1] + round(share * (ends[k] - begins[k - 1]))
