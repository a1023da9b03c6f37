"""Makes the sections on links and on pipelines: message rates, matrices of rates, slow pairs, counters, and stages."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nsys2prv_ng.html.blocks import Block, Matrix, Paragraph, Section
from nsys2prv_ng.html.charts.png import make_matrix
from nsys2prv_ng.html.colours import HUES
from nsys2prv_ng.html.tables import MOST_RANKS, show_grid
from nsys2prv_ng.summary.job import JobSummary
from nsys2prv_ng.summary.links.numbers import MPI, NCCL, NVLINK, PCIE, Link, LinkNumbers
from nsys2prv_ng.summary.links.table import (
    NO_COLLECTIVES,
    describe_slow_links,
    name_end,
    tabulate_exchanges,
    tabulate_link_metrics,
    tabulate_links,
    tabulate_links_with_metrics,
    tabulate_message_rates,
    tabulate_node_links,
)
from nsys2prv_ng.summary.pipeline.table import describe_pipeline, name_stage, tabulate_bubbles, tabulate_pipeline
from nsys2prv_ng.summary.text import name_time
from nsys2prv_ng.text.formatting import format_percent
from nsys2prv_ng.text.grid import Grid, Rate
from nsys2prv_ng.text.names import clean_name

_MOST_ENDS = 2_048
"""Most rows of a matrix."""
_PRESETS = {NVLINK: "hwcounters/nvlink", PCIE: "hwcounters/pcie"}
_NETWORK_PRESET = "hwcounters/network_cards"


def make_link_section(summary: JobSummary) -> Section | None:
    """Return the section on messages, all-to-all exchanges and counters of links; None without any."""
    links = None if summary.waits is None else summary.waits.links
    metrics = summary.link_metrics
    if links is None and not metrics:
        return None
    blocks: list[Block] = []
    presets: list[str] = []
    about = [f"Numbers of {name_time(summary)}."]
    if links is not None:
        blocks += _show_messages(summary, links)
        about.append(
            f"A message moves data from when both sides run, so its rate excludes wait time. {NO_COLLECTIVES}."
        )
        used = {link.library for link in links.links}
        presets += [preset for library, preset in ((NCCL, "basics/nccl"), (MPI, "basics/mpi")) if library in used]
    if metrics:
        grids = tabulate_link_metrics(metrics), tabulate_links_with_metrics(metrics)
        blocks += [show_grid(grid, MOST_RANKS) for grid in grids]
        presets += list(dict.fromkeys(_PRESETS.get(metric.link, _NETWORK_PRESET) for metric in metrics))
    return Section("links", "Links", " ".join(about), blocks, presets)


def _show_messages(summary: JobSummary, links: LinkNumbers) -> list[Block]:
    """Return what is known of messages and all-to-all exchanges."""
    blocks: list[Block] = [Paragraph(f"Slow link: {text}.") for text in describe_slow_links(summary.links)]
    blocks += [show_grid(grid) for grid in (tabulate_message_rates(links), tabulate_exchanges(links)) if grid.rows]
    for library in (NCCL, MPI):
        rated = [link for link in links.node_links if link.library == library and link.between_nodes]
        names = [clean_name(node) for node in links.nodes]
        blocks += _draw(f"{library} messages between nodes", names, rated, tabulate_node_links(links))
        names, ends = [name_end(end) for end in links.ends], "GPUs" if library == NCCL else "ranks"
        for between, where in ((False, "within nodes"), (True, "of different nodes")):
            rated = [link for link in links.links if link.library == library and link.between_nodes == between]
            blocks += _draw(f"{library} messages between {ends} {where}", names, rated, tabulate_links(links, between))
    return blocks


def _draw(title: str, names: Sequence[str], links: Sequence[Link], numbers: Grid) -> list[Matrix]:
    """Return a matrix of the rates of pairs; [] if no rate is known. `names`: of all ends."""
    rated = [(link, rate) for link in links if (rate := link.bytes_per_s) is not None]
    used = sorted({index for link in links for index in (link.sender, link.receiver)})
    if not rated or len(used) > _MOST_ENDS:
        return []
    place = {index: n for n, index in enumerate(used)}
    values = np.full((len(used), len(used)), np.nan)
    for link, rate in rated:
        values[place[link.sender], place[link.receiver]] = rate
    figure = make_matrix([names[index] for index in used], values, HUES["moving"], lambda rate: str(Rate(rate)))
    about = "Rate while data moves: a row for each sender, a column for each receiver."
    return [Matrix(title, about, figure, show_grid(numbers))]


def make_pipeline_section(summary: JobSummary) -> Section | None:
    """Return the section on the stages of a pipeline; None without a certain pipeline."""
    pipeline = None if summary.waits is None else summary.waits.pipeline
    if pipeline is None:
        return None
    length = np.maximum(np.array(pipeline.step_ns, np.float64), 1)
    values = np.array([np.array(stage.bubble_by_step) / len(stage.ends) / length for stage in pipeline.stages])
    names = [name_stage(pipeline, number) for number in range(len(pipeline.stages))]
    steps = [str(number) for number in pipeline.steps]
    figure = make_matrix(names, values, HUES["waiting"], lambda share: format_percent(share, 1), columns=steps)
    blocks: list[Block] = [
        Paragraph(f"{describe_pipeline(summary.pipeline)}."),
        show_grid(tabulate_pipeline(pipeline)),
        Matrix(
            "Bubble by stage and step",
            "Share of the step: a row for each stage, a column for each step.",
            figure,
            show_grid(tabulate_bubbles(pipeline)),
        ),
    ]
    lead = (
        f"Numbers of {name_time(summary)}. In the bubble, a stage has nothing to do, because its neighbour has not sent"
        " yet or none of its work is left. In a send wait, the neighbour is not ready to receive."
    )
    return Section("pipeline", "Pipeline", lead, blocks, ["analysis/pipeline_bubble"])
