"""Finds why ranks were late in operations over ranks: what the rank that others waited for had done before.

For an NCCL kernel that started last, the first of these that applies is the reason:

1. Its launch call started after the median start of the kernels that waited for it, and at least half of the time from
   that median to the kernel's own start had passed by then: the host was late.
2. The operation or host function before it on its stream ended just as it started: the device was late with that.
3. An operation on another stream of its process and device ended just as it started: the kernel had waited for it, as
   streams wait for events, and kernels wait for free multiprocessors.
4. It was launched after the median, or started within the usual time after its launch call: the host was late, even if
   by less than the duration of a launch.

From that median to the launch call, the host thread was in NVTX push/pop ranges and in calls (of CUDA, MPI or the OS
runtime) or in host code: whatever covers most of that time is the host's reason. For an operation on the device, the
range is the one in which it was launched. An MPI call that started last was called late, because of what its thread did
before. Any other reason is unknown: nothing shows what delayed a kernel whose launch is not in its report (unless it is
a CUDA graph node) or was before the chosen time.

The cost of lateness is the waiting of the others, to the ns. If the host was late, each part of the waiting is
attributed to what the late thread was in at that time, and all waiting after the launch call started is attributed to
what the thread was in at that start. (These are the direct delay costs of Scalasca 2.5 without its scaling: nothing is
attributed twice.)
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nsys2prv_ng import source_names
from nsys2prv_ng.analysis.waits import late_hosts
from nsys2prv_ng.analysis.waits.late_origins import PROMPT_NS, Links, find_ended, trace_origins
from nsys2prv_ng.analysis.waits.waits import Waits
from nsys2prv_ng.arrays.groups import Table, encode_key, make_objects, sum_table, take_rows
from nsys2prv_ng.arrays.row_keys import combine_columns, find_distinct, find_rows, list_rows, mark_duplicates, sort_rows
from nsys2prv_ng.arrays.types import IntArray, pick
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.paraver.event_types import LATE_CALL, LATE_DEPENDENCY, LATE_DEVICE, LATE_LAUNCH, LATE_UNKNOWN
from nsys2prv_ng.reading.device_operations import load_device_operations, load_launches
from nsys2prv_ng.reading.opened_events import Names, load_opened_events
from nsys2prv_ng.reading.read_reports import ReportRecords
from nsys2prv_ng.records.store import Store
from nsys2prv_ng.value_class import ValueClass

NEEDED = (source_names.LAUNCH_LINES, source_names.CUDA_API)
"""Sources that every reason depends on."""

NONE = -1
"""Index for "no name", "no kernel" and "no call"."""

WHY = ["task", "reason", "range", "call", "operation"]
"""Columns that identify a row of `costs`."""


class LateReasons(NamedTuple):
    """n kernels and calls that others waited for, in columns, ordered by row (of the whole tree) and start (ns).

    - `margin`: how much later (ns) it started than the last of the others.
    - `lateness`: how much later (ns) it started than the median of those that waited for it (the later of two in the
      middle).
    - `reason`: one of event_types.LATE_REASONS.
    - `range`: index of the NVTX range in `names`; NONE if the thread was in no range, or if the range is not known.
    - `call`: index of the call in `names`; NONE for host code between calls, and if the host was not late.
    - `operation`: for LATE_DEVICE and LATE_DEPENDENCY, the index in `names` of the operation that ended last; else
      NONE.
    - `origin`: if another rank had delayed it, the index of the late kernel of the rank that started the delay; else
      NONE.
    - `origin_task`: task of that late kernel (in the whole tree); else NONE.
    - `report`: index of the report that shows the late thread.
    - `thread`: place (in that report) of the thread that was late; NONE if the host was not late.
    - `limit`: when (ns) that thread launched the kernel, or called.
    - `instance`: for each of the waits, the index of the kernel or call that it waited for; NONE without one.
    - `costs`: columns WHY (texts, "" for none) and `ns` (waiting of others) by what the late thread was in at each
      time.
    """

    row: IntArray
    begin: IntArray
    margin: IntArray
    lateness: IntArray
    reason: IntArray
    range: IntArray
    call: IntArray
    operation: IntArray
    origin: IntArray
    origin_task: IntArray
    report: IntArray
    thread: IntArray
    limit: IntArray
    names: list[str]
    instance: IntArray
    costs: Table


def find_reasons(job: Job, waits: Waits, *, name_hosts: bool = True) -> LateReasons:
    """Find out why each kernel or call that others waited for was late.

    Without `name_hosts`, ranges, calls and origins are not looked up: a trace shows only the reasons. If a report lacks
    one of the sources NEEDED, the reasons of its kernels and calls are unknown.
    """
    late, instance = _collect_late(waits)
    answers = _Answers(late.row.size)
    links = Links(waits, late.row.size) if name_hosts else None
    for index, report in enumerate(job.reports):
        if all(source in report.results for source in NEEDED):
            rows = job.whole.rows[index]
            here = list_rows(late.row, np.unique(rows))
            mine = here[answers.reason[here] == _OPEN]
            if mine.size:
                answers.report[mine] = index
                window_begins = np.array([low for low, _ in job.scope.windows], np.int64)
                _ReportReasons(report, rows, job.store, late, answers, links).explain(mine, window_begins)
    answers.reason[answers.reason == _OPEN] = LATE_UNKNOWN
    task = job.whole.task_of_row[late.row].astype(np.int64)
    origin = trace_origins(job, waits, instance, late.begin, late.begin - late.median, task, links)
    known = {**vars(answers), "names": answers.names.texts, "costs": _sum_costs(answers, late.waited, task)}
    return LateReasons(
        **known,
        row=late.row,
        begin=late.begin,
        margin=late.margin,
        lateness=late.begin - late.median,
        origin=origin,
        origin_task=pick(task, origin, NONE),
        instance=instance,
    )


_OPEN = 0
"""Reason of a kernel or call that no report has explained yet."""


class _Late(NamedTuple):
    """n kernels and calls that others waited for, ordered by row and start. Times in ns.

    `median`: the median start of those that waited; `waited`: the sum of their waits.
    """

    row: IntArray
    begin: IntArray
    is_mpi: IntArray
    margin: IntArray
    median: IntArray
    waited: IntArray
    waits: late_hosts.SortedWaits


def _collect_late(waits: Waits) -> tuple[_Late, IntArray]:
    """Return (what others waited for, the index of what each wait waited for; NONE without one)."""
    who = np.flatnonzero((waits.culprit >= 0) & (waits.wait > 0))
    row, time = waits.culprit[who], waits.culprit_begin[who]
    index, distinct = find_distinct(combine_columns(row, time))
    n = distinct.size
    instance = np.full(waits.row.size, NONE, np.int64)
    instance[who] = index
    some = np.zeros(n, np.int64)
    some[index] = np.arange(who.size)
    sorted_waits = late_hosts.sort_waits(n, index, waits.begin[who], waits.until[who])
    middle = (sorted_waits.first[:-1] + sorted_waits.first[1:]) // 2
    margin, waited = np.zeros((2, n), np.int64)
    np.maximum.at(margin, index, waits.margin[who])
    np.add.at(waited, index, waits.wait[who])
    late = _Late(
        row=row[some],
        begin=time[some],
        is_mpi=waits.is_mpi[who][some].astype(np.int64),
        margin=margin,
        median=sorted_waits.begin[middle],
        waited=waited,
        waits=sorted_waits,
    )
    return late, instance


# ---- answers ---------------------------------------------------------------------------------------------------------


class _Answers:
    """The answers for n late kernels and calls, and parts of their costs: (index of the late one, range, call, ns)."""

    def __init__(self, n: int) -> None:
        self.names = Names()
        self.reason = np.full(n, _OPEN, np.int64)
        self.range, self.call, self.operation = np.full((3, n), NONE, np.int64)
        self.report, self.thread, self.limit = np.full((3, n), NONE, np.int64)
        self.costs: list[tuple[IntArray, IntArray, IntArray, IntArray]] = []


def _sum_costs(answers: _Answers, waited: IntArray, task: IntArray) -> Table:
    """Return the costs by the columns WHY, with texts instead of indices of names, the largest cost first.

    If the host was not late, the cost of a kernel or call is a whole: `waited` (ns).
    """
    rest = np.flatnonzero(~np.isin(answers.reason, (LATE_LAUNCH, LATE_CALL)))
    costs = [*answers.costs, (rest, answers.range[rest], answers.call[rest], waited[rest])]
    late, in_range, in_call, ns = (np.concatenate(column) for column in zip(*costs, strict=True))
    columns = task[late], answers.reason[late], in_range, in_call, answers.operation[late]
    table = take_rows({**dict(zip(WHY, columns, strict=True)), "ns": ns}, ns > 0)
    table = sum_table(table, WHY)
    names = [*answers.names.texts, ""]  # the last one stands for none
    for column in ("range", "call", "operation"):
        table[column] = make_objects(names[index] for index in table[column].tolist())
    return take_rows(table, sort_rows(-table["ns"], *(encode_key(table[column]) for column in WHY)))


# ---- one report ------------------------------------------------------------------------------------------------------


class _ReportReasons(ValueClass):
    """Finds the answers for the kernels and calls of one report."""

    report: ReportRecords
    rows: IntArray
    store: Store
    late: _Late
    answers: _Answers
    links: Links | None

    def explain(self, mine: IntArray, window_begins: IntArray) -> None:
        """Answer for the kernels and calls `mine` that the report shows; without links, find only the reasons."""
        is_mpi = self.late.is_mpi[mine] > 0
        launched = (mine[:0], mine[:0], mine[:0])
        if is_mpi.any():
            self._explain_calls(mine[is_mpi])
        if not is_mpi.all():
            launched = self._explain_kernels(mine[~is_mpi], window_begins)
        if self.links is not None:
            self._name_activity(mine[self.answers.thread[mine] != NONE], *launched)

    def _find(self, late: IntArray, place: IntArray, begin: IntArray) -> tuple[IntArray, IntArray]:
        """Return (the part of `late` that starts with an event on its row, the index of the event)."""
        row = self.rows[place]
        once = np.flatnonzero(~mark_duplicates(row, begin))
        event = find_rows([row[once], begin[once]], [self.late.row[late], self.late.begin[late]])
        return late[event >= 0], once[event[event >= 0]]

    def _explain_calls(self, late: IntArray) -> None:
        """Answer for MPI calls: their thread was late."""
        events = load_opened_events(self.report, source_names.MPI, self.store)
        late, call = self._find(late, events.place, events.begin)
        self.answers.reason[late] = LATE_CALL
        self.answers.thread[late], self.answers.limit[late] = events.place[call], self.late.begin[late]

    def _explain_kernels(self, late: IntArray, window_begins: IntArray) -> tuple[IntArray, IntArray, IntArray]:
        """Answer for kernels, from their launches and from the operations that ended as they started.

        Return the kernels that such operations held up, the threads that launched these operations, and when (ns).
        """
        launches = load_launches(self.report, self.store)
        operations = load_device_operations(self.report, self.store, host_functions=True)
        late, kernel = self._find(late, operations.place, operations.begin)
        place, begin, median = operations.place[kernel], self.late.begin[late], self.late.median[late]

        launch = launches.find(place, begin)
        sent = pick(launches.sent, launch, np.iinfo(np.int64).max)
        # If a launch was before a window, its line starts with the window: its time is not that of the launch.
        is_known = (launch >= 0) & ~np.isin(sent, window_begins)
        after_median = is_known & (sent > median)
        by_host = after_median & (sent - median >= begin - sent)
        on_stream, on_other = find_ended(self.report, operations, place, begin)
        can_wait = (launch >= 0) | operations.is_node[kernel]
        by_device = ~by_host & can_wait & (on_stream >= 0)
        by_dependency = ~by_host & can_wait & ~by_device & (on_other >= 0)
        is_prompt = is_known & (begin - sent <= PROMPT_NS)
        by_host |= ~by_device & ~by_dependency & (after_median | is_prompt)

        answers = self.answers
        reasons = [LATE_LAUNCH, LATE_DEVICE, LATE_DEPENDENCY]
        answers.reason[late] = np.select([by_host, by_device, by_dependency], reasons, LATE_UNKNOWN)
        answers.thread[late[by_host]], answers.limit[late[by_host]] = launches.thread[launch[by_host]], sent[by_host]

        before = np.where(by_device, on_stream, on_other)[by_device | by_dependency]
        held = late[by_device | by_dependency]
        answers.operation[held] = answers.names.number(operations.names, operations.name[before])
        if self.links is not None and held.size:
            self.links.add(self.report, self.rows, operations, launches, held, before)
        launch = launches.find(operations.place[before], operations.begin[before])
        held, launch = held[launch >= 0], launch[launch >= 0]
        return held, launches.thread[launch], launches.sent[launch]

    def _name_activity(self, late: IntArray, held: IntArray, launcher: IntArray, sent: IntArray) -> None:
        """Name what the threads were in, and add how long others waited because of it.

        `late`: the kernels and calls whose host was late. The others: the result of `_explain_kernels`.
        """
        thread, limit = self.answers.thread[late], self.answers.limit[late]
        threads = np.unique(np.concatenate([thread, launcher]))
        if not threads.size:
            return
        activity = late_hosts.load_host_activity(self.report, threads, self.store)
        answers, names = self.answers, self.answers.names
        for number in threads.tolist():
            in_thread = activity.threads[number]
            which = thread == number
            begin = np.minimum(self.late.median[late[which]], limit[which])
            in_range, in_call = late_hosts.find_main_activity(in_thread, begin, limit[which])
            answers.range[late[which]] = names.number(activity.range_names, in_range)
            answers.call[late[which]] = names.number(activity.call_names, in_call)
            for reason in (LATE_LAUNCH, LATE_CALL):
                part = which & (answers.reason[late] == reason)
                if part.any():
                    in_range, in_call, cost = late_hosts.sum_costs(in_thread, self.late.waits, late[part], limit[part])
                    in_range = names.number(activity.range_names, in_range)
                    in_call = names.number(activity.call_names, in_call)
                    answers.costs.append((np.full(cost.size, late[part][0]), in_range, in_call, cost))
            on_thread = launcher == number
            pair = in_thread.steps.get_values(sent[on_thread])
            answers.range[held[on_thread]] = names.number(activity.range_names, in_thread.range[pair])
