"""Makes the sections on what happened when: heat maps, the pace of steps, one typical step, and memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from nsys2prv_ng.arrays.types import ByteArray
from nsys2prv_ng.html import charts
from nsys2prv_ng.html.blocks import MOST_RANKS, Block, Chart, Map, Maps, Paragraph, Section, Table, show_grid
from nsys2prv_ng.html.colours import HUES, LINES, STRIPS
from nsys2prv_ng.html.page import quote
from nsys2prv_ng.summary.efficiency.windows import describe_steps
from nsys2prv_ng.summary.job import JobSummary
from nsys2prv_ng.summary.memory import table as memory_table
from nsys2prv_ng.summary.memory.numbers import GpuMemory, MemoryNumbers
from nsys2prv_ng.summary.memory.table import describe_leak, name_users
from nsys2prv_ng.summary.pictures.numbers import HeatMap, Pace, Pictures, TypicalStep
from nsys2prv_ng.summary.steps.table import list_kind_tables, list_slow_tables
from nsys2prv_ng.summary.text import name_time
from nsys2prv_ng.text.formatting import count_noun, format_bytes, format_time, format_window, join_first
from nsys2prv_ng.text.grid import Bytes, Cell, Grid, Name, Ns, Share, make_columns

_MOST_LINES = len(LINES)
"""Most tasks whose steps have a line each."""
_HEIGHT, _LINE = 190, 1.6
"""Height of a chart, and the width of a line in it (style.css), in pixels."""
_MOST_TICKS = 10
_MOST_COLUMNS, _MOST_PIXELS = 20_000, 2_000_000
"""Limits of the image of a step that is drawn on the axis of a longer step."""
_MOST_WARMUP = 4
"""Most warm-up steps whose times are listed."""
_ABSENT = {"lateness": "no operation started"}
"""The meaning of a missing value, by the key of the map."""
_FORMATS: dict[str, Callable[[float], str]] = {"%": "{:.1f}%".format, "ns": format_time}
"""How the values of a map are written, by their unit."""


def make_heat_map_section(pictures: Pictures, largest: str = "") -> Section | None:
    """Return the section on what GPUs and ranks did over time; None without any. `largest`: the part to show first."""
    if not pictures.heat_maps:
        return None
    lead = "Drag over a map to zoom, double-click to reset. The line below it then has the values for `--time`."
    heats = sorted(pictures.heat_maps, key=lambda heat: f"{heat.key}_ns" != largest)
    maps = Maps([make_map(heat, pictures) for heat in heats])
    presets = [*dict.fromkeys(heat.preset for heat in pictures.heat_maps if heat.preset)]
    return Section("over-time", "Over time", lead, [maps], presets, format_window(pictures.begin_ns, pictures.end_ns))


def make_pace_section(summary: JobSummary, pictures: Pictures) -> Section | None:
    """Return the section on how long each step took on each rank; None if no steps were found."""
    pace = pictures.pace
    if pace is None or not pace.ns.size:
        return None
    lead = f"Duration of {count_noun(pace.count, 'step')} on each rank."
    if pace.warmup:
        slowest = [format_time(ns) for ns in pace.ns[:, : pace.warmup].max(axis=0, initial=0).tolist()]
        warmup = f"{count_noun(pace.warmup, 'warm-up step')} ({join_first(slowest, _MOST_WARMUP)})"
        lead += f" Not drawn: {warmup}."
    if summary.steps is not None:
        lead += f" {describe_steps(summary.steps)}."
    if "time" in summary.chosen:
        lead += " The plot shows all steps, also outside the chosen time."
    if pace.every > 1:
        lead += f" Of {pace.every:,} consecutive steps, only the slowest is drawn."
    window = format_window(int(pace.begin_ns[pace.warmup]), int(pace.end_ns[-1]))
    presets = ["analysis/slow_steps", "model/gpu_efficiency_by_step"]
    tables = [show_grid(grid) for grid in list_kind_tables(summary.steps) if grid.rows]
    return Section("pace", "Pace of the steps", lead, [_draw_pace(pace), *tables], presets, window)


def make_step_section(summary: JobSummary, pictures: Pictures) -> Section | None:
    """Return the section on one typical step with all rows, or on two; None if no steps were found."""
    step, other = pictures.step, pictures.other_step
    if step is None:
        return None
    drawn = [step] if other is None else [step, other]
    lead = f"{quote(step.name)}, the step closest to the median: {format_time(step.ns)}."
    title = "A typical step"
    if other is not None and pictures.is_other_slow:
        title = "A typical step and a slow one"
        lead += f" {quote(other.name)} is the slowest: {format_time(other.ns)}."
    elif other is not None:
        title = "Two steps"
        has_turns = summary.steps is not None and summary.steps.turns_ns is not None
        why = "short and long steps alternate" if has_turns else "step times differ too much"
        names = " and ".join(f"{quote(each.name)} ({format_time(each.ns)})" for each in drawn)
        lead = f"No step is typical, because {why}: {names} stand for the longer and the shorter half."
        if summary.steps is not None and len(summary.steps.kinds) > 1:
            kinds = " and ".join(quote(kind.name) for kind in summary.steps.kinds[:2])
            lead = f"{names} stand for the kinds of steps with most time, {kinds}."
    if any(each.end_ns - each.begin_ns > each.ns for each in drawn):
        lead += " The picture starts with the first rank and ends with the last."
    longest = max(each.end_ns - each.begin_ns for each in drawn)
    maps = [draw_step(each, longest if other is not None else 0) for each in drawn]
    tables = [] if summary.slow_steps is None else [show_grid(grid) for grid in list_slow_tables(summary.slow_steps)]
    window = format_window(step.begin_ns, step.end_ns)
    return Section("step", title, lead, [*maps, *tables], ["views/per_gpu_waits", "basics/nvtx"], window)


def draw_step(step: TypicalStep, span_ns: int = 0, group: str = "step", title: str = "") -> Map:
    """Return a step as strips below the NVTX ranges of some tasks.

    `span_ns`: length of the axis, if it is the axis of a longer step.
    """
    length = step.end_ns - step.begin_ns
    span = max(span_ns, length)
    figure = charts.make_strips(
        step.rows,
        step.values if span == length else _stretch(step.values, span / length),
        (step.begin_ns, step.begin_ns + span),
        [(label, STRIPS[key]) for key, label in step.activities.items()],
    )
    lanes = [ranges for ranges in step.ranges if ranges.bars]
    hidden = sum(ranges.hidden for ranges in step.ranges)
    about = f"Main activity in each {format_time(length / step.values.shape[1])}"
    about += ", below the NVTX ranges of some main threads." if lanes else "."
    about += f" {count_noun(hidden, 'range')} too short or too deep to draw." if hidden else ""
    return Map(title or step.name, about, figure, _tabulate_step(step), lanes, group)


def _stretch(values: ByteArray, ratio: float) -> ByteArray:
    """Return the values followed by unknown ones, so that they take 1 / ratio of the columns.

    If the image would be huge, columns are longer than bins: each column has the value at its middle.
    """
    rows, bins = values.shape
    columns = max(bins, min(round(bins * ratio), _MOST_COLUMNS, _MOST_PIXELS // max(1, rows)))
    bin_of_column = ((np.arange(columns) + 0.5) * (bins * ratio / columns)).astype(np.int64)
    unknown_at_end = np.pad(values, ((0, 0), (0, 1)))
    return unknown_at_end[:, np.minimum(bin_of_column, bins)]


def _tabulate_step(step: TypicalStep) -> Table:
    """Return the share of each activity in the step, for each row."""
    counts = np.stack([np.count_nonzero(step.values == n + 1, axis=1) for n in range(len(step.activities))], axis=1)
    share = counts / step.values.shape[1]
    shown = {n: label for n, label in enumerate(step.activities.values()) if counts[:, n].any()}
    cells = [[Share(float(share[n, k]), 1) for k in shown] for n in range(len(step.rows))]
    rows: list[list[Cell]] = [[Name(name), *shares] for name, shares in zip(step.rows, cells, strict=True)]
    columns = make_columns("", *shown.values())
    return show_grid(Grid(caption="Share of the step, as drawn", columns=columns, rows=rows, more="rows"), MOST_RANKS)


# ---- heat maps -------------------------------------------------------------------------------------------------------


def make_map(heat: HeatMap, pictures: Pictures) -> Map:
    """Return a heat map, with its numbers as a table."""
    limits, write, absent = (pictures.begin_ns, pictures.end_ns), _FORMATS[heat.unit], _ABSENT.get(heat.key, "")
    figure = charts.make_heat_map(heat.rows, heat.values, limits, HUES[heat.key], heat.unit, write, absent)
    return Map(heat.title, heat.about, figure, _tabulate_map(heat))


def _tabulate_map(heat: HeatMap) -> Table:
    """Return mean and maximum of each row; of many rows, the rows with the largest means."""
    known = ~np.isnan(heat.values)
    count = known.sum(axis=1)
    total = np.where(known, heat.values, 0).sum(axis=1)
    mean = np.divide(total, count, out=np.zeros(total.shape), where=count > 0)
    highest = np.where(known, heat.values, -np.inf).max(axis=1, initial=-np.inf)
    has_mean = heat.unit == "%"
    rows: list[list[Cell]] = []
    for n, name in enumerate(heat.rows):
        values = [mean[n], highest[n]] if has_mean else [highest[n]]
        rows.append([Name(name), *(_FORMATS[heat.unit](value) if count[n] else "-" for value in values)])
    columns = make_columns("", "mean", "highest") if has_mean else make_columns("", "highest")
    weights = [(value,) for value in mean.tolist()]
    grid = Grid(caption="Values as drawn", columns=columns, rows=rows, more="rows", weights=weights)
    return show_grid(grid, MOST_RANKS)


# ---- pace ------------------------------------------------------------------------------------------------------------


def _draw_pace(pace: Pace) -> Chart:
    """Return a line for each task; of many tasks, the area from the fastest to the slowest, the median, the slowest."""
    ns = pace.ns[:, pace.warmup :]
    x = charts.spread(ns.shape[1])
    height, y_ticks = charts.make_time_axis(float(ns.min()), float(ns.max()))
    shapes, legend = [], []
    if len(ns) > 1 and np.ptp(ns, axis=0).max() <= _LINE / _HEIGHT * (height.high - height.low):
        css = charts.format_colour(LINES[0])
        shapes = [charts.Shape("line", css, "all ranks", charts.draw_line(x, height.place(ns.max(axis=0))))]
        lines = []
    elif len(pace.tasks) > _MOST_LINES:
        low, high = height.place(ns.min(axis=0)), height.place(ns.max(axis=0))
        css = charts.format_colour(LINES[0])
        shapes = [charts.Shape("area", css, "fastest to slowest rank", charts.draw_area(x, low, high))]
        median = charts.draw_line(x, height.place(np.median(ns, axis=0)))
        shapes.append(charts.Shape("line", css, "median rank", median))
        legend = [charts.Swatch(css, "median rank, and fastest to slowest")]
        lines = [int(np.argmax(np.median(ns, axis=1)))]
    else:
        lines = list(range(len(pace.tasks)))
    for n, task in enumerate(lines, len(legend)):
        css = charts.format_colour(LINES[n])
        shapes.append(charts.Shape("line", css, pace.tasks[task], charts.draw_line(x, height.place(ns[task]))))
        legend.append(charts.Swatch(css, pace.tasks[task]))
    about = "by rank, with wait time" if lines else "with wait time, the same on all ranks"
    about += " (axis does not start at 0)" if height.low else ""
    x_ticks = _label_steps(pace.numbers[pace.warmup :].tolist())
    return Chart("Step time", about, shapes, x_ticks, y_ticks, _HEIGHT, legend, _tabulate(pace))


def _label_steps(numbers: Sequence[int]) -> list[charts.Tick]:
    """Return a tick for some of the steps with these numbers, which are evenly spread over the axis."""
    every = max(1, -(-len(numbers) // _MOST_TICKS))
    places = charts.spread(len(numbers)).tolist()
    return [charts.Tick(places[n], str(numbers[n])) for n in range(0, len(numbers), every)]


def _tabulate(pace: Pace) -> Table:
    """Return median, least and most time of each task after the warm-up; of many tasks, the slowest ones."""
    times = (pace.median_ns, pace.least_ns, pace.most_ns)
    rows: list[list[Cell]] = [[Name(task), *(Ns(float(ns[n])) for ns in times)] for n, task in enumerate(pace.tasks)]
    grid = Grid(
        caption="Steps without the warm-up",
        columns=make_columns("", "median", "shortest", "longest"),
        rows=rows,
        more="ranks",
        weights=[(float(ns),) for ns in pace.median_ns],
    )
    return show_grid(grid, MOST_RANKS)


_MOST_LEAKS = 4


def make_memory_section(summary: JobSummary, pictures: Pictures) -> Section | None:
    """Return the section on the memory of GPUs; None if no allocations are known."""
    memory = summary.memory
    if memory is None:
        return None
    blocks: list[Block] = [Paragraph(f"{describe_leak(gpu)}.") for gpu in memory.leaks[:_MOST_LEAKS]]
    if len(memory.leaks) > _MOST_LEAKS:
        blocks.append(Paragraph(f"Memory of {count_noun(len(memory.leaks) - _MOST_LEAKS, 'more GPU')} grows as well."))
    by_step = [gpu for gpu in memory.gpus if len(gpu.least_by_step) > 1]
    if any(len(set(gpu.least_by_step)) > 1 for gpu in by_step):
        blocks.append(_draw_steps(memory, by_step))
    grids = [
        memory_table.tabulate_memory(memory, name_time(summary), pictures.shift_ns),
        memory_table.tabulate_kept(memory.gpus),
    ]
    blocks += [show_grid(grid, MOST_RANKS) for grid in grids if grid.rows]
    lead = "Device memory does not include managed memory, or pinned memory of hosts."
    return Section("memory", "GPU memory", lead, blocks, ["views/memory_level"])


def _draw_steps(memory: MemoryNumbers, gpus: list[GpuMemory]) -> Chart:
    """Return a line with the least memory in use in each step for each GPU; of many, those that grow most."""
    shown = sorted(gpus, key=lambda gpu: -abs(gpu.growth_per_step or 0))[: len(LINES)]
    values = np.array([gpu.least_by_step for gpu in shown], np.float64)
    ticks = charts.make_value_ticks(float(values.min()), float(values.max()))
    height = charts.Axis(ticks[0], ticks[-1])
    x = charts.spread(values.shape[1])
    colours = [charts.format_colour(colour) for colour in LINES]
    names = [f"{gpu.node} GPU {gpu.gpu}, {name_users(gpu)}" for gpu in shown]
    lines = zip(colours, names, height.place(values), strict=False)
    rows: list[list[Cell]] = [
        [Name(name), Bytes(gpu.least_by_step[0]), Bytes(gpu.least_by_step[-1])]
        for name, gpu in zip(names, shown, strict=True)
    ]
    columns = make_columns("", "first step", "last step")
    grid = Grid(caption="Least memory in use", columns=columns, rows=rows, more="GPUs")
    about = f"{len(shown)} of {count_noun(len(gpus), 'GPU')}" if len(shown) < len(gpus) else "by GPU"
    about += " (axis does not start at 0)" if height.low else ""
    return Chart(
        "Least memory in use in each step",
        about,
        [charts.Shape("line", css, name, charts.draw_line(x, y)) for css, name, y in lines],
        _label_steps(memory.step_numbers),
        height.mark(ticks, map(format_bytes, ticks)),
        _HEIGHT,
        [charts.Swatch(css, name) for css, name in zip(colours, names, strict=False)],
        show_grid(grid, MOST_RANKS),
    )
