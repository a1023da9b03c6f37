"""Computes the summary of a job from its opened reports."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from nsys2prv_ng.analysis.efficiency.efficiency import compute_efficiency
from nsys2prv_ng.analysis.gpus import idle_causes
from nsys2prv_ng.analysis.gpus.activity import (
    NO_ACTIVITY,
    NO_GAPS,
    Activity,
    DeviceRow,
    Devices,
    Gaps,
    PeakMemory,
    find_peak_memory,
    list_activity_runs,
    list_devices,
    measure_activity,
)
from nsys2prv_ng.analysis.gpus.metrics import measure_gpu_metrics
from nsys2prv_ng.analysis.path.critical_path import CriticalPath, check_size, find_critical_path
from nsys2prv_ng.analysis.waits.clock_check import check_clocks
from nsys2prv_ng.analysis.waits.late_reasons import LateReasons, find_reasons
from nsys2prv_ng.analysis.waits.waits import Waits, find_waits
from nsys2prv_ng.job.open_job import Job, find_gpu_time
from nsys2prv_ng.job.selection import Selection
from nsys2prv_ng.records.runs import Run
from nsys2prv_ng.summary.compute import totals
from nsys2prv_ng.summary.compute.efficiency import sum_efficiency, sum_steps
from nsys2prv_ng.summary.compute.facts import collect_facts
from nsys2prv_ng.summary.compute.path import sum_critical_path
from nsys2prv_ng.summary.compute.range_waits import WaitingInRanges, choose_slowest
from nsys2prv_ng.summary.compute.waits import compute_waits
from nsys2prv_ng.summary.numbers.gpu_metrics import GpuMetricNumbers
from nsys2prv_ng.summary.numbers.job import (
    Cause,
    GpuNumbers,
    JobSummary,
    KernelNumbers,
    MemoryKindNumbers,
    MemoryOperationNumbers,
    MpiNumbers,
    NcclNumbers,
    RangeOfTask,
    RepeatedRange,
)
from nsys2prv_ng.summary.numbers.payload import describe_missing_payload
from nsys2prv_ng.summary.numbers.waits import WaitNumbers


class _ReportSums(NamedTuple):
    """Sums over one report, as summary/compute/totals.py makes them."""

    kernels: pd.DataFrame
    memory_operations: pd.DataFrame
    nccl: pd.DataFrame
    mpi: pd.DataFrame
    ranges: pd.DataFrame


def compute_summary(
    job: Job, waits: Waits | None = None, late: LateReasons | None = None, path: CriticalPath | None = None
) -> JobSummary:
    """Return the numbers of a job. The records of the reports that are worked on are in memory.

    `waits`, `late` and `path`: those of the job, if they have been found before.
    """
    waits = find_waits(job) if waits is None else waits
    late = find_reasons(job, waits) if late is None else late
    if path is None and job.finds_waits:
        path = find_critical_path(job, waits)
    devices = list_devices(job)
    waiting = WaitingInRanges(job, waits)
    parts = list(job.engine.map(lambda index: _sum_report(job, index, waiting), range(len(job.reports))))
    gpus = _sum_gpus(job, devices)
    efficiency = compute_efficiency(job, waits)
    wait_numbers = compute_waits(job, waits, late) if job.finds_waits else None
    ranges = _collect_ranges(job, [part.ranges for part in parts], wait_numbers)
    kernels = _list_kernels([part.kernels for part in parts], [task.name for task in job.tree.model.tasks])
    memory_operations = _list_memory_operations([part.memory_operations for part in parts])
    nccl = _list_nccl([part.nccl for part in parts])
    mpi = _list_mpi([part.mpi for part in parts])
    absent = {
        "GPU operations": not (kernels or memory_operations),
        "GPU memory in use": not any(gpu.peak_memory_bytes is not None for gpu in gpus),
        "NVTX ranges that repeat": not ranges,
        "NCCL": not nccl,
        "MPI": not mpi,
    }
    return JobSummary(
        reports=len(job.reports),
        nodes=len(job.tree.model.nodes),
        ranks=len({rank for rank in job.tree.ranks if rank is not None}),
        tasks=len(job.tree.model.tasks),
        start_utc_ns=job.start_utc,
        duration_ns=job.duration,
        windows_ns=[(low - job.origin, min(high, job.last) - job.origin) for low, high in job.windows],
        gpus=gpus,
        ranges=ranges,
        kernels=kernels,
        memory_operations=memory_operations,
        nccl=nccl,
        mpi=mpi,
        absent=[name for name, is_absent in absent.items() if is_absent],
        chosen=_list_chosen(job.selection),
        waits=wait_numbers,
        efficiency=sum_efficiency(job, efficiency),
        steps=sum_steps(job, efficiency, waiting),
        gpu_metrics=_list_gpu_metrics(job, devices),
        critical_path=None if path is None else sum_critical_path(job, path),
        facts=collect_facts(job),
        gpu_time_ns=find_gpu_time(job),
        skipped=job.skipped,
        warnings=[
            *job.warnings,
            *check_clocks(job),
            *_warn_of_payload(job, wait_numbers),
            *(check_size(job) if job.finds_waits else ()),
        ],
    )


def _list_chosen(selection: Selection) -> list[str]:
    """Return what the user restricted."""
    chosen = {
        "time": selection.restricts_time,
        "ranks": selection.ranks is not None,
        "GPUs": selection.gpus is not None,
    }
    return [name for name, is_chosen in chosen.items() if is_chosen]


def _warn_of_payload(job: Job, waits: WaitNumbers | None) -> list[str]:
    return describe_missing_payload(waits, len(job.reports))


def _list_kernels(parts: Sequence[pd.DataFrame], task_names: Sequence[str]) -> list[KernelNumbers]:
    keys = ["name", "kernel_class"]
    by_task = totals.add_up(parts, [*keys, "task"])
    busiest = by_task.sort_values(["ns", "task"]).drop_duplicates(keys, keep="last")[[*keys, "task", "ns"]]
    table = totals.add_up([by_task.drop(columns="task")], keys)
    rows = _iterate_sorted(table.merge(busiest.rename(columns={"ns": "busiest_ns"}), on=keys), "ns")
    return [
        KernelNumbers(
            name=r.name,
            kernel_class=r.kernel_class,
            count=r.count,
            total_ns=r.ns,
            min_ns=r.min_ns,
            max_ns=r.max_ns,
            busiest_task=task_names[r.task],
            busiest_ns=r.busiest_ns,
        )
        for r in rows
    ]


def _list_memory_operations(parts: Sequence[pd.DataFrame]) -> list[MemoryOperationNumbers]:
    by_memory = totals.add_up(parts, ["operation", "source", "destination"])
    kinds: dict[str, list[MemoryKindNumbers]] = {}
    for r in _iterate_sorted(by_memory, "bytes"):
        part = MemoryKindNumbers(
            source=r.source, destination=r.destination, count=r.count, bytes=r.bytes, total_ns=r.ns, rated_ns=r.rated_ns
        )
        kinds.setdefault(r.operation, []).append(part)
    rows = _iterate_sorted(totals.add_up([by_memory.drop(columns=["source", "destination"])], ["operation"]), "bytes")
    return [
        MemoryOperationNumbers(
            operation=r.operation,
            count=r.count,
            bytes=r.bytes,
            total_ns=r.ns,
            rated_ns=r.rated_ns,
            by_memory=kinds[r.operation],
        )
        for r in rows
    ]


def _list_nccl(parts: Sequence[pd.DataFrame]) -> list[NcclNumbers]:
    return [
        NcclNumbers(
            function=r.function,
            calls=r.calls,
            bytes=r.bytes if r.sized else None,
            kernels=r.kernels,
            kernel_ns=r.ns,
            carried_bytes=r.carried_bytes,
            carried_ns=r.carried_ns,
        )
        for r in _iterate_sorted(totals.add_up(parts, ["function"]), "ns")
    ]


def _list_mpi(parts: Sequence[pd.DataFrame]) -> list[MpiNumbers]:
    return [
        MpiNumbers(
            call=r.name,
            count=r.count,
            total_ns=r.ns,
            max_ns=r.max_ns,
            sent_bytes=r.sent if r.sized else None,
            received_bytes=r.received if r.sized else None,
            rated_ns=r.rated_ns,
        )
        for r in _iterate_sorted(totals.add_up(parts, ["name"]), "ns")
    ]


def _sum_report(job: Job, index: int, waiting: WaitingInRanges) -> _ReportSums:
    report, rows = job.reports[index], job.tree.rows[index]
    measures: dict[str, totals.Measure] = {
        "waiting_ns": lambda place, begin, end: waiting.measure_of_threads(rows[place], begin, end),
        "gpu_waiting_ns": lambda place, begin, end: waiting.measure_all(rows[place], begin, end),
        "unsplit_ns": lambda place, begin, end: waiting.measure_unknown(rows[place], begin, end),
    }
    task_of_place = np.where(rows >= 0, job.tree.task_of_row[rows], -1)
    return _ReportSums(
        totals.sum_kernels(report, task_of_place, job.store),
        totals.sum_memory_operations(report, job.store, job.windows),
        totals.sum_nccl(report, job.store, job.windows),
        totals.sum_mpi(report, job.store, job.windows),
        totals.sum_repeated_ranges(report, task_of_place, job.store, job.windows, measures),
    )


def _iterate_sorted(table: pd.DataFrame, by: str) -> Iterator[Any]:
    """Yield the rows of a table as named tuples, largest value in column `by` first, then by name."""
    return _iterate(table.sort_values([by, table.columns[0]], ascending=[False, True]))


def _iterate(table: pd.DataFrame) -> Iterator[Any]:
    return table.itertuples(index=False)


# ---- GPUs ------------------------------------------------------------------------------------------------------------


def _sum_gpus(job: Job, devices: Devices) -> list[GpuNumbers]:
    """Return the GPUs with any activity or memory, in the order of their rows."""
    memory = find_peak_memory(job, devices.rows)
    numbers = {row: _make_gpu(job, devices, row, peak=memory.get(row)) for row in memory}
    for gpus in job.engine.map(lambda run: _sum_run(job, devices, run, memory), list_activity_runs(job)):
        numbers |= gpus
    return [numbers[row] for row in sorted(numbers)]


def _sum_run(job: Job, devices: Devices, run: Run, memory: Mapping[int, PeakMemory]) -> dict[int, GpuNumbers]:
    activity_of_row, gaps = measure_activity(job, run)
    causes = None
    if all(source in job.reports[0].results for source in idle_causes.NEEDED):
        group = devices.find_reports(np.array(list(activity_of_row), np.int64))
        causes = idle_causes.find_causes(job, devices, group, gaps)
    return {
        row: _make_gpu(job, devices, row, activity, gaps.take(np.flatnonzero(gaps.row == row)), causes, memory.get(row))
        for row, activity in activity_of_row.items()
    }


def _make_gpu(
    job: Job,
    devices: Devices,
    row: int,
    activity: Activity = NO_ACTIVITY,
    gaps: Gaps = NO_GAPS,
    causes: pd.DataFrame | None = None,
    peak: PeakMemory | None = None,
) -> GpuNumbers:
    device, tree = devices.rows[row], job.tree
    length = gaps.end - gaps.begin
    longest = int(np.argmax(length)) if length.size else None
    return GpuNumbers(
        node=device.node,
        gpu=device.gpu.number,
        name=device.gpu.name,
        ranks=_list_ranks(job, device),
        tasks=[tree.model.tasks[task].name for task in sorted(device.tasks)],
        span_ns=activity.busy + activity.idle,
        busy_ns=activity.busy,
        compute_ns=activity.compute,
        communication_ns=activity.communication,
        overlap_ns=activity.overlap,
        memory_ns=activity.memory,
        idle_ns=activity.idle,
        gaps=int(length.size),
        longest_gap_ns=0 if longest is None else int(length[longest]),
        longest_gap_at_ns=None if longest is None else int(gaps.begin[longest]) - job.origin,
        idle_causes=None if causes is None else _sort_causes(causes[causes["row"] == row]),
        peak_memory_bytes=None if peak is None else peak.bytes,
        peak_memory_at_ns=None if peak is None else peak.time - job.origin,
        whole_graph_ns=activity.graphs,
    )


def _list_ranks(job: Job, device: DeviceRow) -> list[int]:
    return sorted({rank for task in device.tasks if (rank := job.tree.ranks[task]) is not None})


def _list_gpu_metrics(job: Job, devices: Devices) -> list[GpuMetricNumbers]:
    return [
        GpuMetricNumbers(
            node=(device := devices.rows[sums.row]).node,
            gpu=device.gpu.number,
            ranks=_list_ranks(job, device),
            metric=sums.event_type.label,
            unit=sums.event_type.unit,
            mean=sums.mean,
            min=sums.low,
            max=sums.high,
            samples=sums.samples,
        )
        for sums in measure_gpu_metrics(job)
    ]


def _sort_causes(table: pd.DataFrame) -> list[Cause]:
    ordered = table.sort_values(["ns", *idle_causes.KEYS], ascending=[False, *(True for _ in idle_causes.KEYS)])
    return [Cause(cause=r.cause, range=r.range, call=r.call, ns=r.ns, gaps=r.gaps) for r in _iterate(ordered)]


# ---- ranges ----------------------------------------------------------------------------------------------------------


def _collect_ranges(job: Job, parts: Sequence[pd.DataFrame], waits: WaitNumbers | None) -> list[RepeatedRange]:
    """Return the repeated ranges of all tasks, those with most time first."""
    caused = {} if waits is None else {rank.task: rank.all_caused_ns for rank in waits.ranks}
    table = totals.add_up(parts, ["domain", "name", "task"])
    ranges = []
    for (domain, name), parts_of_range in table.groupby(["domain", "name"]):
        tasks = [_make_range_of_task(job, r) for r in _iterate(parts_of_range)]
        depth = int(parts_of_range["depth"].min())
        slowest = choose_slowest(tasks, caused) if len(tasks) > 1 else None
        ranges.append(RepeatedRange(domain=str(domain), name=str(name), depth=depth, tasks=tasks, slowest_task=slowest))
    return sorted(ranges, key=lambda repeated: (-repeated.total_ns, repeated.domain, repeated.name))


def _make_range_of_task(job: Job, r: Any) -> RangeOfTask:
    return RangeOfTask(
        rank=job.tree.ranks[r.task],
        task=job.tree.model.tasks[r.task].name,
        count=r.count,
        total_ns=r.ns,
        min_ns=r.min_ns,
        max_ns=r.max_ns,
        waiting_ns=r.waiting_ns,
        gpu_waiting_ns=r.gpu_waiting_ns,
        unsplit_ns=r.unsplit_ns,
    )
