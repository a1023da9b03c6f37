"""Tables of messages and stages of a pipeline, and sentences on slow links and on a bubble."""

from __future__ import annotations

from nsys2prv_ng.summary.links import numbers
from nsys2prv_ng.summary.links.numbers import PipelineNumbers, PipelineStage
from nsys2prv_ng.text.formatting import count_noun, format_bytes, format_percent, format_ranks, format_time, join_first
from nsys2prv_ng.text.grid import Cell, Column, Count, Grid, Name, Ns, Ordinal, Share, make_columns
from nsys2prv_ng.text.names import clean_name, name_task, quote_name

# ---- in words --------------------------------------------------------------------------------------------------------


def name_class(row: numbers.MessageRate) -> str:
    """Return whether messages stay within a node, in words."""
    return "between nodes" if row.between_nodes else "within nodes"


def name_end(end: numbers.LinkEnd) -> str:
    """Return what sends or receives, for a text: its rank, node and GPU."""
    gpu = "" if end.gpu is None else f" GPU {end.gpu}"
    return f"{name_task(end.rank, end.task)} ({clean_name(end.node)}{gpu})"


_MOST = 3
"""Most pairs of the section on links that have a sentence."""


def describe_slow_links(links: numbers.LinkNumbers | None) -> list[str]:
    """Return a sentence for each pair that is far slower than its peers, the slowest first; [] without any."""
    if links is None:
        return []
    sentences = [_describe_link(links, slow) for slow in links.slow[:_MOST]]
    more = len(links.slow) - _MOST
    return [*sentences, count_noun(more, "more slow pair")] if more > 0 else sentences


def _describe_link(links: numbers.LinkNumbers, slow: numbers.SlowLink) -> str:
    if slow.are_nodes:
        sender, receiver = (quote_name(links.nodes[index]) for index in (slow.sender, slow.receiver))
    else:
        sender, receiver = (name_end(links.ends[index]).replace("`", "'") for index in (slow.sender, slow.receiver))
    low, high = (f"{format_bytes(rate)}/s" for rate in (slow.peers_low_bytes_per_s, slow.peers_high_bytes_per_s))
    peers = low if low == high else f"{low} to {high}"
    text = f"{sender} -> {receiver}: {format_bytes(slow.bytes_per_s)}/s, its {count_noun(slow.peers, 'peer')} {peers}"
    return f"{text} (median of {count_noun(slow.count, 'message')} of {format_bytes(slow.bytes)})"


# ---- pipelines -------------------------------------------------------------------------------------------------------


def tabulate_pipeline(pipeline: PipelineNumbers) -> Grid:
    """Return what each stage does in a step, on average over its GPUs and the steps."""
    rows: list[list[Cell]] = []
    for number, stage in enumerate(pipeline.stages):
        turns = len(stage.ends) * len(pipeline.step_ns)
        compute, bubble = Ns(stage.compute_ns / turns), Ns(stage.bubble_ns / turns)
        waits = Ns(stage.send_wait_ns / turns), Ns(stage.collective_wait_ns / turns) if stage.collective_wait_ns else ""
        rest = Ns(stage.transfer_ns / turns), Ns(stage.other_ns / turns)
        share = Share(stage.bubble_ns, pipeline.measure_whole(stage))
        unclaimed = Count(stage.unclaimed) if stage.unclaimed else ""
        rows.append([Ordinal(number), Name(name_ranks(stage)), compute, bubble, share, *waits, *rest, unclaimed])
    titles: list[str | Column] = ["stage", "", "compute", "bubble", "of step", "send wait"]
    titles += [Column("collective wait", optional=True, minor=True), Column("transfer", minor=True)]
    titles += [Column("other", minor=True), Column("not claimed", optional=True, minor=True)]
    return Grid(
        columns=make_columns(*titles),
        rows=rows,
        caption=f"Pipeline of {describe_size(pipeline)}, time per GPU and step",
        names=2,
        more="stages",
        below=_list_notes(pipeline),
    )


