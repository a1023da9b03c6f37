"""Sums up why tasks were late, by how long others waited for them in the chosen time and on the chosen ranks.

Each piece of waiting counts once, for the kernel or call that started last: the culprits of a task and its costs both
add up to the time that others waited for it. A culprit gets whole waits, by what the late thread was in for most of its
lateness. Costs divide each wait by what the thread was in at each time.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from nsys2prv_ng.analysis.waits.late_reasons import NEEDED, NONE, WHY, LateReasons
from nsys2prv_ng.arrays.groups import sum_groups
from nsys2prv_ng.arrays.row_keys import find_rows
from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.intervals.windows import mark_inside
from nsys2prv_ng.job.device_operations import load_launches
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.summary.compute.host_costs import measure_host_costs
from nsys2prv_ng.summary.numbers.wait_reasons import NOT_SELECTED
from nsys2prv_ng.summary.numbers.waits import Culprit, LateCost, LongestWait

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
    rows = pd.DataFrame({name: column[blamed.late] for name, column in zip([*WHY, "origin"], columns, strict=True)})
    rows = rows.assign(ns=blamed.wait)
    each = sum_groups(rows.assign(late=blamed.late), [*WHY, "origin", "late"]).assign(times=1)
    late_for = _sum_up(late, each.drop(columns="late"), [*WHY, "origin"])
    culprits = [_make_culprit(job, row) for row in late_for.itertuples()]
    on_host = rows["reason"].isin((types.LATE_LAUNCH, types.LATE_CALL)).to_numpy()
    host = measure_host_costs(job, late, *(column[on_host] for column in blamed))
    others = _sum_up(late, rows.loc[~on_host, [*WHY, "ns"]], WHY)
    sums = sum_groups(pd.concat([host, others], ignore_index=True), WHY)
    costs = [LateCost(**_describe_why(job, row)) for row in sums.itertuples()]
    return WaitsForTasks(
        sorted(culprits, key=lambda c: (-c.ns, c.task, c.reason, c.range, c.call, c.operation, c.origin_task)),
        sorted(costs, key=lambda c: (-c.ns, c.task, c.reason, c.range, c.call, c.operation)),
        _find_longest(job, late, blamed),
    )


def _choose_reasons(job: Job, late: LateReasons) -> IntArray:
    """Return the reason of each late kernel or call; _NOT_SELECTED if the user excluded what would show it."""
    unknown = np.flatnonzero(late.reason == types.LATE_UNKNOWN)
    row, begin = late.row[unknown], late.begin[unknown]
    hidden = (job.new_row[row] < 0) | ~mark_inside(begin, begin, job.windows)
    if job.windows:
        lows = [low for low, _ in job.windows]
        for report, rows in zip(job.reports, job.whole.rows, strict=True):
            if all(source in report.results for source in NEEDED):
                launches = load_launches(report, job.store)
                launch = find_rows([rows[launches.place], launches.begin], [row, begin])
                # If a launch was before a window, its line starts with the window.
                hidden |= (launch >= 0) & np.isin(np.append(launches.sent, 0)[launch], lows)
    reason = late.reason.copy()
    reason[unknown[hidden]] = _NOT_SELECTED
    return reason


def _sum_up(late: LateReasons, rows: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Return sums of rows that agree in the key columns, with texts instead of the indices of names."""
    table = sum_groups(rows, keys)
    names = [*late.names, ""]  # the last one stands for none
    for column in ("range", "call", "operation"):
        table[column] = [names[index] for index in table[column].tolist()]
    return table


def _make_culprit(job: Job, row: Any) -> Culprit:
    origin_rank, origin_task = _name_task(job, row.origin)
    return Culprit(**_describe_why(job, row), origin_rank=origin_rank, origin_task=origin_task, times=row.times)


def _describe_why(job: Job, row: Any) -> dict[str, Any]:
    """Return the fields that Culprit and LateCost share."""
    rank, task = _name_task(job, row.task)
    what = {"range": row.range, "call": row.call, "operation": row.operation}
    return {"rank": rank, "task": task, "reason": _TEXTS[row.reason], **what, "ns": row.ns}


def _name_task(job: Job, task: int) -> tuple[int | None, str]:
    """Return rank and name of a task of the whole tree; (None, "") without a task."""
    return (None, "") if task == NONE else (job.whole.ranks[task], job.whole.model.tasks[task].name)


# ---- the longest wait ------------------------------------------------------------------------------------------------


def _find_longest(job: Job, late: LateReasons, blamed: Blamed) -> dict[str, LongestWait]:
    """Return the uninterrupted stretch in which others waited longest for a task, by the name of the task."""
    task = job.whole.task_of_row[late.row[blamed.late]]
    waits = pd.DataFrame({"task": task, "begin": blamed.begin, "until": blamed.until, "ns": blamed.wait})
    waits = waits.sort_values(["task", "begin"])
    reach = waits.groupby("task")["until"].cummax().shift(fill_value=0)  # 0 stands before the first start only
    starts = (waits["task"].diff() != 0) | (waits["begin"] > reach)
    stretches = waits.groupby(starts.cumsum()).agg({"task": "first", "begin": "first", "until": "max", "ns": "sum"})
    longest = stretches.loc[stretches.groupby("task")["ns"].idxmax()]
    return {
        job.whole.model.tasks[row.task].name: LongestWait(
            ns=row.ns, from_ns=row.begin - job.zero, to_ns=row.until - job.zero
        )
        for row in longest.itertuples()
    }
