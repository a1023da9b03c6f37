"""Measures what late host threads cost others in the chosen time, by what the thread was in at each time."""

from __future__ import annotations

from itertools import product

import numpy as np

from nsys2prv_ng.analysis.waits.late_hosts import load_host_activity, sort_waits, sum_costs
from nsys2prv_ng.analysis.waits.late_reasons import LateReasons
from nsys2prv_ng.arrays.groups import Table, join_tables, make_objects, take_rows
from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.paraver.event_types import LATE_CALL, LATE_LAUNCH

_ON_HOST = (LATE_LAUNCH, LATE_CALL)


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
                columns = {
                    "task": np.full(cost.size, task),
                    "reason": np.full(cost.size, reason),
                    "range": make_objects(range_names[i] for i in in_range.tolist()),
                    "call": make_objects(call_names[i] for i in in_call.tolist()),
                    "operation": make_objects([""] * cost.size),
                    "ns": cost,
                }
                parts.append(columns)
    return join_tables(parts)
