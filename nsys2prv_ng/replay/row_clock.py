"""Maps observed times to predicted times, row by row, so that everything on a row keeps its order.

The start and end of each operation and call are known exactly, and so are those of the ranges that mark steps; between
two known times of a row, time passes evenly. A row without operations and calls follows others: a row of a GPU all
streams of that GPU, any other row the busiest row of its task, of its node, or of the job.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nsys2prv_ng.arrays.pick import pick
from nsys2prv_ng.arrays.row_keys import find_starts
from nsys2prv_ng.arrays.types import BoolArray, IntArray
from nsys2prv_ng.objects.tree import ObjectTree
from nsys2prv_ng.replay.model import Model
from nsys2prv_ng.runtime.jit import compiled
from nsys2prv_ng.runtime.kernels import search


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
    at = model.marks.first + np.arange(model.marks.time.size)
    row = pick(model.lanes.thread_row, model.marks.thread, -1)
    known = row >= 0
    row, observed, new = row[known], model.marks.time[known], time[at][known]
    return clock.limit(Instants(row, observed, new))


def _join_gpus(exact: Instants, tree: ObjectTree) -> tuple[Instants, IntArray]:
    """Return the instants of the streams of each GPU on a row of its own, and this row for each row; -1 for others."""
    node = np.array([task.node for task in tree.model.tasks], np.int64)[tree.task_of_row]
    gpu = np.where(tree.gpu_of_row >= 0, node * (int(tree.gpu_of_row.max(initial=0)) + 1) + tree.gpu_of_row, -1)
    of_row = np.where(gpu >= 0, tree.model.row_count + gpu, -1)
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
