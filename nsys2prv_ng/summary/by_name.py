"""Sums up a job by name: kernels, copies and sets, NCCL, MPI, NVTX ranges, CUDA API and OS runtime calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from nsys2prv_ng.analysis.waits.waits import Waits
from nsys2prv_ng.arrays.groups import Table, drop_columns, encode_key, make_objects, make_rows, sort_groups
from nsys2prv_ng.arrays.row_keys import find_rows, list_rows, sort_rows
from nsys2prv_ng.arrays.types import IntArray, pick
from nsys2prv_ng.grouping import group_by_key
from nsys2prv_ng.job.counted import CountedEvents, count_steps
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.summary import totals
from nsys2prv_ng.summary.job import CallNumbers
from nsys2prv_ng.summary.kernels.numbers import KernelNumbers
from nsys2prv_ng.summary.memory.numbers import MemoryKindNumbers, MemoryOperationNumbers
from nsys2prv_ng.summary.ranges.numbers import RangeOfTask, RepeatedRange
from nsys2prv_ng.summary.ranges.waiting import WaitingInRanges, choose_slowest
from nsys2prv_ng.summary.waits.numbers import MpiNumbers, NcclNumbers


class NameSums(NamedTuple):
    """Sums over the events of one report that count, as summary/totals.py makes them."""

    kernels: Table
    memory_operations: Table
    nccl: Table
    mpi: Table
    ranges: Table
    calls: Table


class ByName(NamedTuple):
    """Sums over all reports, as in JobSummary."""

    kernels: list[KernelNumbers]
    memory_operations: list[MemoryOperationNumbers]
    nccl: list[NcclNumbers]
    mpi: list[MpiNumbers]
    ranges: list[RepeatedRange]
    calls: list[CallNumbers]


def sum_names(job: Job, index: int, counted: CountedEvents, waiting: WaitingInRanges, waits: Waits) -> NameSums:
    """Return the sums over the events of a report that count."""
    report, rows = job.reports[index], job.tree.rows[index]
    measures: dict[str, totals.Measure] = {
        "waiting_ns": lambda place, begin, end: waiting.measure_threads(rows[place], begin, end),
        "gpu_waiting_ns": lambda place, begin, end: waiting.measure_all(rows[place], begin, end),
        "unsplit_ns": lambda place, begin, end: waiting.measure_unknown(rows[place], begin, end),
    }
    here = list_rows(waits.row, np.unique(job.whole.rows[index]))  # only these are sorted, for each report
    shown = waits.take(here[~waits.is_mpi[here] & (job.new_row[waits.row[here]] >= 0)])

    def find_kernel_waits(place: IntArray, begin: IntArray) -> IntArray:
        at = find_rows([job.new_row[shown.row], shown.begin], [rows[place], begin])
        return pick(shown.wait, at, 0)

    task_of_place = job.find_tasks(rows)
    return NameSums(
        kernels=totals.sum_kernels(report, job.store, counted, task=lambda events: task_of_place[events.place]),
        memory_operations=totals.sum_memory_operations(report, job.store, counted, job.scope.windows),
        nccl=totals.sum_nccl(report, job.store, counted, job.scope.windows, find_kernel_waits),
        mpi=totals.sum_mpi(report, job.store, counted, job.scope.windows),
        ranges=totals.sum_repeated_ranges(report, task_of_place, job.store, counted, job.scope.windows, measures),
        calls=totals.sum_calls(report, task_of_place, job.store, counted),
    )


def collect_names(job: Job, parts: Sequence[NameSums], caused: Mapping[str, int]) -> tuple[ByName, Table]:
    """Return the sums over all reports, and the calls by `name`, `source` and `task`.

    `caused`: how long (ns) others waited for each task, by its name.
    """
    calls = totals.add_up([part.calls for part in parts], ["name", "source", "task"])
    by_call = totals.add_up([drop_columns(calls, "task")], ["name", "source"])
    nccl, mpi = totals.add_up([part.nccl for part in parts], ["function"]), [part.mpi for part in parts]
    named = ByName(
        kernels=_list_kernels([part.kernels for part in parts], [task.name for task in job.tree.model.tasks]),
        memory_operations=_list_memory_operations([part.memory_operations for part in parts]),
        nccl=[_make_nccl(row) for row in sort_rows_by(nccl, "kernel_ns")],
        mpi=[_make_mpi(row) for row in sort_rows_by(totals.add_up(mpi, ["name"]), "total_ns")],
        ranges=_collect_ranges(job, [part.ranges for part in parts], caused),
        calls=[CallNumbers(**row) for row in sort_rows_by(by_call, "total_ns")],
    )
    return named, calls


def sort_rows_by(table: Table, by: str) -> list[dict[str, Any]]:
    """Return each row of a table as a dict, the largest value in column `by` first, then by the first column."""
    order = np.lexsort((encode_key(next(iter(table.values()))), -table[by]))
    return make_rows({name: column[order] for name, column in table.items()})


def _list_kernels(parts: Sequence[Table], task_names: Sequence[str]) -> list[KernelNumbers]:
    keys = ["name", "kernel_class"]
    by_task = totals.add_up(parts, [*keys, "task"])
    table = totals.add_up([drop_columns(by_task, "task")], keys)
    # Both are sorted by the keys.
    _, starts = sort_groups([by_task[key] for key in keys])
    group = np.repeat(np.arange(starts.size), np.diff(starts, append=by_task["task"].size))
    busiest = sort_rows(group, by_task["total_ns"], by_task["task"])[np.cumsum(np.bincount(group)) - 1]
    table["busiest_task"] = make_objects(task_names[task] for task in by_task["task"][busiest].tolist())
    table["busiest_ns"] = by_task["total_ns"][busiest]
    return [KernelNumbers(**row) for row in sort_rows_by(table, "total_ns")]


def _list_memory_operations(parts: Sequence[Table]) -> list[MemoryOperationNumbers]:
    by_memory = drop_columns(totals.add_up(parts, ["operation", "source", "destination"]), "min_ns", "max_ns")
    kinds = group_by_key((row.pop("operation"), MemoryKindNumbers(**row)) for row in sort_rows_by(by_memory, "bytes"))
    table = totals.add_up([drop_columns(by_memory, "source", "destination")], ["operation"])
    return [MemoryOperationNumbers(**row, by_memory=kinds[row["operation"]]) for row in sort_rows_by(table, "bytes")]


def _make_nccl(row: dict[str, Any]) -> NcclNumbers:
    if not row.pop("sized"):
        row["bytes"] = None
    return NcclNumbers(**row)


def _make_mpi(row: dict[str, Any]) -> MpiNumbers:
    if not row.pop("sized"):
        row |= {"sent_bytes": None, "received_bytes": None}
    del row["min_ns"]
    return MpiNumbers(call=row.pop("name"), **row)


# ---- ranges ----------------------------------------------------------------------------------------------------------


def _collect_ranges(job: Job, parts: Sequence[Table], caused: Mapping[str, int]) -> list[RepeatedRange]:
    """Return the repeated ranges of all tasks, the ranges with most time first."""
    table = totals.add_up(parts, ["domain", "name", "task"])
    ranges, steps = [], count_steps(job)
    for (domain, name), rows in groupby(make_rows(table), itemgetter("domain", "name")):
        by_task = list(rows)
        tasks = [_make_range(job, row, steps) for row in by_task]
        depth = min(row["depth"] for row in by_task)
        slowest = choose_slowest(tasks, caused) if len(tasks) > 1 else None
        ranges.append(RepeatedRange(domain=domain, name=name, depth=depth, tasks=tasks, slowest_task=slowest))
    return sorted(ranges, key=lambda repeated: (-repeated.total_ns, repeated.domain, repeated.name))


def _make_range(job: Job, row: dict[str, Any], steps: int) -> RangeOfTask:
    """Return the times of a range on a task, given a row of a table by domain, name and task."""
    times = {column: row[column] for column in row if column not in ("domain", "name", "task", "depth")}
    if row["count"] != row["per_step"] * steps:  # ranges of two reports of a task are not counted step by step
        times["per_step"] = 0
    return RangeOfTask(rank=job.tree.ranks[row["task"]], task=job.tree.model.tasks[row["task"]].name, **times)
