"""Why ranks were late in operations over ranks: what the one that others waited for had done before.

A kernel of NCCL that began last is looked at in this order:

1. Its launch call began after the median begin of the kernels that waited for it, and at least half of the time from
   that median to its own begin had passed by then: the host was late.
2. The operation before it on its stream ended just as it began: the device was late with that operation.
3. An operation on another stream of its process and device ended just as it began: it had waited for that, as streams
   wait for events, and kernels for free multiprocessors.
4. It was launched after the median, or began within the usual time after its launch call: the host was late, even if
   by less than a launch takes.

From that median to the launch call, the host thread was in NVTX push/pop ranges and in calls (of CUDA, MPI or the
operating system) or in its own code: those that cover most of that time are the host's reason. For an operation on the
device, the range is the one in which it was launched. A call of MPI that began last was called late, by what its thread
did before. Anything else is unknown: nothing shows what kept a kernel without a launch in its report, unless it is a
node of a CUDA graph, nor one that was launched before the chosen time.

What lateness cost the others is their waiting, to the ns. Where the host was late, each part of the waiting is
attributed to what the late thread was in at that time, and all of it after the launch call began to what the thread was
in then. (These are the direct delay costs of Scalasca 2.5, without its scale: nothing is attributed twice.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from nsys2prv_ng.analysis.names import Names
from nsys2prv_ng.analysis.waits.late_devices import PROMPT_NS, find_ended, load_device_operations, load_launches
from nsys2prv_ng.analysis.waits.late_hosts import SortedWaits, find_main_activity, load_host_activity, sum_costs
from nsys2prv_ng.analysis.waits.late_origins import Links, trace_origins
from nsys2prv_ng.analysis.waits.waits import Waits
from nsys2prv_ng.arrays.row_keys import combine_columns, find_distinct, find_rows, mark_duplicates
from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.job.opened_events import load_opened_events
from nsys2prv_ng.job.read_reports import ReportRecords
from nsys2prv_ng.paraver.event_types import LATE_CALL, LATE_DEPENDENCY, LATE_DEVICE, LATE_LAUNCH, LATE_UNKNOWN
from nsys2prv_ng.records.store import Store

NEEDED = ("launch_lines", "cuda_api")
"""Sources without which no reason is known."""

NONE = -1
"""Index of no name, no kernel or call."""

WHY = ["task", "reason", "range", "call", "operation"]
"""Columns that tell the rows of `totals` and `costs` apart."""


class LateReasons(NamedTuple):
    """n kernels and calls that others waited for, ordered by row (of the whole tree) and begin (ns), in columns."""

    row: IntArray
    begin: IntArray
    margin: IntArray
    """By how much (ns) it began later than the last of the others."""
    lateness: IntArray
    """By how much (ns) it began later than the median of those that waited for it (the later of two in the middle)."""
    reason: IntArray
    """One of event_types.LATE_REASONS."""
    range: IntArray
    """Index of the NVTX range in `names`; NONE where the thread was in no range, or it is not known."""
    call: IntArray
    """Index of the call in `names`; NONE for the thread's own code, and where the host was not late."""
    operation: IntArray
    """For LATE_DEVICE and LATE_DEPENDENCY, index in `names` of the operation that ended last; else NONE."""
    origin: IntArray
    """If another rank had delayed it: the index of the late kernel of the rank that began the delay; else NONE."""
    origin_task: IntArray
    """Task of that kernel (of the whole tree); else NONE."""
    names: list[str]
    instance: IntArray
    """For each of the waits, the index of the kernel or call that it waited for, NONE for nobody's."""
    totals: pd.DataFrame
    """Columns WHY, `times` (kernels and calls) and `ns` that others waited for them; texts, "" for none."""
    costs: pd.DataFrame
    """Columns WHY and `ns` that others waited, by what the late thread was in at each time. Sums as in `totals`."""


def find_reasons(job: Job, waits: Waits, *, name_hosts: bool = True) -> LateReasons:
    """Find out why each kernel or call was late that others waited for.

    Without `name_hosts`, ranges, calls of host threads and origins are not looked up: a trace shows the reasons alone.
    Without one of the sources NEEDED in a report, nothing is known of its kernels and calls.
    """
    late, instance = _collect_late(waits)
    answers = _Answers(late.row.size)
    links = Links(waits, late.row.size) if name_hosts else None
    for index, report in enumerate(job.reports):
        if all(source in report.results for source in NEEDED):
            rows = job.whole.rows[index]
            mine = np.flatnonzero((answers.reason == _OPEN) & np.isin(late.row, rows))
            if mine.size:
                window_begins = np.array([low for low, _ in job.windows], np.int64)
                _ReportReasons(report, rows, job.store, late, answers, links).explain(mine, window_begins)
    answers.reason[answers.reason == _OPEN] = LATE_UNKNOWN
    task = job.whole.task_of_row[late.row].astype(np.int64)
    answers.add_whole_costs(late.waited)
    names = answers.names.texts
    origin = trace_origins(job, waits, instance, late.begin, late.begin - late.median, task, links)
    return LateReasons(
        row=late.row,
        begin=late.begin,
        margin=late.margin,
        lateness=late.begin - late.median,
        reason=answers.reason,
        range=answers.range,
        call=answers.call,
        operation=answers.operation,
        origin=origin,
        origin_task=np.append(task, NONE)[origin],
        names=names,
        instance=instance,
        totals=_sum_up(task, answers.why(), names, {"times": np.ones(task.size, np.int64), "ns": late.waited}),
        costs=_sum_costs(answers, task, names),
    )


