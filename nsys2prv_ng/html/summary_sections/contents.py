"""Makes the sections on what the job ran and how well, and on what the reports contain and lack."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace

from nsys2prv_ng.html.blocks import MOST_RANKS, Block, Code, Paragraph, Section, Table, show_grid
from nsys2prv_ng.html.page import drop_quotes
from nsys2prv_ng.replay import words as what_if
from nsys2prv_ng.replay.numbers import WhatIfNumbers
from nsys2prv_ng.runtime.documents import read_page, unlink
from nsys2prv_ng.summary.efficiency.table import tabulate_efficiency
from nsys2prv_ng.summary.efficiency.windows import choose_window
from nsys2prv_ng.summary.job import JobSummary
from nsys2prv_ng.summary.kernels.table import tabulate_kernels, tabulate_slow_modes
from nsys2prv_ng.summary.memory.table import tabulate_memory_operations
from nsys2prv_ng.summary.path.table import tabulate_path, tabulate_path_of_tasks
from nsys2prv_ng.summary.pictures.numbers import Pictures
from nsys2prv_ng.summary.ranges import table as ranges_table
from nsys2prv_ng.summary.text import name_time
from nsys2prv_ng.summary.verdict import Verdict
from nsys2prv_ng.summary.waits.table import tabulate_mpi
from nsys2prv_ng.text.formatting import count_noun, count_nouns, format_time, join_first
from nsys2prv_ng.text.grid import Cell, Count, Grid, Name, Ns, make_columns

_MOST_WINDOWS, _MOST_KERNELS = 3, 20
_MOST_LINES = 20
"""Most warnings, and most skipped reports, that have a line each."""
_MOST_PROGRAMS = 10
_LARGE_RANGE = 0.1
"""Least share of GPU time of a range outside the folded table: 10 %, as docs/reference/summary.md says."""


def make_kernel_section(summary: JobSummary) -> Section | None:
    """Return the section on the kernels with most time; None without kernels."""
    if not summary.kernels:
        return None
    table = show_grid(tabulate_kernels(summary.kernels, summary.gpus), _MOST_KERNELS)
    lead = f"Numbers of {name_time(summary)}."
    blocks: list[Block] = [table]
    presets = ["basics/kernels", "analysis/kernel_classes"]
    if summary.slow_modes is not None and (slow := tabulate_slow_modes(summary.slow_modes)).rows:
        blocks.append(show_grid(slow))
        presets.append("analysis/slow_kernels")
    return Section("kernels", "Kernels", lead, blocks, presets)


def make_range_section(summary: JobSummary) -> Section | None:
    """Return the section on the GPU time of NVTX ranges; None if no range launched anything."""
    some, every = (ranges_table.tabulate_range_tree(summary.range_tree, least) for least in (_LARGE_RANGE, 0.0))
    if not every.rows:
        return None
    lead = (
        f"Numbers of {name_time(summary)}, of the operations that were launched in each range and in the ranges within"
    )
    lead += " it, whenever they ran."
    tables = [show_grid(replace(grid, caption=""), len(grid.rows)) for grid in (some, every)]
    folded = replace(tables[1], folded=f"All ranges: {len(every.rows):,}")
    blocks = [tables[0], folded] if len(every.rows) > len(some.rows) else tables[1:]
    presets = ["analysis/gpu_time_by_range", "basics/nvtx"]
    return Section("ranges", "GPU time by NVTX range", lead, blocks, presets)


def make_operation_section(summary: JobSummary) -> Section | None:
    """Return the section on NVTX ranges, copies and calls; None without any."""
    tables = [
        ranges_table.tabulate_ranges(summary.ranges),
        tabulate_memory_operations(summary.memory_operations),
        tabulate_mpi(summary.mpi),
    ]
    blocks: list[Block] = [show_grid(table) for table in tables if table.rows]
    if not blocks:
        return None
    presets = ["basics/nvtx", "basics/memory_operations", "basics/mpi"]
    used = [preset for preset, table in zip(presets, tables, strict=True) if table.rows]
    return Section("operations", "Ranges, copies and calls", f"Numbers of {name_time(summary)}.", blocks, used)


def make_facts_section(summary: JobSummary, pictures: Pictures) -> Section:
    """Return the section on the job and its reports, without facts that are not known."""
    facts = summary.facts
    ranks = {"rank": summary.ranks} if summary.ranks else {}
    sizes = {**ranks, "task": summary.tasks, "node": summary.nodes, "report": summary.reports}
    models = Counter(gpu.name or "of unknown model" for gpu in summary.gpus)
    chosen = format_time(sum(high - low for low, high in summary.windows_ns))
    windows = [pictures.format_window(*window) for window in summary.windows_ns]
    texts = {
        "program": "" if facts is None else join_first([*facts.scripts, *facts.programs], _MOST_PROGRAMS),
        "size": count_nouns(sizes),
        "GPUs": ", ".join(f"{number:,} x {name}" for name, number in models.items()),
        "time": f"{format_time(summary.duration_ns)} from {summary.start_utc}",
        "time of the numbers": f"{chosen}: {join_first(windows, _MOST_WINDOWS)}" if windows else "",
        "also restricted": " and ".join(what for what in summary.chosen if what != "time"),
    }
    if facts is not None:
        reports, sources = summary.reports, facts.sources.items()
        texts["nsys"] = f"{', '.join(facts.nsys_versions)} (schema {', '.join(facts.schema_versions)})"
        everywhere = "events" if reports == 1 else "events in all reports"
        texts[everywhere] = ", ".join(name for name, number in sources if number == reports)
        some = (f"{name} ({number:,})" for name, number in sources if number < reports)
        texts["events in some reports"] = ", ".join(some)
    rows = [[title, text] for title, text in texts.items() if text]
    table = show_grid(Grid(columns=make_columns("", ""), rows=rows, names=2), len(rows))
    return Section("facts", "The job", "", [table])


def make_quality_section(summary: JobSummary, pictures: Pictures) -> Section:
    """Return the section on how certain the numbers are: clocks, warnings, what is missing."""
    blocks: list[Block] = []
    if len(pictures.clocks) > 1:
        blocks.append(_tabulate_clocks(pictures))
    facts = summary.facts
    if facts is not None and facts.lost_data_messages:
        blocks.append(Paragraph(f"nsys reports missing data in {count_noun(facts.lost_data_messages, 'message')}."))
    if len(summary.skipped) > _MOST_LINES:
        blocks.append(Paragraph(f"{count_noun(len(summary.skipped), 'report')} were skipped, among them:"))
    for skipped in summary.skipped[:_MOST_LINES]:
        blocks.append(Paragraph(drop_quotes(f"Skipped: {skipped.file}: {skipped.why}")))
    blocks += [Paragraph(drop_quotes(f"Warning: {warning}")) for warning in summary.warnings[:_MOST_LINES]]
    if len(summary.warnings) > _MOST_LINES:
        blocks.append(Paragraph(f"And {count_noun(len(summary.warnings) - _MOST_LINES, 'more warning')}."))
    if summary.absent:
        blocks.append(Paragraph(drop_quotes(f"Not in {name_time(summary)}: {', '.join(summary.absent)}.")))
    lead = "Numbers over ranks depend on node clocks. A wait within the clock error counts as transfer."
    return Section("quality", "Clocks, warnings, and what is missing", lead, blocks, ["basics/diagnostics"])


def _tabulate_clocks(pictures: Pictures) -> Table:
    rows: list[list[Cell]] = []
    for clock in pictures.clocks:
        offset, drift = f"{clock.numbers.offset_us:,.1f} us", f"{clock.numbers.drift_ppm:.2f}"
        names = Name(clock.name), Name(clock.reference or "-")
        rows.append([*names, offset, drift, Ns(clock.bound), Count(clock.collectives)])
    caption = f"Node clocks (--align {pictures.alignment}), errors at 95% confidence"
    columns = make_columns("node", "reference", "offset", "drift (ppm)", "clock error", "operations compared")
    return show_grid(Grid(caption=caption, columns=columns, rows=rows, names=2, more="nodes"), MOST_RANKS)


def make_efficiency_section(summary: JobSummary, pictures: Pictures) -> Section | None:
    """Return the section on efficiencies and on where GPU time goes; None without any."""
    efficiency = summary.efficiency
    if efficiency is None or not efficiency.length_ns:
        return None
    tree = tabulate_efficiency(efficiency, summary.steps)
    if not tree.rows:
        return None
    chosen = choose_window(efficiency, summary.steps)
    lead = "POP efficiencies: each is the product of the rows indented below it. 100% is ideal."
    limits = {"steps": efficiency.steps_ns, "work": efficiency.work_ns}.get(chosen.title)
    window = pictures.format_window(*limits) if limits else ""
    presets = ["model/gpu_efficiency"] if chosen.numbers.losses is not None else []
    blocks = [show_grid(tree, len(tree.rows))]
    return Section("efficiency", "Efficiencies", lead, blocks, [*presets, "model/host_efficiency"], window)


def make_path_section(summary: JobSummary, pictures: Pictures) -> Section | None:
    """Return the section on the critical path by class, rank and part; None without a path."""
    path = summary.critical_path
    if path is None or not path.length_ns:
        return None
    low, high = path.windows_ns[0][0], path.windows_ns[-1][1]
    presets = ["analysis/critical_path", "analysis/critical_path_profile"]
    whole = tabulate_path(path, has_several=summary.tasks > 1)
    blocks = [show_grid(tabulate_path_of_tasks(path), MOST_RANKS), show_grid(whole)]
    return Section("critical-path", "Critical path", "", blocks, presets, pictures.format_window(low, high))


def make_remedy_section(verdict: Verdict) -> Section | None:
    """Return the section with the code of the remedies of an answer, as the guide has it; None without any."""
    if not verdict.remedies:
        return None
    sections = dict(part.split("\n", 1) for part in read_page("remedies").split("\n## ")[1:])
    blocks: list[Block] = []
    for remedy in verdict.remedies:
        about, code, saved = re.split(r"```\w*\n", sections[remedy.key])
        blocks += [Paragraph(unlink(about).strip()), Code(code.rstrip().splitlines()), Paragraph(unlink(saved).strip())]
    return Section("try", "What to try, with code", "", blocks)


def make_what_if_section(numbers: WhatIfNumbers | None) -> Section | None:
    """Return the section on predicted savings, the largest first; None without predictions."""
    if numbers is None or not numbers.scenarios:
        return None
    grid = numbers.tabulate()["scenarios"]
    blocks: list[Block] = [show_grid(grid)] if grid.rows else []
    best = "" if grid.rows else what_if.describe_best(numbers)
    sentences = (best, what_if.describe_others(numbers), what_if.describe_unsplit(numbers))
    blocks += [Paragraph(text) for text in sentences if text]
    return Section("what-if", "What changes would save", what_if.describe_steps(numbers), blocks)
