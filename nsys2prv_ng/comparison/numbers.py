"""Formats the numbers of a comparison: differences with their signs, changes, and probabilities."""

from __future__ import annotations

from nsys2prv_ng.text.formatting import format_bytes, format_percent, format_time

_FACTOR = 10
"""Change from which the ratio says more."""


def format_difference(ns: float) -> str:
    """Return a time with its sign."""
    return f"{'+' if ns > 0 else ''}{format_signed(ns)}"


def format_signed(ns: float) -> str:
    """Return a time, with its sign if it is below 0."""
    return f"-{format_time(-ns)}" if ns < 0 else format_time(ns)


def format_change(change: float | None) -> str:
    """Return a part as a signed percentage, or as a ratio where it is large; a dash for None."""
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
    """Return a count, with a digit where it is no integer; a dash for None."""
    return "-" if count is None else f"{count:,.0f}" if abs(count - round(count)) < 0.05 else f"{count:,.1f}"
