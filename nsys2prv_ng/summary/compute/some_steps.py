"""Sums up some of the steps of a job, so that they can be compared with its other steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from nsys2prv_ng import source_names
from nsys2prv_ng.analysis.gpus.activity import list_devices
from nsys2prv_ng.analysis.gpus.times import measure_gpu_times
from nsys2prv_ng.analysis.host_activity import load_outermost_calls, map_main_threads
from nsys2prv_ng.analysis.waits.waits import Waits
from nsys2prv_ng.arrays.groups import Table, join_tables, make_objects, sum_table
from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.job.counted import CountedEvents
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.reading.nvtx_ranges import is_program_domain, load_nvtx_ranges
from nsys2prv_ng.summary.compute import totals
from nsys2prv_ng.summary.compute.by_name import NameSums, collect_names, sum_names
from nsys2prv_ng.summary.compute.job import list_gpus
from nsys2prv_ng.summary.compute.range_waits import WaitingInRanges
from nsys2prv_ng.summary.numbers.job import JobSummary
from nsys2prv_ng.text.formatting import shorten_range_name

CALL, RANGE = "call", "range"


def take_steps(job: Job, numbers: Sequence[int]) -> Job:
    """Return the job with numbers of the steps with these numbers only, among those that numbers cover."""
    assert job.steps is not None and job.scope.counted is not None
    chosen = job.scope.counted[np.isin(job.steps.number[job.scope.counted], numbers)]
    return replace(job, scope=job.scope.cover_steps(job.steps, chosen))


def sum_up_steps(side: Job, waits: Waits, waiting: WaitingInRanges, summary: JobSummary) -> JobSummary:
    """Return the summary with the steps of `side`, and with what has a name and what GPUs did in these steps only.

    `side`: the job that `take_steps` returns. All other numbers are those of `summary`, of the whole job.
    """
    assert summary.efficiency is not None and summary.steps is not None
    assert side.steps is not None and side.scope.counted is not None

    def sum_report(index: int) -> NameSums:
        return sum_names(side, index, CountedEvents(side, index), waiting, waits)

    named = collect_names(side, list(side.engine.sum_up(sum_report, range(len(side.reports)))), {})
    devices = list_devices(side)
    numbers = set(side.steps.number[side.scope.counted].tolist())
    steps = [step for step in summary.efficiency.steps if step.number in numbers]
    return replace(
        summary,
        steps=replace(summary.steps, count=len(steps)),
        efficiency=replace(summary.efficiency, steps=steps),
        gpus=list_gpus(side, devices, measure_gpu_times(side, devices)),
        kernels=named.kernels,
        memory_operations=named.memory_operations,
        nccl=named.nccl,
        mpi=named.mpi,
        ranges=named.ranges,
        calls=named.calls,
    )


def list_names_by_step(job: Job) -> Table:
    """Return the outermost calls and the NVTX ranges of the steps that count, by `kind`, `name` and `step` (index).

    `count` and `ns` are over all ranks. OS runtime calls count on main threads: threads of libraries wait in them.
    """
    parts = job.engine.sum_up(lambda index: _list_names(job, index), range(len(job.reports)))
    return totals.add_up(list(parts), ["kind", "name", "step"])


def _list_names(job: Job, index: int) -> Table:
    report, counted = job.reports[index], CountedEvents(job, index)
    calls = load_outermost_calls(report, job.store)
    is_system = calls.source == calls.sources.index(source_names.OS_RUNTIME)
    calls = calls.take(np.flatnonzero(~is_system | np.isin(calls.place, list(map_main_threads(report).values()))))
    ranges = load_nvtx_ranges(report, job.store, is_program_domain, with_start_end=True)
    names = [shorten_range_name(domain, name) for domain, name in ranges.keys]
    return join_tables(
        [
            _sum_by_step(
                CALL, calls.names, calls.name, counted.find_step(calls.place, calls.begin), calls.end - calls.begin
            ),
            _sum_by_step(
                RANGE, names, ranges.key, counted.find_step(ranges.place, ranges.begin), ranges.end - ranges.begin
            ),
        ]
    )


def _sum_by_step(kind: str, names: Sequence[str], name: IntArray, step: IntArray, ns: IntArray) -> Table:
    """Return count and time of events (n) by name and step, without those in no step. `name`: an index into `names`."""
    inside = step >= 0
    one = np.ones(np.count_nonzero(inside), np.int64)
    table = sum_table({"name": name[inside], "step": step[inside], "count": one, "ns": ns[inside]}, ["name", "step"])
    table["name"] = make_objects(names[number] for number in table["name"].tolist())
    return {**table, "kind": make_objects([kind] * table["name"].size)}
