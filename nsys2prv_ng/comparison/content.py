"""Makes the tables of a comparison; result.py and pages lay them out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from nsys2prv_ng.comparison import sentences
from nsys2prv_ng.comparison.model import Pair, Table, TableRow
from nsys2prv_ng.summary.difference.budget import BudgetRow
from nsys2prv_ng.text.formatting import (
    count_noun,
    cut_names,
    format_bytes,
    format_change,
    format_difference,
    format_time,
)
from nsys2prv_ng.text.grid import Cell, Column, Grid, Name, make_columns
from nsys2prv_ng.text.layout import MOST_ROWS, WIDTH

MOST_NAMES = 3
"""Most names of a list in a sentence."""
ROOMY = 80
"""Columns of a terminal that has room for all columns of a table."""
_LABEL, _SHORT_LABEL = 14, 9
"""Most characters of a label at the head of a column, and on terminals with little room."""
_MOST_PARTS = 6
"""Most parts of the difference beside the sum of the smaller ones, without details."""
COUNT, SIZE, CLASS = "count", "size", "class"
"""Columns that narrow terminals have no room for."""
_PERCENT = "[%]"


def list_grids(
    pair: Pair, quote: Callable[[str], str], width: int = WIDTH, *, shows_details: bool, shows_all: bool
) -> list[Grid]:
    """Return the table of the largest parts; with `shows_details` of all that differ, and all other tables.

    `width`: columns of the terminal. `shows_all`: with the rows that differ by noise only.
    """
    names = [pair.a.label, pair.b.label]
    labels = cut_names(names, _LABEL if width >= ROOMY else _SHORT_LABEL)
    most = None if shows_details else _MOST_PARTS
    grids = [lay_out_parts(pair, labels, most, shows_all=shows_all)] if pair.rows[:-1] else []
    if shows_details:
        labels = cut_names(names, _LABEL if width >= WIDTH else _SHORT_LABEL)
        grids += [_lay_out_some(table, pair, labels, quote, shows_all=shows_all) for table in pair.tables]
    return [grid for grid in grids if grid.rows]


# ---- parts -----------------------------------------------------------------------------------------------------------


def list_parts(pair: Pair, most: int | None = None, *, shows_all: bool) -> list[BudgetRow]:
    """Return the rows that add up to the difference, then the total: larger parts, the sum of smaller ones, the rest.

    `most`: the number of larger parts; None: all that differ. `shows_all`: all parts are larger ones.
    """
    *parts, rest = pair.rows
    rows = [row for row in parts if shows_all or sentences.is_shown(row, pair)][:most]
    hidden = [row for row in parts if row not in rows]
    if hidden:
        a_ns, b_ns = sum(row.a_ns for row in hidden), sum(row.b_ns for row in hidden)
        rows.append(BudgetRow(count_noun(len(hidden), "smaller part"), a_ns, b_ns, b_ns - a_ns, None, False))
    if rest.a_ns or rest.b_ns:
        rows.append(rest)
    verdict = pair.verdict
    name = f"{verdict.average} step" if verdict.measure == "step" else "capture"
    differs = verdict.kind in ("faster", "slower")
    return [*rows, BudgetRow(name, verdict.a_ns, verdict.b_ns, pair.difference_ns, verdict.p, differs)]


def lay_out_parts(pair: Pair, labels: Sequence[str], most: int | None = None, *, shows_all: bool) -> Grid:
    """Return the parts of the difference: the rows of `list_parts`, which add up."""
    span = "step" if pair.verdict.measure == "step" else "capture"
    rows = [_lay_out_part(row, pair.verdict.a_ns) for row in list_parts(pair, most, shows_all=shows_all)]
    caption = f"Mean time per {pair.unit} and {span}" if pair.unit else f"Mean time per {span}"
    caption += ", p of a Mann-Whitney rank test" if pair.verdict.p is not None else ""
    caption += ", of the mean step of a permutation test" if pair.verdict.average == "mean" else ""
    columns = make_columns("part", *labels, "change", f"of {span}", Column("p", optional=True))
    return Grid(caption=caption, columns=columns, rows=rows)


def _lay_out_part(row: BudgetRow, whole: int) -> list[Cell]:
    """Return the cells of a part. `whole`: the step of the first side (ns), of which its change is a share."""
    share = format_change(row.difference_ns / whole if whole else None)
    times = [format_time(row.a_ns), format_time(row.b_ns), format_difference(row.difference_ns)]
    return [Name(row.name), *times, share, "" if row.p is None else sentences.format_p(row.p)]


# ---- other tables ----------------------------------------------------------------------------------------------------


def _lay_out_some(
    table: Table, pair: Pair, labels: Sequence[str], quote: Callable[[str], str], *, shows_all: bool
) -> Grid:
    """Return the grid of a table with its first rows that differ. `shows_all`: with all rows and all names."""
    rows = [row for row in table.rows if row.differs or shows_all]
    if shows_all:
        return lay_out_table(table, rows, pair, labels, quote)
    grid = lay_out_table(table, rows[:MOST_ROWS], pair, labels, quote, most_names=MOST_NAMES)
    more = [f"and {len(rows) - MOST_ROWS:,} more that differ"] if len(rows) > MOST_ROWS else []
    return replace(grid, below=[*grid.below, *more])


def lay_out_table(
    table: Table,
    shown: Sequence[TableRow],
    pair: Pair,
    labels: Sequence[str],
    quote: Callable[[str], str],
    most_names: int | None = None,
) -> Grid:
    """Return the grid of some rows of a table, with the columns that these rows fill.

    `labels`: of both sides, at the heads of columns. `most_names`: most names that are listed of the names that only
    one side has; None: all names.
    """
    titles: list[str | Column] = ["", Column(CLASS, optional=True), *labels, "change"]
    titles += [] if table.unit == "ratio" else ["relative"]
    titles += [Column(COUNT, optional=True), Column(SIZE, optional=True)]
    rows: list[list[Cell]] = []
    for row in shown:
        count = sentences.join_values(sentences.format_count(row.count_a), sentences.format_count(row.count_b))
        size = sentences.join_values(format_bytes(row.bytes_a), format_bytes(row.bytes_b))
        more = ["" if text == "-" else text for text in (count, size)]
        rows.append([Name(row.name), Name(row.detail), *_lay_out_values(row, table.unit), *more])
    below = [text for row in shown for text in _list_names(row, pair, quote, most_names)]
    return Grid(caption=table.title, columns=make_columns(*titles), rows=rows, names=2, below=below)


def _lay_out_values(row: TableRow, unit: str) -> list[str]:
    """Return the values of both sides, their difference, and the relative change; no such change of shares."""
    a, b = row.a, row.b
    texts = [sentences.format_value(a, unit), sentences.format_value(b, unit)]
    if a is None or b is None:
        only = "new" if a is None else "gone"
        return [*texts, only, *([] if unit == "ratio" else [""])]
    texts.append(sentences.format_value_difference(b - a, "%" if row.name.endswith(_PERCENT) else unit))
    return texts if unit == "ratio" else [*texts, format_change((b - a) / a if a else None)]


def _list_names(row: TableRow, pair: Pair, quote: Callable[[str], str], most_names: int | None) -> list[str]:
    """Return a sentence for each side that lists the names in a row that only this side has."""
    texts = []
    for label, names in ((pair.a.label, row.only_a), (pair.b.label, row.only_b)):
        shown = names[:most_names]
        more = f" and {len(names) - len(shown):,} more" if len(names) > len(shown) else ""
        texts += [f"{quote(row.name)} only in {quote(label)}: {', '.join(map(quote, shown))}{more}"] if names else []
    return texts
