"""Sums up why tasks were late, by how long others waited for them in the chosen time and on the chosen ranks.

Each piece of waiting counts once, for the kernel or call that started last: the culprits of a task and its costs both
add up to the time that others waited for it. A culprit gets whole waits, by what the late thread was in for most of its
lateness. Costs divide each wait by what the thread was in at each time.

Of the task that others waited for longest, it also finds which ranges and calls take longer than on the others.
A range counts without the time in which its thread waited for other ranks. A host that runs ahead of its GPU may take
longer without need while that GPU waits, or may not. So a range is listed only if the late task takes longer both with
and without the time in which the GPU of each task waited. A call counts on main threads. The mean of the others is over
all tasks that others may wait for, whether they have the range or call or not.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from nsys2prv_ng.analysis.waits.late_hosts import load_host_activity, sort_waits, sum_costs
from nsys2prv_ng.analysis.waits.late_reasons import NEEDED, NONE, WHY, LateReasons
from nsys2prv_ng.arrays.groups import Table, drop_columns, join_tables, make_objects, make_rows, sum_table, take_rows
from nsys2prv_ng.arrays.row_keys import combine_columns, find_rows, find_starts, sort_rows
from nsys2prv_ng.arrays.types import IntArray, pick
from nsys2prv_ng.intervals.step_functions import mark_inside
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.reading.device_operations import load_launches
from nsys2prv_ng.steps.numbered_names import is_step
from nsys2prv_ng.summary.ranges.numbers import RepeatedRange
from nsys2prv_ng.summary.waits.numbers import Culprit, Excess, LateCost, LongestWait, WaitNumbers
from nsys2prv_ng.summary.waits.words import NOT_SELECTED, list_stragglers

_NOT_SELECTED = 0
_TEXTS = {_NOT_SELECTED: NOT_SELECTED, **types.LATE_REASONS}
_ON_HOST = (types.LATE_LAUNCH, types.LATE_CALL)


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
    culprits = []
    for row in make_rows(late_for):
        rank, name = _name_task(job, row["origin"])
        culprits.append(Culprit(**_describe_why(job, row), origin_rank=rank, origin_task=name, times=row["times"]))
    on_host = np.isin(rows["reason"], _ON_HOST)
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
                hidden |= (launch >= 0) & np.isin(pick(launches.sent, launch, 0), lows)
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
    columns = (column[longest].tolist() for column in (task, ns, begin - job.scope.zero, until - job.scope.zero))
    return {
        job.whole.model.tasks[number].name: LongestWait(ns=waited, from_ns=start, to_ns=end)
        for number, waited, start, end in zip(*columns, strict=True)
    }


def measure_host_costs(job: Job, late: LateReasons, index: IntArray, begin: IntArray, until: IntArray) -> Table:
    """Return the columns WHY and `ns` of n pieces of waiting for kernels and calls whose host was late.

    `index` (n): the late kernel or call. If the pieces are all waits as a whole, the result is that of
    `LateReasons.costs`.
    """
    on_host = take_rows(late.costs, np.isin(late.costs["reason"], _ON_HOST))
    if int(on_host["ns"].sum()) == int((until - begin).sum()):
        return on_host
    waits = sort_waits(late.row.size, index, begin, until)
    waited_for = np.unique(index)
    parts = [take_rows(on_host, index[:0])]
    for number, report in enumerate(job.reports):
        in_report = waited_for[late.report[waited_for] == number]
        threads = np.unique(late.thread[in_report])
        if not threads.size:
            continue
        activity = load_host_activity(report, threads, job.store)
        range_names, call_names = [*activity.range_names, ""], [*activity.call_names, ""]  # the last one: no name
        for thread, reason in product(threads.tolist(), _ON_HOST):
            which = in_report[(late.thread[in_report] == thread) & (late.reason[in_report] == reason)]
            if which.size:
                in_range, in_call, cost = sum_costs(activity.threads[thread], waits, which, late.limit[which])
                task = int(job.whole.task_of_row[late.row[which[0]]])
                columns: Table = {
                    "task": np.full(cost.size, task),
                    "reason": np.full(cost.size, reason),
                    "range": make_objects(range_names[i] for i in in_range.tolist()),
                    "call": make_objects(call_names[i] for i in in_call.tolist()),
                    "operation": make_objects([""] * cost.size),
                    "ns": cost,
                }
                parts.append(columns)
    return join_tables(parts)


MOST = 50
"""Most rows that are listed."""
_INNER = 1.1
"""How much an inner range weighs more than the range around it, which has its excess too."""


def find_excess(
    waits: WaitNumbers, ranges: Sequence[RepeatedRange], calls: Iterable[tuple[str, str, int]], step: str
) -> list[Excess]:
    """Return what the last task takes longer for, the largest excess first; [] if nobody waited for any task.

    `calls`: name, task and time on the main thread (ns). `step`: name of the ranges that are the steps, which contain
    everything. Of a range and one around it with about the same excess, the inner one is first.
    """
    stragglers = list_stragglers(waits)
    if len(stragglers) < 2 or not stragglers[0][0].all_caused_ns:
        return []
    late = stragglers[0][0]
    tasks = {rank.task for rank in waits.ranks}

    def compare(by_task: Mapping[str, int]) -> tuple[int, float]:
        """Return the time of the late task and the mean of the others (ns)."""
        others = sum(ns for task, ns in by_task.items() if task in tasks and task != late.task)
        return by_task.get(late.task, 0), others / (len(tasks) - 1)

    found: list[tuple[str, str, str, tuple[int, float], float]] = []
    for repeated in ranges:
        needed, others = compare({task.task: task.total_ns - task.gpu_waiting_ns for task in repeated.tasks})
        if not is_step(repeated.name, step) and needed > others:
            times = compare({task.task: task.total_ns - task.waiting_ns for task in repeated.tasks})
            found.append(("range", repeated.domain, repeated.name, times, _INNER**repeated.depth))
    by_call: dict[str, Counter[str]] = defaultdict(Counter)
    for name, task, ns in calls:
        by_call[name][task] += ns
    found += [("call", "", name, compare(by_task), 1.0) for name, by_task in by_call.items()]
    found.sort(key=lambda row: ((row[3][1] - row[3][0]) * row[4], *row[:3]))
    return [
        Excess(kind=kind, domain=domain, name=name, ns=ns, others_ns=round(others))
        for kind, domain, name, (ns, others), _ in found
        if ns > others
    ][:MOST]
