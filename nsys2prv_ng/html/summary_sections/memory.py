"""Makes the section on device memory: what is in use over time and by step, allocations, and allocator calls."""

from __future__ import annotations

import numpy as np

from nsys2prv_ng.html.blocks import Block, Chart, Paragraph, Section
from nsys2prv_ng.html.charts.axes import Tick, make_value_ticks
from nsys2prv_ng.html.charts.maps import Swatch, format_colour
from nsys2prv_ng.html.charts.plots import Axis, Shape, draw_line, spread
from nsys2prv_ng.html.colours import LINES
from nsys2prv_ng.html.summary_sections.over_time import make_map
from nsys2prv_ng.html.tables import MOST_RANKS, show_grid
from nsys2prv_ng.summary.job import JobSummary
from nsys2prv_ng.summary.memory.numbers import GpuMemory, MemoryNumbers
from nsys2prv_ng.summary.memory.table import (
    tabulate_allocations,
    tabulate_allocator_calls,
    tabulate_kept,
    tabulate_memory,
)
from nsys2prv_ng.summary.memory.words import describe_leak, name_users
from nsys2prv_ng.summary.pictures.numbers import Pictures
from nsys2prv_ng.summary.text import name_time
from nsys2prv_ng.text.formatting import count_noun, format_bytes
from nsys2prv_ng.text.grid import Bytes, Cell, Grid, Name, make_columns

_HEIGHT = 190
_MOST_TICKS = 10
_MOST_LEAKS = 4


def make_memory_section(summary: JobSummary, pictures: Pictures) -> Section | None:
    """Return the section on the memory of GPUs; None if no allocations are known."""
    heats = [heat for heat in pictures.heat_maps if heat.key == "memory"]
    blocks: list[Block] = [] if summary.memory is None else _list_blocks(summary, summary.memory, pictures)
    blocks += [make_map(heat, pictures) for heat in heats]
    if not blocks:
        return None
    lead = "" if summary.memory is None else "Device memory does not include managed memory, or pinned memory of hosts."
    return Section("memory", "GPU memory", lead, blocks, ["views/memory_level"])


def _list_blocks(summary: JobSummary, memory: MemoryNumbers, pictures: Pictures) -> list[Block]:
    """Return what is known of device memory: leaks first, then the chart and the tables."""
    blocks: list[Block] = [Paragraph(f"{describe_leak(gpu)}.") for gpu in memory.leaks[:_MOST_LEAKS]]
    if len(memory.leaks) > _MOST_LEAKS:
        blocks.append(Paragraph(f"Memory of {count_noun(len(memory.leaks) - _MOST_LEAKS, 'more GPU')} grows as well."))
    by_step = [gpu for gpu in memory.gpus if len(gpu.least_by_step) > 1]
    if by_step:
        blocks.append(_draw_steps(memory, by_step))
    grids = [
        tabulate_memory(memory, name_time(summary), pictures.shift_ns),
        tabulate_allocations(memory),
        tabulate_allocator_calls(memory),
        tabulate_kept(memory.gpus),
    ]
    return [*blocks, *(show_grid(grid, MOST_RANKS) for grid in grids if grid.rows)]


def _draw_steps(memory: MemoryNumbers, gpus: list[GpuMemory]) -> Chart:
    """Return a line with the least memory in use in each step for each GPU; of many, those that grow most."""
    shown = sorted(gpus, key=lambda gpu: -abs(gpu.growth_per_step or 0))[: len(LINES)]
    values = np.array([gpu.least_by_step for gpu in shown], np.float64)
    ticks = make_value_ticks(float(values.min()), float(values.max()))
    height = Axis(ticks[0], ticks[-1])
    x = spread(values.shape[1])
    colours = [format_colour(colour) for colour in LINES]
    names = [f"{gpu.node} GPU {gpu.gpu}, {name_users(gpu)}" for gpu in shown]
    lines = zip(colours, names, height.place(values), strict=False)
    rows: list[list[Cell]] = [
        [Name(name), Bytes(gpu.least_by_step[0]), Bytes(gpu.least_by_step[-1])]
        for name, gpu in zip(names, shown, strict=True)
    ]
    columns = make_columns("", "first step", "last step")
    grid = Grid(caption="Least memory in use", columns=columns, rows=rows, more="GPUs")
    every = max(1, -(-x.size // _MOST_TICKS))
    about = f"{len(shown)} of {count_noun(len(gpus), 'GPU')}" if len(shown) < len(gpus) else "by GPU"
    about += " (axis does not start at 0)" if height.low else ""
    return Chart(
        "Least memory in use in each step",
        about,
        [Shape("line", css, name, draw_line(x, y)) for css, name, y in lines],
        [Tick(float(x[n]), str(memory.step_numbers[n])) for n in range(0, x.size, every)],
        height.mark(ticks, map(format_bytes, ticks)),
        _HEIGHT,
        [Swatch(css, name) for css, name in zip(colours, names, strict=False)],
        show_grid(grid, MOST_RANKS),
    )