def _list_notes(pipeline: PipelineNumbers) -> list[str]:
    """Return what the numbers are to be compared with, and what they leave out."""
    notes = []
    if pipeline.ideal_share is not None:
        ideal = format_percent(pipeline.ideal_share, 1)
        notes.append(f"Even stages that transfer in no time would have a bubble of {ideal}")
    unclaimed = sum(stage.unclaimed for stage in pipeline.stages)
    if unclaimed:
        whole = sum(pipeline.measure_whole(stage) for stage in pipeline.stages)
        most = sum(stage.unclaimed_ns for stage in pipeline.stages)
        error = f" (clock error {format_time(pipeline.clock_error_ns)})" if pipeline.clock_error_ns else ""
        kernels = count_noun(unclaimed, "kernel")
        notes.append(f"Waits of {kernels} are not claimed{error}: at most {format_percent(most, whole)} of GPU time")
    return notes


_MOST_TASKS = 3


def name_ranks(stage: PipelineStage) -> str:
    """Return the ranks of a stage, or the names of its tasks if their ranks are not known, for a text."""
    ranks = sorted({end.rank for end in stage.ends if end.rank is not None})
    if ranks:
        return format_ranks(ranks)
    return join_first([clean_name(end.task) for end in stage.ends], _MOST_TASKS)


def describe_size(pipeline: PipelineNumbers) -> str:
    """Return the number of stages and micro-batches in words."""
    text = count_noun(len(pipeline.stages), "stage")
    if pipeline.micro_batches is not None:
        text += f", {pipeline.micro_batches} micro-batch{'es' if pipeline.micro_batches > 1 else ''} a step"
    return text


_MOST_STAGES = 3
"""Most stages whose bubbles are all named; of more stages, the largest and the smallest bubble are."""
_MUCH = 0.2
"""Waits in sends are worth a word from this part of the bubble on. A choice: the table has them all."""


def describe_pipeline(pipeline: PipelineNumbers | None) -> str:
    """Return the stages, their bubbles and the stage that sets the pace; "" without a certain pipeline."""
    if pipeline is None:
        return ""
    order = sorted(range(len(pipeline.stages)), key=lambda number: -_share(pipeline, number))
    shown = sorted(order) if len(order) <= _MOST_STAGES else [order[0], order[-1]]
    bubbles: list[str] = []
    for number in shown:
        stage = pipeline.stages[number]
        ns = stage.bubble_ns / len(stage.ends) / len(pipeline.step_ns)
        share = format_percent(_share(pipeline, number), 1)
        a_step = "" if bubbles else " a step"
        bubbles.append(f"{format_time(ns)}{a_step} ({share}) on {name_stage(pipeline, number)}")
    text = f"{describe_size(pipeline)}; the bubble takes {', '.join(bubbles)}"
    if any(stage.send_wait_ns > _MUCH * stage.bubble_ns for stage in pipeline.stages):
        shares = []
        for stage in (pipeline.stages[number] for number in shown):
            idle, whole = stage.bubble_ns + stage.send_wait_ns, max(pipeline.measure_whole(stage), 1)
            shares.append(format_percent(idle, whole))
        text += f", {' and '.join(shares)} with waits until a neighbour receives"
    if pipeline.ideal_share is not None:
        text += f" ({format_percent(pipeline.ideal_share, 1)} if stages were even)"
    if pipeline.pace is None:
        return text
    lead = format_time(pipeline.lead_ns)
    return f"{text}; {name_stage(pipeline, pipeline.pace)} sets the pace, with {lead} more work a step than any other"


def name_stage(pipeline: PipelineNumbers, number: int) -> str:
    """Return the number of a stage and its ranks."""
    return f"stage {number} ({name_ranks(pipeline.stages[number])})".replace("`", "'")


def _share(pipeline: PipelineNumbers, number: int) -> float:
    stage = pipeline.stages[number]
    return stage.bubble_ns / max(pipeline.measure_whole(stage), 1)