_OPEN = 0
"""Reason of what no report has explained yet."""


class _Late(NamedTuple):
    """n kernels and calls that others waited for, ordered by row and begin. Times in ns."""

    row: IntArray
    begin: IntArray
    is_mpi: IntArray
    margin: IntArray
    median: IntArray
    """Median begin of those that waited."""
    waited: IntArray
    """Sum of their waits."""
    waits: SortedWaits


def _collect_late(waits: Waits) -> tuple[_Late, IntArray]:
    """Return what others waited for, and its index for each wait (NONE for nobody's)."""
    who = np.flatnonzero((waits.culprit >= 0) & (waits.wait > 0))
    row, time = waits.culprit[who], waits.culprit_begin[who]
    index, distinct = find_distinct(combine_columns(row, time))
    n = distinct.size
    instance = np.full(waits.row.size, NONE, np.int64)
    instance[who] = index
    some = np.zeros(n, np.int64)
    some[index] = np.arange(who.size)
    counts = np.bincount(index, minlength=n).astype(np.int64)
    first = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    begin = _sort_within(index, waits.begin[who], counts)
    margin, waited = np.zeros((2, n), np.int64)
    np.maximum.at(margin, index, waits.margin[who])
    np.add.at(waited, index, waits.wait[who])
    late = _Late(
        row=row[some],
        begin=time[some],
        is_mpi=waits.is_mpi[who][some].astype(np.int64),
        margin=margin,
        median=begin[first[:-1] + counts // 2] if n else some,
        waited=waited,
        waits=SortedWaits(first, begin, _sort_within(index, waits.until[who], counts)),
    )
    return late, instance


def _sort_within(group: IntArray, value: IntArray, counts: IntArray) -> IntArray:
    """Return values sorted by group (0 .. n - 1) and value; `counts` (n): how many each group has."""
    if not value.size:
        return value
    low = int(value.min())
    width = int(value.max()) - low + 1
    if width * counts.size > np.iinfo(np.int64).max:
        return value[np.lexsort((value, group))]
    key = np.sort(group * width + (value - low))  # a tenth of the time that sorting by two columns takes
    return key - np.repeat(np.arange(counts.size) * width, counts) + low


# ---- answers ---------------------------------------------------------------------------------------------------------


class _Answers:
    """What is known of n late kernels and calls, and parts of what they cost: (index of one, range, call, ns)."""

    def __init__(self, n: int) -> None:
        self.names = Names()
        self.reason = np.full(n, _OPEN, np.int64)
        self.range, self.call, self.operation = np.full((3, n), NONE, np.int64)
        self.costs: list[tuple[IntArray, IntArray, IntArray, IntArray]] = []

    def add_whole_costs(self, waited: IntArray) -> None:
        """Add the costs of all that the host was not late with."""
        rest = np.flatnonzero(~np.isin(self.reason, (LATE_LAUNCH, LATE_CALL)))
        self.costs.append((rest, self.range[rest], self.call[rest], waited[rest]))

    def why(self) -> dict[str, IntArray]:
        """Return the columns WHY without the task, as indices of names."""
        return {"reason": self.reason, "range": self.range, "call": self.call, "operation": self.operation}


def _sum_up(task: IntArray, why: dict[str, IntArray], names: Sequence[str], sums: dict[str, IntArray]) -> pd.DataFrame:
    """Sum up columns by the columns WHY, the most ns first, with texts for indices of names."""
    table = pd.DataFrame({"task": task, **why, **sums}).groupby(WHY, as_index=False)[list(sums)].sum()
    for column in ("range", "call", "operation"):
        table[column] = [names[i] if i >= 0 else "" for i in table[column].tolist()]
    return table.sort_values(["ns", *WHY], ascending=[False, *(True for _ in WHY)], ignore_index=True)


def _sum_costs(answers: _Answers, task: IntArray, names: Sequence[str]) -> pd.DataFrame:
    late, in_range, in_call, ns = (np.concatenate(column) for column in zip(*answers.costs, strict=True))
    some = ns > 0
    late = late[some]
    why = {
        "reason": answers.reason[late],
        "range": in_range[some],
        "call": in_call[some],
        "operation": answers.operation[late],
    }
    return _sum_up(task[late], why, names, {"ns": ns[some]})


# ---- one report ------------------------------------------------------------------------------------------------------


class _ReportReasons:
    """Answers for the kernels and calls of one report."""

    def __init__(
        self,
        report: ReportRecords,
        rows: IntArray,
        store: Store,
        late: _Late,
        answers: _Answers,
        links: Links | None,
    ) -> None:
        self._report, self._rows, self._store = report, rows, store
        self._late, self._answers, self._links = late, answers, links
        self._hosts: list[tuple[IntArray, IntArray, IntArray]] = []
        self._launched_in: list[tuple[IntArray, IntArray, IntArray]] = []

    def explain(self, mine: IntArray, window_begins: IntArray) -> None:
        """Answer for those of the kernels and calls `mine` that the report shows; without `links`, the reasons only."""
        is_mpi = self._late.is_mpi[mine] > 0
        if is_mpi.any():
            self._explain_calls(mine[is_mpi])
        if not is_mpi.all():
            self._explain_kernels(mine[~is_mpi], window_begins)
        if self._links is not None:
            self._name_activity()

    def _find(self, late: IntArray, place: IntArray, begin: IntArray) -> tuple[IntArray, IntArray]:
        """Return those of `late` that begin as an event on their row does, with the index of the event."""
        row = self._rows[place]
        once = np.flatnonzero(~mark_duplicates(row, begin))
        event = find_rows([row[once], begin[once]], [self._late.row[late], self._late.begin[late]])
        return late[event >= 0], once[event[event >= 0]]

    def _explain_calls(self, late: IntArray) -> None:
        """Answer for calls of MPI: their thread was late."""
        events = load_opened_events(self._report, "mpi", self._store)
        late, call = self._find(late, events.place, events.begin)
        self._answers.reason[late] = LATE_CALL
        self._hosts.append((late, events.place[call], self._late.begin[late]))

    def _explain_kernels(self, late: IntArray, window_begins: IntArray) -> None:
        """Answer for kernels by their launches and by the operations that ended as they began."""
        launches = load_launches(self._report, self._store)
        operations = load_device_operations(self._report, self._store)
        late, kernel = self._find(late, operations.place, operations.begin)
        place, begin, median = operations.place[kernel], self._late.begin[late], self._late.median[late]

        launch = launches.find(place, begin)
        sent = np.append(launches.sent, np.iinfo(np.int64).max)[launch]
        # The line of a launch before a window begins with the window: that time shows nothing.
        is_known = (launch >= 0) & ~np.isin(sent, window_begins)
        after_median = is_known & (sent > median)
        by_host = after_median & (sent - median >= begin - sent)
        on_stream, on_other = find_ended(self._report, operations, place, begin)
        can_wait = (launch >= 0) | operations.is_node[kernel]
        by_device = ~by_host & can_wait & (on_stream >= 0)
        by_dependency = ~by_host & can_wait & ~by_device & (on_other >= 0)
        is_prompt = is_known & (begin - sent <= PROMPT_NS)
        by_host |= ~by_device & ~by_dependency & (after_median | is_prompt)

        answers = self._answers
        reasons = [LATE_LAUNCH, LATE_DEVICE, LATE_DEPENDENCY]
        answers.reason[late] = np.select([by_host, by_device, by_dependency], reasons, LATE_UNKNOWN)
        self._hosts.append((late[by_host], launches.thread[launch[by_host]], sent[by_host]))

        before = np.where(by_device, on_stream, on_other)[by_device | by_dependency]
        held = late[by_device | by_dependency]
        answers.operation[held] = answers.names.number(operations.names, operations.name[before])
        if self._links is not None and held.size:
            self._links.add(self._report, self._rows, operations, launches, held, before)
        launch = launches.find(operations.place[before], operations.begin[before])
        held, launch = held[launch >= 0], launch[launch >= 0]
        self._launched_in.append((held, launches.thread[launch], launches.sent[launch]))

    def _name_activity(self) -> None:
        """Name what the threads were in, and add what it cost the others."""
        late, thread, limit = (np.concatenate(column) for column in zip(*self._hosts, strict=True))
        parts = self._launched_in or [(late[:0], late[:0], late[:0])]
        held, launcher, sent = (np.concatenate(column) for column in zip(*parts, strict=True))
        threads = np.unique(np.concatenate([thread, launcher]))
        if not threads.size:
            return
        activity = load_host_activity(self._report, threads, self._store)
        answers, names = self._answers, self._answers.names
        for number in threads.tolist():
            own = activity.threads[number]
            which = thread == number
            begin = np.minimum(self._late.median[late[which]], limit[which])
            in_range, in_call = find_main_activity(own, begin, limit[which])
            answers.range[late[which]] = names.number(activity.range_names, in_range)
            answers.call[late[which]] = names.number(activity.call_names, in_call)
            for reason in (LATE_LAUNCH, LATE_CALL):
                part = which & (answers.reason[late] == reason)
                if part.any():
                    cost = sum_costs(own, self._late.waits, late[part], limit[part])
                    some = np.flatnonzero(cost)
                    answers.costs.append(
                        (
                            np.full(some.size, late[part][0]),
                            names.number(activity.range_names, own.range[some]),
                            names.number(activity.call_names, own.call[some]),
                            cost[some],
                        )
                    )
            on_thread = launcher == number
            pair = own.get_pairs(sent[on_thread])
            answers.range[held[on_thread]] = names.number(activity.range_names, own.range[pair])
