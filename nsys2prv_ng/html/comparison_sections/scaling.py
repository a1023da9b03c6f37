"""The section on runs of different sizes: POP's factors, on a ground that shows which are bad."""

from __future__ import annotations

from nsys2prv_ng.comparison.scaling_model import Scaling
from nsys2prv_ng.comparison.scaling_text import describe_scaling, list_scaling
from nsys2prv_ng.html.blocks import Block, Cell, Paragraph, Section, Table, TermCell
from nsys2prv_ng.html.names import clean, quote
from nsys2prv_ng.html.shades import make_legend, shade

SCALING = "scaling"
"""Key of the section."""


def make_scaling_section(scaling: Scaling, traces: str) -> Section:
    """Return the table of all runs, with a definition of each number."""
    rows: list[list[Cell]] = []
    for row in list_scaling(scaling):
        pairs = zip(row.efficiencies, row.texts, strict=True)
        cells = [text if rate is None else shade(rate) for rate, text in pairs]
        rows.append([TermCell(row.term, row.about, row.depth), *cells])
    titles = ["", *(clean(run.label) for run in scaling.runs)]
    blocks: list[Block] = [Table("", titles, rows, legend=make_legend())]
    blocks += [Paragraph(f"{note[0].upper()}{note[1:]}.") for note in scaling.notes]
    presets = [*(["model/gpu_efficiency"] if any(run.gpus for run in scaling.runs) else []), "model/host_efficiency"]
    return Section(SCALING, "Scaling", f"{describe_scaling(scaling, quote)}.", blocks, presets, traces=traces)
