"""The comparison that users get: the numbers, and the text of a terminal, a job log and a notebook.

Each line of the answer starts with a label, so that `grep -E '^(FASTER|SLOWER|NO DIFFERENCE|INCONCLUSIVE)'` finds the
verdicts in a log.
"""

from __future__ import annotations

from dataclasses import replace
from html import escape

from nsys2prv_ng.comparison.content import CLASS, COUNT, ROOMY, SIZE, list_grids
from nsys2prv_ng.comparison.model import ComparisonNumbers
from nsys2prv_ng.comparison.scaling import format_scaling
from nsys2prv_ng.comparison.sentences import list_findings, list_lines, state_scaling
from nsys2prv_ng.light_dataclass import dataclass
from nsys2prv_ng.text.grid import Grid
from nsys2prv_ng.text.layout import FILES, PLAIN, TABLES, WIDTH, Style, choose_width, format_grid, format_labelled
from nsys2prv_ng.text.names import clean_name, quote_name
from nsys2prv_ng.text.tables import cut_names

_LABEL = 40
"""Most characters of the name of a run."""


@dataclass(frozen=True, repr=False)
class Comparison(ComparisonNumbers):
    """A comparison of runs, as `compare` returns it: each later run with the first."""

    def __repr__(self) -> str:
        """Return one line with the verdicts: all numbers are a hundred thousand characters."""
        labels = [self.pairs[0].a.label, *(pair.b.label for pair in self.pairs)]
        first, *others = map(clean_name, cut_names(labels, _LABEL))
        verdicts = [f"{name} {pair.verdict.kind}" for name, pair in zip(others, self.pairs, strict=True)]
        return f"<{type(self).__name__} with {first}: {', '.join(verdicts)}>"

    def __str__(self) -> str:
        """Return the text that `nsys2prv-ng compare` prints."""
        return format_comparison(self, WIDTH)

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        return f"<pre>{escape(str(self))}</pre>"


_COLUMN = 14
"""Where texts start: after the longest label and a blank."""


def format_comparison(
    comparison: ComparisonNumbers,
    width: int | None = None,
    *,
    shows_details: bool = False,
    shows_all: bool = False,
    style: Style = PLAIN,
) -> str:
    """Return the labelled lines and the parts of all pairs, at most `width` columns wide; None: as the terminal.

    `shows_details`: with all tables. `shows_all`: with all tables, and with rows that differ by noise only.
    """
    width = choose_width() if width is None else width
    shows_details = shows_details or shows_all
    sections: list[list[str]] = []
    for number, pair in enumerate(comparison.pairs):
        # Findings are on all sides.
        findings = [] if number else list_findings(comparison.comparability, str)
        sections.append(format_labelled(list_lines(pair, quote_name, findings), min(width, WIDTH), style, _COLUMN))
        grids = list_grids(pair, quote_name, width, shows_details=shows_details, shows_all=shows_all)
        sections += [format_grid(_narrow(grid, width), width, None) for grid in grids]
    if comparison.scaling is not None:
        sections.append(
            format_labelled([state_scaling(comparison.scaling, quote_name)], min(width, WIDTH), style, _COLUMN)
        )
        sections += [format_scaling(comparison.scaling, width)] if shows_details else []
    sections.append([FILES if shows_details else f"{TABLES}   {FILES}"])
    return "\n\n".join("\n".join(lines) for lines in sections if lines)


def _narrow(grid: Grid, width: int) -> Grid:
    """Return a grid without the columns that a narrow terminal has no room for."""
    if width >= ROOMY:
        return grid
    kept = [number for number, column in enumerate(grid.columns) if column.title not in (COUNT, SIZE, CLASS)]
    rows = [[row[number] for number in kept] for row in grid.rows]
    return replace(grid, columns=[grid.columns[number] for number in kept], rows=rows, names=1)
