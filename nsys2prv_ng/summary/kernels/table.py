"""Tables and sentences on kernels: the longest, and those slow on some ranks or in some steps."""

from __future__ import annotations

from collections.abc import Sequence

from nsys2prv_ng.summary.gpus.numbers import GpuNumbers
from nsys2prv_ng.summary.gpus.table import name_largest
from nsys2prv_ng.summary.kernels.numbers import KernelNumbers, SlowMode, SlowModeNumbers
from nsys2prv_ng.text import formatting, grid
from nsys2prv_ng.text.formatting import count_noun, format_percent, format_time, join_first
from nsys2prv_ng.text.names import clean_name, quote_name


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


def tabulate_kernels(kernels: Sequence[KernelNumbers], gpus: Sequence[GpuNumbers]) -> grid.Grid:
    """Return the kernels of all GPUs, the longest time first."""
    whole = sum(kernel.total_ns for kernel in kernels)
    tasks = len({task for gpu in gpus if gpu.span_ns for task in gpu.tasks})

    def name_busiest(kernel: KernelNumbers) -> grid.Cell:
        return grid.Name(name_largest({kernel.busiest_task: kernel.busiest_ns}, kernel.total_ns, tasks))

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
        ],
        names=2,
        more="kernels",
    )


# ---- in words --------------------------------------------------------------------------------------------------------

_MOST_NUMBERS, _MOST_TASKS = 4, 3


def name_tasks(mode: SlowMode) -> str:
    """Return the ranks of a mode, or else its tasks."""
    ranks = sorted(task.rank for task in mode.tasks if task.rank is not None)
    if len(ranks) == len(mode.tasks):
        return formatting.format_ranks(ranks)
    return join_first([clean_name(task.task) for task in mode.tasks], _MOST_TASKS)


def name_steps(mode: SlowMode) -> str:
    """Return the numbers of the slow steps."""
    numbers = formatting.format_number_ranges(mode.steps).split(",")
    return f"step{'s' * (len(mode.steps) > 1)} {join_first(numbers, _MOST_NUMBERS)}"


_HINT = "clocks throttled, or another process? compare nvidia-smi -q -d CLOCK,PERFORMANCE"
_NARROW_HINT = "other kernels are as fast as usual: another algorithm, or more data?"


def describe_slow_modes(slow: SlowModeNumbers | None, *, has_several: bool) -> str:
    """Return a sentence on the slow mode that costs most, and the number of others; "" without any.

    `has_several`: whether the job has several tasks.
    """
    modes = [] if slow is None else [mode for mode in slow.modes if mode.kernels]
    if not modes:
        return ""
    text = _describe_mode(modes[0], has_several)
    return f"{text}; {count_noun(len(modes) - 1, 'more slow mode')}: --details" if len(modes) > 1 else text


def _describe_mode(mode: SlowMode, has_several: bool) -> str:
    count = len(mode.kernels) + mode.more_kernels
    first = quote_name(mode.kernels[0].name)
    what = f"{first} takes"
    if count > 1:
        share = format_percent(mode.kernel_share, 1)
        what = f"{count:,} names and launch shapes of kernels ({share} of kernel time, first {first}) take"
    longer = f"{format_percent(mode.ratio - 1, 1)} longer than {'on other ranks' if mode.all_steps else 'usual'}"
    lost = f"{format_time(mode.lost_ns)} lost ({format_percent(mode.step_share, 1)} of these steps)"
    place = f"{name_tasks(mode)}, {name_steps(mode)}" if has_several else name_steps(mode)
    where = "on that GPU" if len(mode.tasks) == 1 else "on these GPUs"
    # Slow kernels that are most of kernel time speak for the GPU as a whole.
    hint = f"{_HINT} {where}" if 2 * mode.kernel_share >= 1 else _NARROW_HINT
    return f"{place}: {what} {longer}, {lost}; {hint}"
