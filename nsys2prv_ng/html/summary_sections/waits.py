"""Sections on who waits for whom and why, on idle GPUs, and on the bandwidth of collectives."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nsys2prv_ng.html.blocks import Block, Cell, Chart, Paragraph, Section, Table
from nsys2prv_ng.html.charts.axes import Tick
from nsys2prv_ng.html.charts.maps import Swatch
from nsys2prv_ng.html.charts.plots import Axis, Plot, Shape, draw_points, make_log_ticks
from nsys2prv_ng.html.colours import LINES, PARTS_OF_TIME, get_css
from nsys2prv_ng.html.tables import MOST_RANKS, MOST_ROWS, WHOLE, count_rest, make_bar
from nsys2prv_ng.summary.layout import format_percent, name_task
from nsys2prv_ng.summary.numbers.job import JobSummary
from nsys2prv_ng.summary.numbers.late import Straggler, group_costs, list_stragglers
from nsys2prv_ng.summary.numbers.pictures import Pictures
from nsys2prv_ng.summary.numbers.waits import Bandwidth, WaitNumbers
from nsys2prv_ng.summary.tables.bandwidth import list_bandwidth
from nsys2prv_ng.summary.tables.causes import CauseRow, list_causes
from nsys2prv_ng.summary.tables.tables import tabulate_bandwidth
from nsys2prv_ng.summary.tables.waits import describe_limits
from nsys2prv_ng.text.formatting import format_bytes, format_number_ranges, format_time, format_window, join_first

_PARTS = {
    "exposed waiting": get_css(PARTS_OF_TIME["waiting_ns"]),
    "waiting behind compute": get_css(PARTS_OF_TIME["graph_ns"]),
    "moving": get_css(PARTS_OF_TIME["moving_ns"]),
    "not split": get_css(PARTS_OF_TIME["not_split_ns"]),
}
_HEIGHT = 240


def make_wait_section(summary: JobSummary) -> Section | None:
    """Return who waits for whom and why; None where no operation goes over ranks."""
    waits = summary.waits
    if waits is None or not waits.operations:
        return None
    stragglers = list_stragglers(waits)
    blocks: list[Block] = [_tabulate_ranks(stragglers), _tabulate_reasons(waits)] if waits.split else []
    blocks += [Paragraph(text) for text in describe_limits(waits)]
    lead = f"{WHOLE} A rank waits in a collective or message until the last rank that it needs has begun."
    lead += " The rest moves data."
    first = stragglers[0] if stragglers else None
    if first is not None and first.rank.longest_wait is not None:
        window = format_window(first.rank.longest_wait.from_ns, first.rank.longest_wait.to_ns)
        lead += f" The longest wait for {_name(first)} was at `--time {window}`."
    presets = ["analysis/waited_for", "analysis/lateness", "analysis/nccl_waiting"]
    return Section("waits", "Who waits for whom", lead, blocks, presets)


def _name(row: Straggler) -> str:
    return name_task(row.rank.rank, row.rank.task)


def _tabulate_ranks(stragglers: Sequence[Straggler]) -> Table:
    """Return the tasks for which others wait longest first, with the parts of their communication."""
    parts = [_divide(row) for row in stragglers]
    scale = max((sum(own.values()) for own in parts), default=0)
    rows: list[list[Cell]] = []
    for row, own in list(zip(stragglers, parts, strict=True))[:MOST_RANKS]:
        last = row.rank.last + (row.rank.mpi.last if row.rank.mpi else 0)
        bar = make_bar([(name, _PARTS[name], ns) for name, ns in own.items()], scale)
        waiting = own["exposed waiting"] + own["waiting behind compute"]
        times = [format_time(ns) for ns in (sum(own.values()), waiting, own["moving"], own["not split"])]
        late = row.main.label if row.main is not None else "-"
        rows.append([_name(row), late, *times, f"{last:,}", format_time(row.ns), bar])
    titles = ["", "late because of", "communication", "waiting", "moving", "not split", "last", "caused", ""]
    caption = (
        "Time of each rank in NCCL kernels and MPI calls over ranks (last: collectives in which others waited for it; "
        "caused: how long all others waited for it)"
    )
    legend = [Swatch(css, name) for name, css in _PARTS.items() if any(own[name] for own in parts)]
    return Table(caption, titles, rows, texts=2, below=count_rest(rows, stragglers, "rank"), legend=legend)


def _divide(row: Straggler) -> dict[str, int]:
    """Return the parts of the communication of a task, in NCCL and MPI, which add up to it (ns)."""
    rank, mpi = row.rank, row.rank.mpi
    exposed = rank.wait_ns if rank.exposed_wait_ns is None else rank.exposed_wait_ns
    return {
        "exposed waiting": exposed + (mpi.wait_ns if mpi else 0),
        "waiting behind compute": rank.wait_ns - exposed,
        "moving": rank.transfer_ns + (mpi.transfer_ns if mpi else 0),
        "not split": rank.unsplit_ns + (mpi.unsplit_ns if mpi else 0),
    }


def _tabulate_reasons(waits: WaitNumbers) -> Table:
    """Return why ranks were late, what cost most first."""
    whole = sorted(group_costs(waits.costs, waits.culprits), key=lambda row: -row.ns)
    sum_ns = sum(row.ns for row in whole)
    rows: list[list[Cell]] = []
    for row in whole[:MOST_ROWS]:
        names = [row.range_label, row.what_label]
        times = f"{row.times:,}" if row.times else "-"
        share = make_bar([("share", _PARTS["exposed waiting"], row.ns)], sum_ns)
        origin = join_first(row.origins, 2) or "-"
        rows.append([name_task(row.rank, row.task), row.reason, *names, origin, times, format_time(row.ns), share])
    titles = ["late", "reason", "NVTX range", "mostly", "delayed by", "times", "others waited", ""]
    caption = "Why ranks were late: the times add up to what they caused"
    return Table(caption, titles, rows, texts=5, below=count_rest(rows, whole))


# ---- idle GPUs -------------------------------------------------------------------------------------------------------


def make_gap_section(summary: JobSummary, pictures: Pictures) -> Section | None:
    """Return what GPUs did as a whole and the causes of their gaps; None without GPUs."""
    gpus = [gpu for gpu in summary.gpus if gpu.span_ns]
    if not gpus:
        return None
    worst = sorted(gpus, key=lambda gpu: -gpu.idle_ns / gpu.span_ns)
    shown = worst[:MOST_RANKS] if len(worst) > MOST_RANKS else gpus
    has_graphs = any(gpu.whole_graph_ns for gpu in gpus)
    rows: list[list[Cell]] = []
    for gpu in shown:
        users = f"ranks {format_number_ranges(gpu.ranks)}" if len(gpu.ranks) > 1 else ", ".join(gpu.tasks[:4])
        shares = [gpu.busy_ns, gpu.compute_ns, gpu.communication_ns, gpu.overlap_ns, gpu.memory_ns, gpu.idle_ns]
        longest = format_time(gpu.longest_gap_ns) if gpu.gaps else "-"
        at = "" if gpu.longest_gap_at_ns is None else f"{(gpu.longest_gap_at_ns + pictures.shift_ns) / 1e9:.3f} s"
        shares += [gpu.whole_graph_ns] if has_graphs else []
        percent = [format_percent(ns, gpu.span_ns) for ns in shares]
        rows.append(
            [f"{gpu.node} GPU {gpu.gpu}", users, format_time(gpu.span_ns), *percent, f"{gpu.gaps:,}", longest, at]
        )
    graphs = ["whole graphs"] if has_graphs else []
    titles = ["", "used by", "span", "busy", "compute", "comm.", "overlap", "memory", "idle", *graphs]
    titles += ["gaps", "longest", "at"]
    caption = "Each GPU from its first to its last operation, in percent of that (overlap: compute and communication"
    caption += "; whole graphs: CUDA graphs traced as a whole, compute or communication)" if has_graphs else ")"
    blocks: list[Block] = [Table(caption, titles, rows, texts=2, below=count_rest(shown, gpus, "GPU"))]
    causes = list_causes(summary.gpus)
    if causes:
        blocks.append(_tabulate_causes(causes))
    lead = f"{WHOLE} A gap is a stretch in which nothing runs on a GPU, between two operations."
    return Section("gaps", "Idle GPUs", lead, blocks, ["analysis/gpu-gaps", "analysis/gap_histogram"])


def _tabulate_causes(whole: Sequence[CauseRow]) -> Table:
    sum_ns = sum(cause.ns for cause in whole)
    rows: list[list[Cell]] = [
        [
            cause.range,
            cause.call,
            format_time(cause.ns),
            format_percent(cause.ns, sum_ns),
            f"{cause.gaps:,}",
            cause.mostly_on,
            make_bar([("share", get_css(PARTS_OF_TIME["host_ns"]), cause.ns)], sum_ns),
        ]
        for cause in whole[:MOST_ROWS]
    ]
    caption = "What the CPU was doing in these gaps, on the thread that launches the next operation"
    titles = ["NVTX range", "call", "time", "share", "gaps", "mostly on", ""]
    return Table(caption, titles, rows, texts=2, below=count_rest(rows, whole))


# ---- bandwidth -------------------------------------------------------------------------------------------------------


def make_bandwidth_section(summary: JobSummary) -> Section | None:
    """Return the bandwidth of collectives by size; None where none is known."""
    bandwidth = (
        []
        if summary.waits is None
        else [own for own in summary.waits.bandwidth if own.bytes and own.ns and own.bus_bytes_per_s]
    )
    if not bandwidth:
        return None
    lead = f"{WHOLE} It counts from the begin of the last rank on, so that no waiting is in it."
    return Section("bandwidth", "Bandwidth of NCCL", lead, [_draw_bandwidth(bandwidth)], ["analysis/nccl_calls_2dh"])


def _draw_bandwidth(bandwidth: Sequence[Bandwidth]) -> Chart:
    """Return the bus bandwidth over the size, with logarithmic axes and a colour for each function."""
    rows = list_bandwidth(bandwidth)
    sizes, rates = [row.bytes / row.operations for row in rows], [row.bus_bytes_per_s for row in rows]
    x, y = _make_axis(sizes), _make_axis(rates)
    shapes, legend = [], []
    for n, function in enumerate(sorted({row.function for row in rows})):
        own = [k for k, row in enumerate(rows) if row.function == function]
        css = get_css(LINES[n % len(LINES)])
        path = draw_points(x.place(np.array(sizes)[own]), y.place(np.array(rates)[own]))
        shapes.append(Shape("points", css, function, path))
        legend.append(Swatch(css, function))
    x_ticks = [Tick(float(x.place(np.array([value]))[0]), format_bytes(value)) for value in make_log_ticks(x)]
    y_ticks = [Tick(float(y.place(np.array([value]))[0]), f"{format_bytes(value)}/s") for value in make_log_ticks(y)]
    about = "Bus bandwidth of nccl-tests over the size that a rank passes: a point for each row of the numbers."
    return Chart("Bandwidth by size", about, Plot(shapes, x_ticks, y_ticks, _HEIGHT), legend, _tabulate(bandwidth))


def _make_axis(values: Sequence[float]) -> Axis:
    """Return a logarithmic axis of whole powers of ten around values above 0."""
    low, high = max(1.0, min(values)), max(1.0, *values)
    return Axis(
        10.0 ** np.floor(np.log10(low)), 10.0 ** max(np.ceil(np.log10(high)), np.floor(np.log10(low)) + 1), True
    )


def _tabulate(bandwidth: Sequence[Bandwidth]) -> Table:
    table = tabulate_bandwidth(bandwidth)
    rows: list[list[Cell]] = [[*row] for row in table.rows[:MOST_ROWS]]
    return Table(table.caption, table.titles, rows, below=count_rest(rows, table.rows, "size"))
