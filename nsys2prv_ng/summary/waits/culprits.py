"""Sums up why tasks were late, by how long others waited for them in the chosen time and on the chosen ranks.

Each piece of waiting counts once, for the kernel or call that started last: the culprits of a task and its costs both
add up to the time that others waited for it. A culprit gets whole waits, by what the late thread was in for most of its
lateness. Costs divide each wait by what the thread was in at each time.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from nsys2prv_ng.analysis.waits.late_reasons import NEEDED, NONE, WHY, LateReasons
from nsys2prv_ng.arrays.groups import Table, drop_columns, join_tables, make_objects, make_rows, sum_table, take_rows
from nsys2prv_ng.arrays.row_keys import combine_columns, find_rows, find_starts, sort_rows
from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.intervals.windows import mark_inside
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.reading.device_operations import load_launches
from nsys2prv_ng.summary.waits.host_costs import measure_host_costs
from nsys2prv_ng.summary.waits.numbers import Culprit, LateCost, LongestWait
from nsys2prv_ng.summary.waits.words import NOT_SELECTED

_NOT_SELECTED = 0
_TEXTS = {_NOT_SELECTED: NOT_SELECTED, **types.LATE_REASONS}


class Blamed(NamedTuple):
    """n pieces of waiting for a late kernel or call: its index in `LateReasons`, start and end of the piece (ns)."""

    late: IntArray
    begin: IntArray
    until: IntArray

    @property
    def wait(self) -> IntArray:
        return self.until - self.begin


class WaitsForTasks(NamedTuple):
    """Why tasks were late, the longest waiting first, and the longest stretch of waiting for each task, by its name."""

    culprits: list[Culprit]
    costs: list[LateCost]
    longest: dict[str, LongestWait]


def sum_culprits(job: Job, late: LateReasons, blamed: Blamed) -> WaitsForTasks:
    """Sum up the pieces of waiting by why the task that others waited for was late.

    If the host was late, its costs follow what the thread was in at each time. All other costs count as a whole.
    """
    task = job.whole.task_of_row[late.row].astype(np.int64)
    columns = task, _choose_reasons(job, late), late.range, late.call, late.operation, late.origin_task
    rows = {name: column[blamed.late] for name, column in zip([*WHY, "origin"], columns, strict=True)}
    rows["ns"] = blamed.wait
    each = drop_columns(sum_table({**rows, "late": blamed.late}, [*WHY, "origin", "late"]), "late")
    late_for = _sum_up(late, {**each, "times": np.ones(each["ns"].size, np.int64)}, [*WHY, "origin"])
    culprits = [_make_culprit(job, row) for row in make_rows(late_for)]
    on_host = np.isin(rows["reason"], (types.LATE_LAUNCH, types.LATE_CALL))
    host = measure_host_costs(job, late, *(column[on_host] for column in blamed))
    others = _sum_up(late, take_rows(drop_columns(rows, "origin"), ~on_host), WHY)
    sums = sum_table(join_tables([host, others]), WHY)
    costs = [LateCost(**_describe_why(job, row)) for row in make_rows(sums)]
    return WaitsForTasks(
        sorted(culprits, key=lambda c: (-c.ns, c.task, c.reason, c.range, c.call, c.operation, c.origin_task)),
        sorted(costs, key=lambda c: (-c.ns, c.task, c.reason, c.range, c.call, c.operation)),
        _find_longest(job, late, blamed),
    )


def _choose_reasons(job: Job, late: LateReasons) -> IntArray:
    """Return the reason of each late kernel or call; _NOT_SELECTED if the user excluded what would show it."""
    unknown = np.flatnonzero(late.reason == types.LATE_UNKNOWN)
    row, begin = late.row[unknown], late.begin[unknown]
    hidden = (job.new_row[row] < 0) | ~mark_inside(begin, begin, job.scope.windows)
    if job.scope.windows:
        lows = [low for low, _ in job.scope.windows]
        for report, rows in zip(job.reports, job.whole.rows, strict=True):
            if all(source in report.results for source in NEEDED):
                launches = load_launches(report, job.store)
                launch = find_rows([rows[launches.place], launches.begin], [row, begin])
                # If a launch was before a window, its line starts with the window.
                hidden |= (launch >= 0) & np.isin(np.append(launches.sent, 0)[launch], lows)
    reason = late.reason.copy()
    reason[unknown[hidden]] = _NOT_SELECTED
    return reason


def _sum_up(late: LateReasons, rows: Table, keys: list[str]) -> Table:
    """Return sums of rows that agree in the key columns, with texts instead of the indices of names."""
    table = sum_table(rows, keys)
    names = [*late.names, ""]  # the last one stands for none
    for column in ("range", "call", "operation"):
        table[column] = make_objects(names[index] for index in table[column].tolist())
    return table


def _make_culprit(job: Job, row: dict[str, Any]) -> Culprit:
    origin_rank, origin_task = _name_task(job, row["origin"])
    return Culprit(**_describe_why(job, row), origin_rank=origin_rank, origin_task=origin_task, times=row["times"])


def _describe_why(job: Job, row: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that Culprit and LateCost share."""
    rank, task = _name_task(job, row["task"])
    what = {name: row[name] for name in ("range", "call", "operation", "ns")}
    return {"rank": rank, "task": task, "reason": _TEXTS[row["reason"]], **what}


def _name_task(job: Job, task: int) -> tuple[int | None, str]:
    """Return rank and name of a task of the whole tree; (None, "") without a task."""
    return (None, "") if task == NONE else (job.whole.ranks[task], job.whole.model.tasks[task].name)


# ---- the longest wait ------------------------------------------------------------------------------------------------


def _find_longest(job: Job, late: LateReasons, blamed: Blamed) -> dict[str, LongestWait]:
    """Return the uninterrupted stretch in which others waited longest for a task, by the name of the task."""
    task = job.whole.task_of_row[late.row[blamed.late]].astype(np.int64)
    order = sort_rows(task, blamed.begin)
    task, begin, until = (column[order] for column in (task, blamed.begin, blamed.until))
    begins, ends = np.split(combine_columns(np.tile(task, 2), np.concatenate([begin, until])), 2)
    is_first = np.ones(task.size, np.bool_)
    is_first[1:] = begins[1:] > np.maximum.accumulate(ends)[:-1]
    starts = np.flatnonzero(is_first)
    ns, until = np.add.reduceat(blamed.wait[order], starts), np.maximum.reduceat(until, starts)
    task, begin = task[starts], begin[starts]
    longest = np.lexsort((-ns, task))
    longest = longest[find_starts(task[longest])]
    return {
        job.whole.model.tasks[task[i]].name: LongestWait(
            ns=int(ns[i]), from_ns=int(begin[i]) - job.scope.zero, to_ns=int(until[i]) - job.scope.zero
        )
        for i in longest
    }
