"""Tables and sentences on kernels: the longest, those slow on some ranks or in some steps, and FLOPs of operators."""

from __future__ import annotations

from collections.abc import Sequence

from nsys2prv_ng.summary.gpus.numbers import GpuNumbers
from nsys2prv_ng.summary.gpus.table import name_largest
from nsys2prv_ng.summary.kernels.numbers import FlopNumbers, KernelNumbers, SlowModeNumbers
from nsys2prv_ng.summary.kernels.words import name_steps, name_tasks
from nsys2prv_ng.summary.pictures.numbers import KernelDurations
from nsys2prv_ng.text import grid
from nsys2prv_ng.text.formatting import format_flops, format_percent


def tabulate_slow_modes(slow: SlowModeNumbers) -> grid.Grid:
    """Return the kernels of all slow modes, the modes and in them the kernels that lose most first."""
    rows: list[list[grid.Cell]] = []
    for mode in slow.modes:
        for kernel in mode.kernels:
            usual, mean = kernel.usual_ns, kernel.ns / kernel.count
            names = grid.Name(kernel.name), name_tasks(mode), name_steps(mode)
            shape = [" x ".join(f"{size:,}" for size in sizes) for sizes in (kernel.grid, kernel.block)]
            times = grid.Ns(usual), grid.Ns(mean), grid.Share(mean - usual, usual), grid.Ns(kernel.lost_ns)
            rows.append([*names, *shape, grid.Count(kernel.count), *times])
    share = format_percent(slow.judged_ns, slow.kernel_ns)
    return grid.Grid(
        caption=f"Kernels that are slower than usual, of {share} of kernel time that repeats",
        columns=grid.make_columns(
            *("kernel", "on", "in", grid.Column("grid", wide=True), grid.Column("block", wide=True)),
            *(grid.Column("count", minor=True), "usual", "mean", grid.Column("longer", minor=True), "lost"),
        ),
        rows=rows,
        names=5,
        more="kernels",
    )


def tabulate_kernels(
    kernels: Sequence[KernelNumbers], gpus: Sequence[GpuNumbers], durations: Sequence[KernelDurations] = ()
) -> grid.Grid:
    """Return the kernels of all GPUs, the longest time first. `durations`: histograms of some of the kernels."""
    whole = sum(kernel.total_ns for kernel in kernels)
    tasks = len({task for gpu in gpus if gpu.span_ns for task in gpu.tasks})
    histograms: dict[tuple[str, str], grid.Cell] = {}
    for each in durations:
        histograms[each.name, each.kernel_class] = grid.Histogram(each.counts.tolist(), each.edges_ns.tolist())

    def name_busiest(kernel: KernelNumbers) -> grid.Cell:
        return grid.Name(name_largest({kernel.busiest_task: kernel.busiest_ns}, kernel.total_ns, tasks))

    def show_durations(kernel: KernelNumbers) -> grid.Cell:
        return histograms.get((kernel.name, kernel.kernel_class), "")

    return grid.tabulate(
        kernels,
        [
            ("kernel", lambda kernel: grid.Name(kernel.name)),
            ("class", lambda kernel: grid.Name(kernel.kernel_class)),
            ("count", lambda kernel: grid.Count(kernel.count)),
            ("time", lambda kernel: grid.Ns(kernel.total_ns)),
            ("mean", lambda kernel: grid.Ns(kernel.total_ns / kernel.count)),
            (grid.Column("shortest", wide=True), lambda kernel: grid.Ns(kernel.min_ns)),
            (grid.Column("longest", wide=True), lambda kernel: grid.Ns(kernel.max_ns)),
            ("share", lambda kernel: grid.Share(kernel.total_ns, whole)),
            (grid.Column("mostly on", optional=True), name_busiest),
            (grid.Column("durations", wide=True), show_durations),
        ],
        names=2,
        more="kernels",
    )


def tabulate_flops(flops: FlopNumbers, user: str) -> grid.Grid:
    """Return the operators with known shapes, the most FLOPs first."""
    return grid.tabulate(
        flops.operators,
        [
            ("operator", lambda each: grid.Name(each.operator)),
            ("type", lambda each: each.number_type or "-"),
            ("count", lambda each: grid.Count(each.count)),
            ("FLOPs", lambda each: grid.Flops(each.flops)),
            ("kernel time", lambda each: grid.Ns(each.kernel_ns)),
            ("rate", lambda each: grid.FlopRate(each.flops / each.kernel_ns * 1e9 if each.kernel_ns else None)),
        ],
        caption="FLOPs of operators by their shapes, and time of the kernels that they launched",
        names=2,
        below=_describe_flops(flops, user),
    )


def _describe_flops(flops: FlopNumbers, user: str) -> list[str]:
    """Return how much operators with shapes compute, how fast, and how much of such work they are."""
    per_step = f"{format_flops(flops.flops / flops.steps / flops.tasks)} a step and {user}" if flops.steps else ""
    rate = f"{format_flops(flops.flops / flops.kernel_ns * 1e9)}/s while their kernels run" if flops.kernel_ns else ""
    share = format_percent(flops.explained_ns, flops.of_ns)
    return [
        f"At least {per_step or format_flops(flops.flops)}, {rate}",
        f"These operators launched {share} of the time in GEMM, attention and convolution kernels",
    ]
