"""Sums up why tasks were late that others waited for, over the waiting in the chosen time and on the chosen ranks.

Each piece of waiting counts once, for the kernel or call that began last: culprits and costs of a task both add up to
the time that others waited for it. Culprits have whole waits, by what the late thread was in for most of the time by
which it was late. Costs have each part of a wait by what the thread was in at that time.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from nsys2prv_ng.analysis.waits.late_devices import load_launches
from nsys2prv_ng.analysis.waits.late_reasons import NEEDED, NONE, LateReasons
from nsys2prv_ng.arrays.row_keys import find_rows
from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.intervals.windows import mark_inside
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.summary.compute.host_costs import measure_host_costs
from nsys2prv_ng.summary.numbers.wait_reasons import NOT_SELECTED
from nsys2prv_ng.summary.numbers.waits import Culprit, LateCost, LongestWait

_NOT_SELECTED = 0
_TEXTS = {_NOT_SELECTED: NOT_SELECTED, **types.LATE_REASONS}
_WHAT = ["range", "call", "operation"]


class Blamed(NamedTuple):
    """n pieces of waiting for a kernel or call that was late: its index in `LateReasons`, times of the piece (ns)."""

    late: IntArray
    begin: IntArray
    until: IntArray

    @property
    def wait(self) -> IntArray:
        return self.until - self.begin


class WaitsForTasks(NamedTuple):
    """Why tasks were late, those first for which others waited longest; the longest stretch by name of the task."""

    culprits: list[Culprit]
    costs: list[LateCost]
    longest: dict[str, LongestWait]


def sum_culprits(job: Job, late: LateReasons, blamed: Blamed) -> WaitsForTasks:
    """Sum up the pieces of waiting by why somebody was late."""
    reason = _choose_reasons(job, late)
    return WaitsForTasks(
        _list_culprits(job, late, reason, blamed),
        _list_costs(job, late, reason, blamed),
        _find_longest(job, late, blamed),
    )


def _choose_reasons(job: Job, late: LateReasons) -> IntArray:
    """Return the reason of each late kernel or call; _NOT_SELECTED where the user did not choose what shows it."""
    unknown = np.flatnonzero(late.reason == types.LATE_UNKNOWN)
    row, begin = late.row[unknown], late.begin[unknown]
    hidden = (job.new_row[row] < 0) | ~mark_inside(begin, begin, job.windows)
    if job.windows:
        lows = [low for low, _ in job.windows]
        for report, rows in zip(job.reports, job.whole.rows, strict=True):
            if all(source in report.results for source in NEEDED):
                launches = load_launches(report, job.store)
                launch = find_rows([rows[launches.place], launches.begin], [row, begin])
                # The line of a launch before a window begins with the window.
                hidden |= (launch >= 0) & np.isin(np.append(launches.sent, 0)[launch], lows)
    reason = late.reason.copy()
    reason[unknown[hidden]] = _NOT_SELECTED
    return reason


def _list_culprits(job: Job, late: LateReasons, reason: IntArray, blamed: Blamed) -> list[Culprit]:
    late_task = job.whole.task_of_row[late.row].astype(np.int64)
    why = {"task": late_task, "reason": reason, "range": late.range, "call": late.call, "operation": late.operation}
    rows = pd.DataFrame({name: column[blamed.late] for name, column in {**why, "origin": late.origin_task}.items()})
    rows = rows.assign(late=blamed.late, ns=blamed.wait)
    sums = rows.groupby([*why, "origin"], as_index=False).agg(times=("late", "nunique"), ns=("ns", "sum"))
    culprits = []
    for row in sums.itertuples(index=False):
        rank, task = _name_task(job, row.task)
        origin_rank, origin_task = _name_task(job, row.origin)
        culprits.append(
            Culprit(
                rank=rank,
                task=task,
                reason=_TEXTS[row.reason],
                range=_get_name(late, row.range),
                call=_get_name(late, row.call),
                operation=_get_name(late, row.operation),
                origin_rank=origin_rank,
                origin_task=origin_task,
                times=row.times,
                ns=row.ns,
            )
        )
    return sorted(culprits, key=lambda c: (-c.ns, c.task, c.reason, c.range, c.call, c.operation, c.origin_task))


def _name_task(job: Job, task: int) -> tuple[int | None, str]:
    """Return rank and name of a task of the whole tree; of none, None and an empty name."""
    return (None, "") if task == NONE else (job.whole.ranks[task], job.whole.model.tasks[task].name)


def _get_name(late: LateReasons, index: int) -> str:
    return "" if index == NONE else late.names[index]


def _list_costs(job: Job, late: LateReasons, reason: IntArray, blamed: Blamed) -> list[LateCost]:
    """Return the costs of tasks; hosts that were late have them by time, all others as a whole."""
    on_host = np.isin(reason[blamed.late], (types.LATE_LAUNCH, types.LATE_CALL))
    host = measure_host_costs(job, late, *(column[on_host] for column in blamed))
    late_of = blamed.late[~on_host]
    columns = {"task": job.whole.task_of_row[late.row].astype(np.int64), "reason": reason}
    columns |= {name: getattr(late, name) for name in _WHAT}
    rest = pd.DataFrame({name: column[late_of] for name, column in columns.items()}).assign(ns=blamed.wait[~on_host])
    rest = rest.groupby(list(columns), as_index=False)["ns"].sum()
    for name in _WHAT:
        rest[name] = [_get_name(late, index) for index in rest[name].tolist()]
    both: pd.DataFrame = pd.concat([host, rest], ignore_index=True)
    sums = both.groupby(list(columns), as_index=False)["ns"].sum()
    costs = []
    for row in sums.itertuples(index=False):
        rank, task = _name_task(job, row.task)
        costs.append(
            LateCost(
                rank=rank,
                task=task,
                reason=_TEXTS[row.reason],
                range=row.range,
                call=row.call,
                operation=row.operation,
                ns=row.ns,
            )
        )
    return sorted(costs, key=lambda c: (-c.ns, c.task, c.reason, c.range, c.call, c.operation))


# ---- the longest wait ------------------------------------------------------------------------------------------------


def _find_longest(job: Job, late: LateReasons, blamed: Blamed) -> dict[str, LongestWait]:
    """Return, by task, the stretch without a break in which others waited longest for it."""
    task = job.whole.task_of_row[late.row[blamed.late]]
    order = np.lexsort((blamed.begin, task))
    task, begin, until = task[order], blamed.begin[order], blamed.until[order]
    longest = {}
    for number in np.unique(task).tolist():
        low, high = np.searchsorted(task, [number, number + 1])
        ns, first, last = _join_longest(begin[low:high], until[low:high])
        longest[job.whole.model.tasks[number].name] = LongestWait(
            ns=ns, from_ns=first - job.zero, to_ns=last - job.zero
        )
    return longest


def _join_longest(begin: IntArray, until: IntArray) -> tuple[int, int, int]:
    """Return (sum, begin, end) of the intervals, sorted by begin, that overlap and together are longest."""
    reach = np.maximum.accumulate(until)
    starts = np.flatnonzero(np.append(True, begin[1:] > reach[:-1]))
    ns = np.add.reduceat(until - begin, starts)
    best = int(np.argmax(ns))
    last = np.append(starts[1:], begin.size)[best] - 1
    return int(ns[best]), int(begin[starts[best]]), int(reach[last])
