"""Formats a summary for people: tables that fit a terminal and a job log."""

from __future__ import annotations

from nsys2prv_ng.summary.numbers.efficiency import EfficiencyNumbers, StepNumbers
from nsys2prv_ng.summary.numbers.job import JobSummary
from nsys2prv_ng.summary.numbers.path import PathNumbers
from nsys2prv_ng.summary.tables import calls
from nsys2prv_ng.summary.tables.efficiency import name_time, tabulate_efficiency
from nsys2prv_ng.summary.tables.gpus import MOST_GPUS, tabulate_causes, tabulate_gaps, tabulate_gpus
from nsys2prv_ng.summary.tables.path import tabulate_path
from nsys2prv_ng.summary.tables.waits import (
    tabulate_bandwidth,
    tabulate_excess,
    tabulate_mpi_waits,
    tabulate_nccl_waits,
    tabulate_reasons,
)
from nsys2prv_ng.summary.verdicts.efficiency import describe_parts, describe_steps
from nsys2prv_ng.summary.verdicts.path import describe_tasks
from nsys2prv_ng.summary.verdicts.verdicts import format_verdicts, list_verdicts
from nsys2prv_ng.summary.verdicts.waits import describe_limits
from nsys2prv_ng.text.formatting import count_nouns, format_time
from nsys2prv_ng.text.layout import choose_width, format_grid, wrap


def format_summary(summary: JobSummary, width: int | None = None) -> str:
    """Return all tables that have rows. `width`: most columns (NARROWEST or more); None: as wide as the terminal."""
    width = choose_width() if width is None else width
    sections = [
        wrap(_title(summary), width),
        *format_verdicts(list_verdicts(summary), width),
        format_grid(tabulate_gpus(summary.gpus), width, MOST_GPUS),
        format_grid(tabulate_gaps(summary.gpus), width, MOST_GPUS),
        format_grid(tabulate_causes(summary.gpus), width),
        *_format_waits(summary, width),
        *format_path(summary.critical_path, summary.tasks, width),
        *format_efficiency(summary.efficiency, summary.steps, width),
        format_grid(calls.tabulate_ranges(summary), width),
        format_grid(calls.tabulate_kernels(summary), width),
        format_grid(calls.tabulate_memory_operations(summary), width, None),
        format_grid(calls.tabulate_nccl(summary), width, None),
        format_grid(calls.tabulate_mpi(summary), width),
        _absent(summary, width),
        [f"skipped: {report.file}: {report.why}" for report in summary.skipped],
    ]
    return "\n\n".join("\n".join(lines) for lines in sections if lines)


# ---- sections --------------------------------------------------------------------------------------------------------


def _title(summary: JobSummary) -> str:
    numbers = {"report": summary.reports, "node": summary.nodes, "rank": summary.ranks, "GPU": len(summary.gpus)}
    seconds = summary.duration_ns / 1e9
    selected = sum(high - low for low, high in summary.windows_ns)
    only = f" ({format_time(selected)} of it selected)" if len(summary.windows_ns) > 1 else ""
    works = ""
    if summary.gpu_time_ns is not None:
        begin, end = (f"{time / 1e9:.3f}" for time in summary.gpu_time_ns)
        works = f"; the GPUs work from {begin} to {end} s"
    return f"{count_nouns(numbers)}: {seconds:.3f} s{only} from {summary.start_utc[:-7]}Z{works}"


def _absent(summary: JobSummary, width: int) -> list[str]:
    if not summary.absent:
        return []
    return wrap(f"Not in {name_time(summary)}: {', '.join(summary.absent)}", width)


def _format_waits(summary: JobSummary, width: int) -> list[list[str]]:
    """Return the sections on waits, each as its lines."""
    waits = summary.waits
    if waits is None:
        return []
    grids = [
        tabulate_nccl_waits(waits),
        tabulate_mpi_waits(waits),
        tabulate_reasons(waits),
        tabulate_excess(summary),
        tabulate_bandwidth(waits.bandwidth),
    ]
    return [*(format_grid(grid, width) for grid in grids), *(wrap(text, width) for text in describe_limits(waits))]


def format_path(path: PathNumbers | None, tasks: int, width: int) -> list[list[str]]:
    """Return the sections on the critical path, each as its lines. `tasks`: number of tasks of the job."""
    if path is None or not path.window_ns:
        return []
    return [format_grid(tabulate_path(path, has_several=tasks > 1), width), wrap(describe_tasks(path), width)]


def format_efficiency(efficiency: EfficiencyNumbers | None, steps: StepNumbers | None, width: int) -> list[list[str]]:
    """Return the sections on efficiencies, each as its lines: a table, and a sentence on the steps."""
    if efficiency is None or not efficiency.window_ns:
        return []
    table = format_grid(tabulate_efficiency(efficiency, steps), width, None)
    if table:
        table += wrap(describe_parts(efficiency, steps), width)
    return [table, [] if steps is None else wrap(describe_steps(steps), width)]
