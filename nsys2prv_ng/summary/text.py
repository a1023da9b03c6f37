"""An overview for people: tables that fit a terminal and a job's log."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Sequence

from nsys2prv_ng.analysis import idle_causes as gap_causes
from nsys2prv_ng.analysis.idle_causes import shorten_range_name
from nsys2prv_ng.paraver.event_type import one_line
from nsys2prv_ng.summary.model import Cause, GpuNumbers, JobSummary, RepeatedRange
from nsys2prv_ng.text.formatting import count_noun, format_number_ranges

NARROWEST, WIDTH, WIDEST = 80, 100, 120
"""Columns: of a terminal at least and at most, and of what is no terminal."""

_MOST_GPUS = 16
_MOST_ROWS = 10
_SHORTEST_NAME = 12
_ROUNDS_UP = 0.9995
"""From here on three digits show a whole unit."""

_CAUSES = {
    gap_causes.QUEUED: "(launched before)",
    gap_causes.GRAPH: "(in a CUDA graph)",
    gap_causes.UNKNOWN: "(no launch recorded)",
    gap_causes.CUT: "(goes on)",
}


def format_summary(found: JobSummary) -> str:
    """The text, as wide as what standard output is."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else WIDTH
    return format_tables(found, min(max(width, NARROWEST), WIDEST))


def format_tables(found: JobSummary, width: int = WIDTH) -> str:
    """All tables that have rows, at most `width` columns wide (of at least NARROWEST)."""
    sections = [
        [_title(found)],
        _gpus(found.gpus, width),
        _gaps(found.gpus, width),
        _causes(found.gpus, width),
        _ranges(found.ranges, width),
        _kernels(found, width),
        _memory_operations(found, width),
        _nccl(found, width),
        _mpi(found, width),
        _wrapped(f"Nothing found of: {', '.join(found.absent)}", width) if found.absent else [],
        [f"left out: {report.file}: {report.why}" for report in found.skipped],
    ]
    return "\n\n".join("\n".join(lines) for lines in sections if lines)


# ---- numbers and tables ----------------------------------------------------------------------------------------------


def format_time(ns: float) -> str:
    """Three digits and a unit."""
    for unit, length in (("s", 10**9), ("ms", 10**6), ("us", 10**3)):
        if ns >= _ROUNDS_UP * length:
            return f"{_digits(ns / length)} {unit}"
    return f"{ns:.0f} ns"


def format_bytes(size: float | None) -> str:
    """Three digits and a decimal unit; a dash for what is not known."""
    if size is None:
        return "-"
    for unit, length in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= _ROUNDS_UP * length:
            return f"{_digits(size / length)} {unit}"
    return f"{size:.0f} B"


def _digits(value: float) -> str:
    return f"{value:,.{2 if value < 9.995 else 1 if value < 99.95 else 0}f}"


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f}%" if whole else "-"


def _rate(size: int, ns: int) -> str:
    return f"{format_bytes(size / ns * 1e9)}/s" if ns and size else "-"


def _table(
    titles: Sequence[str], rows: Sequence[Sequence[str]], width: int, texts: int = 1, between: str = "  "
) -> list[str]:
    """Lines of columns, of which the first are texts: to the left, and cut where the table would be too wide."""
    cells = [list(titles), *([*map(_clean, row[:texts]), *row[texts:]] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(titles))]
    while sum(widths) + len(between) * (len(widths) - 1) > width:
        widest = max(range(texts), key=lambda i: widths[i])
        if widths[widest] <= _SHORTEST_NAME:
            break
        widths[widest] -= 1
    return [
        between.join(
            _cut(cell, widths[i]).ljust(widths[i]) if i < texts else cell.rjust(widths[i]) for i, cell in enumerate(row)
        ).rstrip()
        for row in cells
    ]


def _clean(name: str) -> str:
    """A name as one line; what indents it stays."""
    stem = name.lstrip(" ")
    return name[: len(name) - len(stem)] + one_line(stem) if stem else ""


def _cut(name: str, width: int) -> str:
    """A name of at most so many characters: the middle goes, since names of kernels often differ at their end."""
    if len(name) <= width:
        return name
    head = (width - 2) // 2
    return f"{name[:head]}..{name[len(name) - (width - 2 - head) :]}"


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width)


def _more(count: int, what: str) -> list[str]:
    return [f"  and {count:,} more{what} (the JSON has all)"] if count > 0 else []


