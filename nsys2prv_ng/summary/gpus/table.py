"""Tables of GPUs: what they do with their time, their gaps, and what the host did in these gaps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from nsys2prv_ng.analysis.gpus.times import CUT, GRAPH, HOST, QUEUED, UNKNOWN
from nsys2prv_ng.summary.gpus.numbers import GpuNumbers
from nsys2prv_ng.text import grid
from nsys2prv_ng.text.calls import explain_call
from nsys2prv_ng.text.formatting import format_percent, format_ranks
from nsys2prv_ng.text.names import NO_CALL, NO_RANGE

MOST_GPUS = 16
"""GPUs that a terminal shows: the GPUs whose share of idle time is furthest from the median."""
_KINDS = "busy", "compute", "communication", "overlap", "whole_graph", "memory", "idle"
"""Columns of the table of GPUs: fields of GpuNumbers (without _ns)."""
_TITLES = {"communication": "comm.", "overlap": "overlapped", "whole_graph": "opaque graphs"}
"""Titles of columns that have another name than their field."""
_MINOR = {"busy", "overlap", "memory"}
_LABELS = {QUEUED: "(queued)", GRAPH: "(in a CUDA graph)", UNKNOWN: "(no launch recorded)", CUT: "(cut by the window)"}
"""Stand for the range if the cause of idle time is not what the host did. Operations then waited for the call."""


def tabulate_gpus(gpus: Sequence[GpuNumbers]) -> grid.Grid:
    """Return what each GPU does from its first to its last operation, and the sum."""
    used = [gpu for gpu in gpus if gpu.span_ns]
    has_graphs = any(gpu.whole_graph_ns for gpu in used)
    kinds = [kind for kind in _KINDS if kind != "whole_graph" or has_graphs]
    return grid.Grid(
        caption="GPU activity from the first to the last operation",
        columns=[
            *grid.make_columns("GPU", "", "span"),
            *(grid.Column(_TITLES.get(kind, kind), minor=kind in _MINOR) for kind in kinds),
        ],
        rows=[_make_row(_show_gpu(gpu), _show_users(gpu), [gpu], kinds) for gpu in used],
        names=2,
        footer=[_make_row(grid.Name("all GPUs"), grid.Name(""), used, kinds)] if len(used) > 1 else [],
        more="closer to the median idle time",
        weights=_weigh_by_idle_time(used),
        tight=True,
    )


def _make_row(name: grid.Name, users: grid.Name, gpus: Sequence[GpuNumbers], kinds: Iterable[str]) -> list[grid.Cell]:
    span = sum(gpu.span_ns for gpu in gpus)
    times = [sum(getattr(gpu, f"{kind}_ns") for gpu in gpus) for kind in kinds]
    return [name, users, grid.Ns(span), *(grid.Portion(ns, span) for ns in times)]


def _weigh_by_idle_time(gpus: Sequence[GpuNumbers]) -> list[tuple[float, ...]]:
    """Return how far the share of idle time of each GPU is from the median."""
    shares = [gpu.idle_ns / max(1, gpu.span_ns) for gpu in gpus]
    middle = median(shares) if shares else 0.0
    return [(abs(share - middle),) for share in shares]


def _show_gpu(gpu: GpuNumbers) -> grid.Name:
    return grid.show_gpu(gpu.node, gpu.gpu)


def _show_users(gpu: GpuNumbers) -> grid.Name:
    """Return the ranks, or else the tasks, that use a GPU, and its model."""
    users = format_ranks(gpu.ranks) if gpu.ranks else ", ".join(gpu.tasks)
    return grid.show_users(", ".join(filter(None, (users, gpu.name))), gpu.ranks)


# ---- gaps ------------------------------------------------------------------------------------------------------------


def tabulate_gaps(gpus: Sequence[GpuNumbers], shift_ns: int = 0) -> grid.Grid:
    """Return the gaps of each GPU, and its peak memory. `shift_ns`: added to the times at which gaps start."""
    has_memory = any(gpu.peak_memory_bytes is not None for gpu in gpus)
    rows: list[list[grid.Cell]] = []
    for gpu in gpus if has_memory or any(gpu.gaps for gpu in gpus) else ():
        at = gpu.longest_gap_at_ns
        times = (gpu.idle_ns, gpu.idle_ns / gpu.gaps, gpu.longest_gap_ns) if gpu.gaps else (None, None, None)
        memory = grid.Bytes(gpu.peak_memory_bytes) if has_memory else ""
        start = grid.Moment(None if at is None else at + shift_ns)
        rows.append([_show_gpu(gpu), memory, grid.Count(gpu.gaps), *map(grid.Ns, times), start])
    memory_column = grid.Column("peak memory", optional=True)
    columns = grid.make_columns("GPU", memory_column, "gaps", "total", "mean", "longest", "starts at")
    return grid.Grid(columns=columns, rows=rows, more="GPUs", weights=_weigh_by_idle_time(gpus))


def tabulate_causes(gpus: Sequence[GpuNumbers]) -> grid.Grid:
    """Return what the host did while GPUs were idle, summed over all GPUs, the longest time first."""
    times: dict[tuple[str, str, str, str], Counter[str]] = {}
    gaps: Counter[tuple[str, str, str, str]] = Counter()
    for gpu, name in zip(gpus, _name_by_rank(gpus), strict=True):
        for part in gpu.idle_causes or ():
            key = part.cause, part.range, part.call, part.next
            times.setdefault(key, Counter())[name] += part.ns
            gaps[key] += part.gaps
    whole = sum(parts.total() for parts in times.values())
    count = len([gpu for gpu in gpus if gpu.idle_causes])
    rows: list[list[grid.Cell]] = []
    for key, parts in sorted(times.items(), key=lambda item: -item[1].total()):
        ns = parts.total()
        mostly_on, bar = name_largest(parts, ns, count), grid.Bar([grid.BarPart("share", "host_ns", ns)], whole)
        times_and_gaps = grid.Ns(ns), grid.Share(ns, whole), grid.Count(gaps[key])
        rows.append([*_label(*key), *times_and_gaps, grid.Name(mostly_on), bar])
    last = grid.Column("mostly on", optional=True), grid.Column("", wide=True)
    columns = grid.make_columns(
        "NVTX range", "call", grid.Column("before", optional=True), "time", "share", "gaps", *last
    )
    caption = "CPU activity during GPU gaps, on the launching thread"
    return grid.Grid(caption=caption, columns=columns, rows=rows, names=3)


def tabulate_samples(gpus: Sequence[GpuNumbers]) -> grid.Grid:
    """Return what samples of hosts show while GPUs waited for these, over all GPUs, most samples first."""
    samples: Counter[tuple[str, str]] = Counter()
    for each in (each for gpu in gpus for each in gpu.sampled):
        samples[each.function, each.called] += each.samples
    whole = samples.total()
    rows: list[list[grid.Cell]] = [
        [grid.Name(function or "(none of the program)"), grid.Name(called), grid.Count(count), grid.Share(count, whole)]
        for (function, called), count in samples.most_common()
    ]
    columns = grid.make_columns("function of the program", "called", "samples", "share")
    caption = "Samples of the launching threads during GPU gaps"
    return grid.Grid(caption=caption, columns=columns, rows=rows, names=2)


def _name_by_rank(gpus: Sequence[GpuNumbers]) -> list[str]:
    """Return a name for each GPU: its rank, if the two belong to each other only, otherwise its node and number."""
    times = Counter(rank for gpu in gpus for rank in gpu.ranks)
    is_alone = [[times[rank] for rank in gpu.ranks] == [1] for gpu in gpus]
    return [f"rank {gpu.ranks[0]}" if alone else str(_show_gpu(gpu)) for gpu, alone in zip(gpus, is_alone, strict=True)]


def _label(cause: str, range_: str, call: str, before: str) -> tuple[grid.Name, grid.Name, grid.Name]:
    """Return the cells of the NVTX range, the call in words, and what came next, or of what stands for them."""
    if cause != HOST:
        return grid.Name(_LABELS.get(cause, cause)), grid.Name(call), grid.Name("")
    words = explain_call(call)
    return (
        grid.Name(range_ or NO_RANGE),
        grid.Name(f"{words} ({call})" if words else call or NO_CALL),
        grid.Name(before),
    )


def name_largest(parts: Mapping[str, int], whole: int, count: int) -> str:
    """Return the name of the largest part and its share, such as `rank 0: 97.8%`; "" if the sum is evenly spread.

    A sum over `count` tasks or GPUs is spread unless one part is more than halfway from an even share to the whole.
    """
    if count < 2 or not parts:
        return ""
    name = max(parts, key=lambda name: (parts[name], name))
    return f"{name}: {format_percent(parts[name], whole)}" if 2 * count * parts[name] > (count + 1) * whole else ""
