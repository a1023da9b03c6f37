"""Sums up who waits for whom: the time of each task in NCCL and MPI, and why tasks were late."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from nsys2prv_ng import source_names
from nsys2prv_ng.analysis.gpus.activity import list_activity_runs, list_devices, load_activity
from nsys2prv_ng.analysis.gpus.waiting import map_rows_to_gpus
from nsys2prv_ng.analysis.waits.clocks import Parts, place_parts
from nsys2prv_ng.analysis.waits.late_reasons import LateReasons
from nsys2prv_ng.analysis.waits.rules import BELOW_UNCERTAINTY, NOT_MATCHED, REASONS
from nsys2prv_ng.analysis.waits.waits import Waits
from nsys2prv_ng.arrays.groups import sum_table
from nsys2prv_ng.arrays.row_keys import encode_rows, find_rows
from nsys2prv_ng.arrays.types import BoolArray, IntArray, pick, sum_at
from nsys2prv_ng.intervals import step_functions
from nsys2prv_ng.intervals.device_sweep import COMPUTE, WHOLE_GRAPH
from nsys2prv_ng.job.counted import CountedEvents, mark_counted
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.operations.parts import Side
from nsys2prv_ng.reading.device_operations import mark_communication
from nsys2prv_ng.reading.opened_events import load_opened_events
from nsys2prv_ng.report.table_reader import NULL
from nsys2prv_ng.summary.links.measure import measure_links
from nsys2prv_ng.summary.links.messages import NO_PAYLOAD, find_payload_remedy, mark_without_payload
from nsys2prv_ng.summary.links.pipeline import measure_pipeline
from nsys2prv_ng.summary.waits.culprits import Blamed, WaitsForTasks, sum_culprits
from nsys2prv_ng.summary.waits.numbers import Bandwidth, LateCost, MpiWaits, RankWaits, WaitNumbers
from nsys2prv_ng.summary.waits.words import find_main_reasons, group_costs


class ShownWaits(NamedTuple):
    """n kernels and calls that count, or their pieces in a chosen time: index in `Waits`, row of the trace, ns."""

    at: IntArray
    row: IntArray
    begin: IntArray
    until: IntArray
    end: IntArray

    def take(self, which: IntArray | BoolArray) -> ShownWaits:
        """Return the pieces that indices or a mask select."""
        return ShownWaits(*(column[which] for column in self))


def compute_waits(
    job: Job, waits: Waits, late: LateReasons, nccl: Sequence[step_functions.Intervals]
) -> WaitNumbers | None:
    """Return the numbers on all waits of a job; None if it has neither NCCL kernels nor MPI calls over ranks.

    `late`: why the culprits of `waits` were late. `nccl`: the NCCL kernels of each report, from `load_communication`.
    """
    kernels = _find_kernels(job, _show(job, waits, ~waits.is_mpi), nccl)
    calls = _show(job, waits, waits.is_mpi)
    if not kernels.ns.any() and not calls.at.size:
        return None
    shown, why = _blame(job, waits, late, kernels.pieces, calls)
    parts = place_parts(job, job.operations.part)
    at = np.unique(shown.at)
    devices = list_devices(job).rows
    return WaitNumbers(
        operations=int(_mark_collectives(job, waits, shown).sum()) + _count_messages(job, waits, kernels.pieces),
        nccl_collectives=int(_mark_collectives(job, waits, kernels.pieces).sum()),
        mpi_collectives=int(_mark_collectives(job, waits, calls).sum()),
        split=int(waits.is_split[at].sum()),
        below_uncertainty=int((waits.verdict[at] == BELOW_UNCERTAINTY).sum()),
        not_split=_count_not_split(job, waits, at, kernels.unmatched),
        reports_without_payload=int(mark_without_payload(job).sum()),
        ranks=_list_ranks(job, waits, kernels, calls, parts.row, why),
        culprits=why.culprits,
        costs=why.costs,
        bandwidth=measure_bandwidth(job, waits, parts, kernels.pieces.at),
        links=measure_links(job, waits, parts, at, devices),
        pipeline=measure_pipeline(job, waits, devices),
        payload_remedy=find_payload_remedy(job),
    )


def list_costs(job: Job, waits: Waits, late: LateReasons) -> list[LateCost]:
    """Return what made tasks late that others waited for in the time and steps that count, as in WaitNumbers."""
    reports = range(len(job.reports))
    nccl = [*job.engine.sum_up(lambda report: load_communication(job, report, CountedEvents(job, report)), reports)]
    kernels = _find_kernels(job, _show(job, waits, ~waits.is_mpi), nccl).pieces
    _, why = _blame(job, waits, late, kernels, _show(job, waits, waits.is_mpi))
    return why.costs


def _blame(
    job: Job, waits: Waits, late: LateReasons, kernels: ShownWaits, calls: ShownWaits
) -> tuple[ShownWaits, WaitsForTasks]:
    """Return all pieces, and why the tasks were late that they waited for."""
    shown = ShownWaits(*(np.concatenate(columns) for columns in zip(kernels, calls, strict=True)))
    blamed = shown.take((waits.culprit[shown.at] >= 0) & (shown.until > shown.begin))
    return shown, sum_culprits(job, late, Blamed(late.instance[blamed.at], blamed.begin, blamed.until))


def _count_not_split(job: Job, waits: Waits, at: IntArray, unmatched: IntArray) -> dict[str, int]:
    """Return the number of kernels and calls that are not split, by reason.

    `at`: the kernels and calls in the chosen time, as indices in `Waits`. `unmatched`: the number of kernels that are
    not in `Waits`, by report.
    """
    lacks_payload = mark_without_payload(job)
    lacking = [job.whole.rows[index] for index in np.flatnonzero(lacks_payload).tolist()]
    in_lacking = np.isin(waits.row[at], np.concatenate([waits.row[:0], *lacking]))
    without = in_lacking & ~waits.is_mpi[at] & (waits.verdict[at] == NOT_MATCHED)
    not_split: dict[int, str] = {verdict: reason for verdict, reason in REASONS.items() if verdict != BELOW_UNCERTAINTY}
    counts = {reason: int(((waits.verdict[at] == verdict) & ~without).sum()) for verdict, reason in not_split.items()}
    counts[REASONS[NOT_MATCHED]] += int(unmatched[~lacks_payload].sum())
    counts[NO_PAYLOAD] = int(without.sum() + unmatched[lacks_payload].sum())
    return {reason: count for reason, count in counts.items() if count}


def _mark_collectives(job: Job, waits: Waits, pieces: ShownWaits) -> BoolArray:
    """Mark the collectives (of `Job.operations`) that the pieces carry out."""
    marks = np.zeros(len(job.operations), np.bool_)
    operation = waits.operation[pieces.at]
    marks[operation[operation >= 0]] = True
    return marks


def _count_messages(job: Job, waits: Waits, kernels: ShownWaits) -> int:
    """Return the number of messages that a shown kernel, or a call that counts on a row of the trace, carries."""
    count = 0
    for joined in job.joined:
        for source, pairs in joined.messages.items():
            if source == source_names.MPI:
                sent, received = (_mark_shown(job, side) for side in pairs.sides)
            else:
                shown = [waits.row[kernels.at], waits.begin[kernels.at]]
                sent, received = (find_rows(shown, [side.row, side.begin]) >= 0 for side in pairs.sides)
            count += int((sent | received).sum())
    return count


def _mark_shown(job: Job, side: Side) -> BoolArray:
    """Mark the calls on rows of the trace that count, and have a part in the chosen time."""
    begin, end = np.where(side.begin == NULL, side.end, side.begin), np.where(side.end == NULL, side.begin, side.end)
    row = job.new_row[side.row]
    shown = np.asarray((row >= 0) & mark_counted(job, row, begin), np.bool_)
    if job.scope.windows:
        index, _, _, _ = step_functions.cut_to_windows(begin, end, job.scope.windows)
        shown &= np.isin(np.arange(row.size), index)
    return shown


def _show(job: Job, waits: Waits, which: BoolArray) -> ShownWaits:
    """Return the pieces of the marked kernels and calls that are on rows of the trace and in the chosen time."""
    index = np.flatnonzero(which & (job.new_row[waits.row] >= 0))
    # Kernels count by their launch, which their report shows.
    index = index[~waits.is_mpi[index] | mark_counted(job, job.new_row[waits.row[index]], waits.begin[index])]
    begin, end = waits.begin[index], waits.end[index]
    if job.scope.windows:
        piece, _, begin, end = step_functions.cut_to_windows(begin, end, job.scope.windows)
        index = index[piece]
    until = np.clip(waits.until[index], begin, end)
    return ShownWaits(index, job.new_row[waits.row[index]], begin, until, end)


# ---- NCCL kernels ---------------------------------------------------------------------------------------------------


class _Kernels(NamedTuple):
    """NCCL kernels in the trace: their time (ns) by task, the pieces in `Waits`, the number of others by report."""

    ns: IntArray
    pieces: ShownWaits
    unmatched: IntArray


def _find_kernels(job: Job, pieces: ShownWaits, parts: Sequence[step_functions.Intervals]) -> _Kernels:
    """Find the pieces that are NCCL kernels that the trace shows, given these kernels of each report."""
    row, begin, end = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    report = np.repeat(np.arange(len(parts)), [part[0].size for part in parts])
    ns = sum_at(end - begin, job.tree.task_of_row[row], len(job.tree.model.tasks))
    at = find_rows([pieces.row, pieces.begin, pieces.end], [row, begin, end])
    return _Kernels(ns, pieces.take(np.unique(at[at >= 0])), np.bincount(report[at < 0], minlength=len(parts)))


def load_communication(job: Job, report: int, counted: CountedEvents) -> step_functions.Intervals:
    """Return the kernels and copies of a report that communicate in the chosen time. `counted`: marks its events.

    There are none if NCCL's calls, which match them over ranks, were not read.
    """
    parts = []
    sources = (source_names.KERNELS, source_names.MEMORY_OPERATIONS)
    for source in sources if source_names.NCCL in job.reports[report].results else ():
        events = load_opened_events(job.reports[report], source, job.store)
        row = job.tree.rows[report][events.place]
        lines = np.flatnonzero(mark_communication(events) & (row >= 0))
        lines = lines[counted.mark_operations(events.place[lines], events.begin[lines])]
        parts.append((row[lines], events.begin[lines], events.end[lines]))
    return step_functions.join_intervals(parts)


def _measure_exposed(job: Job, waits: Waits, pieces: ShownWaits) -> IntArray | None:
    """Return how long (ns) each kernel waits while its GPU computes nothing; None if no GPU activity is known.

    A graph that was traced as a whole may compute: it hides waiting too.
    """
    runs = list_activity_runs(job)
    if not runs:
        return None
    changes = (load_activity(job, run) for run in runs)
    parts = (
        step_functions.find_intervals(row, time, activity & (COMPUTE | WHOLE_GRAPH) > 0)
        for row, time, activity in changes
    )
    computing = step_functions.CoveredTime(step_functions.join_intervals(parts))
    gpu = map_rows_to_gpus(job)[waits.row[pieces.at]]
    return pieces.until - pieces.begin - computing.measure(gpu, pieces.begin, pieces.until)


# ---- tasks -----------------------------------------------------------------------------------------------------------


def _sum_by_task(
    job: Job, waits: Waits, pieces: ShownWaits, whole: IntArray, part_row: IntArray
) -> dict[str, IntArray]:
    """Return the sums over some pieces by task, as the fields that RankWaits and MpiWaits share.

    `whole`: time (ns) of each task, which waiting, moving and unsplit time add up to. `part_row`: row of each part of
    `Job.operations`, -1 without one.
    """
    tasks, task = whole.size, job.tree.task_of_row[pieces.row]
    wait_ns, transfer, caused, caused_in_messages = np.zeros((4, tasks), np.int64)
    parted, wait = waits.has_parts[pieces.at], pieces.until - pieces.begin
    np.add.at(wait_ns, task, wait)
    np.add.at(transfer, task[parted], (pieces.end - pieces.until)[parted])
    row = pick(job.new_row, waits.culprit[pieces.at], -1)  # -1: nobody
    blamed = np.flatnonzero((row >= 0) & (wait > 0))
    culprit, operation = job.tree.task_of_row[row[blamed]], waits.operation[pieces.at[blamed]]
    np.add.at(caused, culprit, wait[blamed])
    message = operation < 0
    np.add.at(caused_in_messages, culprit[message], wait[blamed][message])
    last = _count_by_task(culprit[~message], operation[~message], tasks)

    number = np.repeat(np.arange(len(job.operations)), np.diff(job.operations.first))
    part_row = pick(job.new_row, part_row, -1)
    shown = np.flatnonzero((part_row >= 0) & _mark_collectives(job, waits, pieces)[number])
    collectives = _count_by_task(job.tree.task_of_row[part_row[shown]], number[shown], tasks)
    return {
        "wait_ns": wait_ns,
        "transfer_ns": transfer,
        "unsplit_ns": whole - wait_ns - transfer,
        "collectives": collectives,
        "last": last,
        "caused_wait_ns": caused,
        "caused_in_messages_ns": caused_in_messages,
    }


def _count_by_task(task: IntArray, operation: IntArray, tasks: int) -> IntArray:
    """Return the number of distinct operations of each task."""
    _, first = encode_rows(task, operation)
    return np.bincount(task[first], minlength=tasks)


def _list_ranks(
    job: Job, waits: Waits, kernels: _Kernels, calls: ShownWaits, part_row: IntArray, why: WaitsForTasks
) -> list[RankWaits]:
    """Return the numbers of the tasks that have NCCL kernels or MPI calls over ranks, or that others waited for."""
    mpi_ns = sum_at(calls.end - calls.begin, job.tree.task_of_row[calls.row], kernels.ns.size)
    nccl = _sum_by_task(job, waits, kernels.pieces, kernels.ns, part_row)
    mpi = _sum_by_task(job, waits, calls, mpi_ns, part_row)
    exposed = _measure_exposed(job, waits, kernels.pieces)
    exposed_ns = np.zeros(kernels.ns.size, np.int64)
    if exposed is not None:
        np.add.at(exposed_ns, job.tree.task_of_row[kernels.pieces.row], exposed)
    main = find_main_reasons(group_costs(why.costs, why.culprits))
    ranks = []
    for number in np.flatnonzero(kernels.ns | mpi_ns | nccl["caused_wait_ns"] | mpi["caused_wait_ns"]).tolist():
        task = job.tree.model.tasks[number].name
        in_nccl, in_mpi = ({name: int(sums[number]) for name, sums in library.items()} for library in (nccl, mpi))
        numbers = RankWaits(
            rank=job.tree.ranks[number],
            task=task,
            nccl_ns=int(kernels.ns[number]),
            exposed_wait_ns=None if exposed is None else int(exposed_ns[number]),
            **in_nccl,
            reason=main[task].reason if task in main else None,
            longest_wait=why.longest.get(task),
            mpi=MpiWaits(mpi_ns=int(mpi_ns[number]), **in_mpi) if mpi_ns.any() else None,
        )
        ranks.append(numbers)
    return ranks


_ALL_TO_ALL = "ncclAllGather", "ncclReduceScatter", "ncclAlltoAll"
"""Functions whose calls record the size of one rank only."""
_TO_OR_FROM_ROOT = "ncclBroadcast", "ncclBcast", "ncclReduce"


def measure_bandwidth(job: Job, waits: Waits, parts: Parts, shown: IntArray) -> list[Bandwidth]:
    """Return the bandwidth of collectives by function, communicator and size, most bytes first.

    The rates are defined as in nccl-tests (doc/PERFORMANCE.md): the algorithm bandwidth is size / time, and the bus
    bandwidth takes into account how often each byte must cross a link. The size of an all-gather, a reduce-scatter and
    an all-to-all is the sum over all ranks, while NCCL records the size of one rank. An operation moves data from the
    start of its last rank: its time is the longest moving part of any of its kernels.

    An operation counts if all its kernels count and are in the chosen time, are split, and carry out no other
    operation. `parts`: the parts of all operations of the job. `shown`: the kernels that count, as indices in `waits`.
    """
    operations, table = job.operations, job.operations.table
    if not len(operations):
        return []
    at = find_rows([waits.row, waits.begin, waits.end], [parts.row, parts.begin, parts.end])
    code, _ = encode_rows(parts.row, parts.begin, parts.end)
    is_chosen = (pick(job.new_row, parts.row, -1) >= 0) & step_functions.mark_inside(
        parts.begin, parts.end, job.scope.windows
    )
    usable = np.isin(at, shown) & (np.bincount(code)[code] == 1) & is_chosen
    moving = np.zeros(at.size, np.int64)
    usable[usable] = waits.is_split[at[usable]] & ~waits.is_mpi[at[usable]]
    moving[usable] = (waits.end - waits.until)[at[usable]]

    starts, leader = operations.first[:-1], operations.leader
    ns, size, ranks = np.maximum.reduceat(moving, starts), table.bytes[leader], np.diff(operations.first)
    chosen = np.flatnonzero(np.logical_and.reduceat(usable, starts) & (size > 0) & (ns > 0))
    rows = {
        "function": table.name[leader[chosen]],
        "communicator": table.communicator[leader[chosen]],
        "ranks": ranks[chosen],
        "bytes": size[chosen],
        "count": np.ones(chosen.size, np.int64),
        "ns": ns[chosen],
    }
    sums = sum_table(rows, ["function", "communicator", "ranks", "bytes"])
    names = {c.id: (c.axis, c.label) for part in job.joined for c in part.nccl_communicators}
    rated = (
        rate(table.names[function], table.communicators[communicator], *row)
        for function, communicator, *row in zip(*(column.tolist() for column in sums.values()), strict=True)
    )
    known = []
    for each in filter(None, rated):
        name, label = names.get(each.communicator, ("", ""))
        known.append(replace(each, communicator_name=name, communicator_label=label))
    return sorted(known, key=lambda b: (-b.bytes * b.count, b.function, b.communicator, b.bytes))


def rate(function: str, communicator: str, ranks: int, size: int, count: int, ns: int) -> Bandwidth | None:
    """Return the bandwidth of operations with these sums; None for a function without a defined bandwidth."""
    moved, factor = size, (ranks - 1) / ranks
    if function == "ncclAllReduce":
        factor *= 2
    elif function in _ALL_TO_ALL:
        moved *= ranks
    elif function in _TO_OR_FROM_ROOT:
        factor = 1.0
    else:
        return None
    algorithm = moved * count / ns * 1e9
    return Bandwidth(
        function=function.removeprefix("nccl"),
        communicator=communicator.removeprefix("nccl "),
        ranks=ranks,
        bytes=size,
        count=count,
        ns=ns,
        algorithm_bytes_per_s=round(algorithm),
        bus_bytes_per_s=round(algorithm * factor),
    )
