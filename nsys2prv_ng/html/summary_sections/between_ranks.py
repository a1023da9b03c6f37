"""Makes the sections on what ranks wait for and send: waits, idle GPUs, bandwidths, links and pipelines."""

from __future__ import annotations

from nsys2prv_ng.html.blocks import MOST_RANKS, MOST_ROWS, Block, Paragraph, Section, show_grid
from nsys2prv_ng.summary.answer.trust import describe_limits
from nsys2prv_ng.summary.gpus.table import tabulate_causes, tabulate_gaps, tabulate_gpus, tabulate_samples
from nsys2prv_ng.summary.job import JobSummary
from nsys2prv_ng.summary.links import table as links_table
from nsys2prv_ng.summary.pictures.numbers import Pictures
from nsys2prv_ng.summary.readbacks.table import tabulate_readbacks
from nsys2prv_ng.summary.text import name_time
from nsys2prv_ng.summary.waits import table as waits_table
from nsys2prv_ng.summary.waits.words import list_stragglers
from nsys2prv_ng.text.formatting import format_window
from nsys2prv_ng.text.names import name_task


def make_wait_section(summary: JobSummary) -> Section | None:
    """Return the section on who waits for whom and why; None if no operation is over ranks."""
    waits = summary.waits
    if waits is None or not waits.operations:
        return None
    of_ranks = waits_table.tabulate_nccl_waits(waits, summary.communication), waits_table.tabulate_mpi_waits(waits)
    grids = [(grid, MOST_RANKS) for grid in of_ranks]
    if waits.split:
        excess = waits_table.tabulate_excess(waits, summary.measured_ns, summary.step_count)
        grids += [(waits_table.tabulate_reasons(waits), MOST_ROWS), (excess, MOST_ROWS)]
    presets = ["analysis/waited_for", "analysis/lateness", "analysis/nccl_waiting"]
    if any(part.bus_bytes_per_s for part in waits.bandwidth):
        grids.append((waits_table.tabulate_bandwidth(waits.bandwidth), MOST_ROWS))
        presets.append("analysis/nccl_calls_2dh")
    blocks: list[Block] = [Paragraph(f"Slow link: {text}.") for text in links_table.describe_slow_links(summary.links)]
    blocks += [show_grid(grid, most) for grid, most in grids if grid.rows]
    blocks += [Paragraph(text) for text in describe_limits(waits)]
    lead = f"Numbers of {name_time(summary)}. A rank waits in a collective or message until the last rank that it needs"
    lead += " arrives. The rest of the time is transfer."
    rank = next((rank for rank, _ in list_stragglers(waits)), None)
    if rank is not None and rank.longest_wait is not None:
        window = format_window(rank.longest_wait.from_ns, rank.longest_wait.to_ns)
        lead += f" The longest wait that {name_task(rank.rank, rank.task)} caused was at `--time {window}`."
    return Section("waits", "Waits and their causes", lead, blocks, presets)


# ---- idle GPUs -------------------------------------------------------------------------------------------------------


def make_gap_section(summary: JobSummary, pictures: Pictures) -> Section | None:
    """Return the section on what GPUs did and on the causes of their gaps; None without GPUs."""
    gpus = [gpu for gpu in summary.gpus if gpu.span_ns]
    if not gpus:
        return None
    gaps, causes = tabulate_gaps(gpus, pictures.shift_ns), tabulate_causes(summary.gpus)
    readbacks = tabulate_readbacks(summary.readbacks, summary.step_count)
    grids = [(tabulate_gpus(gpus), MOST_RANKS), (gaps, MOST_RANKS), (causes, MOST_ROWS), (readbacks, MOST_ROWS)]
    grids.append((tabulate_samples(summary.gpus), MOST_ROWS))
    blocks = [show_grid(grid, most) for grid, most in grids if grid.rows]
    lead = f"Numbers of {name_time(summary)}. In a gap, a GPU runs nothing between two operations."
    presets = ["analysis/gpu-gaps", "analysis/gap_histogram", *(["analysis/read_backs"] if readbacks.rows else [])]
    return Section("gaps", "Idle GPUs", lead, blocks, presets)


# ---- pipelines -------------------------------------------------------------------------------------------------------


def make_pipeline_section(summary: JobSummary) -> Section | None:
    """Return the section on the stages of a pipeline; None without a certain pipeline."""
    pipeline = None if summary.waits is None else summary.waits.pipeline
    if pipeline is None:
        return None
    table = show_grid(links_table.tabulate_pipeline(pipeline), MOST_RANKS)
    lead = f"Numbers of {name_time(summary)}. In the bubble, a stage has nothing to do, because its neighbour has not"
    lead += " sent yet or none of its work is left. In a send wait, the neighbour is not ready to receive."
    return Section("pipeline", "Pipeline", lead, [table], ["analysis/pipeline_bubble"])
