"""Tables on what a job ran, for the text and for pages: cells are texts, names as the reports have them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from nsys2prv_ng.paraver.value_tables import MEMORY_KINDS
from nsys2prv_ng.summary.layout import format_percent, format_rate
from nsys2prv_ng.summary.numbers.job import JobSummary, MemoryKindNumbers, MemoryOperationNumbers, RepeatedRange
from nsys2prv_ng.summary.numbers.path import PathNumbers
from nsys2prv_ng.summary.numbers.waits import Bandwidth
from nsys2prv_ng.summary.tables.bandwidth import list_bandwidth
from nsys2prv_ng.summary.tables.path import list_path_rows
from nsys2prv_ng.summary.tables.siblings import join_siblings
from nsys2prv_ng.text.formatting import format_bytes, format_time, shorten_range_name

_HOST_MEMORY = {MEMORY_KINDS[1], MEMORY_KINDS[2]}
"""Kinds of memory that make copies slow or fast: pageable and pinned."""


class NamedTable(NamedTuple):
    """A table: its first `texts` columns hold names; `noun` is what its rows are."""

    caption: str
    titles: list[str]
    rows: list[list[str]]
    texts: int
    noun: str


def tabulate_ranges(summary: JobSummary) -> NamedTable:
    """Return the NVTX ranges that repeat, those with most time first."""
    caption = "Host times of NVTX ranges that repeat; spread: (largest - smallest mean of a task) / mean of all"
    if any(task.gpu_waiting_ns for repeated in summary.ranges for task in repeated.tasks):
        caption = (
            "Host times of NVTX ranges that repeat, waiting for others included; slowest task and spread, (largest - "
            "smallest mean of a task) / mean of all, without it"
        )
    rows = [_make_range_row(repeated) for repeated in join_siblings(summary.ranges)]
    titles = ["NVTX range", "slowest task", "tasks", "count", "mean", "min", "max", "spread"]
    return NamedTable(caption, titles, rows, 2, "ranges")


def _make_range_row(repeated: RepeatedRange) -> list[str]:
    mean = repeated.total_ns / repeated.count
    has_several_tasks = len(repeated.tasks) > 1
    return [
        shorten_range_name(repeated.domain, repeated.name),
        repeated.slowest_task or "-",
        f"{len(repeated.tasks):,}",
        f"{repeated.count:,}",
        format_time(mean),
        format_time(min(task.min_ns for task in repeated.tasks)),
        format_time(max(task.max_ns for task in repeated.tasks)),
        format_percent(repeated.spread_ns, mean) if has_several_tasks else "-",
    ]


def _make_copies_row(name: str, copies: MemoryOperationNumbers | MemoryKindNumbers) -> list[str]:
    return [
        name,
        f"{copies.count:,}",
        format_bytes(copies.bytes),
        format_bytes(copies.bytes / copies.count),
        format_time(copies.total_ns),
        format_rate(copies.bytes, copies.rated_ns),
    ]


def tabulate_memory_operations(summary: JobSummary) -> NamedTable:
    """Return copies and sets by kind, those with most bytes first, and copies of the host by its kind of memory."""
    rows = []
    for copies in summary.memory_operations:
        rows.append(_make_copies_row(copies.operation, copies))
        if any(_HOST_MEMORY.intersection((part.source, part.destination)) for part in copies.by_memory):
            rows += [
                _make_copies_row(f"  {part.source} to {part.destination}".lower(), part) for part in copies.by_memory
            ]
    return NamedTable("", ["copies and sets", "count", "size", "each", "time", "rate"], rows, 1, "kinds")


def tabulate_nccl(summary: JobSummary) -> NamedTable:
    """Return the calls and kernels of NCCL by function, those with most time first."""
    rows = [
        [
            collective.function,
            f"{collective.calls:,}",
            format_bytes(collective.bytes),
            f"{collective.kernels:,}",
            format_time(collective.kernel_ns),
            format_rate(collective.carried_bytes, collective.carried_ns),
        ]
        for collective in summary.nccl
    ]
    titles = ["NCCL", "calls", "size", "kernels", "kernel time", "rate"]
    caption = "Time in NCCL kernels includes the time that ranks wait for each other, and so do the rates"
    return NamedTable(caption, titles, rows, 1, "functions")


def tabulate_mpi(summary: JobSummary) -> NamedTable:
    """Return the calls of MPI by name, those with most time first."""
    rows = [
        [
            call.call,
            f"{call.count:,}",
            format_time(call.total_ns),
            format_time(call.total_ns / call.count),
            format_time(call.max_ns),
            format_bytes(call.sent_bytes),
            format_bytes(call.received_bytes),
            format_rate((call.sent_bytes or 0) + (call.received_bytes or 0), call.rated_ns),
        ]
        for call in summary.mpi
    ]
    titles = ["MPI", "calls", "time", "mean", "max", "sent", "received", "rate"]
    return NamedTable("", titles, rows, 1, "calls")


def tabulate_bandwidth(bandwidth: Sequence[Bandwidth]) -> NamedTable:
    """Return the bandwidth of collectives by function, number of ranks and size, those with most bytes first."""
    rows = [
        [
            row.function,
            f"{row.ranks:,}",
            row.size,
            f"{row.operations:,}",
            format_time(row.mean_ns),
            f"{format_bytes(row.algorithm_bytes_per_s)}/s",
            f"{format_bytes(row.bus_bytes_per_s)}/s",
        ]
        for row in list_bandwidth(bandwidth)
    ]
    caption = (
        f"Bandwidth of the {sum(own.count for own in bandwidth):,} collectives in which every rank's waiting is known, "
        "from the begin of the last rank on"
    )
    return NamedTable(caption, ["NCCL", "ranks", "size", "count", "mean", "algorithm", "bus"], rows, 1, "sizes")


def tabulate_path(path: PathNumbers, *, has_several: bool) -> NamedTable:
    """Return what the critical path was in, the longest first; `has_several`: with columns on the tasks of the job."""
    rows, path_rows = [], list_path_rows(path)
    has_imbalance = has_several and any(row.imbalance_ns is not None for row in path_rows)
    for row in path_rows:
        share = format_percent(row.ns, path.window_ns)
        cells = [row.path_class, row.operation, row.range, format_time(row.ns), share]
        if has_imbalance:
            cells.append("-" if row.imbalance_ns is None else format_time(row.imbalance_ns))
        if has_several:
            cells.append(row.tasks)
        rows.append(cells)
    titles = ["critical path", "operation or call", "NVTX range", "time", "share"]
    caption = "What the job had to wait for, one thing after the other; a share bounds what can be gained by it"
    if has_imbalance:
        titles.append("imbalance")
        caption += " (imbalance: time on the path above the mean time on a GPU)"
    if has_several:
        titles.append("tasks")
    return NamedTable(caption, titles, rows, 3, "")
