"""Formats differences, shares and probabilities of a comparison."""

from __future__ import annotations

from nsys2prv_ng.text.formatting import format_bytes, format_percent, format_time

_FACTOR = 10
"""Least change at which a factor is easier to read than a percentage."""


def format_change(change: float | None) -> str:
    """Return a relative change as a signed percentage, or as a factor if it is large; a dash for None."""
    if change is None:
        return "-"
    return f"{100 * change:+.1f}%" if change < _FACTOR else f"x {change + 1:,.0f}"


def format_points(difference: float) -> str:
    """Return the difference of two shares (0 to 1) in percentage points."""
    return f"{100 * difference:+.1f} pp"


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


def format_value_difference(difference: float, unit: str) -> str:
    """Return the difference of two quantities of a table, with its sign; of shares and percentages in points."""
    if unit == "ratio":
        return format_points(difference)
    sign = "+" if difference > 0 else "-" if difference < 0 else ""
    return f"{sign}{format_value(abs(difference), unit)}" + (" pp" if unit == "%" else "")


def format_count(count: float | None) -> str:
    """Return a count, with one decimal if it is not an integer; a dash for None."""
    return "-" if count is None else f"{count:,.0f}" if abs(count - round(count)) < 0.05 else f"{count:,.1f}"


def join_values(a: str, b: str) -> str:
    """Return the texts of one quantity of both runs in one cell, without repeating a text or a unit."""
    if a == b:
        return a
    (before, _, unit), (_, _, other) = a.partition(" "), b.partition(" ")
    return f"{before if unit == other else a} -> {b}"