# ---- sections --------------------------------------------------------------------------------------------------------


def _title(found: JobSummary) -> str:
    counts = [
        count_noun(found.reports, "report"),
        count_noun(found.nodes, "node"),
        count_noun(found.ranks, "rank"),
        count_noun(len(found.gpus), "GPU"),
    ]
    seconds = found.duration_ns / 1e9
    chosen = sum(high - low for low, high in found.windows_ns)
    only = f" (of which {format_time(chosen)} chosen)" if len(found.windows_ns) > 1 else ""
    return f"{', '.join(counts)}: {seconds:.3f} s{only} from {found.start_utc[:-7]}Z"


def _gpu_name(gpu: GpuNumbers) -> str:
    return f"{gpu.node} GPU {gpu.gpu}"


def _gpu_users(gpu: GpuNumbers) -> str:
    """Ranks, else tasks, and what the GPU is."""
    ranks = (
        f"rank{'s' if len(gpu.ranks) > 1 else ''} {format_number_ranges(gpu.ranks)}"
        if gpu.ranks
        else ", ".join(gpu.tasks)
    )
    return ", ".join(filter(None, (ranks, gpu.name)))


def _gpus(gpus: Sequence[GpuNumbers], width: int) -> list[str]:
    """Two lines for each: times, and percent of the span."""
    gpus = [gpu for gpu in gpus if gpu.span_ns]
    if not gpus:
        return []
    shown = _most_idle(gpus)
    rows: list[list[str]] = []
    for gpu in shown:
        rows += _gpu_rows(_gpu_name(gpu), _gpu_users(gpu), [gpu])
    if len(gpus) > 1:
        rows += _gpu_rows("all", "", gpus)
    titles = ["GPU", "span", "busy", "compute", "comm.", "overlap", "memory", "idle"]
    caption = "From the first to the last operation of each GPU (overlap: compute and communication at once):"
    return [
        *_wrapped(caption, width),
        *_table(titles, rows, width, between=" "),
        *_more(len(gpus) - len(shown), " that are less idle"),
    ]


def _gpu_rows(name: str, users: str, gpus: Sequence[GpuNumbers]) -> list[list[str]]:
    span = sum(gpu.span_ns for gpu in gpus)
    kinds = ("busy", "compute", "communication", "overlap", "memory", "idle")
    times = [sum(getattr(gpu, f"{kind}_ns") for gpu in gpus) for kind in kinds]
    return [
        [name, format_time(span), *map(format_time, times)],
        [f"  {users}", "", *(_percent(each, span) for each in times)],
    ]


def _most_idle(gpus: Sequence[GpuNumbers]) -> list[GpuNumbers]:
    """Of many GPUs those that are idle most, in their order."""
    by_idle = sorted(gpus, key=lambda gpu: -gpu.idle_ns / max(1, gpu.span_ns))[:_MOST_GPUS]
    return [gpu for gpu in gpus if gpu in by_idle]


def _gaps(gpus: Sequence[GpuNumbers], width: int) -> list[str]:
    has_memory = any(gpu.peak_memory_bytes is not None for gpu in gpus)
    if not has_memory and not any(gpu.gaps for gpu in gpus):
        return []
    titles = ["GPU", "gaps", "total", "mean", "longest", "at", *(["peak memory"] if has_memory else [])]
    shown = _most_idle(gpus)
    rows = []
    for gpu in shown:
        gaps = (
            [format_time(gpu.idle_ns), format_time(gpu.idle_ns / gpu.gaps), format_time(gpu.longest_gap_ns)]
            if gpu.gaps
            else ["-"] * 3
        )
        at = "-" if gpu.longest_gap_at_ns is None else f"{gpu.longest_gap_at_ns / 1e9:.3f} s"
        memory = [format_bytes(gpu.peak_memory_bytes)] if has_memory else []
        rows.append([_gpu_name(gpu), f"{gpu.gaps:,}", *gaps, at, *memory])
    return [*_table(titles, rows, width), *_more(len(gpus) - len(shown), " GPUs")]


