"""Makes the section on the stages of a pipeline: their time in a step, and a heat map of their bubbles."""

from __future__ import annotations

import numpy as np

from nsys2prv_ng.html.blocks import Block, Matrix, Paragraph, Section
from nsys2prv_ng.html.charts.matrix import make_matrix
from nsys2prv_ng.html.colours import HUES
from nsys2prv_ng.html.tables import show_grid
from nsys2prv_ng.summary.job import JobSummary
from nsys2prv_ng.summary.pipeline.table import tabulate_bubbles, tabulate_pipeline
from nsys2prv_ng.summary.pipeline.words import describe_pipeline, name_stage
from nsys2prv_ng.summary.text import name_time
from nsys2prv_ng.text.formatting import format_percent


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
