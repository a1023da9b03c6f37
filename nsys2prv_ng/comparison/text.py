"""Formats a comparison for people: text that fits a terminal and a job log."""

from __future__ import annotations

from nsys2prv_ng.comparison.comparability import format_comparability
from nsys2prv_ng.comparison.content import describe_pair
from nsys2prv_ng.comparison.model import Comparison
from nsys2prv_ng.comparison.scaling_text import format_scaling
from nsys2prv_ng.comparison.side_traces import describe_traces
from nsys2prv_ng.text.layout import choose_width, format_grid, wrap
from nsys2prv_ng.text.names import clean_name, quote_name


def format_comparison(comparison: Comparison, width: int | None = None, *, shows_all: bool = False) -> str:
    """Return the text of all pairs, at most `width` columns wide; None: as wide as the terminal.

    `shows_all`: with rows that differ by noise only.
    """
    width = choose_width() if width is None else width
    sections = ["\n".join(format_comparability(comparison.comparability, width))]
    for pair in comparison.pairs:
        paragraphs, grids = describe_pair(pair, quote_name, shows_all=shows_all)
        sections.append("\n".join(line for text in paragraphs for line in wrap(text, width)))
        sections += ["\n".join(format_grid(grid, width, None)) for grid in grids]
    if comparison.scaling is not None:
        sections.append("\n".join(format_scaling(comparison.scaling, width)))
    if comparison.traces is not None:
        files = [f"  {clean_name(file)}" for file in comparison.traces.files]
        sections.append("\n".join([*wrap(describe_traces(comparison.traces), width), *files]))
    return "\n\n".join(section for section in sections if section)
