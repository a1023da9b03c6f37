"""Tables of GPUs: what they do with their time, their gaps, and what the host did in these."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median

from nsys2prv_ng.summary.numbers.job import GpuNumbers
from nsys2prv_ng.summary.tables.causes import list_causes
from nsys2prv_ng.text.formatting import format_number_ranges
from nsys2prv_ng.text.grid import (
    Bar,
    BarPart,
    Bytes,
    Cell,
    Column,
    Count,
    Grid,
    Moment,
    Name,
    Ns,
    Portion,
    Share,
    make_columns,
)

MOST_GPUS = 16
"""GPUs that a terminal shows: those whose share of idle time is furthest from the median."""
_KINDS = {
    "busy": "busy",
    "compute": "compute",
    "communication": "comm.",
    "overlap": "overlap",
    "whole_graph": "graphs",
    "memory": "memory",
    "idle": "idle",
}
"""Columns of the table of GPUs: their fields in GpuNumbers, and titles."""


def tabulate_gpus(gpus: Sequence[GpuNumbers]) -> Grid:
    """Return what each GPU does from its first to its last operation, and the sum; of many GPUs also the spread."""
    used = [gpu for gpu in gpus if gpu.span_ns]
    kinds = dict(_KINDS)
    about = "overlap: compute and communication at once"
    if any(gpu.whole_graph_ns for gpu in used):
        about += "; graphs: traced as a whole, compute or communication"
    else:
        del kinds["whole_graph"]
    footer = [_make_row("sum of the GPUs", "", used, kinds)] if len(used) > 1 else []
    if len(used) > MOST_GPUS:
        footer += _list_spread(used, kinds)
    return Grid(
        caption=f"From the first to the last operation of each GPU ({about})",
        columns=make_columns("GPU", "", "span", *kinds.values()),
        rows=[_make_row(_name_gpu(gpu), _name_users(gpu), [gpu], kinds) for gpu in used],
        names=2,
        footer=footer,
        more="whose idle time is nearer to the median",
        weights=_weigh_by_idle_time(used),
        tight=True,
    )


def _make_row(name: str, users: str, gpus: Sequence[GpuNumbers], kinds: Iterable[str]) -> list[Cell]:
    span = sum(gpu.span_ns for gpu in gpus)
    times = [sum(getattr(gpu, f"{kind}_ns") for gpu in gpus) for kind in kinds]
    return [Name(name), Name(users), Ns(span), *(Portion(ns, span) for ns in times)]


def _list_spread(gpus: Sequence[GpuNumbers], kinds: Iterable[str]) -> list[list[Cell]]:
    """Return the lowest, median and highest share of each kind of time over all GPUs."""
    shares = [[getattr(gpu, f"{kind}_ns") / gpu.span_ns for gpu in gpus] for kind in kinds]
    spans = [gpu.span_ns for gpu in gpus]
    return [
        [f"  {name} of {len(gpus):,}", "", Ns(pick(spans)), *(Share(pick(values), 1) for values in shares)]
        for name, pick in (("lowest", min), ("median", median), ("highest", max))
    ]


def _weigh_by_idle_time(gpus: Sequence[GpuNumbers]) -> list[tuple[float, ...]]:
    """Return how far the share of idle time of each GPU is from the median."""
    shares = [gpu.idle_ns / max(1, gpu.span_ns) for gpu in gpus]
    middle = median(shares) if shares else 0.0
    return [(abs(share - middle),) for share in shares]


def _name_gpu(gpu: GpuNumbers) -> str:
    return f"{gpu.node} GPU {gpu.gpu}"


def _name_users(gpu: GpuNumbers) -> str:
    """Return the ranks, or else the tasks, that use a GPU, and its model."""
    ranks = (
        f"rank{'s' if len(gpu.ranks) > 1 else ''} {format_number_ranges(gpu.ranks)}"
        if gpu.ranks
        else ", ".join(gpu.tasks)
    )
    return ", ".join(filter(None, (ranks, gpu.name)))


# ---- gaps ------------------------------------------------------------------------------------------------------------


def tabulate_gaps(gpus: Sequence[GpuNumbers], shift_ns: int = 0) -> Grid:
    """Return the gaps of each GPU, and its peak memory. `shift_ns`: what is added to times."""
    has_memory = any(gpu.peak_memory_bytes is not None for gpu in gpus)
    rows: list[list[Cell]] = []
    if has_memory or any(gpu.gaps for gpu in gpus):
        for gpu in gpus:
            row: list[Cell] = [Name(_name_gpu(gpu))]
            row += [Bytes(gpu.peak_memory_bytes)] if has_memory else []
            row += [Count(gpu.gaps)]
            row += [Ns(ns) for ns in _list_gap_times(gpu)]
            row += [Moment(None if gpu.longest_gap_at_ns is None else gpu.longest_gap_at_ns + shift_ns)]
            rows.append(row)
    memory = ["peak memory"] if has_memory else []
    return Grid(
        columns=make_columns("GPU", *memory, "gaps", "total", "mean", "longest", "begins at"),
        rows=rows,
        more="GPUs",
        weights=_weigh_by_idle_time(gpus),
    )


def _list_gap_times(gpu: GpuNumbers) -> tuple[float | None, float | None, float | None]:
    """Return the total, mean and longest time (ns) of the gaps of a GPU."""
    return (gpu.idle_ns, gpu.idle_ns / gpu.gaps, gpu.longest_gap_ns) if gpu.gaps else (None, None, None)


def tabulate_causes(gpus: Sequence[GpuNumbers]) -> Grid:
    """Return what the host did while GPUs were idle, summed over all GPUs, the longest time first."""
    causes = list_causes(gpus)
    whole = sum(cause.ns for cause in causes)
    rows: list[list[Cell]] = [
        [
            Name(cause.range),
            Name(cause.call),
            Ns(cause.ns),
            Share(cause.ns, whole),
            Count(cause.gaps),
            Name(cause.mostly_on),
            Bar([BarPart("share", "host_ns", cause.ns)], whole),
        ]
        for cause in causes
    ]
    columns = ("NVTX range", "call", "time", "share", "gaps", Column("mostly on", optional=True), Column("", wide=True))
    caption = "What the CPU was doing in these gaps, on the thread that launches the next operation"
    return Grid(caption=caption, columns=make_columns(*columns), rows=rows, names=2)
