"""The overview of a job: told once, from reports that were read and placed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from nsys2prv_ng.analysis import idle_causes as gap_causes
from nsys2prv_ng.analysis.gpu_activity import (
    NO_ACTIVITY,
    NO_GAPS,
    Activity,
    Devices,
    Gaps,
    PeakMemory,
    find_peak_memory,
    list_activity_runs,
    list_devices,
    measure_activity,
)
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.records.runs import Run
from nsys2prv_ng.runtime.parallel import run_in_threads
from nsys2prv_ng.summary import totals
from nsys2prv_ng.summary.model import (
    Cause,
    GpuNumbers,
    JobSummary,
    KernelNumbers,
    MemoryOperationNumbers,
    MpiNumbers,
    NcclNumbers,
    RangeOfTask,
    RepeatedRange,
)


class _OfReport(NamedTuple):
    """Sums over one report, as in `totals`."""

    kernels: pd.DataFrame
    memory_operations: pd.DataFrame
    nccl: pd.DataFrame
    mpi: pd.DataFrame
    ranges: pd.DataFrame


def compute_summary(job: Job) -> JobSummary:
    """The numbers of a job. The records of `job.workers` reports are in memory at a time."""
    found = list_devices(job)
    sums = list(run_in_threads(lambda index: _of_report(job, index), range(len(job.reports)), job.workers))
    gpus = _gpus(job, found)
    ranges = _ranges(job, [each.ranges for each in sums])
    kernels = totals.add_up([each.kernels for each in sums], ["name", "kernel_class"])
    memory_operations = totals.add_up([each.memory_operations for each in sums], ["operation"])
    nccl = totals.add_up([each.nccl for each in sums], ["function"])
    mpi = totals.add_up([each.mpi for each in sums], ["name"])
    absent = {
        "operations of GPUs": not (len(kernels) or len(memory_operations)),
        "memory of GPUs in use": not any(gpu.peak_memory_bytes is not None for gpu in gpus),
        "NVTX ranges that repeat": not ranges,
        "NCCL": not len(nccl),
        "MPI": not len(mpi),
    }
    return JobSummary(
        reports=len(job.reports),
        nodes=len(job.tree.model.nodes),
        ranks=len({rank for rank in job.tree.ranks if rank is not None}),
        tasks=len(job.tree.model.tasks),
        start_utc_ns=job.start_utc,
        duration_ns=job.duration,
        windows_ns=[(low - job.origin, high - job.origin) for low, high in job.windows],
        gpus=gpus,
        ranges=ranges,
        kernels=[
            KernelNumbers(r.name, r.kernel_class, r.count, r.ns, r.min_ns, r.max_ns) for r in _rows(kernels, "ns")
        ],
        memory_operations=[
            MemoryOperationNumbers(r.operation, r.count, r.bytes, r.ns, r.rated_ns)
            for r in _rows(memory_operations, "bytes")
        ],
        nccl=[
            NcclNumbers(
                r.function, r.calls, r.bytes if r.told else None, r.kernels, r.ns, r.carried_bytes, r.carried_ns
            )
            for r in _rows(nccl, "ns")
        ],
        mpi=[
            MpiNumbers(
                r.name,
                r.count,
                r.ns,
                r.max_ns,
                r.sent if r.told else None,
                r.received if r.told else None,
                r.rated_ns,
            )
            for r in _rows(mpi, "ns")
        ],
        absent=[name for name, is_absent in absent.items() if is_absent],
        skipped=job.skipped,
        warnings=list(job.warnings),
    )


def _of_report(job: Job, index: int) -> _OfReport:
    report, rows = job.reports[index], job.tree.rows[index]
    task_of_place = np.where(rows >= 0, job.tree.task_of_row[rows], -1)
    return _OfReport(
        totals.sum_kernels(report, job.store),
        totals.sum_memory_operations(report, job.store, job.windows),
        totals.sum_nccl(report, job.store, job.windows),
        totals.sum_mpi(report, job.store, job.windows),
        totals.sum_repeated_ranges(report, task_of_place, job.store, job.windows),
    )


def _rows(table: pd.DataFrame, by: str) -> Iterator[Any]:
    """Rows of a table as named tuples, those with most of something first, then by name."""
    return _tuples(table.sort_values([by, table.columns[0]], ascending=[False, True]))


def _tuples(table: pd.DataFrame) -> Iterator[Any]:
    return table.itertuples(index=False)


# ---- GPUs ------------------------------------------------------------------------------------------------------------


def _gpus(job: Job, found: Devices) -> list[GpuNumbers]:
    """GPUs of which anything is known, in the order of rows."""
    memory = find_peak_memory(job, found.rows)
    numbers = {row: _gpu(job, found, row, peak=memory.get(row)) for row in memory}
    for of_run in run_in_threads(lambda run: _of_run(job, found, run, memory), list_activity_runs(job), job.workers):
        numbers |= of_run
    return [numbers[row] for row in sorted(numbers)]


def _of_run(job: Job, found: Devices, run: Run, memory: Mapping[int, PeakMemory]) -> dict[int, GpuNumbers]:
    of_rows, gaps = measure_activity(job, run)
    causes = None
    if all(source in job.reports[0].results for source in gap_causes.NEEDED):
        group = found.find_reports(np.array(list(of_rows), np.int64))
        causes = gap_causes.find_causes(job, found, group, gaps)
    return {
        row: _gpu(job, found, row, its_activity, gaps.take(np.flatnonzero(gaps.row == row)), causes, memory.get(row))
        for row, its_activity in of_rows.items()
    }


def _gpu(
    job: Job,
    found: Devices,
    row: int,
    did: Activity = NO_ACTIVITY,
    gaps: Gaps = NO_GAPS,
    causes: pd.DataFrame | None = None,
    peak: PeakMemory | None = None,
) -> GpuNumbers:
    device, tree = found.rows[row], job.tree
    tasks = sorted(device.tasks)
    length = gaps.end - gaps.begin
    longest = int(np.argmax(length)) if length.size else None
    return GpuNumbers(
        node=device.node,
        gpu=device.gpu.number,
        name=device.gpu.name,
        ranks=sorted({rank for task in tasks if (rank := tree.ranks[task]) is not None}),
        tasks=[tree.model.tasks[task].name for task in tasks],
        span_ns=did.busy + did.idle,
        busy_ns=did.busy,
        compute_ns=did.compute,
        communication_ns=did.communication,
        overlap_ns=did.overlap,
        memory_ns=did.memory,
        idle_ns=did.idle,
        gaps=int(length.size),
        longest_gap_ns=0 if longest is None else int(length[longest]),
        longest_gap_at_ns=None if longest is None else int(gaps.begin[longest]) - job.origin,
        idle_causes=None if causes is None else _causes(causes[causes["row"] == row]),
        peak_memory_bytes=None if peak is None else peak.bytes,
        peak_memory_at_ns=None if peak is None else peak.time - job.origin,
    )


def _causes(table: pd.DataFrame) -> list[Cause]:
    ordered = table.sort_values(["ns", *gap_causes.KEYS], ascending=[False, *(True for _ in gap_causes.KEYS)])
    return [Cause(r.cause, r.range, r.call, r.ns, r.gaps) for r in _tuples(ordered)]


# ---- ranges ----------------------------------------------------------------------------------------------------------


def _ranges(job: Job, parts: Sequence[pd.DataFrame]) -> list[RepeatedRange]:
    """Ranges of all tasks, those with most time first."""
    table = totals.add_up(parts, ["domain", "name", "task"])
    found = []
    for (domain, name), of_range in table.groupby(["domain", "name"]):
        tasks = [
            RangeOfTask(job.tree.ranks[r.task], job.tree.model.tasks[r.task].name, r.count, r.ns, r.min_ns, r.max_ns)
            for r in _tuples(of_range)
        ]
        found.append(RepeatedRange(str(domain), str(name), int(of_range["depth"].min()), tasks))
    return sorted(found, key=lambda each: (-each.total_ns, each.domain, each.name))
