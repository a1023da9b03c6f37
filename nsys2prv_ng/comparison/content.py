"""Makes the sentences and tables of a comparison; text.py, markdown.py and pages lay them out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from nsys2prv_ng.comparison.budget import HOST_LATE, LEAST
from nsys2prv_ng.comparison.model import BudgetRow, Change, Pair, SideNumbers, Table, TableRow
from nsys2prv_ng.comparison.statistics import FEWEST, LEVEL, NOISE
from nsys2prv_ng.text.formatting import count_noun, format_bytes, format_percent, format_time
from nsys2prv_ng.text.grid import Bytes, Cell, Column, Grid, Name, make_columns
from nsys2prv_ng.text.layout import MOST_ROWS
from nsys2prv_ng.text.tables import cut_middle, cut_names

Quote = Callable[[str], str]
"""A function that makes a name from a report part of a sentence."""
_MOST_CAUSES = 3
_ALL_THE_SAME = "Parts that differ all the same"
_MOST = 0.5
"""Least share of the difference at which some rows are most of it."""
MOST_NAMES = 3
"""Most names of a list in a sentence."""
_FACTOR = 10
"""Least change at which a factor is easier to read than a percentage."""
_NAME = 60
"""Most characters of the name of what changed."""
_LABEL = 14
"""Most characters of a label at the head of a column."""


def describe_pair(pair: Pair, quote: Quote, *, shows_all: bool) -> tuple[list[str], list[Grid]]:
    """Return the paragraphs and the tables of two sides. `shows_all`: with the rows that differ by noise only."""
    paragraphs = [state_verdict(pair, quote), *list_sentences(pair, quote)]
    labels = cut_names([pair.a.label, pair.b.label], _LABEL)
    grids = [lay_out_parts(pair, labels, shows_all=shows_all)] if pair.rows[:-1] else []
    grids += [_lay_out_some(table, pair, quote, shows_all=shows_all) for table in pair.tables]
    return paragraphs, [grid for grid in grids if grid.rows]


def list_sentences(pair: Pair, quote: Quote, *, with_sides: bool = True) -> list[str]:
    """Return the sentences that follow the verdict, and the notes. `with_sides`: with the one on what A and B are."""
    sentences = [
        state_units(pair, quote),
        state_changes(pair, quote),
        describe_sides(pair, quote) if with_sides else "",
        state_causes(pair, quote),
        state_prediction(pair, quote),
        *(f"Note: {note}" for note in pair.notes),
    ]
    return [text for text in sentences if text]


def has_times(pair: Pair) -> bool:
    """Return whether the times of both sides cover the same: steps, or all the time that was read."""
    return pair.verdict.measure == "step" or not (pair.a.per_step or pair.b.per_step)


def list_parts(pair: Pair, *, shows_all: bool) -> list[BudgetRow]:
    """Return the rows that add up to the difference, then the total: larger parts, the sum of smaller ones, the rest.

    `shows_all`: with all parts instead of a sum of the smaller ones.
    """
    *parts, rest = pair.rows
    rows = [row for row in parts if shows_all or _is_shown(row, pair)]
    hidden = [row for row in parts if row not in rows]
    if hidden:
        a_ns, b_ns = sum(row.a_ns for row in hidden), sum(row.b_ns for row in hidden)
        rows.append(BudgetRow(count_noun(len(hidden), "smaller part"), a_ns, b_ns, b_ns - a_ns, None, False))
    if rest.a_ns or rest.b_ns:
        rows.append(rest)
    verdict = pair.verdict
    name = "median step" if verdict.measure == "step" else "capture"
    differs = verdict.kind in ("faster", "slower")
    return [*rows, BudgetRow(name, verdict.a_ns, verdict.b_ns, pair.difference_ns, verdict.p, differs)]


# ---- sentences -------------------------------------------------------------------------------------------------------


def state_verdict(pair: Pair, quote: Quote) -> str:
    """Return a sentence on whether b is faster than a, without a full stop, as all sentences here."""
    verdict = pair.verdict
    a, b = quote(pair.a.label), quote(pair.b.label)
    what = "the time that was read"
    if not has_times(pair):
        return f"Inconclusive, {_explain_doubt(pair)}: no times can be compared"
    if verdict.measure == "step":
        what = quote(pair.a.step_name or "step")
    within = _describe_samples(pair)
    times = f"{what} takes {format_time(verdict.b_ns)} instead of {format_time(verdict.a_ns)}"
    times += f" ({format_difference(verdict.difference_ns)}, {format_change(verdict.change)}"
    times += ")" if verdict.p is None else f", p {state_p(verdict.p)})"
    if verdict.kind in ("faster", "slower"):
        return f"{b} is {verdict.kind} than {a}, {within}: {times}"
    if verdict.kind == "below noise":
        limit = format_percent(NOISE, 1)
        return f"{b} and {a} hardly differ: {times}, which is below {limit} and may be noise between captures"
    if verdict.kind == "no difference":
        return f"No significant difference between {a} and {b} {within}: {times}"
    return f"Inconclusive, {_explain_doubt(pair)}: {times}{_state_ranges(pair)}"


def _describe_samples(pair: Pair) -> str:
    """Return within what the verdict holds."""
    if pair.verdict.samples == "steps":
        return "within these captures"
    return f"over {len(pair.a.captures)} and {len(pair.b.captures)} captures"


def _explain_doubt(pair: Pair) -> str:
    if pair.verdict.measure == "capture" and pair.a.step_ns and pair.b.step_ns:
        return "as the steps of the runs are not the same"
    if pair.verdict.measure == "capture":
        lacking = "on both sides" if not (pair.a.step_ns or pair.b.step_ns) else "on one side"
        return f"as no steps were found {lacking}, and a capture is one value"
    if pair.verdict.samples == "captures":
        counts = f"{len(pair.a.captures)} and {count_noun(len(pair.b.captures), 'capture')}"
        return f"with {counts}, where p < {LEVEL} needs at least {FEWEST} a side (Mann-Whitney)"
    return f"with {len(pair.a.step_ns)} and {len(pair.b.step_ns)} steps, where at least {FEWEST} a side are needed"


def _state_ranges(pair: Pair) -> str:
    """Return whether the captures of the sides overlap, if there are several."""
    a, b = (
        [each.step_median_ns for each in side.captures if each.step_median_ns is not None] for side in (pair.a, pair.b)
    )
    if pair.verdict.samples == "steps" or pair.verdict.measure == "capture" or not a or not b:
        return ""
    if max(b) < min(a) or max(a) < min(b):
        return f". Every capture of B is {'faster' if max(b) < min(a) else 'slower'} than all of A"
    return ". The captures of A and B overlap"


def state_units(pair: Pair, quote: Quote) -> str:
    """Return a sentence on the time of a unit of work; "" if a step has equally many on both sides."""
    units, verdict = pair.units, pair.verdict
    if units is None:
        return ""
    name = quote(units.range)
    return (
        f"A step of {quote(pair.b.label)} has {units.count_b:,} {name}, of {quote(pair.a.label)} {units.count_a:,}:"
        f" {format_change(verdict.change)} a step, {format_change(units.change)} per {name}"
        f" ({format_time(units.b_ns)} instead of {format_time(units.a_ns)})"
    )


def state_changes(pair: Pair, quote: Quote) -> str:
    """Return a sentence on the ranges, calls, kernels and transfers that changed most; "" if nothing exceeds noise."""
    if not pair.changes:
        return ""
    return f"What changed most: {'; '.join(_describe_change(change, pair, quote) for change in pair.changes)}"


def _describe_change(change: Change, pair: Pair, quote: Quote) -> str:
    name = quote(cut_middle(change.name, _NAME))
    where = f"on rank {change.rank}" if change.rank is not None else f"and {change.per}"
    only = f", only in {quote((pair.a if change.only == 'A' else pair.b).label)}" if change.only else ""
    return f"{change.kind} {name} {format_difference(change.difference_ns)} a step {where}{only}"


def describe_sides(pair: Pair, quote: Quote) -> str:
    """Return a sentence on what A and B are, with the confidence limits of their medians."""
    sides = ", ".join(
        f"{letter} is {_describe_side(side, quote)}" for letter, side in zip("AB", (pair.a, pair.b), strict=True)
    )
    if pair.verdict.p is None:
        return sides
    independent = "Steps count as independent" if pair.verdict.samples == "steps" else "Captures are the samples"
    return f"{sides}; p of a rank test (Mann-Whitney). {independent}"


def _describe_side(side: SideNumbers, quote: Quote) -> str:
    text = f"{quote(side.label)} ({count_noun(side.gpus, 'GPU')}, {count_noun(side.ranks, 'rank')}"
    medians = [each.step_median_ns for each in side.captures if each.step_median_ns is not None]
    if side.step_median_ns is not None and len(side.captures) > 1:
        text += f", median of {count_noun(len(medians), 'capture')} {format_time(side.step_median_ns)}"
        text += f", from {format_time(min(medians))} to {format_time(max(medians))}"
    elif side.step_median_ns is not None:
        text += f", median of {count_noun(len(side.step_ns), 'step')} {format_time(side.step_median_ns)}"
    if side.step_median_low_ns is not None and side.step_median_high_ns is not None:
        text += f", within {format_time(side.step_median_low_ns)} to {format_time(side.step_median_high_ns)} at 95%"
    return f"{text})"


def state_causes(pair: Pair, quote: Quote) -> str:
    """Return a sentence on the largest parts of the difference, or on the parts that differ if the sides do not.

    It is "" without such parts.
    """
    if pair.verdict.kind == "no difference":
        rows, text = [row for row in pair.rows[:-1] if row.differs], _ALL_THE_SAME
        # Some of many parts differ by chance.
        rows = [row for row in rows if abs(row.difference_ns) >= NOISE * pair.verdict.a_ns]
    else:
        rows = [row for row in pair.rows[:-1] if _is_shown(row, pair) and row.difference_ns * pair.difference_ns > 0]
        listed = sum(row.difference_ns for row in rows[:_MOST_CAUSES])
        text = "Most of it" if abs(listed) >= _MOST * abs(pair.difference_ns) else "Largest parts of it"
    clauses = [_describe_part(row, pair, quote) for row in rows[:_MOST_CAUSES]]
    if not clauses:
        return ""
    if text == _ALL_THE_SAME:
        return f"{text}: {', '.join(clauses)}"
    others = [row for row in pair.rows[:-1] if row.differs and row not in rows]
    against = ", ".join(_describe_part(row, pair, quote) for row in others[:_MOST_CAUSES])
    return f"{text}: {', '.join(clauses)}" + (f"; against it: {against}" if against else "")


def state_prediction(pair: Pair, quote: Quote) -> str:
    """Return a sentence on what a replay of the slower side predicts, beside how much faster the other one is."""
    if pair.prediction is None:
        return ""
    slower, change = quote(pair.prediction.label), quote(pair.prediction.change)
    saving = format_time(pair.prediction.saving_ns)
    faster = quote(pair.b.label if pair.prediction.label == pair.a.label else pair.a.label)
    difference = format_time(abs(pair.verdict.difference_ns))
    return f"In {slower}, {change} would save about {saving} a step; {faster} takes {difference} less"


def _describe_part(row: BudgetRow, pair: Pair, quote: Quote) -> str:
    text = f"{_quote_class(row.name, quote)} {format_difference(row.difference_ns)}"
    if row.name == HOST_LATE and pair.cause:
        text += f" (mostly in {quote(pair.cause)})"
    return text if row.differs or row.p is None else f"{text} (p {state_p(row.p)}, perhaps chance)"


def _quote_class(name: str, quote: Quote) -> str:
    """Return the name of a part, with its kernel class quoted: class names may come from files of others."""
    part, colon, kind = name.partition(": ")
    return f"{part}: {quote(kind)}" if colon else part


# ---- grids -----------------------------------------------------------------------------------------------------------


def lay_out_parts(pair: Pair, labels: Sequence[str], *, shows_all: bool) -> Grid:
    """Return the parts of the difference: the rows of `list_parts`, which add up."""
    is_step = pair.verdict.measure == "step"
    rows = [_lay_out_part(row, pair.verdict.a_ns) for row in list_parts(pair, shows_all=shows_all)]
    caption = "Where the difference is"
    if pair.unit:
        caption += f": time of a {pair.unit} in {'a step, mean of all' if is_step else 'the capture'}"
    caption += f" (change of the {'step' if is_step else 'capture'}"
    if not shows_all:
        caption += f"; parts from {format_percent(NOISE, 1)} of it on"
        caption += f", with p < {LEVEL} from {format_percent(LEAST, 1)} on" if pair.verdict.p is not None else ""
    caption += ")"
    columns = make_columns("", *labels, "difference", "change", Column("p", optional=True))
    return Grid(caption=caption, columns=columns, rows=rows)


def _is_shown(row: BudgetRow, pair: Pair) -> bool:
    """Return whether a part differs, or is so large that readers must see it and its p."""
    return row.differs or abs(row.difference_ns) >= NOISE * pair.verdict.a_ns


def _lay_out_part(row: BudgetRow, whole: int) -> list[Cell]:
    change = format_change(row.difference_ns / whole if whole else None)
    times = [format_signed(ns) for ns in (row.a_ns, row.b_ns)]
    return [
        Name(row.name),
        *times,
        format_difference(row.difference_ns),
        change,
        "" if row.p is None else format_p(row.p),
    ]


def _lay_out_some(table: Table, pair: Pair, quote: Quote, *, shows_all: bool) -> Grid:
    """Return the grid of a table with its first rows that differ. `shows_all`: with all rows and all names."""
    rows = [row for row in table.rows if row.differs or shows_all]
    if shows_all:
        return lay_out_table(table, rows, pair, quote)
    grid = lay_out_table(table, rows[:MOST_ROWS], pair, quote, most_names=MOST_NAMES)
    more = [f"and {len(rows) - MOST_ROWS:,} more that differ"] if len(rows) > MOST_ROWS else []
    return replace(grid, below=[*grid.below, *more])


def lay_out_table(
    table: Table, shown: Sequence[TableRow], pair: Pair, quote: Quote, most_names: int | None = None
) -> Grid:
    """Return the grid of some rows of a table, with the columns that these rows fill.

    `most_names`: most names that are listed of the names that only one side has; None: all names.
    """
    titles: list[str | Column] = ["", Column("class", optional=True), "A", "B", "difference"]
    titles += [] if table.unit == "ratio" else ["change"]
    counts = any(row.count_a is not None or row.count_b is not None for row in shown)
    sizes = any(row.bytes_a is not None or row.bytes_b is not None for row in shown)
    titles += ["count A", "count B"] if counts else []
    titles += ["size A", "size B"] if sizes else []
    rows: list[list[Cell]] = []
    for row in shown:
        cells: list[Cell] = [Name(row.name), Name(row.detail), *_lay_out_values(row, table.unit)]
        cells += [format_count(row.count_a), format_count(row.count_b)] if counts else []
        cells += [Bytes(row.bytes_a), Bytes(row.bytes_b)] if sizes else []
        rows.append(cells)
    below = [text for row in shown for text in _list_names(row, pair, quote, most_names)]
    return Grid(caption=table.title, columns=make_columns(*titles), rows=rows, names=2, below=below)


def _lay_out_values(row: TableRow, unit: str) -> list[str]:
    a, b = row.a, row.b
    if a is None or b is None:
        only = f"only {'B' if a is None else 'A'}"
        return [format_value(a, unit), format_value(b, unit), only, *([] if unit == "ratio" else [""])]
    change = b - a
    sign = "+" if change > 0 else "-" if change < 0 else ""
    texts = [format_value(a, unit), format_value(b, unit), f"{sign}{format_value(abs(change), unit)}"]
    return texts if unit == "ratio" else [*texts, format_change(change / a if a else None)]


def _list_names(row: TableRow, pair: Pair, quote: Quote, most_names: int | None) -> list[str]:
    """Return a sentence for each side that lists the names in a row that only this side has."""
    texts = []
    for label, names in ((pair.a.label, row.only_a), (pair.b.label, row.only_b)):
        most = len(names) if most_names is None else most_names
        listed = ", ".join(map(quote, names[:most])) + (f" and {len(names) - most:,} more" if len(names) > most else "")
        texts += [f"{quote(row.name)} only in {quote(label)}: {listed}"] if names else []
    return texts


# ---- numbers ---------------------------------------------------------------------------------------------------------


def format_difference(ns: float) -> str:
    """Return a time (ns) with its sign."""
    return f"{'+' if ns > 0 else ''}{format_signed(ns)}"


def format_signed(ns: float) -> str:
    """Return a time (ns), with its sign if it is negative."""
    return f"-{format_time(-ns)}" if ns < 0 else format_time(ns)


def format_change(change: float | None) -> str:
    """Return a relative change as a signed percentage, or as a factor if it is large; a dash for None."""
    if change is None:
        return "-"
    return f"{100 * change:+.1f}%" if change < _FACTOR else f"x {change + 1:,.0f}"


def format_p(p: float) -> str:
    """Return a probability as a table shows it."""
    return f"{p:.3f}" if p >= 0.001 else "<0.001"


def state_p(p: float) -> str:
    """Return p as the rest of a sentence."""
    text = format_p(p)
    return f"< {text[1:]}" if text.startswith("<") else f"= {text}"


def format_value(value: float | None, unit: str) -> str:
    """Return a quantity of a table in its unit; a dash for None."""
    if value is None:
        return "-"
    if unit == "ns":
        return format_time(value)
    if unit == "bytes":
        return format_bytes(value)
    return format_percent(value, 1) if unit == "ratio" else f"{value:,.4g}"


def format_count(count: float | None) -> str:
    """Return a count, with one decimal if it is not an integer; a dash for None."""
    return "-" if count is None else f"{count:,.0f}" if abs(count - round(count)) < 0.05 else f"{count:,.1f}"
