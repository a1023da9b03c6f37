"""Sums up a job by name: kernels, copies and sets, NCCL, MPI, NVTX ranges, CUDA API and OS runtime calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from nsys2prv_ng.analysis.waits.waits import Waits
from nsys2prv_ng.arrays import row_keys
from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.job.counted import CountedEvents, count_steps
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.summary.compute import totals
from nsys2prv_ng.summary.compute.range_waits import WaitingInRanges, choose_slowest
from nsys2prv_ng.summary.numbers.job import (
    CallNumbers,
    KernelNumbers,
    MemoryKindNumbers,
    MemoryOperationNumbers,
    MpiNumbers,
    NcclNumbers,
    RangeOfTask,
    RepeatedRange,
)


class NameSums(NamedTuple):
    """Sums over the events of one report that count, as summary/compute/totals.py makes them."""

    kernels: pd.DataFrame
    memory_operations: pd.DataFrame
    nccl: pd.DataFrame
    mpi: pd.DataFrame
    ranges: pd.DataFrame
    calls: pd.DataFrame


class ByName(NamedTuple):
    """Sums over all reports, as in JobSummary; and the calls by `name`, `source` and `task`."""

    kernels: list[KernelNumbers]
    memory_operations: list[MemoryOperationNumbers]
    nccl: list[NcclNumbers]
    mpi: list[MpiNumbers]
    ranges: list[RepeatedRange]
    calls: list[CallNumbers]
    calls_by_task: pd.DataFrame


def find_tasks(job: Job, index: int) -> IntArray:
    """Return the task (of the trace) of each place of a report; -1 without a row."""
    rows = job.tree.rows[index]
    return np.where(rows >= 0, job.tree.task_of_row[rows], -1)


def sum_names(job: Job, index: int, counted: CountedEvents, waiting: WaitingInRanges, waits: Waits) -> NameSums:
    """Return the sums over the events of a report that count."""
    report, rows = job.reports[index], job.tree.rows[index]
    measures: dict[str, totals.Measure] = {
        "waiting_ns": lambda place, begin, end: waiting.measure_threads(rows[place], begin, end),
        "gpu_waiting_ns": lambda place, begin, end: waiting.measure_all(rows[place], begin, end),
        "unsplit_ns": lambda place, begin, end: waiting.measure_unknown(rows[place], begin, end),
    }
    here = row_keys.list_rows(waits.row, np.unique(job.whole.rows[index]))  # only these are sorted, for each report
    shown = waits.take(here[~waits.is_mpi[here] & (job.new_row[waits.row[here]] >= 0)])

    def find_kernel_waits(place: IntArray, begin: IntArray) -> IntArray:
        at = row_keys.find_rows([job.new_row[shown.row], shown.begin], [rows[place], begin])
        return np.append(shown.wait, 0)[at]

    task_of_place = find_tasks(job, index)
    return NameSums(
        kernels=totals.sum_kernels(report, job.store, counted, task=lambda events: task_of_place[events.place]),
        memory_operations=totals.sum_memory_operations(report, job.store, counted, job.windows),
        nccl=totals.sum_nccl(report, job.store, counted, job.windows, find_kernel_waits),
        mpi=totals.sum_mpi(report, job.store, counted, job.windows),
        ranges=totals.sum_repeated_ranges(report, task_of_place, job.store, counted, job.windows, measures),
        calls=totals.sum_calls(report, task_of_place, job.store, counted),
    )


def collect_names(job: Job, parts: Sequence[NameSums], caused: Mapping[str, int]) -> ByName:
    """Return the sums over all reports. `caused`: how long (ns) others waited for each task, by its name."""
    calls = totals.add_up([part.calls for part in parts], ["name", "source", "task"])
    nccl, mpi = totals.add_up([part.nccl for part in parts], ["function"]), [part.mpi for part in parts]
    return ByName(
        kernels=_list_kernels([part.kernels for part in parts], [task.name for task in job.tree.model.tasks]),
        memory_operations=_list_memory_operations([part.memory_operations for part in parts]),
        nccl=[_make_nccl(row) for row in list_rows(nccl, "kernel_ns")],
        mpi=[_make_mpi(row) for row in list_rows(totals.add_up(mpi, ["name"]), "total_ns")],
        ranges=_collect_ranges(job, [part.ranges for part in parts], caused),
        calls=_list_calls(calls),
        calls_by_task=calls,
    )


def list_rows(table: pd.DataFrame, by: str) -> list[dict[str, Any]]:
    """Return each row of a table as a dict, the largest value in column `by` first, then by the first column."""
    ordered = table.sort_values([by, table.columns[0]], ascending=[False, True])
    return [row._asdict() for row in ordered.itertuples(index=False)]


def _list_kernels(parts: Sequence[pd.DataFrame], task_names: Sequence[str]) -> list[KernelNumbers]:
    keys = ["name", "kernel_class"]
    by_task = totals.add_up(parts, [*keys, "task"])
    busiest = by_task.sort_values(["total_ns", "task"]).drop_duplicates(keys, keep="last")[[*keys, "task", "total_ns"]]
    busiest = busiest.rename(columns={"task": "busiest_task", "total_ns": "busiest_ns"})
    table = totals.add_up([by_task.drop(columns="task")], keys).merge(busiest, on=keys)
    table["busiest_task"] = [task_names[task] for task in table["busiest_task"].tolist()]
    return [KernelNumbers(**row) for row in list_rows(table, "total_ns")]


def _list_memory_operations(parts: Sequence[pd.DataFrame]) -> list[MemoryOperationNumbers]:
    by_memory = totals.add_up(parts, ["operation", "source", "destination"]).drop(columns=["min_ns", "max_ns"])
    kinds: dict[str, list[MemoryKindNumbers]] = {}
    for row in list_rows(by_memory, "bytes"):
        kinds.setdefault(row.pop("operation"), []).append(MemoryKindNumbers(**row))
    table = totals.add_up([by_memory.drop(columns=["source", "destination"])], ["operation"])
    return [MemoryOperationNumbers(**row, by_memory=kinds[row["operation"]]) for row in list_rows(table, "bytes")]


def _list_calls(by_task: pd.DataFrame) -> list[CallNumbers]:
    table = totals.add_up([by_task.drop(columns="task")], ["name", "source"])
    return [CallNumbers(**row) for row in list_rows(table, "total_ns")]


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


def _collect_ranges(job: Job, parts: Sequence[pd.DataFrame], caused: Mapping[str, int]) -> list[RepeatedRange]:
    """Return the repeated ranges of all tasks, the ranges with most time first."""
    table = totals.add_up(parts, ["domain", "name", "task"])
    ranges, steps = [], count_steps(job)
    for (domain, name), rows in table.groupby(["domain", "name"]):
        sums = rows.drop(columns=["domain", "name", "depth"]).set_index("task").to_dict("index")
        for own in sums.values():  # ranges of two reports of a task are not counted step by step
            own["per_step"] = own["per_step"] if own["count"] == own["per_step"] * steps else 0
        tasks = [
            RangeOfTask(rank=job.tree.ranks[task], task=job.tree.model.tasks[task].name, **times)
            for task, times in sums.items()
        ]
        depth = int(rows["depth"].min())
        slowest = choose_slowest(tasks, caused) if len(tasks) > 1 else None
        ranges.append(RepeatedRange(domain=str(domain), name=str(name), depth=depth, tasks=tasks, slowest_task=slowest))
    return sorted(ranges, key=lambda repeated: (-repeated.total_ns, repeated.domain, repeated.name))
