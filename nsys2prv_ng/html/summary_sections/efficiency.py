"""Makes the sections on efficiencies and on the critical path."""

from __future__ import annotations

from nsys2prv_ng.html.blocks import Section
from nsys2prv_ng.html.tables import MOST_RANKS, MOST_ROWS, show_grid
from nsys2prv_ng.summary.efficiency.table import tabulate_efficiency, tabulate_parts
from nsys2prv_ng.summary.efficiency.windows import choose_window, list_windows
from nsys2prv_ng.summary.job import JobSummary
from nsys2prv_ng.summary.path.table import tabulate_path, tabulate_path_of_tasks
from nsys2prv_ng.summary.pictures.numbers import Pictures


def make_efficiency_section(summary: JobSummary, pictures: Pictures) -> Section | None:
    """Return the section on efficiencies and on where GPU time goes; None without any."""
    efficiency = summary.efficiency
    if efficiency is None or not efficiency.window_ns:
        return None
    windows = list_windows(efficiency, summary.steps)
    tree = tabulate_efficiency(efficiency, summary.steps)
    grids = [(tree, len(tree.rows)), (tabulate_parts(windows), MOST_ROWS)]
    blocks = [show_grid(grid, most) for grid, most in grids if grid.rows]
    if not blocks:
        return None
    chosen = choose_window(efficiency, summary.steps)
    lead = "POP efficiencies: each is the product of the rows indented below it. 100% is ideal."
    limits = {"steps": efficiency.steps_ns, "work": efficiency.work_ns}.get(chosen.title)
    window = pictures.format_window(*limits) if limits else ""
    presets = ["model/gpu_efficiency"] if chosen.numbers.losses is not None else []
    return Section("efficiency", "Efficiencies", lead, blocks, [*presets, "model/host_efficiency"], window)


def make_path_section(summary: JobSummary, pictures: Pictures) -> Section | None:
    """Return the section on the critical path by class, rank and part; None without a path."""
    path = summary.critical_path
    if path is None or not path.window_ns:
        return None
    low, high = path.windows_ns[0][0], path.windows_ns[-1][1]
    presets = ["analysis/critical_path", "analysis/critical_path_profile"]
    blocks = [
        show_grid(tabulate_path_of_tasks(path), MOST_RANKS),
        show_grid(tabulate_path(path, has_several=summary.tasks > 1)),
    ]
    return Section("critical-path", "Critical path", "", blocks, presets, pictures.format_window(low, high))
