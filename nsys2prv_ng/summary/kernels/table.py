"""Tables of kernels: the longest, those that are slow on some ranks or in some steps, operators with known FLOPs."""

from __future__ import annotations

from collections.abc import Sequence

from nsys2prv_ng.summary.gpus.numbers import GpuNumbers
from nsys2prv_ng.summary.gpus.table import name_largest
from nsys2prv_ng.summary.kernels.numbers import FlopNumbers, KernelNumbers, SlowModeNumbers
from nsys2prv_ng.summary.kernels.words import name_steps, name_tasks
from nsys2prv_ng.summary.pictures.numbers import KernelDurations
from nsys2prv_ng.text.formatting import format_flops, format_percent
from nsys2prv_ng.text.grid import (
    Cell,
    Column,
    Count,
    FlopRate,
    Flops,
    Grid,
    Histogram,
    Name,
    Ns,
    Share,
    make_columns,
    tabulate,
)


def tabulate_slow_modes(slow: SlowModeNumbers) -> Grid:
    """Return the kernels of all slow modes, the modes and in them the kernels that lose most first."""
    rows: list[list[Cell]] = []
    for mode in slow.modes:
        for kernel in mode.kernels:
            usual, mean = kernel.usual_ns, kernel.ns / kernel.count
            names = Name(kernel.name), name_tasks(mode), name_steps(mode)
            shape = [" x ".join(f"{size:,}" for size in sizes) for sizes in (kernel.grid, kernel.block)]
            times = Ns(usual), Ns(mean), Share(mean - usual, usual), Ns(kernel.lost_ns)
            rows.append([*names, *shape, Count(kernel.count), *times])
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


def tabulate_kernels(
    kernels: Sequence[KernelNumbers], gpus: Sequence[GpuNumbers], durations: Sequence[KernelDurations] = ()
) -> Grid:
    """Return the kernels of all GPUs, the longest time first. `durations`: histograms of some of the kernels."""
    whole = sum(kernel.total_ns for kernel in kernels)
    tasks = len({task for gpu in gpus if gpu.span_ns for task in gpu.tasks})
    histograms = {
        (each.name, each.kernel_class): Histogram(each.counts.tolist(), each.edges_ns.tolist()) for each in durations
    }
    return tabulate(
        kernels,
        [
            ("kernel", lambda kernel: Name(kernel.name)),
            ("class", lambda kernel: Name(kernel.kernel_class)),
            ("count", lambda kernel: Count(kernel.count)),
            ("time", lambda kernel: Ns(kernel.total_ns)),
            ("mean", lambda kernel: Ns(kernel.total_ns / kernel.count)),
            (Column("shortest", wide=True), lambda kernel: Ns(kernel.min_ns)),
            (Column("longest", wide=True), lambda kernel: Ns(kernel.max_ns)),
            ("share", lambda kernel: Share(kernel.total_ns, whole)),
            (
                Column("mostly on", optional=True),
                lambda kernel: Name(name_largest({kernel.busiest_task: kernel.busiest_ns}, kernel.total_ns, tasks)),
            ),
            (Column("durations", wide=True), lambda kernel: histograms.get((kernel.name, kernel.kernel_class), "")),
        ],
        names=2,
        more="kernels",
    )


def tabulate_flops(flops: FlopNumbers) -> Grid:
    """Return the operators with known shapes, the most FLOPs first."""
    return tabulate(
        flops.operators,
        [
            ("operator", lambda each: Name(each.operator)),
            ("type", lambda each: each.number_type or "-"),
            ("count", lambda each: Count(each.count)),
            ("FLOPs", lambda each: Flops(each.flops)),
            ("kernel time", lambda each: Ns(each.kernel_ns)),
            ("rate", lambda each: FlopRate(each.flops / each.kernel_ns * 1e9 if each.kernel_ns else None)),
        ],
        caption="FLOPs of operators by their shapes, and time of the kernels that they launched",
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
