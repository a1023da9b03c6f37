"""Makes the sections on where two runs differ: a waterfall that adds up, and the tables that differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from nsys2prv_ng.comparison.content import MOST_NAMES, lay_out_parts, lay_out_table, list_parts
from nsys2prv_ng.comparison.model import Pair, TableRow
from nsys2prv_ng.comparison.model import Table as Quantities
from nsys2prv_ng.comparison.sentences import describe_runs, has_times, state_verdict
from nsys2prv_ng.html.blocks import Block, Paragraph, Section
from nsys2prv_ng.html.charts.png import Swatch
from nsys2prv_ng.html.colours import get_cell_css
from nsys2prv_ng.html.names import clean, drop_quotes, quote
from nsys2prv_ng.html.tables import Table, show_grid, stripe
from nsys2prv_ng.summary.difference.budget import BudgetRow
from nsys2prv_ng.summary.efficiency.windows import COMPUTE, IN_CUDA, IN_MPI, PARTS
from nsys2prv_ng.text.formatting import format_difference, format_signed, format_time
from nsys2prv_ng.text.grid import Cell, Column, Grid, Interval, Name
from nsys2prv_ng.text.names import USER_CODE
from nsys2prv_ng.text.tables import cut_middle, cut_names

_HUES = {
    COMPUTE: "compute_ns",
    **{label: key for key, label in PARTS.items()},
    USER_CODE: "own_code",
    IN_CUDA: "cuda",
    IN_MPI: "mpi",
}
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
    "efficiencies": "model/gpu_efficiency",
    "activity": "analysis/overlap-communication-compute-2dh-timeline",
    "kernels": "basics/kernels",
    "ranges": "basics/nvtx",
    "range_tree": "analysis/gpu_time_by_range",
    "nccl": "basics/nccl",
    "collectives": "analysis/nccl_waiting",
    "messages": "basics/nccl",
    "mpi": "basics/mpi",
    "copies": "basics/memory_operations",
    "critical_path": "analysis/critical_path",
    "memory": "views/memory_level",
    "gpu_metrics": "hwcounters/sm_active",
}
"""Preset that shows the quantities of a table, by its key."""
_PART_PRESETS = {
    "compute": "analysis/kernel_classes",
    "wait time": "views/per_gpu_waits",
    "data transfer": "analysis/exposed_communication",
    "unclassified NCCL time": "views/per_gpu_waits",
    "exposed copies": "basics/memory_operations",
    "host-bound": "analysis/gpu-gaps",
    "queued": "analysis/queue_delay",
    "in CUDA graphs": "basics/graphs",
    "opaque CUDA graphs": "basics/graphs",
    "in CUDA": "basics/cuda_api",
    "in MPI or imbalance": "basics/mpi",
    "user code": "basics/nvtx",
}
"""Preset that shows a part of the step, by the name of its row up to a colon."""
_EVERYTHING = "views/per_gpu_waits"
_MOST_PRESETS = 3
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


def _list_presets(pair: Pair) -> list[str]:
    """Return at most three presets that show what differs most, to be opened on both traces."""
    rows = sorted((row for row in pair.rows if row.differs), key=lambda row: -abs(row.difference_ns))
    found = [_PART_PRESETS.get(row.name.split(":")[0]) for row in rows]
    return list(dict.fromkeys([*(preset for preset in found if preset), _EVERYTHING]))[:_MOST_PRESETS]


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
    axis = f"from {format_signed(low)} to {format_signed(high)}"
    columns = [grid.columns[0], Column(axis), *grid.columns[1:], Column("beyond noise")]
    waterfall = Grid(caption=drop_quotes(grid.caption), columns=columns, rows=rows, footer=[last])
    grey = get_cell_css("")
    legend = [Swatch(grey, f"{labels[1]} takes longer (+)"), Swatch(stripe(grey), f"{labels[1]} takes less (-)")]
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
