"""Makes the sections of the page of a comparison.

They show all runs side by side (facts, the times of steps, a typical step of each run), and of each pair of runs the
parts of the difference, as a waterfall that adds up, and the tables that differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from nsys2prv_ng.analysis.efficiency.typical_step import RangesOfTask
from nsys2prv_ng.comparison.content import MOST_NAMES, lay_out_parts, lay_out_table, list_parts
from nsys2prv_ng.comparison.model import ComparisonNumbers, Pair, Scaling, Side, SideNumbers, TableRow
from nsys2prv_ng.comparison.model import Table as Quantities
from nsys2prv_ng.comparison.scaling import describe_scaling, tabulate_scaling
from nsys2prv_ng.comparison.sentences import describe_runs, describe_steps, has_times, state_verdict
from nsys2prv_ng.html import charts
from nsys2prv_ng.html.blocks import Block, Chart, Paragraph, Section, Table, show_grid, stripe
from nsys2prv_ng.html.colours import LINES, get_cell_css
from nsys2prv_ng.html.page import clean, drop_quotes, quote
from nsys2prv_ng.html.summary_sections.over_time import draw_step
from nsys2prv_ng.summary.difference.budget import BudgetRow
from nsys2prv_ng.summary.efficiency.windows import COMPUTE, IN_CUDA, IN_MPI, PARTS
from nsys2prv_ng.summary.pictures.numbers import Pictures
from nsys2prv_ng.text.formatting import cut_middle, cut_names, format_difference, format_time, format_window
from nsys2prv_ng.text.grid import Cell, Column, Grid, Interval, Name, Ns, make_columns
from nsys2prv_ng.text.names import USER_CODE

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

_PART_PRESETS = {
    "compute": "analysis/kernel_classes", "wait time": "views/per_gpu_waits",
    "data transfer": "analysis/exposed_communication", "unclassified communication": "views/per_gpu_waits",
    "exposed copies": "basics/memory_operations", "host-bound": "analysis/gpu-gaps", "queued": "analysis/queue_delay",
    "in CUDA graphs": "basics/graphs", "opaque CUDA graphs": "basics/graphs", "in CUDA": "basics/cuda_api",
    "in MPI or imbalance": "basics/mpi", "user code": "basics/nvtx",
}  # fmt: skip
"""Preset that shows a part of the step, by the name of its row up to a colon."""
_EVERYTHING = "views/per_gpu_waits"
_MOST_PRESETS = 3


def make_sides_section(comparison: ComparisonNumbers, sides: Sequence[Side], traces: str) -> Section:
    """Return the section on the facts of all runs and the times of their steps."""
    numbers = [comparison.pairs[0].a, *(pair.b for pair in comparison.pairs)]
    blocks: list[Block] = [_tabulate_facts(sides, numbers)]
    if any(side.step_ns for side in numbers):
        blocks.append(_draw_steps(numbers))
    for side in sides:
        warnings = side.summary.warnings
        name = quote(side.label)
        blocks += [Paragraph(f"Warning on {name}: {drop_quotes(text)}") for text in warnings[:_MOST_WARNINGS]]
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
    grid = Grid(
        columns=make_columns("", *(clean(side.label) for side in numbers)),
        rows=[row for row in rows if any(map(str, row[1:]))],
        names=1 + len(numbers),
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
        "program": "" if facts is None else ", ".join(map(clean, [*facts.scripts, *facts.programs])),
        "nsys": "" if facts is None else ", ".join(map(clean, facts.nsys_versions)),
        "only chosen": ", ".join(clean(what) for what in summary.chosen if what != "time"),
        "time that was read": format_time(numbers.length_ns),
        "steps": "" if numbers.step_name is None else describe_steps(numbers, clean),
        "median step": "" if numbers.step_median_ns is None else format_time(numbers.step_median_ns),
        "mean step": "" if numbers.step_mean_ns is None else format_time(numbers.step_mean_ns),
        "within, at 95%": "" if low is None or high is None else f"{format_time(low)} to {format_time(high)}",
        "shortest and longest": f"{format_time(min(steps))}, {format_time(max(steps))}" if steps else "",
    }


# ---- steps -----------------------------------------------------------------------------------------------------------


def _draw_steps(numbers: Sequence[SideNumbers]) -> Chart:
    """Return a chart of the times of all steps on one axis, with the runs side by side."""
    times = [ns for side in numbers for ns in side.step_ns]
    height, y_ticks = charts.make_time_axis(min(times), max(times))
    drawn = [(place, side) for place, side in enumerate(numbers) if side.step_ns]
    shapes = [shape for place, side in drawn for shape in _draw_side(side, place, len(numbers), height)]
    names = cut_names([clean(side.label) for side in numbers], max(8, _LABELS // len(numbers)))
    x_ticks = [charts.Tick((place + 0.5) / len(names), name) for place, name in enumerate(names)]
    about = "without the warm-up, in their order. The level line is the median, the band its limits at 95%."
    about += " The axis does not begin at 0." if height.low else ""
    legend = [charts.Swatch(_choose_css(place), _describe_side(side)) for place, side in enumerate(numbers)]
    return Chart("Time of each step", about, shapes, x_ticks, y_ticks, _HEIGHT, legend, _tabulate_steps(numbers))


def _describe_side(side: SideNumbers) -> str:
    if side.step_median_ns is None:
        return f"{side.label}: no steps"
    steps = describe_steps(side, clean)
    if len(side.captures) > 1:
        steps += f" of capture {side.table_capture + 1} of {len(side.captures):,}"
    return f"{side.label}: {steps}, median {format_time(side.step_median_ns)}"


def _draw_side(side: SideNumbers, place: int, count: int, height: charts.Axis) -> list[charts.Shape]:
    css = _choose_css(place)
    left, right = (place + _GAP) / count, (place + 1 - _GAP) / count
    ends, times = np.array([left, right]), np.array(side.step_ns, np.float64)
    x = charts.spread(times.size, left, right)
    y = height.place(times)
    shapes = []
    if side.step_median_low_ns is not None and side.step_median_high_ns is not None:
        low, high = (np.full(2, limit) for limit in (side.step_median_low_ns, side.step_median_high_ns))
        path = charts.draw_area(ends, height.place(low), height.place(high))
        shapes.append(charts.Shape("area", css, f"{side.label}: limits of the median", path))
    if side.step_median_ns is not None:
        median = height.place(np.full(2, side.step_median_ns))
        shapes.append(charts.Shape("line", css, f"{side.label}: median", charts.draw_line(ends, median)))
    if times.size <= _MOST_POINTS:
        shapes.append(charts.Shape("points", css, f"{side.label}: steps", charts.draw_points(x, y)))
    else:
        shapes.append(charts.Shape("line", css, f"{side.label}: steps", charts.draw_line(x, y)))
    return shapes


def _choose_css(place: int) -> str:
    return charts.format_colour(LINES[place % len(LINES)])


def _tabulate_steps(numbers: Sequence[SideNumbers]) -> Table:
    times = [(side.label, np.percentile(side.step_ns, (0, 25, 50, 75, 100))) for side in numbers if side.step_ns]
    rows: list[list[Cell]] = [[Name(label), *map(Ns, values)] for label, values in times]
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


# ---- pairs of runs ---------------------------------------------------------------------------------------------------

_HUES = {label: key for key, label in PARTS.items()}
_HUES |= {COMPUTE: "compute_ns", USER_CODE: "own_code", IN_CUDA: "cuda", IN_MPI: "mpi"}
"""Hue of a part of the step, by the name of the row up to its colon; sums and rests are grey."""
_LABEL = 30
"""Most characters of the name of a run at the head of a column, and in the title of a section."""
_NEAR = 4
"""The axis starts above 0 if the bars of the parts would cover less than 1 / _NEAR of it."""
_MOST_ROWS = 300
"""Most rows of a table on the page of one pair; the JSON has all."""
_FEWEST_ROWS = 25
_ALL_NAMES = 25
"""Most names of a row in the table of all rows."""
_PRESETS = {
    "efficiencies": "model/gpu_efficiency", "activity": "analysis/overlap-communication-compute-2dh-timeline",
    "kernels": "basics/kernels", "ranges": "basics/nvtx", "range_tree": "analysis/gpu_time_by_range",
    "nccl": "basics/nccl", "collectives": "analysis/nccl_waiting", "messages": "basics/nccl", "mpi": "basics/mpi",
    "copies": "basics/memory_operations", "critical_path": "analysis/critical_path", "memory": "views/memory_level",
}  # fmt: skip
"""Preset that shows the quantities of a table, by its key."""
_ON_HOSTS = {"model/gpu_efficiency": "model/host_efficiency", "basics/nccl": "basics/mpi"}
"""The preset that shows the same for runs without GPUs."""


def make_key(section: str, number: int, count: int) -> str:
    """Return the key of a section on a pair; with several pairs, it ends with the number of the pair, from 1."""
    return section if count == 1 else f"{section}-{number}"


# ---- the waterfall ---------------------------------------------------------------------------------------------------


def make_difference_section(pair: Pair, key: str, *, names_run: bool, traces: str) -> Section:
    """Return the section on the parts of the difference. `names_run`: whether the title contains the name of b."""
    lead = " ".join(f"{text}." for text in describe_runs(pair, quote))
    title = _make_title("Where the difference is", pair, names_run=names_run)
    if not has_times(pair):
        return Section(key, title, lead, [Paragraph(f"Inconclusive: {state_verdict(pair, quote)}.")])
    some, every = (draw_waterfall(pair, shows_all=shows_all) for shows_all in (False, True))
    blocks: list[Block] = [some, *([replace(every, folded="All parts")] if len(every.rows) > len(some.rows) else [])]
    return Section(key, title, lead, blocks, _list_presets(pair), traces=traces)


def draw_waterfall(pair: Pair, *, shows_all: bool) -> Table:
    """Return a table with the time of a, what each part adds to it or takes from it, and the time of b.

    Each bar starts where the bar above it ends.
    """
    labels = cut_names([clean(pair.a.label), clean(pair.b.label)], _LABEL)
    grid = lay_out_parts(pair, labels, shows_all=shows_all)
    *parts, total = list_parts(pair, shows_all=shows_all)
    ends = [pair.verdict.a_ns]
    for part in parts:
        ends.append(ends[-1] + part.difference_ns)
    low, high = _choose_limits(ends)
    *cells, (name, a_ns, *numbers) = grid.rows
    bar = Interval(0, pair.verdict.a_ns, low, high, "", f"{labels[0]}: {format_time(pair.verdict.a_ns)}")
    first: list[Cell] = [Name(f"{name} of {labels[0]}"), bar, a_ns, *([""] * len(numbers)), ""]
    rows: list[list[Cell]] = [first]
    for part, begin, end, row in zip(parts, ends[:-1], ends[1:], cells, strict=True):
        text = f"{part.name} {format_difference(part.difference_ns)}"
        bar = Interval(begin, end, low, high, _HUES.get(part.name.split(":")[0], ""), text)
        rows.append([row[0], bar, *row[1:], _mark(part)])
    bar = Interval(0, pair.verdict.b_ns, low, high, "", f"{labels[1]}: {format_time(pair.verdict.b_ns)}")
    last: list[Cell] = [Name(f"{name} of {labels[1]}"), bar, a_ns, *numbers, _mark(total)]
    axis = f"from {format_time(low)} to {format_time(high)}"
    columns = [grid.columns[0], Column(axis), *grid.columns[1:], Column("beyond noise")]
    waterfall = Grid(caption=drop_quotes(grid.caption), columns=columns, rows=rows, footer=[last])
    grey = get_cell_css("")
    legend = [
        charts.Swatch(grey, f"{labels[1]} takes longer (+)"),
        charts.Swatch(stripe(grey), f"{labels[1]} takes less (-)"),
    ]
    return replace(show_grid(waterfall, len(rows)), legend=legend)


def _choose_limits(ends: Sequence[int]) -> tuple[int, int]:
    """Return the limits of the axis, which cover all ends.

    It starts at 0 if bars can be seen on it then, else with some room below them.
    """
    low, high = min(ends), max(ends)
    if low <= 0 or _NEAR * (high - low) >= high:
        low, high = min(low, 0), max(high, 0)
    else:
        low -= (high - low) // 10
    return low, max(high, low + 1)


def _mark(part: BudgetRow) -> str:
    return "yes" if part.differs else ""


def _make_title(title: str, pair: Pair, *, names_run: bool) -> str:
    return f"{cut_middle(clean(pair.b.label), _LABEL)}: {title[0].lower()}{title[1:]}" if names_run else title


# ---- tables ----------------------------------------------------------------------------------------------------------


def make_tables_section(pair: Pair, key: str, *, names_run: bool, traces: str, pairs: int) -> Section | None:
    """Return the section with the other tables: the rows that differ, and folded all rows; None without tables."""
    if not pair.tables:
        return None
    most = max(_FEWEST_ROWS, _MOST_ROWS // pairs)
    blocks = [block for table in pair.tables for block in _show_table(table, pair, most)]
    presets = [_PRESETS[table.key] for table in pair.tables if any(row.differs for row in table.rows)]
    if not (pair.a.gpus or pair.b.gpus):
        presets = [_ON_HOSTS.get(preset, preset) for preset in presets]
    title = _make_title("What else differs", pair, names_run=names_run)
    return Section(key, title, "", blocks, presets, traces=traces)


def _show_table(table: Quantities, pair: Pair, most: int) -> list[Block]:
    differing = [row for row in table.rows if row.differs]
    blocks: list[Block] = [
        _lay_out(table, differing[:most], pair, MOST_NAMES, len(differing))
        if differing
        else Paragraph(f"{table.title}: nothing differs by more than noise.")
    ]
    if len(differing) < len(table.rows):
        whole = _lay_out(table, table.rows[:most], pair, _ALL_NAMES, len(table.rows))
        blocks.append(replace(whole, folded=f"All rows: {len(table.rows):,}"))
    return blocks


def _lay_out(table: Quantities, rows: Sequence[TableRow], pair: Pair, most_names: int, count: int) -> Table:
    labels = cut_names([clean(pair.a.label), clean(pair.b.label)], _LABEL)
    grid = lay_out_table(table, rows, pair, labels, quote, most_names)
    more = [f"And {count - len(rows):,} more; the JSON has all"] if count > len(rows) else []
    return show_grid(replace(grid, below=[*grid.below, *more]), len(rows))


def _list_presets(pair: Pair) -> list[str]:
    """Return at most three presets that show what differs most, to be opened on both traces."""
    rows = sorted((row for row in pair.rows if row.differs), key=lambda row: -abs(row.difference_ns))
    found = [_PART_PRESETS.get(row.name.split(":")[0]) for row in rows]
    return list(dict.fromkeys([*(preset for preset in found if preset), _EVERYTHING]))[:_MOST_PRESETS]
