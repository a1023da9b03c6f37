"""Builds tables with bars: parts of a whole beside each other, each with its colour."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from nsys2prv_ng.html.blocks import BarCell, Segment
from nsys2prv_ng.text.formatting import count_noun, format_time

MOST_ROWS, MOST_RANKS = 12, 24
"""Rows of a table, and of one with a row for each rank or GPU; of more, the first are shown."""
WHOLE = "Of all the time that was read, warm-up included."
"""Says what the numbers of a section are of."""
_LEAST = 1e-4
"""Part of a bar from which a segment is drawn."""


def make_bar(parts: Iterable[tuple[str, str, float]], whole: float) -> BarCell:
    """Return parts (what, colour as CSS, ns) one after the other, as long as they are to be seen.

    `whole`: what fills the cell (ns).
    """
    segments, left = [], 0.0
    for text, css, amount in parts:
        share = amount / whole if whole else 0.0
        if share >= _LEAST:
            segments.append(Segment(100 * left, 100 * share, css, f"{text}: {format_time(amount)}"))
        left += share
    return BarCell(segments)


def count_rest(shown: Sequence[object], whole: Sequence[object], noun: str = "row") -> str:
    """Return a sentence on rows that a table does not show; an empty text if it shows all."""
    rest = len(whole) - len(shown)
    return f"And {count_noun(rest, f'more {noun}')}." if rest else ""
