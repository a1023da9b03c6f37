"""The comparison that users get: the numbers, the text of a terminal, a job log and a notebook, and Markdown.

Each line of the answer starts with a label, so that `grep -E '^(FASTER|SLOWER|NO DIFFERENCE|INCONCLUSIVE)'` finds the
verdicts in a log.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from nsys2prv_ng.comparison.content import CLASS, COUNT, ROOMY, SIZE, list_grids
from nsys2prv_ng.comparison.gate import Ruling, judge_runs
from nsys2prv_ng.comparison.model import ComparisonNumbers, Table
from nsys2prv_ng.comparison.scaling import format_scaling, tabulate_scaling
from nsys2prv_ng.comparison.sentences import (
    LabelledLine,
    list_findings,
    list_lines,
    state_history,
    state_scaling,
    tabulate_history,
)
from nsys2prv_ng.grouping import group_by_key
from nsys2prv_ng.summary.difference.budget import BudgetRow
from nsys2prv_ng.text.formatting import cut_names
from nsys2prv_ng.text.grid import Bytes, Cell, Column, Grid, Name, Ns, NsChange, Ordinal, Score, tabulate
from nsys2prv_ng.text.layout import FILES, PLAIN, TABLES, WIDTH, Style, choose_width, format_grid, format_labelled
from nsys2prv_ng.text.names import clean_name, quote_name
from nsys2prv_ng.text.results import Tabular

_LABEL = 40
"""Most characters of the name of a run."""


class Comparison(ComparisonNumbers, Tabular):
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

    def judge(self, limit: float) -> list[Ruling]:
        """Return for each later run whether it is slower by `limit`, a share of the step (`compare --fail-over`)."""
        return judge_runs(self, limit)

    def tabulate(self) -> dict[str, Grid]:
        """Return the parts of the difference, and the other tables by key: a row for each run and quantity."""
        parts = [(pair.b.label, row) for pair in self.pairs for row in pair.rows]
        columns: list[tuple[str | Column, Callable[[tuple[str, BudgetRow]], Cell]]] = [
            ("run", lambda part: Name(part[0])),
            ("name", lambda part: Name(part[1].name)),
            ("a", lambda part: Ns(part[1].a_ns)),
            ("b", lambda part: Ns(part[1].b_ns)),
            ("difference", lambda part: NsChange(part[1].difference_ns)),
            ("p", lambda part: Score(part[1].p)),
            ("differs", lambda part: Ordinal(int(part[1].differs))),
        ]
        found = group_by_key((table.key, (pair.b.label, table)) for pair in self.pairs for table in pair.tables)
        return {"parts": tabulate(parts, columns)} | {key: _tabulate(tables) for key, tables in found.items()}

    def _list_lines(self) -> list[LabelledLine]:
        findings = list_findings(self.comparability, quote_name)  # on all sides
        pairs = enumerate(self.pairs)
        return [line for n, pair in pairs for line in list_lines(pair, quote_name, [] if n else findings)]

    def _list_shown(self) -> list[Grid]:
        grids = (list_grids(pair, quote_name, shows_details=False, shows_all=False) for pair in self.pairs)
        return [grid for of_pair in grids for grid in of_pair]


_CELLS: Mapping[str, Callable[[float | None], Cell]] = {"ns": Ns, "bytes": Bytes}
"""The cell of a value, by the unit of its table; other values have no unit."""


def _tabulate(tables: Sequence[tuple[str, Table]]) -> Grid:
    """Return the rows of a table of several runs, each with the label of its run."""
    return tabulate(
        [(label, table.unit, row) for label, table in tables for row in table.rows],
        [
            ("run", lambda each: Name(each[0])),
            ("name", lambda each: Name(each[2].name)),
            ("class", lambda each: Name(each[2].detail)),
            ("a", lambda each: _CELLS.get(each[1], Score)(each[2].a)),
            ("b", lambda each: _CELLS.get(each[1], Score)(each[2].b)),
            ("count a", lambda each: Score(each[2].count_a)),
            ("count b", lambda each: Score(each[2].count_b)),
            ("size a", lambda each: Bytes(each[2].bytes_a)),
            ("size b", lambda each: Bytes(each[2].bytes_b)),
            ("differs", lambda each: Ordinal(int(each[2].differs))),
        ],
    )


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
    if comparison.history is not None:
        line = state_history(comparison.history, quote_name)
        sections.append(format_labelled([line], min(width, WIDTH), style, _COLUMN))
        grid = tabulate_history(comparison.history)
        sections += [format_grid(grid, width, None)] if shows_details else []
    if comparison.scaling is not None:
        line = state_scaling(comparison.scaling, quote_name)
        sections.append(format_labelled([line], min(width, WIDTH), style, _COLUMN))
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
    if comparison.history is not None:
        blocks.append(_format_lines([state_history(comparison.history, _quote)]))
        blocks += _format_grid(tabulate_history(comparison.history))
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
