"""Tables of kernels: the longest, those that are slow on some ranks or in some steps, operators with known FLOPs."""

from __future__ import annotations

from collections.abc import Sequence

from nsys2prv_ng.summary.gpus.numbers import GpuNumbers
from nsys2prv_ng.summary.gpus.table import name_largest
from nsys2prv_ng.summary.kernels.numbers import FlopNumbers, KernelNumbers, SlowModeNumbers
from nsys2prv_ng.summary.kernels.words import name_steps, name_tasks
from nsys2prv_ng.summary.pictures.numbers import KernelDurations
from nsys2prv_ng.text.formatting import format_flops, format_percent
from nsys2prv_ng.text.grid import Cell, Column, Count, FlopRate, Flops, Grid, Histogram, Name, Ns, Share, make_columns


def tabulate_slow_modes(slow: SlowModeNumbers) -> Grid:
    """Return the kernels of all slow modes, the modes and in them the kernels that lose most first."""
    rows: list[list[Cell]] = []
    for mode in slow.modes:
        for kernel in mode.kernels:
            usual, mean = kernel.usual_ns, kernel.ns / kernel.count
            cells: list[Cell] = [
                Count(kernel.count),
                Ns(usual),
                Ns(mean),
                Share(mean - usual, usual),
                Ns(kernel.lost_ns),
            ]
            shape: list[Cell] = [_format_shape(kernel.grid), _format_shape(kernel.block)]
            rows.append([Name(kernel.name), name_tasks(mode), name_steps(mode), *shape, *cells])
    share = format_percent(slow.judged_ns, slow.kernel_ns)
    return Grid(
        caption=f"Kernels that are slower than usual, of {share} of kernel time that repeats",
        columns=make_columns(
            *("kernel", "on", "in", Column("grid", wide=True), Column("block", wide=True)),
            *(Column("count", minor=True), "usual", "mean", Column("longer", minor=True), "lost"),
        ),
        rows=rows,
        names=5,
        more="kernels",
    )


def _format_shape(sizes: list[int]) -> str:
    return " x ".join(f"{size:,}" for size in sizes)


def tabulate_kernels(
    kernels: Sequence[KernelNumbers], gpus: Sequence[GpuNumbers], durations: Sequence[KernelDurations] = ()
) -> Grid:
    """Return the kernels of all GPUs, the longest time first. `durations`: histograms of some of the kernels."""
    whole = sum(kernel.total_ns for kernel in kernels)
    tasks = len({task for gpu in gpus if gpu.span_ns for task in gpu.tasks})
    histograms = {(kernel.name, kernel.kernel_class): kernel for kernel in durations}
    rows: list[list[Cell]] = []
    for kernel in kernels:
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


def tabulate_flops(flops: FlopNumbers) -> Grid:
    """Return the operators with known shapes, the most FLOPs first."""
    rows: list[list[Cell]] = [
        [
            Name(each.operator),
            each.number_type or "-",
            Count(each.count),
            Flops(each.flops),
            Ns(each.kernel_ns),
            FlopRate(each.flops / each.kernel_ns * 1e9 if each.kernel_ns else None),
        ]
        for each in flops.operators
    ]
    return Grid(
        caption="FLOPs of operators by their shapes, and time of the kernels that they launched",
        columns=make_columns("operator", "type", "count", "FLOPs", "kernel time", "rate"),
        rows=rows,
        names=2,
        below=_describe(flops),
    )


def _describe(flops: FlopNumbers) -> list[str]:
    """Return how much operators with shapes compute, how fast, and how much of such work they are."""
    each = ""
    if flops.steps:
        each = f" {format_flops(flops.flops / flops.steps / flops.tasks)} a step and rank"
    rate = f"{format_flops(flops.flops / flops.kernel_ns * 1e9)}/s while their kernels run" if flops.kernel_ns else ""
    share = format_percent(flops.explained_ns, flops.of_ns)
    return [
        f"At least{each or ' ' + format_flops(flops.flops)}, {rate}",
        f"These operators launched {share} of the time in GEMM, attention and convolution kernels",
    ]
