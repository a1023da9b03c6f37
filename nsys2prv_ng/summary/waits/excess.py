"""Finds what the task that others waited for longest takes longer for than the others: NVTX ranges and calls.

A range counts without the time in which its thread waited for other ranks. A host that runs ahead of its GPU may take
longer without need while that GPU waits, or may not. So a range is listed only if the late task takes longer both with
and without the time in which the GPU of each task waited. A call counts on main threads. The mean of the others is over
all tasks that others may wait for, whether they have the range or call or not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from nsys2prv_ng.summary.ranges.numbers import RepeatedRange
from nsys2prv_ng.summary.waits.numbers import Excess, WaitNumbers
from nsys2prv_ng.summary.waits.words import list_stragglers

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

    rows: list[tuple[float, Excess]] = []

    def add(kind: str, domain: str, name: str, times: tuple[int, float], weight: float) -> None:
        ns, others = times
        if ns > others:
            row = Excess(kind=kind, domain=domain, name=name, ns=ns, others_ns=round(others))
            rows.append(((ns - others) * weight, row))

    for repeated in ranges:
        needed, others = compare({task.task: task.total_ns - task.gpu_waiting_ns for task in repeated.tasks})
        if repeated.name != step and needed > others:
            own = compare({task.task: task.total_ns - task.waiting_ns for task in repeated.tasks})
            add("range", repeated.domain, repeated.name, own, _INNER**repeated.depth)
    by_call: dict[str, dict[str, int]] = defaultdict(dict)
    for name, task, ns in calls:
        by_call[name][task] = by_call[name].get(task, 0) + ns
    for name, by_task in by_call.items():
        add("call", "", name, compare(by_task), 1.0)
    rows.sort(key=lambda row: (-row[0], row[1].kind, row[1].domain, row[1].name))
    return [row for _, row in rows[:MOST]]
