"""Formats a summary for people: tables that fit a terminal and a job's log."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median

from nsys2prv_ng.summary.layout import (
    MOST_ROWS,
    WIDTH,
    choose_width,
    clean_name,
    count_more,
    drop_empty_end,
    format_percent,
    make_table,
    wrap,
)
from nsys2prv_ng.summary.numbers.job import GpuNumbers, JobSummary
from nsys2prv_ng.summary.tables.causes import list_causes
from nsys2prv_ng.summary.tables.largest import name_largest
from nsys2prv_ng.summary.tables.tables import (
    NamedTable,
    tabulate_memory_operations,
    tabulate_mpi,
    tabulate_nccl,
    tabulate_ranges,
)
from nsys2prv_ng.summary.tables.waits import describe_waits
from nsys2prv_ng.summary.verdicts.efficiency import describe_efficiency
from nsys2prv_ng.summary.verdicts.path import describe_path
from nsys2prv_ng.summary.verdicts.verdicts import format_verdicts, list_verdicts
from nsys2prv_ng.text.formatting import count_noun, format_bytes, format_number_ranges, format_time

_MOST_GPUS = 16


def format_summary(summary: JobSummary) -> str:
    """Return the text for standard output, as wide as the terminal."""
    return format_tables(summary, choose_width())


def format_tables(summary: JobSummary, width: int = WIDTH) -> str:
    """Return all tables that have rows, at most `width` columns wide (at least NARROWEST)."""
    sections = [
        wrap(_title(summary), width),
        *format_verdicts(list_verdicts(summary), width),
        _gpus(summary.gpus, width),
        _gaps(summary.gpus, width),
        _causes(summary.gpus, width),
        *describe_waits(summary, width),
        *describe_path(summary.critical_path, summary.tasks, width),
        *describe_efficiency(summary.efficiency, summary.steps, width),
        _lay_out(tabulate_ranges(summary), width),
        _kernels(summary, width),
        _lay_out(tabulate_memory_operations(summary), width, most=None),
        _lay_out(tabulate_nccl(summary), width, most=None),
        _lay_out(tabulate_mpi(summary), width),
        _absent(summary, width),
        [f"skipped: {report.file}: {report.why}" for report in summary.skipped],
    ]
    return "\n\n".join("\n".join(lines) for lines in sections if lines)


# ---- sections --------------------------------------------------------------------------------------------------------


def _title(summary: JobSummary) -> str:
    counts = [
        count_noun(summary.reports, "report"),
        count_noun(summary.nodes, "node"),
        count_noun(summary.ranks, "rank"),
        count_noun(len(summary.gpus), "GPU"),
    ]
    seconds = summary.duration_ns / 1e9
    selected = sum(high - low for low, high in summary.windows_ns)
    only = f" ({format_time(selected)} of it selected)" if len(summary.windows_ns) > 1 else ""
    works = ""
    if summary.gpu_time_ns is not None:
        begin, end = (f"{time / 1e9:.3f}" for time in summary.gpu_time_ns)
        works = f"; the GPUs work from {begin} to {end} s"
    return f"{', '.join(counts)}: {seconds:.3f} s{only} from {summary.start_utc[:-7]}Z{works}"


def _absent(summary: JobSummary, width: int) -> list[str]:
    if not summary.absent:
        return []
    where = f"the chosen {' and '.join(summary.chosen)}" if summary.chosen else "these reports"
    return wrap(f"Not in {where}: {', '.join(summary.absent)}", width)


def _gpu_name(gpu: GpuNumbers) -> str:
    return f"{gpu.node} GPU {gpu.gpu}"


def _gpu_users(gpu: GpuNumbers) -> str:
    """Return the ranks, or else the tasks, that use a GPU, and its model."""
    ranks = (
        f"rank{'s' if len(gpu.ranks) > 1 else ''} {format_number_ranges(gpu.ranks)}"
        if gpu.ranks
        else ", ".join(gpu.tasks)
    )
    return ", ".join(filter(None, (ranks, gpu.name)))


def _gpus(gpus: Sequence[GpuNumbers], width: int) -> list[str]:
    """Return two lines for each GPU: times, and percent of the span."""
    gpus = [gpu for gpu in gpus if gpu.span_ns]
    if not gpus:
        return []
    listed = _select_outliers(gpus)
    kinds = dict(_GPU_KINDS)
    about = "overlap: compute and communication at once"
    if any(gpu.whole_graph_ns for gpu in gpus):
        about += "; graphs: traced as a whole, compute or communication"
    else:
        del kinds["whole_graph"]
    rows: list[list[str]] = []
    for gpu in listed:
        rows += _gpu_rows(_gpu_name(gpu), _gpu_users(gpu), [gpu], kinds)
    if len(gpus) > 1:
        rows += _gpu_rows("sum of the GPUs", "", gpus, kinds)
    if len(gpus) > len(listed):
        rows += _spread_rows(gpus, kinds)
    titles = ["GPU", "span", *kinds.values()]
    caption = f"From the first to the last operation of each GPU ({about}):"
    return [
        *wrap(caption, width),
        *make_table(titles, rows, width, gap=" "),
        *count_more(len(gpus) - len(listed), " whose idle time is nearer to the median"),
    ]


_GPU_KINDS = {
    "busy": "busy",
    "compute": "compute",
    "communication": "comm.",
    "overlap": "overlap",
    "whole_graph": "graphs",
    "memory": "memory",
    "idle": "idle",
}
"""Columns of the table of GPUs: their fields in GpuNumbers, and titles."""


def _gpu_rows(name: str, users: str, gpus: Sequence[GpuNumbers], kinds: Iterable[str]) -> list[list[str]]:
    span = sum(gpu.span_ns for gpu in gpus)
    times = [sum(getattr(gpu, f"{kind}_ns") for gpu in gpus) for kind in kinds]
    return [
        [name, format_time(span), *map(format_time, times)],
        [f"  {users}", "", *(format_percent(time, span) for time in times)],
    ]


def _spread_rows(gpus: Sequence[GpuNumbers], kinds: Iterable[str]) -> list[list[str]]:
    """Return the lowest, median and highest share of each kind of time over all GPUs."""
    shares = [[getattr(gpu, f"{kind}_ns") / gpu.span_ns for gpu in gpus] for kind in kinds]
    spans = [gpu.span_ns for gpu in gpus]
    return [
        [f"  {name} of {len(gpus):,}", format_time(pick(spans)), *(format_percent(pick(own), 1) for own in shares)]
        for name, pick in (("lowest", min), ("median", median), ("highest", max))
    ]


def _select_outliers(gpus: Sequence[GpuNumbers]) -> list[GpuNumbers]:
    """Return the GPUs whose share of idle time is furthest from the median, at most _MOST_GPUS, in their own order."""
    if len(gpus) <= _MOST_GPUS:
        return list(gpus)
    share = [gpu.idle_ns / max(1, gpu.span_ns) for gpu in gpus]
    middle = median(share)
    furthest = sorted(range(len(gpus)), key=lambda i: (-abs(share[i] - middle), i))[:_MOST_GPUS]
    return [gpus[i] for i in sorted(furthest)]


def _gaps(gpus: Sequence[GpuNumbers], width: int) -> list[str]:
    has_memory = any(gpu.peak_memory_bytes is not None for gpu in gpus)
    if not has_memory and not any(gpu.gaps for gpu in gpus):
        return []
    listed = _select_outliers(gpus)
    rows = []
    for gpu in listed:
        gaps = (
            [format_time(gpu.idle_ns), format_time(gpu.idle_ns / gpu.gaps), format_time(gpu.longest_gap_ns)]
            if gpu.gaps
            else ["-"] * 3
        )
        at = "-" if gpu.longest_gap_at_ns is None else f"{gpu.longest_gap_at_ns / 1e9:.3f} s"
        memory = [format_bytes(gpu.peak_memory_bytes)] if has_memory else []
        rows.append([_gpu_name(gpu), *memory, f"{gpu.gaps:,}", *gaps, at])
    titles = ["GPU", *(["peak memory"] if has_memory else []), "gaps", "total", "mean", "longest", "begins at"]
    return [*make_table(titles, rows, width), *count_more(len(gpus) - len(listed), " GPUs")]


def _causes(gpus: Sequence[GpuNumbers], width: int) -> list[str]:
    """Return what the host did while GPUs were idle, summed over all GPUs."""
    causes = list_causes(gpus)
    if not causes:
        return []
    whole = sum(cause.ns for cause in causes)
    rows = [
        [
            cause.range,
            cause.call,
            format_time(cause.ns),
            format_percent(cause.ns, whole),
            f"{cause.gaps:,}",
            clean_name(cause.mostly_on),
        ]
        for cause in causes[:MOST_ROWS]
    ]
    titles = ["NVTX range", "call", "time", "share", "gaps", "mostly on"]
    caption = "What the CPU was doing in these gaps, on the thread that launches the next operation:"
    lines = make_table(*drop_empty_end(titles, rows), width, texts=2)
    return [*wrap(caption, width), *lines, *count_more(len(causes) - len(rows), "")]


def _kernels(summary: JobSummary, width: int) -> list[str]:
    if not summary.kernels:
        return []
    whole = sum(kernel.total_ns for kernel in summary.kernels)
    tasks = len({task for gpu in summary.gpus if gpu.span_ns for task in gpu.tasks})
    rows = [
        [
            kernel.name,
            kernel.kernel_class,
            f"{kernel.count:,}",
            format_time(kernel.total_ns),
            format_time(kernel.total_ns / kernel.count),
            format_percent(kernel.total_ns, whole),
            clean_name(name_largest({kernel.busiest_task: kernel.busiest_ns}, kernel.total_ns, tasks)),
        ]
        for kernel in summary.kernels[:MOST_ROWS]
    ]
    titles = ["kernel", "class", "count", "time", "mean", "share", "mostly on"]
    lines = make_table(*drop_empty_end(titles, rows), width, texts=2)
    return [*lines, *count_more(len(summary.kernels) - len(rows), " kernels")]


def _lay_out(table: NamedTable, width: int, most: int | None = MOST_ROWS) -> list[str]:
    """Return a table with its caption; the rows beyond `most` are counted."""
    if not table.rows:
        return []
    rows = table.rows[:most]
    caption = wrap(f"{table.caption}:", width) if table.caption else []
    lines = make_table(table.titles, rows, width, texts=table.texts)
    return [*caption, *lines, *count_more(len(table.rows) - len(rows), f" {table.noun}")]
