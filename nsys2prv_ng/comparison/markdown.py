"""Formats a comparison as Markdown, for a merge request. Names from reports cannot become markup in it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from nsys2prv_ng.comparison.content import list_grids
from nsys2prv_ng.comparison.model import ComparisonNumbers
from nsys2prv_ng.comparison.scaling import tabulate_scaling
from nsys2prv_ng.comparison.sentences import LabelledLine, list_findings, list_lines, state_scaling
from nsys2prv_ng.text.grid import Grid
from nsys2prv_ng.text.names import clean_name

_SPECIAL = re.compile(r"[^\w .,:;/%+=?-]")


def format_markdown(comparison: ComparisonNumbers, *, shows_details: bool = False, shows_all: bool = False) -> str:
    """Return the labelled lines and the parts of all pairs.

    `shows_details`: with all tables. `shows_all`: with all tables, and with rows that differ by noise only.
    """
    shows_details = shows_details or shows_all
    blocks: list[str] = []
    for number, pair in enumerate(comparison.pairs):
        # Findings are on all sides.
        findings = [] if number else list_findings(comparison.comparability, _quote)
        (label, verdict), *lines = list_lines(pair, _quote, findings)
        blocks += [f"**{label}** {verdict}", _format_lines(lines)]
        grids = list_grids(pair, _quote, shows_details=shows_details, shows_all=shows_all)
        blocks += [block for grid in grids for block in _format_grid(grid)]
    if comparison.scaling is not None:
        blocks.append(_format_lines([state_scaling(comparison.scaling, _quote)]))
        if shows_details:
            blocks += _format_grid(tabulate_scaling(comparison.scaling, _quote))
            blocks += map(_escape, comparison.scaling.notes)
    return "\n\n".join(blocks)


def _format_lines(lines: Sequence[LabelledLine]) -> str:
    return "\n".join(f"- **{label}** {text}" for label, text in lines)


def _quote(name: str) -> str:
    """Return a name as code, in which mentions of people and links have no effect."""
    return f"<code>{_escape(clean_name(name))}</code>" if name else ""


def _escape(text: str) -> str:
    """Return a text in which entities replace all characters with a meaning in Markdown or HTML."""
    return _SPECIAL.sub(lambda match: f"&#{ord(match[0])};", text).replace("_", "&#95;")


def _format_grid(grid: Grid) -> list[str]:
    numbers = grid.list_columns(grid.rows, wide=False)
    names = sum(number < grid.names for number in numbers)
    texts = [[str(row[number]) for number in numbers] for row in grid.rows]
    rows = [[*map(_quote, row[:names]), *map(_escape, row[names:])] for row in texts]
    titles = [_quote(grid.columns[number].title) for number in numbers]
    rule = [*(["---"] * names), *(["---:"] * (len(titles) - names))]
    table = "\n".join(f"| {' | '.join(row)} |" for row in (titles, rule, *rows))
    return [f"{grid.caption}:", table, *grid.below]
