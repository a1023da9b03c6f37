"""The table of kernels that are slow on some ranks or in some steps."""

from __future__ import annotations

from nsys2prv_ng.summary.numbers.slow_modes import SlowModeNumbers
from nsys2prv_ng.summary.words.slow_modes import name_steps, name_tasks
from nsys2prv_ng.text.formatting import format_percent
from nsys2prv_ng.text.grid import Cell, Column, Count, Grid, Name, Ns, Share, make_columns


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
