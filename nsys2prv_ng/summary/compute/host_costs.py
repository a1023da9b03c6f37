"""Measures how long others waited for what a late host thread was in, at each time, within the chosen time."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from nsys2prv_ng.analysis.waits.late_devices import load_launches
from nsys2prv_ng.analysis.waits.late_hosts import SortedWaits, load_host_activity, sum_costs
from nsys2prv_ng.analysis.waits.late_reasons import WHY, LateReasons
from nsys2prv_ng.arrays.row_keys import find_rows, mark_duplicates
from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.job.opened_events import load_opened_events
from nsys2prv_ng.job.read_reports import ReportRecords
from nsys2prv_ng.paraver.event_types import LATE_CALL, LATE_LAUNCH
from nsys2prv_ng.sources import source_names

_ON_HOST = (LATE_LAUNCH, LATE_CALL)


def measure_host_costs(job: Job, late: LateReasons, index: IntArray, begin: IntArray, until: IntArray) -> pd.DataFrame:
    """Return the columns WHY and `ns` of pieces of waiting for kernels and calls whose host was late.

    `index`: of the late kernel or call of each piece. The sums are those of `LateReasons.costs` where the pieces are
    all waits as a whole.
    """
    on_host = late.costs[late.costs["reason"].isin(_ON_HOST)]
    if int(on_host["ns"].sum()) == int((until - begin).sum()):
        return on_host
    waits = _sort_waits(late.row.size, index, begin, until)
    waited_for = np.unique(index)
    parts = [on_host.iloc[:0]]
    for number, report in enumerate(job.reports):
        rows = job.whole.rows[number]
        mine = waited_for[np.isin(late.row[waited_for], rows)]
        for reason in _ON_HOST:
            which = mine[late.reason[mine] == reason]
            if which.size:
                parts += _measure_report(
                    job, report, _find_threads(job, report, rows, late, which, reason), late, waits
                )
    return pd.concat(parts, ignore_index=True)


def _sort_waits(n: int, index: IntArray, begin: IntArray, until: IntArray) -> SortedWaits:
    counts = np.bincount(index, minlength=n)
    first = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return SortedWaits(first, begin[np.lexsort((begin, index))], until[np.lexsort((until, index))])


class _LateThreads(NamedTuple):
    """n late kernels or calls: index, the thread that was late (a place) and when it launched or called (ns)."""

    late: IntArray
    thread: IntArray
    limit: IntArray


def _find_threads(
    job: Job, report: ReportRecords, rows: IntArray, late: LateReasons, which: IntArray, reason: int
) -> _LateThreads:
    if reason == LATE_LAUNCH:
        launches = load_launches(report, job.store)
        row, begin, thread, limit = rows[launches.place], launches.begin, launches.thread, launches.sent
    else:
        calls = load_opened_events(report, source_names.MPI, job.store)
        once = np.flatnonzero(~mark_duplicates(calls.place, calls.begin))
        thread, limit = calls.place[once].astype(np.int64), calls.begin[once]
        row, begin = rows[thread], limit
    at = find_rows([row, begin], [late.row[which], late.begin[which]])
    which, at = which[at >= 0], at[at >= 0]
    return _LateThreads(which, thread[at], limit[at])


def _measure_report(
    job: Job, report: ReportRecords, threads: _LateThreads, late: LateReasons, waits: SortedWaits
) -> list[pd.DataFrame]:
    activity = load_host_activity(report, np.unique(threads.thread), job.store)
    range_names, call_names = [*activity.range_names, ""], [*activity.call_names, ""]  # the last one is that of none
    parts = []
    for thread in np.unique(threads.thread).tolist():
        own, on_thread = activity.threads[thread], threads.thread == thread
        which = threads.late[on_thread]
        cost = sum_costs(own, waits, which, threads.limit[on_thread])
        pair = np.flatnonzero(cost)
        parts.append(
            pd.DataFrame(
                {
                    "task": int(job.whole.task_of_row[late.row[which[0]]]),
                    "reason": int(late.reason[which[0]]),
                    "range": [range_names[i] for i in own.range[pair].tolist()],
                    "call": [call_names[i] for i in own.call[pair].tolist()],
                    "operation": "",
                    "ns": cost[pair],
                }
            )[[*WHY, "ns"]]
        )
    return parts
