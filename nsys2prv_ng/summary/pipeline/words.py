"""Names the stages of a pipeline."""

from __future__ import annotations

from nsys2prv_ng.summary.pipeline.numbers import PipelineNumbers, PipelineStage
from nsys2prv_ng.text.formatting import count_noun, format_ranks, join_first
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
