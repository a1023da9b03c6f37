"""The table of kernels."""

from __future__ import annotations

from collections.abc import Sequence

from nsys2prv_ng.summary.numbers.job import JobSummary
from nsys2prv_ng.summary.numbers.pictures import KernelDurations
from nsys2prv_ng.summary.tables.largest import name_largest
from nsys2prv_ng.text.grid import Cell, Column, Count, Grid, Histogram, Name, Ns, Share, make_columns


def tabulate_kernels(summary: JobSummary, durations: Sequence[KernelDurations] = ()) -> Grid:
    """Return the kernels of all GPUs, those with most time first. `durations`: the histograms of some kernels."""
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
