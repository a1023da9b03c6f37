"""Makes the summary of a job: its numbers, its slow steps beside the usual ones, and the answer."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from nsys2prv_ng.analysis.efficiency.efficiency import Efficiency, compute_efficiency
from nsys2prv_ng.analysis.gpus.activity import list_devices
from nsys2prv_ng.analysis.path.critical_path import CriticalPath, check_size
from nsys2prv_ng.analysis.path.lanes import Lanes
from nsys2prv_ng.analysis.waits.clocks import check_clocks
from nsys2prv_ng.analysis.waits.late_reasons import LateReasons, find_reasons
from nsys2prv_ng.analysis.waits.waits import Waits, find_waits
from nsys2prv_ng.arrays.groups import Table
from nsys2prv_ng.intervals.step_functions import Intervals
from nsys2prv_ng.job.counted import CountedEvents
from nsys2prv_ng.job.open_job import Job, find_gpu_time
from nsys2prv_ng.objects.places import Stream, Thread
from nsys2prv_ng.reading.device_operations import list_traced_graphs
from nsys2prv_ng.reading.opened_events import keep_opened_events
from nsys2prv_ng.replay.analyse import describe_size
from nsys2prv_ng.report.diagnostics import KINDS
from nsys2prv_ng.report.metadata import Metadata
from nsys2prv_ng.runtime.progress import Progress
from nsys2prv_ng.summary import totals
from nsys2prv_ng.summary.answer.answer import add_verdict
from nsys2prv_ng.summary.answer.remedies import list_proposed
from nsys2prv_ng.summary.answer.slow_steps import SlowSteps, find_slow_steps
from nsys2prv_ng.summary.by_name import NameSums, collect_names, sort_rows_by, sum_names
from nsys2prv_ng.summary.efficiency.measure import sum_efficiency, sum_steps
from nsys2prv_ng.summary.gpus.measure import list_gpus
from nsys2prv_ng.summary.job import JobFacts, JobSummary, StartUp
from nsys2prv_ng.summary.kernels.cells import KernelTimes, measure_kernels
from nsys2prv_ng.summary.kernels.slow_modes import find_slow_modes
from nsys2prv_ng.summary.memory.measure import measure_memory
from nsys2prv_ng.summary.others import limit_names
from nsys2prv_ng.summary.path.measure import compute_path_and_savings
from nsys2prv_ng.summary.ranges.numbers import LaunchedInRange, RepeatedRange
from nsys2prv_ng.summary.ranges.tree import make_range_tree, sum_by_range
from nsys2prv_ng.summary.ranges.waiting import WaitingInRanges
from nsys2prv_ng.summary.readbacks.measure import list_readbacks, sum_readbacks
from nsys2prv_ng.summary.waits.culprits import find_excess
from nsys2prv_ng.summary.waits.measure import compute_waits, load_communication
from nsys2prv_ng.summary.waits.numbers import Excess, WaitNumbers
from nsys2prv_ng.summary.waits.words import describe_missing_payload


class Known(NamedTuple):
    """Results for a job that a caller already has.

    `late`: why the culprits of all waits were late.
    """

    late: LateReasons | None = None
    lanes: Lanes | None = None
    path: CriticalPath | None = None


_NOTHING = Known()


def compute_summary(
    job: Job, waits: Waits | None = None, known: Known = _NOTHING, progress: Progress | None = None
) -> JobSummary:
    """Return the numbers of a job, without its slow steps and its answer.

    Each worker loads the records of one report at once; another replays the job. `waits`: all waits of the job, if the
    caller has them.
    """
    waits = find_waits(job) if waits is None else waits
    with job.engine.beside(
        lambda: compute_path_and_savings(job, waits, known.lanes, known.path, list_proposed())
    ) as wait_for_savings:
        late = find_reasons(job, waits) if known.late is None else known.late
        efficiency = compute_efficiency(job, waits)
        summary = _sum_up(job, waits, late, efficiency)
        shown = progress if progress is not None and job.finds_waits else Progress()
        with shown.step("replaying changes", 1, "job", logged=False) as step:
            found = wait_for_savings()
            step.update(1)
    unplayed = [describe_size(job)] if found.is_too_large else []
    return replace(
        summary,
        efficiency=sum_efficiency(job, efficiency, found.on_ideal_network),
        critical_path=found.path,
        what_if=found.what_if,
        warnings=[*summary.warnings, *([*check_size(job), *unplayed][:1] if job.finds_waits else ())],
    )


def _sum_up(job: Job, waits: Waits, late: LateReasons, efficiency: Efficiency) -> JobSummary:
    """Return the numbers of a job without its efficiencies, its critical path and what changes save."""
    devices = list_devices(job)
    waiting = WaitingInRanges(job, waits)
    parts = list(job.engine.sum_up(lambda index: _sum_report(job, index, waiting, waits), range(len(job.reports))))
    kernel_times = [part.kernel_times for part in parts]
    gpus = list_gpus(job, devices, efficiency.gpu_times)
    wait_numbers = compute_waits(job, waits, late, [part.nccl for part in parts]) if job.finds_waits else None
    caused = {} if wait_numbers is None else {rank.task: rank.all_caused_ns for rank in wait_numbers.ranks}
    named, calls_by_task = collect_names(job, [part.by_name for part in parts], caused)
    if wait_numbers is not None:
        wait_numbers = replace(wait_numbers, excess=_find_excess(job, wait_numbers, named.ranges, calls_by_task))
    launched = totals.add_up([part.launched for part in parts], ["range"])
    absent = {
        "GPU operations": not (named.kernels or named.memory_operations),
        "GPU memory in use": not any(gpu.peak_memory_bytes is not None for gpu in gpus),
        "NVTX ranges that repeat": not named.ranges,
        "NCCL": not named.nccl,
        "MPI": not named.mpi,
    }
    selection = job.scope.selection
    of_tree = {"ranks": selection.ranks is not None, "GPUs": selection.gpus is not None}
    chosen = {"time": selection.restricts_time, **of_tree}
    step_name = "" if job.steps is None else job.steps.name
    return JobSummary(
        reports=len(job.reports),
        nodes=len(job.tree.model.nodes),
        ranks=len({rank for rank in job.tree.ranks if rank is not None}),
        tasks=len(job.tree.model.tasks),
        start_utc_ns=job.start_utc,
        duration_ns=job.scope.duration,
        windows_ns=[
            (low - job.scope.origin, min(high, job.scope.last) - job.scope.origin) for low, high in job.scope.measured
        ],
        gpus=gpus,
        **named._asdict(),
        absent=[name for name, is_absent in absent.items() if is_absent],
        chosen=[name for name, is_chosen in chosen.items() if is_chosen],
        waits=wait_numbers,
        steps=sum_steps(job, efficiency, waiting),
        start_up=_measure_start_up(job, waits),
        range_tree=make_range_tree([part.tree for part in parts]),
        facts=collect_facts(job),
        gpu_time_ns=find_gpu_time(job),
        launched=[LaunchedInRange(**row) for row in sort_rows_by(launched, "total_ns")],
        skipped=job.skipped,
        slow_modes=find_slow_modes(job, kernel_times),
        memory=measure_memory(job, devices, kernel_times),
        readbacks=list_readbacks([part.readbacks for part in parts], efficiency.gpu_times.values(), step_name),
        warnings=[*job.warnings, *check_clocks(job), *describe_missing_payload(wait_numbers, len(job.reports))],
    )


def _measure_start_up(job: Job, waits: Waits) -> StartUp | None:
    """Return what numbers do not cover because it is start-up, or after the last step; None without a step."""
    if job.steps is None or job.scope.selection.restricts_time or not job.scope.measured:
        return None
    begin, end = job.scope.measured[0][0], job.scope.measured[-1][1]
    shown = job.new_row[waits.row] >= 0
    wait = np.minimum(waits.until, begin) - waits.begin
    return StartUp(
        before_ns=begin - job.scope.first,
        warmup=job.steps.warmup,
        wait_ns=int(wait[shown & (wait > 0)].sum()),
        after_ns=max(job.scope.last - end, 0),
    )


class _Sums(NamedTuple):
    """Sums over one report: by name; kernels by range and the tree of ranges; times of its kernels by step.

    `nccl`: its NCCL kernels.
    """

    by_name: NameSums
    launched: Table
    tree: Table
    kernel_times: KernelTimes
    nccl: Intervals
    readbacks: Table


@keep_opened_events()
def _sum_report(job: Job, index: int, waiting: WaitingInRanges, waits: Waits) -> _Sums:
    report, counted = job.reports[index], CountedEvents(job, index)
    task_of_place = job.find_tasks(job.tree.rows[index])
    return _Sums(
        by_name=sum_names(job, index, counted, waiting, waits),
        launched=totals.sum_launched(report, job.store, counted),
        tree=sum_by_range(report, task_of_place, job.store, counted),
        kernel_times=measure_kernels(job, index, counted),
        nccl=load_communication(job, index, counted),
        readbacks=sum_readbacks(report, job.store, counted),
    )


# ---- GPUs ------------------------------------------------------------------------------------------------------------


def _find_excess(job: Job, waits: WaitNumbers, ranges: Sequence[RepeatedRange], calls: Table) -> list[Excess]:
    """Return what the task that others waited for longest takes longer for than the others."""
    names = [task.name for task in job.tree.model.tasks]
    columns = (calls[column].tolist() for column in ("name", "task", "main_ns"))
    by_task = [(name, names[task], ns) for name, task, ns in zip(*columns, strict=True)]
    return find_excess(waits, ranges, by_task, "" if job.steps is None else job.steps.name)


_DIGEST_BYTES = 8


def collect_facts(job: Job) -> JobFacts:
    """Return the facts about the reports of a job."""
    metadata = [report.metadata for report in job.reports]
    sources = Counter(name for report in job.reports for name, result in report.results.items() if result.read)
    return JobFacts(
        nsys_versions=sorted({report.nsys_version for report in metadata}),
        schema_versions=sorted({report.schema_version for report in metadata}),
        programs=sorted(set(_list_programs(job))),
        sources=dict(sorted(sources.items())),
        graphs=sorted({kind for report in job.reports for kind in list_traced_graphs(report)}, key=KINDS.index),
        lost_data_messages=sum(
            message.count for report in job.reports for message in report.diagnostics.messages if message.is_certain
        ),
        lacks_ranks=job.lacks_ranks,
        captures=sorted(map(_make_fingerprint, metadata)),
        cpus=sorted({report.cpu for report in metadata if report.cpu}),
        scripts=sorted({report.script for report in metadata if report.script}),
        slurm_jobs=sorted({number for report in metadata if (number := report.number("SLURM_JOB_ID")) is not None}),
        begin_utc_ns=_find_begin(job),
    )


def _find_begin(job: Job) -> int | None:
    """Return the UTC of the first event of all time, whatever time the user chose; None without events."""
    begins = [int(first[first <= last].min()) for first, last in job.spans if (first <= last).any()]
    return min(begins) + job.alignment.utc_base if begins else None


def _list_programs(job: Job) -> Iterator[str]:
    """Yield the names of the tasks' executables, if the reports name them; pids and threads differ in each run."""
    for report, rows in zip(job.reports, job.tree.rows, strict=True):
        for place, row in zip(report.places.all, rows.tolist(), strict=True):
            if row >= 0 and isinstance(place, Thread | Stream) and place.process in report.metadata.processes:
                yield report.metadata.get_process_name(place.process)


def _make_fingerprint(metadata: Metadata) -> str:
    """Return a fingerprint that identifies a capture: a hash of its start, host, length and processes."""
    start = None if metadata.utc_of_zero is None else metadata.utc_of_zero + metadata.begin
    what = start, metadata.host, metadata.duration, sorted(metadata.processes)
    return hashlib.blake2b(repr(what).encode("utf-8", "backslashreplace"), digest_size=_DIGEST_BYTES).hexdigest()


def summarize(
    job: Job, waits: Waits, known: Known, progress: Progress | None = None
) -> tuple[JobSummary, SlowSteps | None]:
    """Return the summary of a job with its answer, and its slow steps if it has any. `waits`: all waits of the job."""
    summary = compute_summary(job, waits, known, progress)
    slow = find_slow_steps(summary)
    if slow is not None:  # most jobs need not import what compares
        from nsys2prv_ng.summary.difference.slow_steps import add_slow_steps

        summary = add_slow_steps(summary, slow, job, waits, known.late)
    return limit_names(add_verdict(summary)), slow
