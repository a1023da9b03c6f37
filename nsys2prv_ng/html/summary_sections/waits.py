"""Makes the sections on who waits for whom and why, on idle GPUs, and on the bandwidth of collectives."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nsys2prv_ng.html.blocks import MOST_RANKS, MOST_ROWS, Block, Chart, Paragraph, Section, show_grid
from nsys2prv_ng.html.charts import Axis, Shape, Swatch, draw_points, format_colour, make_log_ticks
from nsys2prv_ng.html.colours import LINES
from nsys2prv_ng.summary.answer.trust import describe_limits
from nsys2prv_ng.summary.gpus.table import tabulate_causes, tabulate_gaps, tabulate_gpus
from nsys2prv_ng.summary.job import JobSummary
from nsys2prv_ng.summary.pictures.numbers import Pictures
from nsys2prv_ng.summary.text import name_time
from nsys2prv_ng.summary.waits import table as waits_table
from nsys2prv_ng.summary.waits.numbers import Bandwidth
from nsys2prv_ng.summary.waits.words import list_bandwidth, list_stragglers
from nsys2prv_ng.text.formatting import format_bytes, format_window
from nsys2prv_ng.text.grid import Rate
from nsys2prv_ng.text.names import name_task

_HEIGHT = 240


def make_wait_section(summary: JobSummary) -> Section | None:
    """Return the section on who waits for whom and why; None if no operation is over ranks."""
    waits = summary.waits
    if waits is None or not waits.operations:
        return None
    grids = [(waits_table.tabulate_nccl_waits(waits), MOST_RANKS), (waits_table.tabulate_mpi_waits(waits), MOST_RANKS)]
    grids += (
        [
            (waits_table.tabulate_reasons(waits), MOST_ROWS),
            (waits_table.tabulate_excess(waits, summary.measured_ns, summary.step_count), MOST_ROWS),
        ]
        if waits.split
        else []
    )
    blocks: list[Block] = [show_grid(grid, most) for grid, most in grids if grid.rows]
    blocks += [Paragraph(text) for text in describe_limits(waits)]
    lead = (
        f"Numbers of {name_time(summary)}. A rank waits in a collective or message until the last rank that it needs"
        " arrives. The rest of the time is transfer."
    )
    rank = next((rank for rank, _ in list_stragglers(waits)), None)
    if rank is not None and rank.longest_wait is not None:
        window = format_window(rank.longest_wait.from_ns, rank.longest_wait.to_ns)
        lead += f" The longest wait that {name_task(rank.rank, rank.task)} caused was at `--time {window}`."
    presets = ["analysis/waited_for", "analysis/lateness", "analysis/nccl_waiting"]
    return Section("waits", "Waits and their causes", lead, blocks, presets)


# ---- idle GPUs -------------------------------------------------------------------------------------------------------


def make_gap_section(summary: JobSummary, pictures: Pictures) -> Section | None:
    """Return the section on what GPUs did and on the causes of their gaps; None without GPUs."""
    gpus = [gpu for gpu in summary.gpus if gpu.span_ns]
    if not gpus:
        return None
    gaps, causes = tabulate_gaps(gpus, pictures.shift_ns), tabulate_causes(summary.gpus)
    blocks = [show_grid(tabulate_gpus(gpus), MOST_RANKS)]
    blocks += [show_grid(gaps, MOST_RANKS)] if gaps.rows else []
    blocks += [show_grid(causes)] if causes.rows else []
    lead = f"Numbers of {name_time(summary)}. In a gap, a GPU runs nothing between two operations."
    return Section("gaps", "Idle GPUs", lead, blocks, ["analysis/gpu-gaps", "analysis/gap_histogram"])


# ---- bandwidth -------------------------------------------------------------------------------------------------------


def make_bandwidth_section(summary: JobSummary) -> Section | None:
    """Return the section on the bandwidth of collectives by size; None if no bandwidth is known."""
    rated = summary.waits.bandwidth if summary.waits is not None else []
    bandwidth = [part for part in rated if part.bytes and part.ns and part.bus_bytes_per_s]
    if not bandwidth:
        return None
    lead = f"Numbers of {name_time(summary)}. Bandwidth counts from the last arrival on, so it excludes wait time."
    blocks: list[Block] = [_draw_bandwidth(bandwidth)]
    communicators = waits_table.tabulate_communicators(summary.waits) if summary.waits is not None else None
    blocks += [show_grid(communicators)] if communicators is not None and communicators.rows else []
    return Section("bandwidth", "NCCL bandwidth", lead, blocks, ["analysis/nccl_calls_2dh"])


def _draw_bandwidth(bandwidth: Sequence[Bandwidth]) -> Chart:
    """Return a chart of the bus bandwidth over the size, with logarithmic axes and a colour for each function."""
    rows = list_bandwidth(bandwidth)
    sizes, rates = [row.bytes / row.operations for row in rows], [row.bus_bytes_per_s for row in rows]
    x, y = _make_axis(sizes), _make_axis(rates)
    shapes = []
    for n, function in enumerate(sorted({row.function for row in rows})):
        points = [k for k, row in enumerate(rows) if row.function == function]
        css = format_colour(LINES[n % len(LINES)])
        path = draw_points(x.place(np.array(sizes)[points]), y.place(np.array(rates)[points]))
        shapes.append(Shape("points", css, function, path))
    legend = [Swatch(shape.css, shape.name) for shape in shapes]
    sizes, rates = make_log_ticks(x), make_log_ticks(y)
    x_ticks = x.mark(sizes, map(format_bytes, sizes))
    y_ticks = y.mark(rates, [str(Rate(rate)) for rate in rates])
    about = "busbw, as in nccl-tests, over the size that a rank passes to the call."
    table = show_grid(waits_table.tabulate_bandwidth(bandwidth))
    return Chart("Bandwidth by size", about, shapes, x_ticks, y_ticks, _HEIGHT, legend, table)


def _make_axis(values: Sequence[float]) -> Axis:
    """Return a logarithmic axis from power of ten to power of ten around positive values."""
    low, high = max(1.0, min(values)), max(1.0, *values)
    return Axis(
        10.0 ** np.floor(np.log10(low)), 10.0 ** max(np.ceil(np.log10(high)), np.floor(np.log10(low)) + 1), True
    )
