"""The table of kernels that are slow on some ranks or in some steps."""

from __future__ import annotations

from nsys2prv_ng.summary.numbers.slow_modes import SlowMode, SlowModeNumbers
from nsys2prv_ng.text.formatting import format_number_ranges, format_percent, format_ranks, join_first
from nsys2prv_ng.text.grid import Cell, Column, Count, Grid, Name, Ns, Share, make_columns
from nsys2prv_ng.text.names import clean_name

_MOST_NUMBERS, _MOST_TASKS = 4, 3


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


def name_tasks(mode: SlowMode) -> str:
    """Return the ranks of a mode, or else its tasks."""
    ranks = sorted(task.rank for task in mode.tasks if task.rank is not None)
    if len(ranks) == len(mode.tasks):
        return format_ranks(ranks)
    return join_first([clean_name(task.task) for task in mode.tasks], _MOST_TASKS)


def name_steps(mode: SlowMode) -> str:
    """Return the numbers of the slow steps."""
    numbers = format_number_ranges(mode.steps).split(",")
    return f"step{'s' * (len(mode.steps) > 1)} {join_first(numbers, _MOST_NUMBERS)}"
