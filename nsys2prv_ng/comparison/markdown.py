"""Formats a comparison as Markdown, for a merge request. Names in reports are text in it, and nothing else."""

from __future__ import annotations

import re

from nsys2prv_ng.comparison.content import Grid, describe_pair
from nsys2prv_ng.comparison.model import Comparison
from nsys2prv_ng.comparison.scaling_text import describe_scaling, list_scaling_rows
from nsys2prv_ng.comparison.side_traces import describe_traces
from nsys2prv_ng.summary.layout import clean_name

_SPECIAL = re.compile(r"[^\w .,:;/%+=?-]")


def format_markdown(comparison: Comparison, *, shows_all: bool = False) -> str:
    """Return the paragraphs and tables of all pairs. `shows_all`: also rows that differ by noise only."""
    findings = comparison.comparability.findings
    blocks = ["\n".join(f"- {own.severity}: {_quote(own.text)}" for own in findings)] if findings else []
    for pair in comparison.pairs:
        paragraphs, grids = describe_pair(pair, _quote, shows_all=shows_all)
        blocks += [f"**{paragraphs[0]}**", *paragraphs[1:]]
        blocks += [block for grid in grids for block in _format_grid(grid)]
    if comparison.scaling is not None:
        titles, *rows = list_scaling_rows(comparison.scaling)
        blocks += _format_grid(Grid(describe_scaling(comparison.scaling, _quote), titles, rows))
        blocks += map(_escape, comparison.scaling.notes)
    if comparison.traces is not None:
        blocks.append(_escape(describe_traces(comparison.traces)))
        blocks.append("\n".join(f"- {_quote(file)}" for file in comparison.traces.files))
    return "\n\n".join(blocks)


def _quote(name: str) -> str:
    """Return a name as code: people whom it mentions and links in it are none there."""
    return f"<code>{_escape(clean_name(name))}</code>" if name else ""


def _escape(text: str) -> str:
    """Return a text with all characters as entities that mean something to Markdown or HTML."""
    return _SPECIAL.sub(lambda match: f"&#{ord(match[0])};", text).replace("_", "&#95;")


def _format_grid(grid: Grid) -> list[str]:
    rows = [[*map(_quote, row[: grid.texts]), *map(_escape, row[grid.texts :])] for row in grid.rows]
    titles = [_quote(title) for title in grid.titles]
    rule = [*(["---"] * grid.texts), *(["---:"] * (len(titles) - grid.texts))]
    table = "\n".join(f"| {' | '.join(row)} |" for row in (titles, rule, *rows))
    return [f"{grid.caption}:", table, *grid.below]
