"""Makes the sections that show all runs side by side: facts, the times of steps, a typical step of each run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from nsys2prv_ng.analysis.efficiency.typical_step import RangesOfTask
from nsys2prv_ng.comparison.model import ComparisonNumbers, Scaling, Side, SideNumbers
from nsys2prv_ng.comparison.scaling import describe_scaling, tabulate_scaling
from nsys2prv_ng.comparison.tables import choose_windows
from nsys2prv_ng.html.blocks import Block, Chart, Paragraph, Section
from nsys2prv_ng.html.charts.axes import Tick
from nsys2prv_ng.html.charts.plots import Axis, Shape, draw_area, draw_line, draw_points, make_time_axis, spread
from nsys2prv_ng.html.charts.png import Swatch, format_colour
from nsys2prv_ng.html.colours import LINES
from nsys2prv_ng.html.names import clean, drop_quotes, quote
from nsys2prv_ng.html.summary_sections.over_time import draw_step
from nsys2prv_ng.html.tables import Table, show_grid
from nsys2prv_ng.summary.efficiency.table import HOST_TERMS, list_device_scores, list_scores
from nsys2prv_ng.summary.pictures.numbers import Pictures
from nsys2prv_ng.text.formatting import count_noun, format_time, format_window
from nsys2prv_ng.text.grid import Cell, Grid, Name, Ns, make_columns
from nsys2prv_ng.text.tables import cut_names

SIDES, SCALING, STEPS = "sides", "scaling", "steps"
"""Keys of the sections."""
_MOST_WARNINGS = 5
"""Most warnings that are shown for a run; its summary has all."""
_HEIGHT = 190
_MOST_POINTS = 300
"""Most steps of a side that are drawn as points: more would cover each other."""
_GAP = 0.06
"""Part of the room of a side in a plot that stays empty on the left and on the right."""
_LABELS = 72
"""Most characters of all labels below a plot together."""
_MOST_TASKS, _MOST_RANGES = 4, 800
"""Most tasks with ranges, and most ranges, over all typical steps: more would make the page large."""


def make_sides_section(comparison: ComparisonNumbers, sides: Sequence[Side], traces: str) -> Section:
    """Return the section on the facts of all runs and the times of their steps."""
    numbers = [comparison.pairs[0].a, *(pair.b for pair in comparison.pairs)]
    blocks: list[Block] = [_tabulate_facts(sides, numbers)]
    if any(side.step_ns for side in numbers):
        blocks.append(_draw_steps(numbers))
    for side in sides:
        warnings = side.summary.warnings
        blocks += [
            Paragraph(f"Warning on {quote(side.label)}: {drop_quotes(text)}") for text in warnings[:_MOST_WARNINGS]
        ]
    presets = ["model/gpu_efficiency" if any(side.gpus for side in numbers) else "model/host_efficiency"]
    presets += ["analysis/iteration_time"] if any(side.step_ns for side in numbers) else []
    return Section(SIDES, "The runs", "", blocks, presets, traces=traces)


def make_scaling_section(scaling: Scaling, traces: str) -> Section:
    """Return the section with the table of all runs and a definition of each number."""
    grid = replace(tabulate_scaling(scaling, quote), caption="")
    blocks: list[Block] = [show_grid(grid, len(grid.rows))]
    blocks += [Paragraph(f"{note[0].upper()}{note[1:]}.") for note in scaling.notes]
    presets = [*(["model/gpu_efficiency"] if any(run.gpus for run in scaling.runs) else []), "model/host_efficiency"]
    return Section(SCALING, "Scaling", f"{describe_scaling(scaling, quote)}.", blocks, presets, traces=traces)


# ---- facts -----------------------------------------------------------------------------------------------------------


def _tabulate_facts(sides: Sequence[Side], numbers: Sequence[SideNumbers]) -> Table:
    """Return a table with a column for each run, without empty rows."""
    facts = [_list_facts(*pair) for pair in zip(sides, numbers, strict=True)]
    rows: list[list[Cell]] = [[name, *(side[name] for side in facts)] for name in facts[0]]
    rates, in_steps = _list_efficiencies(sides)
    has_rates = [row for row in rates if any(map(str, row[1:]))]
    rows += has_rates
    kind = ", with NCCL as communication" if any(side.gpus for side in numbers) else ""
    below = f"Efficiencies are those in {'the steps' if in_steps else 'all of the time'}{kind}"
    grid = Grid(
        columns=make_columns("", *(clean(side.label) for side in numbers)),
        rows=[row for row in rows if any(map(str, row[1:]))],
        names=1 + len(numbers),
        below=[below] if has_rates else [],
    )
    return show_grid(grid, len(rows))


def _list_facts(side: Side, numbers: SideNumbers) -> dict[str, str]:
    summary, facts = side.summary, side.summary.facts
    models = sorted({clean(gpu.name) for gpu in summary.gpus if gpu.name})
    low, high = numbers.step_median_low_ns, numbers.step_median_high_ns
    steps = numbers.step_ns
    medians = [each.step_median_ns for each in numbers.captures if each.step_median_ns is not None]
    is_repeated = len(numbers.captures) > 1
    return {
        "captures": f"{len(numbers.captures):,}, shown: {numbers.table_capture + 1}" if is_repeated else "",
        "median steps of captures": ", ".join(map(format_time, medians)) if is_repeated else "",
        "captured (UTC)": summary.start_utc[:19].replace("T", " "),
        "reports": f"{numbers.reports:,}",
        "nodes": f"{summary.nodes:,}",
        "ranks": f"{numbers.ranks:,}",
        "GPUs": f"{numbers.gpus:,}",
        "GPU model": ", ".join(models),
        "program": "" if facts is None else ", ".join(map(clean, facts.programs)),
        "nsys": "" if facts is None else ", ".join(map(clean, facts.nsys_versions)),
        "only chosen": ", ".join(clean(what) for what in summary.chosen if what != "time"),
        "time that was read": format_time(numbers.window_ns),
        "steps": "" if numbers.step_name is None else f"{len(steps):,} of {clean(numbers.step_name)}",
        "median step": "" if numbers.step_median_ns is None else format_time(numbers.step_median_ns),
        "within, at 95%": "" if low is None or high is None else f"{format_time(low)} to {format_time(high)}",
        "shortest and longest": f"{format_time(min(steps))}, {format_time(max(steps))}" if steps else "",
    }


def _list_efficiencies(sides: Sequence[Side]) -> tuple[list[list[Cell]], bool]:
    """Return (rows of efficiencies, whether they are in the steps: only if all runs have steps)."""
    windows, in_steps = choose_windows([side.summary for side in sides])
    trees = [None if window is None else window.nccl_as_communication for window in windows]
    devices, hosts = ([None if tree is None else getattr(tree, kind) for tree in trees] for kind in ("device", "host"))
    rows = list_device_scores("GPUs, parallel", devices)
    return rows + list_scores({"parallel": HOST_TERMS["parallel"]}, "main threads, parallel", hosts), in_steps


# ---- steps -----------------------------------------------------------------------------------------------------------


def _draw_steps(numbers: Sequence[SideNumbers]) -> Chart:
    """Return a chart of the times of all steps on one axis, with the runs side by side."""
    times = [ns for side in numbers for ns in side.step_ns]
    height, y_ticks = make_time_axis(min(times), max(times))
    shapes = [
        shape
        for place, side in enumerate(numbers)
        if side.step_ns
        for shape in _draw_side(side, place, len(numbers), height)
    ]
    names = cut_names([clean(side.label) for side in numbers], max(8, _LABELS // len(numbers)))
    x_ticks = [Tick((place + 0.5) / len(names), name) for place, name in enumerate(names)]
    about = "without the warm-up, in their order. The level line is the median, the band its limits at 95%."
    about += " The axis does not begin at 0." if height.low else ""
    legend = [Swatch(_choose_css(place), _describe_side(side)) for place, side in enumerate(numbers)]
    return Chart("Time of each step", about, shapes, x_ticks, y_ticks, _HEIGHT, legend, _tabulate_steps(numbers))


def _describe_side(side: SideNumbers) -> str:
    if side.step_median_ns is None:
        return f"{side.label}: no steps"
    steps = count_noun(len(side.step_ns), "step")
    if len(side.captures) > 1:
        steps += f" of capture {side.table_capture + 1} of {len(side.captures):,}"
    return f"{side.label}: {steps}, median {format_time(side.step_median_ns)}"


def _draw_side(side: SideNumbers, place: int, count: int, height: Axis) -> list[Shape]:
    css = _choose_css(place)
    left, right = (place + _GAP) / count, (place + 1 - _GAP) / count
    ends, times = np.array([left, right]), np.array(side.step_ns, np.float64)
    x = spread(times.size, left, right)
    y = height.place(times)
    shapes = []
    if side.step_median_low_ns is not None and side.step_median_high_ns is not None:
        low, high = (np.full(2, limit) for limit in (side.step_median_low_ns, side.step_median_high_ns))
        path = draw_area(ends, height.place(low), height.place(high))
        shapes.append(Shape("area", css, f"{side.label}: limits of the median", path))
    if side.step_median_ns is not None:
        median = height.place(np.full(2, side.step_median_ns))
        shapes.append(Shape("line", css, f"{side.label}: median", draw_line(ends, median)))
    if times.size <= _MOST_POINTS:
        shapes.append(Shape("points", css, f"{side.label}: steps", draw_points(x, y)))
    else:
        shapes.append(Shape("line", css, f"{side.label}: steps", draw_line(x, y)))
    return shapes


def _choose_css(place: int) -> str:
    return format_colour(LINES[place % len(LINES)])


def _tabulate_steps(numbers: Sequence[SideNumbers]) -> Table:
    rows: list[list[Cell]] = [
        [Name(side.label), *(Ns(value) for value in np.percentile(side.step_ns, (0, 25, 50, 75, 100)))]
        for side in numbers
        if side.step_ns
    ]
    columns = make_columns("", "shortest", "a quarter below", "half below", "three quarters below", "longest")
    return show_grid(Grid(columns=columns, rows=rows), len(rows))


# ---- typical steps ---------------------------------------------------------------------------------------------------


def make_steps_section(sides: Sequence[Side], pictures: Sequence[Pictures | None]) -> Section:
    """Return the section on a typical step of each run, all on the axis of the longest; it names runs without one."""
    known = [drawn.step for drawn in pictures if drawn is not None and drawn.step is not None]
    longest = max((step.end_ns - step.begin_ns for step in known), default=0)
    blocks: list[Block] = []
    for side, drawn in zip(sides, pictures, strict=True):
        if drawn is None:
            blocks.append(Paragraph(f"Of {quote(side.label)} only a summary was given, which holds no pictures."))
        elif drawn.step is None:
            blocks.append(Paragraph(f"No steps were found in {quote(side.label)}."))
        else:
            length = format_time(drawn.step.ns)
            title = f"{clean(side.label)}: {clean(drawn.step.name)}, {length}"
            step = replace(drawn.step, ranges=_choose_ranges(drawn.step.ranges, len(known)))
            blocks.append(draw_step(step, longest, STEPS, title))
    title = "A typical step of each run"
    if not known:
        return Section(STEPS, title, "", blocks)
    lead = "Of each run the step whose length is nearest to the median"
    lead += " (of long steps, where these take turns with short ones), all on one axis: to zoom one zooms all."
    lead += " What follows a shorter one is shown as not known."
    windows = [
        f"{quote(side.label)} (`--time {format_window(run.step.begin_ns, run.step.end_ns)}`)"
        for side, run in zip(sides, pictures, strict=True)
        if run is not None and run.step is not None
    ]
    where = f"in traces of {', '.join(windows)}"
    return Section(STEPS, title, lead, blocks, ["views/per_gpu_waits", "basics/nvtx"], traces=where)


def _choose_ranges(ranges: Sequence[RangesOfTask], steps: int) -> list[RangesOfTask]:
    """Return the longest ranges of the first tasks, as many as each step may show. `steps`: number of steps drawn."""
    chosen = ranges[: max(1, _MOST_TASKS // steps)]
    most = _MOST_RANGES // (steps * max(1, len(chosen)))
    kept = []
    for task in chosen:
        longest = sorted(task.bars, key=lambda bar: bar.begin_ns - bar.end_ns)[:most]
        bars = sorted(longest, key=lambda bar: (bar.begin_ns, bar.depth))
        kept.append(replace(task, bars=bars, hidden=task.hidden + len(task.bars) - len(bars)))
    return kept
