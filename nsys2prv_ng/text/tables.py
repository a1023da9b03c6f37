"""Aligned tables of text, as all commands print them."""

from __future__ import annotations

from collections.abc import Sequence

_SHORTEST = 12
"""Characters that a text column keeps in the narrowest table."""


def format_table(
    rows: Sequence[Sequence[str]],
    *,
    texts: int = 1,
    text_last: bool = False,
    width: int | None = None,
    keep_distinct: bool = False,
    gap: str = "  ",
    indent: int = 0,
) -> list[str]:
    """Return one line per row, titles first: the first `texts` columns to the left, the others to the right.

    `text_last`: the last column stands to the left as well, unpadded. `width`: columns of the terminal; a wider table
    cuts its text columns in the middle, the widest first, down to 12 characters. `keep_distinct`: but never so far that
    two different names become the same. `gap` stands between columns, `indent` blanks before each line.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    if width is not None:
        names = [[row[column] for row in rows] for column in range(texts)]
        narrowest = [_find_narrowest(column) if keep_distinct else _SHORTEST for column in names]
        _narrow(widths, narrowest, width - indent - len(gap) * (len(widths) - 1))
    margin = " " * indent
    return [margin + gap.join(_align(row, widths, texts, text_last)).rstrip() for row in rows]


def cut_middle(text: str, width: int) -> str:
    """Return a text of at most `width` characters, without its middle: names often differ at their end."""
    if len(text) <= width:
        return text
    head = (width - 2) // 2
    return f"{text[:head]}..{text[len(text) - (width - 2 - head) :]}"


def _align(row: Sequence[str], widths: Sequence[int], texts: int, text_last: bool) -> list[str]:
    cells = [
        cut_middle(cell, width).ljust(width) if column < texts else cell.rjust(width)
        for column, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]
    if text_last:
        cells[-1] = row[-1]
    return cells


def _narrow(widths: list[int], narrowest: Sequence[int], available: int) -> None:
    """Narrow the first columns until the table fits, or until none can be narrower."""
    while sum(widths) > available:
        widest = max(range(len(narrowest)), key=lambda column: widths[column] - narrowest[column])
        if widths[widest] <= narrowest[widest]:
            return
        widths[widest] -= 1


def _find_narrowest(names: Sequence[str]) -> int:
    """Return the least width, from 12 on, at which names that differ still do."""
    longest, different = max(map(len, names)), len(set(names))
    widths = range(min(_SHORTEST, longest), longest)
    return next((width for width in widths if len({cut_middle(name, width) for name in names}) == different), longest)
