"""Tables of what a job ran: kernels, NVTX ranges, copies, and NCCL and MPI calls."""

from __future__ import annotations

from collections.abc import Sequence

from nsys2prv_ng.paraver.value_tables import MEMORY_KINDS
from nsys2prv_ng.summary.numbers.job import JobSummary, MemoryKindNumbers, MemoryOperationNumbers, RepeatedRange
from nsys2prv_ng.summary.numbers.pictures import KernelDurations
from nsys2prv_ng.summary.tables.gpus import name_largest
from nsys2prv_ng.summary.tables.siblings import join_siblings
from nsys2prv_ng.text.formatting import shorten_range_name
from nsys2prv_ng.text.grid import Bytes, Cell, Column, Count, Grid, Histogram, Name, Ns, Rate, Share, make_columns

_HOST_MEMORY = {MEMORY_KINDS[1], MEMORY_KINDS[2]}
"""Kinds of host memory, pageable and pinned: they make copies slow or fast."""


def tabulate_kernels(summary: JobSummary, durations: Sequence[KernelDurations] = ()) -> Grid:
    """Return the kernels of all GPUs, the longest time first. `durations`: histograms of some of the kernels."""
    whole = sum(kernel.total_ns for kernel in summary.kernels)
    tasks = len({task for gpu in summary.gpus if gpu.span_ns for task in gpu.tasks})
    histograms = {(kernel.name, kernel.kernel_class): kernel for kernel in durations}
    rows: list[list[Cell]] = []
    for kernel in summary.kernels:
        histogram = histograms.get((kernel.name, kernel.kernel_class))
        rows.append(
            [
                Name(kernel.name),
                Name(kernel.kernel_class),
                Count(kernel.count),
                Ns(kernel.total_ns),
                Ns(kernel.total_ns / kernel.count),
                Ns(kernel.min_ns),
                Ns(kernel.max_ns),
                Share(kernel.total_ns, whole),
                Name(name_largest({kernel.busiest_task: kernel.busiest_ns}, kernel.total_ns, tasks)),
                "" if histogram is None else Histogram(histogram.counts.tolist(), histogram.edges_ns.tolist()),
            ]
        )
    columns = make_columns(
        *("kernel", "class", "count", "time", "mean"),
        *(Column("shortest", wide=True), Column("longest", wide=True), "share"),
        *(Column("mostly on", optional=True), Column("durations", wide=True)),
    )
    return Grid(columns=columns, rows=rows, names=2, more="kernels")


def tabulate_ranges(summary: JobSummary) -> Grid:
    """Return the NVTX ranges that repeat, the longest time first."""
    caption = "CPU time of repeating NVTX ranges"
    if any(task.gpu_waiting_ns for repeated in summary.ranges for task in repeated.tasks):
        caption += ", slowest task and spread without waits"
    return Grid(
        caption=caption,
        columns=make_columns("NVTX range", "slowest task", "tasks", "count", "mean", "min", "max", "rank spread"),
        rows=[_make_range_row(repeated) for repeated in join_siblings(summary.ranges) if repeated.tasks],
        names=2,
        more="ranges",
    )


def _make_range_row(repeated: RepeatedRange) -> list[Cell]:
    mean = repeated.total_ns / repeated.count
    return [
        Name(shorten_range_name(repeated.domain, repeated.name)),
        Name(repeated.slowest_task or "-"),
        Count(len(repeated.tasks)),
        Count(repeated.count),
        Ns(mean),
        Ns(min(task.min_ns for task in repeated.tasks)),
        Ns(max(task.max_ns for task in repeated.tasks)),
        Share(repeated.spread_ns, mean if len(repeated.tasks) > 1 else 0),
    ]


def tabulate_memory_operations(summary: JobSummary) -> Grid:
    """Return copies and sets by kind, most bytes first, and copies from or to the host also by kind of memory."""
    rows: list[list[Cell]] = []
    for copies in summary.memory_operations:
        rows.append(_make_copies_row(copies.operation, copies))
        if any(_HOST_MEMORY.intersection((part.source, part.destination)) for part in copies.by_memory):
            rows += [
                _make_copies_row(f"  {part.source} to {part.destination}".lower(), part) for part in copies.by_memory
            ]
    columns = make_columns("copies and sets", "count", "size", "each", "time", "rate")
    return Grid(columns=columns, rows=rows, more="kinds")


def _make_copies_row(name: str, copies: MemoryOperationNumbers | MemoryKindNumbers) -> list[Cell]:
    return [
        Name(name),
        Count(copies.count),
        Bytes(copies.bytes),
        Bytes(copies.bytes / copies.count),
        Ns(copies.total_ns),
        Rate.measure(copies.bytes, copies.rated_ns),
    ]


def tabulate_nccl(summary: JobSummary) -> Grid:
    """Return NCCL calls and kernels by function, the longest time first."""
    rows: list[list[Cell]] = [
        [
            Name(collective.function),
            Count(collective.calls),
            Bytes(collective.bytes),
            Count(collective.kernels),
            Ns(collective.kernel_ns),
            Rate.measure(collective.carried_bytes, collective.carried_ns),
        ]
        for collective in summary.nccl
    ]
    caption = "NCCL kernel time and rates include wait time"
    columns = make_columns("NCCL", "calls", "size", "kernels", "kernel time", "rate")
    return Grid(caption=caption, columns=columns, rows=rows, more="functions")


def tabulate_mpi(summary: JobSummary) -> Grid:
    """Return MPI calls by name, the longest time first."""
    rows: list[list[Cell]] = [
        [
            Name(call.call),
            Count(call.count),
            Ns(call.total_ns),
            Ns(call.total_ns / call.count),
            Ns(call.max_ns),
            Bytes(call.sent_bytes),
            Bytes(call.received_bytes),
            Rate.measure((call.sent_bytes or 0) + (call.received_bytes or 0), call.rated_ns),
        ]
        for call in summary.mpi
    ]
    columns = make_columns(
        "MPI", "calls", "time", "mean", Column("max", minor=True), "sent", "received", Column("rate", minor=True)
    )
    return Grid(columns=columns, rows=rows, more="calls")
