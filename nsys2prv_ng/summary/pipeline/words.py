"""Names the stages of a pipeline, and describes their bubble."""

from __future__ import annotations

from nsys2prv_ng.summary.pipeline.numbers import PipelineNumbers, PipelineStage
from nsys2prv_ng.text.formatting import count_noun, format_percent, format_ranks, format_time, join_first
from nsys2prv_ng.text.names import clean_name

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
"""Waits in sends are worth a word from this part of the bubble on."""


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
