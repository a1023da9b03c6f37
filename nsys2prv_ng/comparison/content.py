"""What a comparison says, as paragraphs and grids of text; text.py and markdown.py lay them out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from nsys2prv_ng.comparison.budget import HOST_LATE, LEAST
from nsys2prv_ng.comparison.model import BudgetRow, Pair, SideNumbers, Table, TableRow
from nsys2prv_ng.comparison.statistics import FEWEST, LEVEL, NOISE
from nsys2prv_ng.summary.layout import MOST_ROWS, format_percent
from nsys2prv_ng.text.formatting import count_noun, format_bytes, format_time
from nsys2prv_ng.text.tables import cut_names

Quote = Callable[[str], str]
"""Makes a name from a report part of a sentence."""
_MOST_CAUSES = 3
_ALL_THE_SAME = "Parts that differ all the same"
_MOST = 0.5
"""Part of the difference from which some rows are most of it."""
_MOST_NAMES = 3
_FACTOR = 10
"""Change from which the ratio says more."""
_LABEL = 14
"""Characters of a label at the head of a column."""


@dataclass(frozen=True)
class Grid:
    """A table: `texts` columns of its rows hold names, which the layout cleans or escapes."""

    caption: str
    titles: list[str]
    rows: list[list[str]]
    texts: int = 1
    below: list[str] = field(default_factory=list)
    """Lines under it."""


def describe_pair(pair: Pair, quote: Quote, *, shows_all: bool) -> tuple[list[str], list[Grid]]:
    """Return the paragraphs and the tables of two sides. `shows_all`: also the rows that differ by noise only."""
    paragraphs = [_state_verdict(pair, quote), _describe_sides(pair, quote), _state_causes(pair, quote)]
    paragraphs += [f"Note: {note}" for note in pair.notes]
    labels = cut_names([pair.a.label, pair.b.label], _LABEL)
    grids = [_lay_out_budget(pair, labels, shows_all=shows_all)]
    grids += [_lay_out_table(table, pair, quote, shows_all=shows_all) for table in pair.tables]
    return [text for text in paragraphs if text], [grid for grid in grids if grid.rows]


# ---- sentences -------------------------------------------------------------------------------------------------------


def _state_verdict(pair: Pair, quote: Quote) -> str:
    verdict = pair.verdict
    a, b = quote(pair.a.label), quote(pair.b.label)
    what = "the time that was read"
    if verdict.measure == "capture" and (pair.a.per_step or pair.b.per_step):
        return f"Inconclusive, {_say_what_lacks(pair)}: no times can be compared"
    if verdict.measure == "step":
        what = quote(pair.a.step_name or "step")
    times = f"{what} takes {format_time(verdict.b_ns)} instead of {format_time(verdict.a_ns)}"
    times += f" ({_format_difference(verdict.difference_ns)}, {_format_change(verdict.change)}"
    times += ")" if verdict.p is None else f", p {_state_p(verdict.p)})"
    if verdict.kind in ("faster", "slower"):
        return f"{b} is {verdict.kind} than {a}, within these captures: {times}"
    if verdict.kind == "below noise":
        limit = format_percent(NOISE, 1)
        return f"{b} and {a} hardly differ: {times}, which is below {limit} and may be noise between captures"
    if verdict.kind == "no difference":
        return f"No significant difference between {a} and {b} within these captures: {times}"
    return f"Inconclusive, {_say_what_lacks(pair)}: {times}"


def _say_what_lacks(pair: Pair) -> str:
    if pair.verdict.measure == "capture" and pair.a.step_ns and pair.b.step_ns:
        return "as the steps of the runs are not the same"
    if pair.verdict.measure == "capture":
        lacking = "on both sides" if not (pair.a.step_ns or pair.b.step_ns) else "on one side"
        return f"as no steps were found {lacking}, and a capture is one value"
    return f"with {len(pair.a.step_ns)} and {len(pair.b.step_ns)} steps, where at least {FEWEST} a side are needed"


def _describe_sides(pair: Pair, quote: Quote) -> str:
    """Return what A and B are, with the limits of their medians."""
    sides = ", ".join(
        f"{letter} is {_describe_side(side, quote)}" for letter, side in zip("AB", (pair.a, pair.b), strict=True)
    )
    test = "" if pair.verdict.p is None else "; p of a rank test (Mann-Whitney). Steps count as independent"
    return f"{sides}{test}"


def _describe_side(side: SideNumbers, quote: Quote) -> str:
    text = f"{quote(side.label)} ({count_noun(side.gpus, 'GPU')}, {count_noun(side.ranks, 'rank')}"
    if side.step_median_ns is not None:
        text += f", median of {count_noun(len(side.step_ns), 'step')} {format_time(side.step_median_ns)}"
    if side.step_median_low_ns is not None and side.step_median_high_ns is not None:
        text += f", within {format_time(side.step_median_low_ns)} to {format_time(side.step_median_high_ns)} at 95%"
    return f"{text})"


def _state_causes(pair: Pair, quote: Quote) -> str:
    """Return the parts that make the difference what it is; without one, those that differ all the same."""
    if pair.verdict.kind == "no difference":
        rows, text = [row for row in pair.rows[:-1] if row.differs], _ALL_THE_SAME
        rows = [row for row in rows if abs(row.difference_ns) >= NOISE * pair.verdict.a_ns]  # of many, some by chance
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


def _describe_part(row: BudgetRow, pair: Pair, quote: Quote) -> str:
    text = f"{_quote_class(row.name, quote)} {_format_difference(row.difference_ns)}"
    if row.name == HOST_LATE and pair.cause:
        text += f" (mostly in {quote(pair.cause)})"
    return text if row.differs or row.p is None else f"{text} (p {_state_p(row.p)}, perhaps chance)"


def _quote_class(name: str, quote: Quote) -> str:
    """Return the name of a part: the class of a kernel in it may come from a file of other people."""
    part, colon, kind = name.partition(": ")
    return f"{part}: {quote(kind)}" if colon else part


# ---- grids -----------------------------------------------------------------------------------------------------------


def _lay_out_budget(pair: Pair, labels: Sequence[str], *, shows_all: bool) -> Grid:
    """Return where the difference is; rows that are not shown are summed, so that the shown ones add up."""
    *parts, rest = pair.rows
    whole = pair.verdict.a_ns
    shown = [row for row in parts if shows_all or _is_shown(row, pair)]
    hidden = [row for row in parts if row not in shown]
    rows = [_lay_out_part(row, whole) for row in shown]
    if hidden:
        a_ns, b_ns = sum(row.a_ns for row in hidden), sum(row.b_ns for row in hidden)
        name = count_noun(len(hidden), "smaller part")
        rows.append(_lay_out_part(BudgetRow(name, a_ns, b_ns, b_ns - a_ns, None, False), whole))
    if rest.a_ns or rest.b_ns:
        rows.append(_lay_out_part(rest, whole))
    if not parts:
        return Grid("", [], [])
    is_step = pair.verdict.measure == "step"
    total = BudgetRow(
        "median step" if is_step else "capture",
        pair.verdict.a_ns,
        pair.verdict.b_ns,
        pair.difference_ns,
        pair.verdict.p,
        True,
    )
    rows.append(_lay_out_part(total, whole))
    has_p = any(row[-1] for row in rows)
    caption = f"Where the difference is: time of a {pair.unit}"
    caption += " in a step, mean of all" if is_step else " in the capture"
    caption += f" (change of the {'step' if is_step else 'capture'}"
    if not shows_all:
        caption += f"; parts from {format_percent(NOISE, 1)} of it on"
        caption += f", with p < {LEVEL} from {format_percent(LEAST, 1)} on" if pair.verdict.p is not None else ""
    caption += ")"
    titles = ["", *labels, "difference", "change", "p"]
    return Grid(caption, titles, rows) if has_p else Grid(caption, titles[:-1], [row[:-1] for row in rows])


def _is_shown(row: BudgetRow, pair: Pair) -> bool:
    """Return whether a part differs, or is so large that readers must see it, together with its p."""
    return row.differs or abs(row.difference_ns) >= NOISE * pair.verdict.a_ns


def _lay_out_part(row: BudgetRow, whole: int) -> list[str]:
    change = _format_change(row.difference_ns / whole if whole else None)
    times = [_format_signed(ns) for ns in (row.a_ns, row.b_ns)]
    return [row.name, *times, _format_difference(row.difference_ns), change, "" if row.p is None else _format_p(row.p)]


def _lay_out_table(table: Table, pair: Pair, quote: Quote, *, shows_all: bool) -> Grid:
    """Return a table with the columns that any of its rows fills."""
    rows = [row for row in table.rows if row.differs or shows_all]
    shown = rows if shows_all else rows[:MOST_ROWS]
    has_detail = any(row.detail for row in shown)
    has_count = any(row.count_a is not None or row.count_b is not None for row in shown)
    has_bytes = any(row.bytes_a is not None or row.bytes_b is not None for row in shown)
    titles = ["", *(["class"] if has_detail else []), "A", "B", "difference"]
    titles += [] if table.unit == "ratio" else ["change"]
    titles += ["count A", "count B"] if has_count else []
    titles += ["size A", "size B"] if has_bytes else []
    lines = []
    for row in shown:
        line = [row.name, *([row.detail] if has_detail else []), *_lay_out_values(row, table.unit)]
        line += [_format_count(row.count_a), _format_count(row.count_b)] if has_count else []
        line += [format_bytes(row.bytes_a), format_bytes(row.bytes_b)] if has_bytes else []
        lines.append(line)
    below = [text for row in shown for text in _list_names(row, pair, quote, shows_all=shows_all)]
    if len(rows) > len(shown):
        below.append(f"and {len(rows) - len(shown):,} more that differ")
    return Grid(table.title, titles, lines, 2 if has_detail else 1, below)


def _lay_out_values(row: TableRow, unit: str) -> list[str]:
    a, b = row.a, row.b
    if a is None or b is None:
        only = f"only {'B' if a is None else 'A'}"
        return [_format_value(a, unit), _format_value(b, unit), only, *([] if unit == "ratio" else [""])]
    change = b - a
    sign = "+" if change > 0 else "-" if change < 0 else ""
    texts = [_format_value(a, unit), _format_value(b, unit), f"{sign}{_format_value(abs(change), unit)}"]
    return texts if unit == "ratio" else [*texts, _format_change(change / a if a else None)]


def _list_names(row: TableRow, pair: Pair, quote: Quote, *, shows_all: bool) -> list[str]:
    """Return which names a row sums that only one side has."""
    texts = []
    for label, names in ((pair.a.label, row.only_a), (pair.b.label, row.only_b)):
        most = len(names) if shows_all else _MOST_NAMES
        listed = ", ".join(map(quote, names[:most])) + (f" and {len(names) - most:,} more" if len(names) > most else "")
        texts += [f"{quote(row.name)} only in {quote(label)}: {listed}"] if names else []
    return texts


# ---- numbers ---------------------------------------------------------------------------------------------------------


def _format_difference(ns: float) -> str:
    """Return a time with its sign."""
    return f"{'+' if ns > 0 else ''}{_format_signed(ns)}"


def _format_signed(ns: float) -> str:
    return f"-{format_time(-ns)}" if ns < 0 else format_time(ns)


def _format_change(change: float | None) -> str:
    if change is None:
        return "-"
    return f"{100 * change:+.1f}%" if change < _FACTOR else f"x {change + 1:,.0f}"


def _format_p(p: float) -> str:
    return f"{p:.3f}" if p >= 0.001 else "<0.001"


def _state_p(p: float) -> str:
    """Return p as the rest of a sentence."""
    text = _format_p(p)
    return f"< {text[1:]}" if text.startswith("<") else f"= {text}"


def _format_value(value: float | None, unit: str) -> str:
    if value is None:
        return "-"
    if unit == "ns":
        return format_time(value)
    if unit == "bytes":
        return format_bytes(value)
    return format_percent(value, 1) if unit == "ratio" else f"{value:,.4g}"


def _format_count(count: float | None) -> str:
    return "-" if count is None else f"{count:,.0f}" if abs(count - round(count)) < 0.05 else f"{count:,.1f}"
