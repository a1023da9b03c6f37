"""Formats a summary for people: the answer in labelled lines, where GPU time goes, and the tables on demand."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from nsys2prv_ng.steps.numbered_names import is_step
from nsys2prv_ng.summary.answer.answer import describe_job, find_verdict
from nsys2prv_ng.summary.answer.case import Case
from nsys2prv_ng.summary.answer.slow_steps import name_step_range
from nsys2prv_ng.summary.answer.trust import describe_limits
from nsys2prv_ng.summary.efficiency import windows
from nsys2prv_ng.summary.efficiency.numbers import EfficiencyNumbers, Losses, StepNumbers
from nsys2prv_ng.summary.efficiency.table import tabulate_efficiency
from nsys2prv_ng.summary.gpus.table import MOST_GPUS
from nsys2prv_ng.summary.job import JobSummary
from nsys2prv_ng.summary.memory.table import list_memory_tables
from nsys2prv_ng.summary.path.table import describe_path, describe_tasks, tabulate_path
from nsys2prv_ng.summary.ranges.table import tabulate_range_tree
from nsys2prv_ng.summary.sums import sum_by_key
from nsys2prv_ng.summary.verdict import Statement
from nsys2prv_ng.text import layout
from nsys2prv_ng.text.formatting import format_percent
from nsys2prv_ng.text.names import clean_name, describe_place, quote_name

_LEAST_SHARE = 0.02
"""Least share of GPU time of a part with a line of its own: less than a character of a bar of _BAR columns."""
_MOST_PARTS = 6
_BAR = 40
"""Most columns of a bar."""
_HOST_IN_MPI = "host in MPI"
"""Label of host-bound time in MPI calls: the host is late because it waits or transfers data."""
LEADS = f"{layout.TABLES}   {layout.FILES}"


def format_summary(
    summary: JobSummary,
    width: int | None = None,
    *,
    details: bool = False,
    leads: str = "",
    page: str = "",
    style: layout.Style = layout.PLAIN,
) -> str:
    """Return the answer, then with `details` all tables that have rows.

    `width`: most columns (NARROWEST or more); None: as wide as the terminal. `leads`: the last line without tables.
    `page`: the file of the page, if there is one: SEE names its section first.
    """
    width = layout.choose_width() if width is None else width
    verdict = find_verdict(summary)
    above, below = (
        [(line.label, _point_at(line, page)) for line in verdict.statements if (line.label in BELOW) is are_below]
        for are_below in (False, True)
    )
    sections = [
        layout.wrap(describe_job(summary), width),
        layout.format_labelled(above, width, style),
        _format_parts(summary, width, style),
        layout.format_labelled(below, width, style),
    ]
    sections += _list_tables(summary, width) if details else [layout.wrap(leads, width)]
    return "\n\n".join("\n".join(lines) for lines in sections if lines)


BELOW = ("STRAGGLER", "LINK", "SLOW", "MEMORY", "PIPELINE", "KINDS", "STEPS", "STARTUP", "TRUST")
"""Labels of the lines below the bars."""


def _point_at(line: Statement, page: str) -> str:
    """Return the text of a line, after the section of the page that it names, if there is a page."""
    return f'"{line.section}" in {clean_name(page)}; {line.text}' if page and line.section else line.text


# ---- where GPU time goes ---------------------------------------------------------------------------------------------


class GpuTimePart(NamedTuple):
    """A part of GPU time: the key of its colour (html/colours.py), label, share, and where most of it is."""

    key: str
    label: str
    share: float
    note: str


def list_gpu_time(summary: JobSummary) -> list[GpuTimePart]:
    """Return the large parts of GPU time, the largest first, and the sum of the others last; [] without GPUs."""
    if summary.efficiency is None:
        return []
    window = windows.choose_window(summary.efficiency, summary.steps)
    losses = window.numbers.losses
    if losses is None or not window.numbers.length_ns or not losses.devices:
        return []
    whole = losses.devices * window.numbers.length_ns
    parts = sorted(_list_rows(summary, losses), key=lambda row: -row[2])
    rows = [row for row in parts if row[2] >= _LEAST_SHARE * whole][:_MOST_PARTS]
    rest = sum(row[2] for row in parts) - sum(row[2] for row in rows)
    rows += [("", "other", rest, "")] if rest >= whole / 2000 else []
    return [GpuTimePart(key, label, ns / whole, note) for key, label, ns, note in rows]


def _format_parts(summary: JobSummary, width: int, style: layout.Style) -> list[str]:
    """Return a line for each large part of GPU time, with a bar on a terminal; [] without GPUs."""
    parts = list_gpu_time(summary)
    names = max((len(part.label) for part in parts), default=0)
    room = min(_BAR, width - layout.LABEL_WIDTH - names - len("  100.0%  "))
    lines = []
    for n, part in enumerate(parts):
        bar = style.draw_bar(part.share, room)
        label = style.bold(("" if n else "GPU time").ljust(layout.LABEL_WIDTH))
        start = f"{label}{part.label.ljust(names)}  {format_percent(part.share, 1).rjust(6)}"
        drawn, note = f"  {bar}" if bar else "", f"  {part.note}" if part.note else ""
        fits = layout.LABEL_WIDTH + names + len("  100.0%") + len(drawn) + len(note) <= width
        lines.append(f"{start}{drawn}{note if fits else ''}")
    return lines


def _list_rows(summary: JobSummary, losses: Losses) -> list[tuple[str, str, int, str]]:
    """Return (key, label, time (ns), where most of it is) of all parts of GPU time; host-bound time in MPI apart."""
    rows = [(part.key, part.label, part.ns, "") for part in windows.list_parts(losses) if part.key != "host_ns"]
    case = Case(summary)
    in_mpi, mpi_ns = case.host_mpi_calls, case.host_in_mpi_ns
    if in_mpi:
        call, ns = in_mpi.most_common(1)[0]
        rows.append(("mpi", _HOST_IN_MPI, mpi_ns, f"mostly in {quote_name(call)}" if 2 * ns > in_mpi.total() else ""))
    main = windows.find_main_range(losses)
    ranges = Counter[str]() if main is None else Counter({main.range: 1})
    if in_mpi:
        ranges = sum_by_key((range_, 0 if call in in_mpi else ns) for (range_, call), (ns, _) in case.host_gaps.items())
    place = ""
    if ranges:
        range_, ns = ranges.most_common(1)[0]
        is_main = 2 * ns > ranges.total() and not is_step(range_, name_step_range(summary))
        place = f"mostly {describe_place(range_)}" if is_main else ""
    return [*rows, ("host_ns", windows.PARTS["host_ns"], losses.host_ns - mpi_ns, place)]


# ---- tables ----------------------------------------------------------------------------------------------------------


def _list_tables(summary: JobSummary, width: int) -> list[list[str]]:
    """Return all tables that have rows, each as its lines."""
    tables = summary.tabulate()

    def show(*names: str, most: int | None = layout.MOST_ROWS) -> list[list[str]]:
        return [layout.format_grid(tables[name], width, most) for name in names]

    absent = f"Not in {name_time(summary)}: {', '.join(summary.absent)}" if summary.absent else ""
    on_memory = [] if summary.memory is None else list_memory_tables(summary.memory, name_time(summary))
    return [
        *show("scenarios"),
        *show("gpus", "gaps", most=MOST_GPUS),
        *show("idle_causes", "samples", "readbacks"),
        *show("waits", "mpi_waits", "late_reasons", "excess", "bandwidth", "pipeline"),
        *(layout.wrap(text, width) for text in ([] if summary.waits is None else describe_limits(summary.waits))),
        *format_path(summary, width),
        *format_efficiency(summary.efficiency, summary.steps, width),
        *show("kinds", "kind_parts", "slow_step_parts", "slow_step_changes", "ranges"),
        layout.format_grid(tabulate_range_tree(summary.range_tree), width, None),
        *show("kernels", "slow_kernels"),
        *(layout.format_grid(grid, width, MOST_GPUS) for grid in on_memory),
        *show("copies", most=None),
        *show("mpi"),
        layout.wrap(absent, width) if absent else [],
        [f"skipped: {report.file}: {report.why}" for report in summary.skipped],
    ]


def format_path(summary: JobSummary, width: int) -> list[list[str]]:
    """Return the sections on the critical path, each as its lines."""
    path = summary.critical_path
    if path is None or not path.length_ns:
        return []
    has_several = summary.tasks > 1
    return [
        layout.wrap(describe_path(path, has_several=has_several, is_part="ranks" in summary.chosen), width),
        layout.format_grid(tabulate_path(path, has_several=has_several), width),
        layout.wrap(describe_tasks(path), width),
    ]


def format_efficiency(efficiency: EfficiencyNumbers | None, steps: StepNumbers | None, width: int) -> list[list[str]]:
    """Return the sections on efficiencies, each as its lines: a table, and a sentence on the steps."""
    if efficiency is None or not efficiency.length_ns:
        return []
    table = layout.format_grid(tabulate_efficiency(efficiency, steps), width, None)
    if table:
        table += layout.wrap(windows.describe_parts(efficiency, steps), width)
    return [table, [] if steps is None else layout.wrap(windows.describe_steps(steps), width)]


def name_time(summary: JobSummary) -> str:
    """Return what all numbers cover, in a sentence: a time, and what else the user chose."""
    others = [name for name in summary.chosen if name != "time"]
    whole = "these reports"
    if summary.efficiency is not None:
        window = windows.list_windows(summary.efficiency, summary.steps)[0]
        whole = window.name if window.title != "capture" else whole
    return " and ".join([whole, *([f"the chosen {' and '.join(others)}"] if others else [])])
