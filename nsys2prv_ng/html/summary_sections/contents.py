"""Sections on what the job ran, and on what the reports are and lack."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from nsys2prv_ng.html.blocks import Block, Cell, HistogramCell, Paragraph, Section, Table
from nsys2prv_ng.html.charts.plots import draw_histogram
from nsys2prv_ng.html.colours import PARTS_OF_TIME, get_css
from nsys2prv_ng.html.page import format_percent
from nsys2prv_ng.html.tables import MOST_RANKS, count_rest
from nsys2prv_ng.summary.model import JobSummary
from nsys2prv_ng.summary.pictures_model import KernelDurations, Pictures
from nsys2prv_ng.text.formatting import count_noun, format_number_ranges, format_time

MOST_KERNELS = 20
"""Kernels of the table: those whose durations are drawn (summary/kernel_durations.py)."""


def make_kernel_section(summary: JobSummary, pictures: Pictures) -> Section | None:
    """Return the kernels with most time and how long they take; None without any."""
    if not summary.kernels:
        return None
    whole = sum(kernel.total_ns for kernel in summary.kernels)
    drawn = {(own.name, own.kernel_class): own for own in pictures.kernels}
    rows: list[list[Cell]] = []
    for kernel in summary.kernels[:MOST_KERNELS]:
        times = [kernel.total_ns, kernel.total_ns / kernel.count, kernel.min_ns, kernel.max_ns]
        durations = drawn.get((kernel.name, kernel.kernel_class))
        cells: list[Cell] = [kernel.name, kernel.kernel_class, f"{kernel.count:,}", *map(format_time, times)]
        cells += [format_percent(kernel.total_ns / whole), "" if durations is None else _draw(durations)]
        rows.append(cells)
    titles = ["kernel", "class", "count", "time", "mean", "shortest", "longest", "share", "durations"]
    below = count_rest(rows, summary.kernels, "kernel")
    table = Table("Kernels of all GPUs, most time first", titles, rows, texts=2, below=below)
    lead = "The durations of each kernel reach from its shortest to its longest, in equal ratios; bars count kernels."
    return Section("kernels", "Kernels", lead, [table], ["basics/kernels", "analysis/kernel_classes"])


def _draw(durations: KernelDurations) -> Cell:
    counts, edges = durations.counts, durations.edges_ns
    fullest = int(np.argmax(counts))
    text = f"most take {format_time(float(edges[fullest]))} to {format_time(float(edges[fullest + 1]))}"
    return HistogramCell(draw_histogram(counts.tolist()), get_css(PARTS_OF_TIME["compute_ns"]), text)


def make_facts_section(summary: JobSummary) -> Section:
    """Return what the job and its reports are."""
    facts = summary.facts
    rows: list[list[str]] = []
    if facts is not None and facts.programs:
        rows.append(["program", ", ".join(facts.programs)])
    ranks = {"rank": summary.ranks} if summary.ranks else {}
    numbers = {**ranks, "task": summary.tasks, "node": summary.nodes, "report": summary.reports}
    rows.append(["size", ", ".join(count_noun(number, noun) for noun, number in numbers.items())])
    models: dict[str, int] = {}
    for gpu in summary.gpus:
        models[gpu.name or "of unknown model"] = models.get(gpu.name or "of unknown model", 0) + 1
    if models:
        rows.append(["GPUs", ", ".join(f"{number:,} x {name}" for name, number in models.items())])
    rows.append(["time", f"{format_time(summary.duration_ns)} from {summary.start_utc}"])
    if summary.windows_ns:
        chosen = sum(high - low for low, high in summary.windows_ns)
        rows.append(["chosen time", f"{format_time(chosen)} in {count_noun(len(summary.windows_ns), 'window')}"])
    if summary.steps is not None:
        steps = summary.steps
        text = f"{steps.name} {format_number_ranges([*range(steps.first, steps.last + 1)])}: median "
        rows.append(
            ["steps", f"{text}{format_time(steps.median_ns)}, {count_noun(steps.warmup, 'step')} of warm-up before"]
        )
    if facts is not None:
        rows.append(["nsys", ", ".join(facts.nsys_versions) + f" (schema {', '.join(facts.schema_versions)})"])
        rows += _list_sources(facts.sources, summary.reports)
    return Section("facts", "The job", "", [Table("", ["", ""], [[*row] for row in rows], texts=2)])


def _list_sources(sources: Mapping[str, int], reports: int) -> list[list[str]]:
    """Return the kinds of event that all reports have, and those that some have, with the number of these."""
    everywhere = [name for name, number in sources.items() if number == reports]
    some = [f"{name} ({number:,})" for name, number in sources.items() if number < reports]
    title = "events" if reports == 1 else "events in all reports"
    rows = [[title, ", ".join(everywhere)], ["events in some reports", ", ".join(some)]]
    return [row for row in rows if row[1]]


def make_quality_section(summary: JobSummary, pictures: Pictures) -> Section:
    """Return how sure the numbers are: clocks, warnings, what is missing."""
    blocks: list[Block] = []
    if pictures.clocks:
        blocks.append(_tabulate_clocks(pictures))
    facts = summary.facts
    if facts is not None and facts.lost_data_messages:
        blocks.append(Paragraph(f"nsys says in {facts.lost_data_messages:,} messages that data is missing."))
    for skipped in summary.skipped:
        blocks.append(Paragraph(f"Skipped: {skipped.file}: {skipped.why}"))
    blocks += [Paragraph(f"Warning: {warning}") for warning in summary.warnings]
    if summary.absent:
        blocks.append(Paragraph(f"Not in the reports: {', '.join(summary.absent)}."))
    lead = (
        "What is derived over ranks depends on the clocks of their nodes. What is below the uncertainty is not split."
    )
    return Section("quality", "Clocks, warnings, and what is missing", lead, blocks, ["basics/diagnostics"])


def _tabulate_clocks(pictures: Pictures) -> Table:
    rows: list[list[Cell]] = []
    for clock in pictures.clocks[:MOST_RANKS]:
        bound = "-" if clock.bound_ns is None else format_time(clock.bound_ns)
        offset = f"{clock.offset_ns / 1000:,.1f} us"
        rows.append(
            [clock.node, clock.reference or "-", offset, f"{clock.drift_ppm:.2f}", bound, f"{clock.operations:,}"]
        )
    titles = ["node", "reference", "offset", "drift (ppm)", "error below", "operations compared"]
    caption = f"Clocks of the nodes (--align {pictures.alignment})"
    return Table(caption, titles, rows, texts=2, below=count_rest(rows, pictures.clocks, "node"))