def _causes(gpus: Sequence[GpuNumbers], width: int) -> list[str]:
    """Where the host was, over all GPUs."""
    sums: dict[tuple[str, str, str], tuple[int, int]] = {}
    for gpu in gpus:
        for each in gpu.idle_causes or ():
            key = each.cause, each.range, each.call
            ns, gaps = sums.get(key, (0, 0))
            sums[key] = ns + each.ns, gaps + each.gaps
    causes = sorted((Cause(*key, *amount) for key, amount in sums.items()), key=lambda each: -each.ns)
    if not causes:
        return []
    whole = sum(each.ns for each in causes)
    rows = [
        [*_where(each), format_time(each.ns), _percent(each.ns, whole), f"{each.gaps:,}"]
        for each in causes[:_MOST_ROWS]
    ]
    titles = ["NVTX range", "call", "time", "of gaps", "gaps"]
    caption = "Where the host thread was in these gaps that launched the next operation, if it had not before:"
    return [*_wrapped(caption, width), *_table(titles, rows, width, texts=2), *_more(len(causes) - len(rows), "")]


def _where(cause: Cause) -> tuple[str, str]:
    if cause.cause != gap_causes.HOST:
        return _CAUSES[cause.cause], ""
    return cause.range or "(no range)", cause.call or "(no call)"


def _ranges(ranges: Sequence[RepeatedRange], width: int) -> list[str]:
    if not ranges:
        return []
    rows = [_range_row(each) for each in ranges[:_MOST_ROWS]]
    titles = ["NVTX range", "slowest", "tasks", "count", "mean", "min", "max", "spread"]
    caption = "Ranges that repeat, with the spread of the means of all tasks:"
    return [caption, *_table(titles, rows, width, texts=2), *_more(len(ranges) - len(rows), " ranges")]


def _range_row(each: RepeatedRange) -> list[str]:
    """The spread is between the means of the slowest and the fastest task, in percent of the mean of all."""
    mean = each.total_ns / each.count
    spread = each.slowest.mean_ns - each.fastest.mean_ns
    several = len(each.tasks) > 1
    return [
        shorten_range_name(each.domain, each.name),
        each.slowest.task if several else "-",
        f"{len(each.tasks):,}",
        f"{each.count:,}",
        format_time(mean),
        format_time(min(task.min_ns for task in each.tasks)),
        format_time(max(task.max_ns for task in each.tasks)),
        _percent(spread, mean) if several else "-",
    ]


def _kernels(found: JobSummary, width: int) -> list[str]:
    if not found.kernels:
        return []
    whole = sum(kernel.total_ns for kernel in found.kernels)
    rows = [
        [
            kernel.name,
            kernel.kernel_class,
            f"{kernel.count:,}",
            format_time(kernel.total_ns),
            format_time(kernel.total_ns / kernel.count),
            _percent(kernel.total_ns, whole),
        ]
        for kernel in found.kernels[:_MOST_ROWS]
    ]
    titles = ["kernel", "class", "count", "time", "mean", "of all"]
    return [*_table(titles, rows, width, texts=2), *_more(len(found.kernels) - len(rows), " kernels")]


def _memory_operations(found: JobSummary, width: int) -> list[str]:
    rows = [
        [
            each.operation,
            f"{each.count:,}",
            format_bytes(each.bytes),
            format_time(each.total_ns),
            _rate(each.bytes, each.rated_ns),
        ]
        for each in found.memory_operations
    ]
    return _table(["copies and sets", "count", "size", "time", "rate"], rows, width) if rows else []


def _nccl(found: JobSummary, width: int) -> list[str]:
    rows = [
        [
            each.function,
            f"{each.calls:,}",
            format_bytes(each.bytes),
            f"{each.kernels:,}",
            format_time(each.kernel_ns),
            _rate(each.carried_bytes, each.carried_ns),
        ]
        for each in found.nccl
    ]
    return _table(["NCCL", "calls", "size", "kernels", "their time", "rate"], rows, width) if rows else []


def _mpi(found: JobSummary, width: int) -> list[str]:
    rows = [
        [
            each.call,
            f"{each.count:,}",
            format_time(each.total_ns),
            format_time(each.total_ns / each.count),
            format_time(each.max_ns),
            format_bytes(each.sent_bytes),
            format_bytes(each.received_bytes),
            _rate((each.sent_bytes or 0) + (each.received_bytes or 0), each.rated_ns),
        ]
        for each in found.mpi[:_MOST_ROWS]
    ]
    titles = ["MPI", "calls", "time", "mean", "max", "sent", "received", "rate"]
    return [*_table(titles, rows, width), *_more(len(found.mpi) - len(rows), " calls")] if rows else []
