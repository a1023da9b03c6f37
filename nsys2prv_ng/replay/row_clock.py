"""Maps observed times to predicted times, row by row, so that everything on a row keeps its order.

The start and end of each operation and call are known exactly, and so are those of the ranges that mark steps; between
two known times of a row, time passes evenly. A row without operations and calls follows others: a row of a GPU all
streams of that GPU, any other row the busiest row of its task, of its node, or of the job.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

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
        self._time, self._ends, self._begins = time[starts], new[starts], new[last]
        self._leader = np.append(leader, -1)
        rows = np.arange(leader.size)
        self._first = np.append(np.searchsorted(row[starts], rows), 0)
        self._last = np.append(np.searchsorted(row[starts], rows, "right"), 0)

    def __call__(self, row: IntArray, time: IntArray, *, is_end: BoolArray | bool = False) -> IntArray:
        """Return the predicted times (ns) of n times of rows (ns); row -1 keeps its times."""
        leader = self._leader[row]
        ends = np.broadcast_to(np.asarray(is_end, np.bool_), time.shape)
        columns = self._time, self._ends, self._begins, self._first, self._last
        mapped = np.empty(time.size, np.int64)
        _map(leader.astype(np.int64), np.ascontiguousarray(time, np.int64), ends, *columns, mapped)
        return mapped

    def limit(self, instants: Instants) -> Instants:
        """Return instants between known ones, none predicted before the one before it or after the one after it.

        Those at a known time are left out.
        """
        row, time, new = instants
        kept = []
        for one in np.unique(row).tolist():
            which = np.flatnonzero(row == one)
            low, high = self._first[one], self._last[one]
            k = low + np.searchsorted(self._time[low:high], time[which])
            is_known = (k < high) & (np.append(self._time, 0)[k] == time[which])
            least = np.where(k > low, np.append(self._begins, 0)[k - 1], np.iinfo(np.int64).min)
            most = np.where(k < high, np.append(self._ends, 0)[k], np.iinfo(np.int64).max)
            new[which] = np.clip(new[which], least, most)
            kept.append(which[~is_known])
        which = np.concatenate([np.zeros(0, np.int64), *kept])
        return Instants(row[which], time[which], new[which])


def make_row_clock(model: Model, time: IntArray) -> RowClock:
    """Return the clock of the rows of the whole tree. `time`: when each node happens in a replay (ns)."""
    lanes, numbers, observed, tree = model.lanes, model.numbers, model.graph.time, model.job.whole
    on_thread = np.append(lanes.thread_row, -1)[lanes.calls.thread]
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
    row = np.append(model.lanes.thread_row, -1)[model.marks.thread]
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
def _map(
    leader: IntArray,
    time: IntArray,
    is_end: BoolArray,
    known: IntArray,
    ends: IntArray,
    begins: IntArray,
    first: IntArray,
    last: IntArray,
    mapped: IntArray,
) -> None:
    for i in range(time.size):
        t = time[i]
        low = first[leader[i]]
        high = last[leader[i]]
        if leader[i] < 0 or low == high:
            mapped[i] = t
            continue
        k = search(known, low, high, t)
        if k < high and known[k] == t:
            mapped[i] = ends[k] if is_end[i] else begins[k]
        elif k == low:
            mapped[i] = t + ends[low] - known[low]
        elif k == high:
            mapped[i] = t + begins[high - 1] - known[high - 1]
        else:
            share = (t - known[k - 1]) / (known[k] - known[k - 1])
            mapped[i] = begins[k - 1] + round(share * (ends[k] - begins[k - 1]))
