"""Sections on efficiencies and on the critical path."""

from __future__ import annotations

from collections import Counter

from nsys2prv_ng.html.blocks import Block, Cell, Section, Table, TermCell
from nsys2prv_ng.html.charts.maps import Swatch
from nsys2prv_ng.html.colours import PARTS_OF_TIME, get_css
from nsys2prv_ng.html.shades import make_legend, shade
from nsys2prv_ng.html.tables import MOST_RANKS, MOST_ROWS, count_rest, make_bar
from nsys2prv_ng.paraver.event_types import PATH_KINDS as KINDS
from nsys2prv_ng.paraver.palette import PATH_KINDS as PATH_HUES
from nsys2prv_ng.summary.layout import format_percent, name_task
from nsys2prv_ng.summary.numbers.job import JobSummary
from nsys2prv_ng.summary.numbers.path import PathNumbers
from nsys2prv_ng.summary.numbers.pictures import Pictures
from nsys2prv_ng.summary.tables.efficiency import (
    EfficiencyTable,
    NamedWindow,
    choose_window,
    list_parts,
    list_windows,
    make_efficiency_table,
)
from nsys2prv_ng.summary.tables.tables import tabulate_path
from nsys2prv_ng.text.formatting import count_noun, format_time

_HUE_OF_KIND = {label: get_css(PATH_HUES[kind]) for kind, label in KINDS.items() if kind in PATH_HUES}


def make_efficiency_section(summary: JobSummary, pictures: Pictures) -> Section | None:
    """Return the efficiencies with their trees, and where the time of the GPUs goes; None without any."""
    efficiency = summary.efficiency
    if efficiency is None or not efficiency.window_ns:
        return None
    table = make_efficiency_table(efficiency, summary.steps)
    windows = list_windows(efficiency, summary.steps)
    blocks: list[Block] = [_tabulate_tree(table)] if table.rows else []
    blocks += _tabulate_parts(windows)
    if not blocks:
        return None
    chosen = choose_window(efficiency, summary.steps)
    lead = "POP's efficiencies: a product of what is below each, as far as it is indented. 100% is ideal."
    limits = {"steps": efficiency.steps_ns, "work": efficiency.work_ns}.get(chosen.title)
    window = pictures.format_window(*limits) if limits else ""
    presets = ["model/gpu_efficiency"] if chosen.numbers.losses is not None else []
    return Section("efficiency", "Efficiencies", lead, blocks, [*presets, "model/host_efficiency"], window)


def _tabulate_tree(table: EfficiencyTable) -> Table:
    titles = [f"{window.title} ({format_time(window.numbers.window_ns)})" for window in table.windows]
    if table.has_conventions:
        titles = [f"{title}, NCCL {kind}" for kind in ("is communication", "is useful") for title in titles]
    rows: list[list[Cell]] = [
        [TermCell(row.label, row.about, row.depth), *(shade(share) for share in row.values)] for row in table.rows
    ]
    return Table("", ["", *titles], rows, legend=make_legend())


def _tabulate_parts(windows: list[NamedWindow]) -> list[Table]:
    """Return the time of all GPUs in each window as parts that add up to it."""
    known = [(window, window.numbers.losses) for window in windows if window.numbers.losses is not None]
    if not known:
        return []
    bars: list[list[Cell]] = []
    labels: dict[str, str] = {}
    for window, losses in known:
        assert losses is not None
        whole = losses.devices * window.numbers.window_ns
        parts = list_parts(losses)
        labels |= {part.key: part.label for part in parts}
        shares = ", ".join(f"{format_percent(part.ns, whole)} {part.label}" for part in parts if part.ns >= whole / 200)
        bar = make_bar([(part.label, get_css(PARTS_OF_TIME[part.key]), part.ns) for part in parts], whole)
        bars.append([window.name.replace("`", ""), shares, bar])
    legend = [Swatch(get_css(hue), labels[key]) for key, hue in PARTS_OF_TIME.items() if key in labels]
    caption = f"Where the time of {count_noun(known[0][1].devices if known[0][1] else 0, 'GPU')} goes"
    return [Table(caption, ["", "parts from 0.5% on", ""], bars, texts=2, legend=legend)]


def make_path_section(summary: JobSummary, pictures: Pictures) -> Section | None:
    """Return the critical path by class, by rank and by what it was in; None where there is none."""
    path = summary.critical_path
    if path is None or not path.window_ns:
        return None
    low, high = path.windows_ns[0][0], path.windows_ns[-1][1]
    presets = ["analysis/critical_path", "analysis/critical_path_profile"]
    blocks = [_tabulate_path(path), _tabulate_things(path, has_several=summary.tasks > 1)]
    return Section("critical-path", "Critical path", "", blocks, presets, pictures.format_window(low, high))


def _tabulate_path(path: PathNumbers) -> Table:
    """Return the path on each task by class, as bars of one scale, and of all together."""
    sums: dict[str, Counter[str]] = {}
    for part in path.parts:
        for rank in part.ranks:
            sums.setdefault(rank.task, Counter())[part.path_class] += rank.ns
    scale = max((rank.ns for rank in path.ranks), default=0)
    rows: list[list[Cell]] = []
    for rank in path.ranks[:MOST_RANKS]:
        bar = _draw_classes(sums.get(rank.task, Counter()), scale)
        share = format_percent(rank.ns, path.window_ns)
        rows.append([name_task(rank.rank, rank.task), format_time(rank.ns), share, bar])
    rows.append(["all", format_time(path.window_ns), "100.0%", _draw_classes(path.classes, path.window_ns)])
    legend = [
        Swatch(_HUE_OF_KIND[kind], f"{kind}: {format_percent(ns, path.window_ns)}") for kind, ns in path.classes.items()
    ]
    below = count_rest(rows[:-1], path.ranks, "rank")
    caption = "Time of the path on each rank, by class"
    return Table(caption, ["", "time", "share", ""], rows, strong_last=True, below=below, legend=legend)


def _draw_classes(classes: Counter[str] | dict[str, int], scale: int) -> Cell:
    parts = [(kind, css, float(classes[kind])) for kind, css in _HUE_OF_KIND.items() if classes.get(kind)]
    return make_bar(parts, scale)


def _tabulate_things(path: PathNumbers, *, has_several: bool) -> Table:
    table = tabulate_path(path, has_several=has_several)
    rows: list[list[Cell]] = [[*row] for row in table.rows[:MOST_ROWS]]
    return Table(table.caption, table.titles, rows, texts=table.texts, below=count_rest(rows, table.rows))
