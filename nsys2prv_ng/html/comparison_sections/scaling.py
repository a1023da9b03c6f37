"""The section on runs of different sizes: POP's factors, on a ground that shows which are bad."""

from __future__ import annotations

from dataclasses import replace

from nsys2prv_ng.comparison.scaling_model import Scaling
from nsys2prv_ng.comparison.scaling_text import describe_scaling, tabulate_scaling
from nsys2prv_ng.html.blocks import Block, Paragraph, Section
from nsys2prv_ng.html.names import quote
from nsys2prv_ng.html.tables import show_grid

SCALING = "scaling"
"""Key of the section."""


def make_scaling_section(scaling: Scaling, traces: str) -> Section:
    """Return the table of all runs, with a definition of each number."""
    grid = replace(tabulate_scaling(scaling, quote), caption="")
    blocks: list[Block] = [show_grid(grid, len(grid.rows))]
    blocks += [Paragraph(f"{note[0].upper()}{note[1:]}.") for note in scaling.notes]
    presets = [*(["model/gpu_efficiency"] if any(run.gpus for run in scaling.runs) else []), "model/host_efficiency"]
    return Section(SCALING, "Scaling", f"{describe_scaling(scaling, quote)}.", blocks, presets, traces=traces)
