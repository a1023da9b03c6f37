"""Tables and sentences on a pipeline: the time of each stage in a step, and its bubble in each step."""

from __future__ import annotations

from nsys2prv_ng.summary.pipeline.numbers import PipelineNumbers
from nsys2prv_ng.summary.pipeline.words import describe_size, name_ranks
from nsys2prv_ng.text.formatting import count_noun, format_percent, format_time
from nsys2prv_ng.text.grid import Cell, Column, Count, Grid, Name, Ns, Share, make_columns


def tabulate_pipeline(pipeline: PipelineNumbers) -> Grid:
    """Return what each stage does in a step, on average over its GPUs and the steps."""
    rows: list[list[Cell]] = []
    for number, stage in enumerate(pipeline.stages):
        turns = len(stage.ends) * len(pipeline.step_ns)
        compute, bubble = Ns(stage.compute_ns / turns), Ns(stage.bubble_ns / turns)
        waits = Ns(stage.send_wait_ns / turns), Ns(stage.collective_wait_ns / turns) if stage.collective_wait_ns else ""
        rest = (
            Ns(stage.transfer_ns / turns),
            Ns(stage.other_ns / turns),
            Count(stage.unclaimed) if stage.unclaimed else "",
        )
        share = Share(stage.bubble_ns, pipeline.measure_whole(stage))
        rows.append([f"{number}", Name(name_ranks(stage)), compute, bubble, share, *waits, *rest])
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


def tabulate_bubbles(pipeline: PipelineNumbers) -> Grid:
    """Return the bubble of each stage in each step, as a share of the step."""
    rows: list[list[Cell]] = []
    for n, (step, length) in enumerate(zip(pipeline.steps, pipeline.step_ns, strict=True)):
        shares = [Share(stage.bubble_by_step[n], len(stage.ends) * length) for stage in pipeline.stages]
        rows.append([f"{step}", Ns(length), *shares])
    titles = [f"stage {number}" for number in range(len(pipeline.stages))]
    return Grid(columns=make_columns("step", "length", *titles), rows=rows, more="steps")
