"""Sums up who waits for whom: time in NCCL and MPI by task, and why the tasks that others wait for were late."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from nsys2prv_ng.analysis.gpu_activity import list_activity_runs, load_activity
from nsys2prv_ng.analysis.gpu_waits import find_gpu_rows
from nsys2prv_ng.analysis.late_reasons import LateReasons
from nsys2prv_ng.analysis.opened_events import ABSENT, load_opened_events
from nsys2prv_ng.analysis.wait_rules import NOT_MATCHED, REASONS
from nsys2prv_ng.analysis.waits import Waits
from nsys2prv_ng.arrays.row_keys import encode_rows, find_rows
from nsys2prv_ng.arrays.types import BoolArray, IntArray
from nsys2prv_ng.intervals.device_sweep import COMPUTE, IDLE
from nsys2prv_ng.intervals.windows import cut_to_windows
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.report.database import NULL
from nsys2prv_ng.runtime.parallel import run_in_threads
from nsys2prv_ng.sources.nccl import nccl
from nsys2prv_ng.summary.bandwidth import measure_bandwidth
from nsys2prv_ng.summary.covered_time import CoveredTime, find_intervals, join_intervals
from nsys2prv_ng.summary.model import Culprit, MpiWaits, RankWaits, WaitNumbers
from nsys2prv_ng.summary.wait_reasons import LATE_REASONS

_MATCHING = nccl.SOURCE.name
"""The source without which kernels of NCCL are not matched over ranks."""


class ShownWaits(NamedTuple):
    """n pieces of kernels and calls in the chosen time: position in `Waits`, row of the trace, times (ns)."""

    at: IntArray
    row: IntArray
    begin: IntArray
    until: IntArray
    end: IntArray

    def take(self, which: IntArray | BoolArray) -> ShownWaits:
        """Return the pieces at these indices, or that are marked."""
        return ShownWaits(*(column[which] for column in self))


def compute_waits(job: Job, waits: Waits, late: LateReasons) -> WaitNumbers | None:
    """Return the numbers of all waits of a job; None if it has neither kernels of NCCL nor MPI calls over ranks.

    `late`: the reasons of the culprits of `waits`.
    """
    tasks = len(job.tree.model.tasks)
    kernels = _find_kernels(job, _show(job, waits, ~waits.is_mpi), tasks)
    calls = _show(job, waits, waits.is_mpi)
    if not kernels.ns.any() and not calls.at.size:
        return None
    shown = ShownWaits(*(np.concatenate(columns) for columns in zip(kernels.pieces, calls, strict=True)))
    culprits = _list_culprits(job, waits, late, shown)
    not_split = {
        reason: int((waits.verdict[np.unique(shown.at)] == verdict).sum()) for verdict, reason in REASONS.items()
    }
    not_split[REASONS[NOT_MATCHED]] += kernels.unmatched
    operation, is_mpi = waits.operation[shown.at], waits.is_mpi[shown.at]
    return WaitNumbers(
        operations=_count_distinct(operation[operation >= 0]) + _count_messages(job),
        nccl_collectives=_count_distinct(operation[(operation >= 0) & ~is_mpi]),
        mpi_collectives=_count_distinct(operation[(operation >= 0) & is_mpi]),
        split=int(waits.is_split[np.unique(shown.at)].sum()),
        not_split={reason: count for reason, count in not_split.items() if count},
        ranks=_list_ranks(job, waits, kernels, calls, culprits),
        culprits=culprits,
        bandwidth=measure_bandwidth(job, waits),
    )


def _count_distinct(values: IntArray) -> int:
    return int(np.unique(values).size)


def _count_messages(job: Job) -> int:
    """Return the number of messages with an end on a row of the trace and in the chosen time."""
    count = 0
    for joined in job.joined:
        for pairs in joined.messages.values():
            sent = _mark_shown(job, pairs.send_row, pairs.send_begin, pairs.send_end)
            received = _mark_shown(job, pairs.receive_row, pairs.receive_begin, pairs.receive_end)
            count += int((sent | received).sum())
    return count


def _mark_shown(job: Job, row: IntArray, begin: IntArray, end: IntArray) -> BoolArray:
    """Mark the kernels and calls on rows of the trace that have a part in the chosen time."""
    shown = np.asarray(job.new_row[row] >= 0, np.bool_)
    if job.windows:
        begin, end = np.where(begin == NULL, end, begin), np.where(end == NULL, begin, end)
        index, _, _, _ = cut_to_windows(begin, end, job.windows)
        shown &= np.isin(np.arange(row.size), index)
    return shown


def _show(job: Job, waits: Waits, which: BoolArray) -> ShownWaits:
    """Return the pieces of the marked kernels and calls that are on rows of the trace and in the chosen time."""
    index = np.flatnonzero(which & (job.new_row[waits.row] >= 0))
    begin, end = waits.begin[index], waits.end[index]
    if job.windows:
        piece, _, begin, end = cut_to_windows(begin, end, job.windows)
        index = index[piece]
    until = np.clip(waits.until[index], begin, end)
    return ShownWaits(index, job.new_row[waits.row[index]], begin, until, end)


# ---- kernels of NCCL -------------------------------------------------------------------------------------------------


class _Kernels(NamedTuple):
    """Kernels of NCCL in the trace: their time (ns) by task, what is known of them, and the number of the others."""

    ns: IntArray
    pieces: ShownWaits
    unmatched: int


def _find_kernels(job: Job, pieces: ShownWaits, tasks: int) -> _Kernels:
    """Find the kernels that the trace shows, and which of the pieces are theirs."""
    order = np.argsort(pieces.row, kind="stable")
    rows = pieces.row[order]

    def match(report: int) -> tuple[IntArray, IntArray, int]:
        row, begin, end = _load_kernels(job, report)
        ns = np.zeros(tasks, np.int64)
        np.add.at(ns, job.tree.task_of_row[row], end - begin)
        own = [order[slice(*np.searchsorted(rows, [number, number + 1]))] for number in np.unique(row).tolist()]
        here = np.concatenate([*own, np.zeros(0, np.int64)])
        known = pieces.row[here], pieces.begin[here], pieces.end[here]
        at = find_rows(known, [row, begin, end])
        return ns, np.unique(here[at[at >= 0]]), int((at < 0).sum())

    parts = list(run_in_threads(match, range(len(job.reports)), job.workers))
    matched = np.unique(np.concatenate([part[1] for part in parts]))
    return _Kernels(np.sum([part[0] for part in parts], axis=0), pieces.take(matched), sum(part[2] for part in parts))


def _load_kernels(job: Job, report: int) -> tuple[IntArray, IntArray, IntArray]:
    """Return row, begin and end (ns) of the kernels of NCCL of a report, in the chosen time.

    None where the source was not read that matches them.
    """
    source = "kernels" if _MATCHING in job.reports[report].results else ""
    events = load_opened_events(job.reports[report], source, job.store)
    row = job.tree.rows[report][events.place]
    lines = np.flatnonzero((events.get_values(types.NCCL_KERNEL) != ABSENT) & (row >= 0))
    return row[lines], events.begin[lines], events.end[lines]


def _measure_exposed(job: Job, waits: Waits, pieces: ShownWaits) -> IntArray | None:
    """Return how long (ns) each kernel waits while its GPU computes nothing; None if no activity of GPUs is known."""
    runs = list_activity_runs(job)
    if not runs:
        return None
    changes = (load_activity(job, run) for run in runs)
    computing = CoveredTime(
        join_intervals(
            find_intervals(row, time, (activity & COMPUTE > 0) & (activity != IDLE)) for row, time, activity in changes
        )
    )
    gpu = find_gpu_rows(job)[waits.row[pieces.at]]
    return pieces.until - pieces.begin - computing.measure(gpu, pieces.begin, pieces.until)


# ---- tasks -----------------------------------------------------------------------------------------------------------


class _TaskSums(NamedTuple):
    """Sums by task: time (ns) of waiting, moving and both; times last; waiting (ns) that it caused."""

    wait: IntArray
    transfer: IntArray
    whole: IntArray
    last: IntArray
    caused: IntArray


def _sum_by_task(job: Job, waits: Waits, pieces: ShownWaits) -> _TaskSums:
    tasks, task = len(job.tree.model.tasks), job.tree.task_of_row[pieces.row]
    sums = np.zeros((4, tasks), np.int64)
    parted, wait = waits.has_parts[pieces.at], pieces.until - pieces.begin
    np.add.at(sums[0], task, wait)
    np.add.at(sums[1], task[parted], (pieces.end - pieces.until)[parted])
    np.add.at(sums[2], task, pieces.end - pieces.begin)
    row = np.append(job.new_row, -1)[waits.culprit[pieces.at]]  # of nobody: the one appended
    blamed = np.flatnonzero((row >= 0) & (wait > 0))
    culprit, operation = job.tree.task_of_row[row[blamed]], waits.operation[pieces.at[blamed]]
    np.add.at(sums[3], culprit, wait[blamed])
    collective = np.flatnonzero(operation >= 0)
    _, first = encode_rows(culprit[collective], operation[collective])
    last = np.bincount(culprit[collective[first]], minlength=tasks)
    return _TaskSums(sums[0], sums[1], sums[2], last, sums[3])


def _list_ranks(
    job: Job, waits: Waits, kernels: _Kernels, calls: ShownWaits, culprits: list[Culprit]
) -> list[RankWaits]:
    """Return the numbers of the tasks with kernels of NCCL or MPI calls over ranks, in their order."""
    nccl, mpi = _sum_by_task(job, waits, kernels.pieces), _sum_by_task(job, waits, calls)
    exposed = _measure_exposed(job, waits, kernels.pieces)
    exposed_ns = np.zeros(kernels.ns.size, np.int64)
    if exposed is not None:
        np.add.at(exposed_ns, job.tree.task_of_row[kernels.pieces.row], exposed)
    reason_of_task: dict[str, str] = {}
    for culprit in culprits:
        reason_of_task.setdefault(culprit.task, culprit.reason)
    ranks = []
    for number, task in enumerate(job.tree.model.tasks):
        if kernels.ns[number] or mpi.whole[number] or nccl.caused[number] or mpi.caused[number]:
            wait, transfer = int(nccl.wait[number]), int(nccl.transfer[number])
            ranks.append(
                RankWaits(
                    rank=job.tree.ranks[number],
                    task=task.name,
                    nccl_ns=int(kernels.ns[number]),
                    wait_ns=wait,
                    exposed_wait_ns=None if exposed is None else int(exposed_ns[number]),
                    transfer_ns=transfer,
                    unsplit_ns=int(kernels.ns[number]) - wait - transfer,
                    last=int(nccl.last[number]),
                    caused_wait_ns=int(nccl.caused[number]),
                    reason=reason_of_task.get(task.name),
                    mpi=_make_mpi(mpi, number) if mpi.whole.any() else None,
                )
            )
    return ranks


def _make_mpi(sums: _TaskSums, task: int) -> MpiWaits:
    wait, transfer, whole = int(sums.wait[task]), int(sums.transfer[task]), int(sums.whole[task])
    return MpiWaits(whole, wait, transfer, whole - wait - transfer, int(sums.last[task]), int(sums.caused[task]))


# ---- culprits --------------------------------------------------------------------------------------------------------


def _list_culprits(job: Job, waits: Waits, late: LateReasons, shown: ShownWaits) -> list[Culprit]:
    """Return why tasks were late, with the longest waiting of others first."""
    wait = shown.until - shown.begin
    blamed = np.flatnonzero((waits.culprit[shown.at] >= 0) & (wait > 0))
    instance = late.instance[shown.at[blamed]]
    why = [job.whole.task_of_row[late.row], late.reason, late.range, late.call, late.operation]
    rows = pd.DataFrame({"instance": instance, "ns": wait[blamed], **{str(i): c[instance] for i, c in enumerate(why)}})
    sums = rows.groupby([str(i) for i in range(len(why))], as_index=False).agg(
        times=("instance", "nunique"), ns=("ns", "sum")
    )
    names = [*late.names, ""]  # the last one is that of NONE
    culprits = [
        Culprit(
            rank=job.whole.ranks[task],
            task=job.whole.model.tasks[task].name,
            reason=LATE_REASONS[reason],
            range=names[in_range],
            call=names[call],
            operation=names[operation],
            times=times,
            ns=ns,
        )
        for task, reason, in_range, call, operation, times, ns in zip(
            *(sums[column].tolist() for column in sums.columns), strict=True
        )
    ]
    return sorted(culprits, key=lambda c: (-c.ns, c.task, c.reason, c.range, c.call, c.operation))
