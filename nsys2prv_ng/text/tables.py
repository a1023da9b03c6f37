"""Formats aligned tables of text for all commands."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

_SHORTEST = 12
"""Fewest characters of a text column, unless the caller sets another number."""
_TRIES = 4
"""How often names that are equal when cut are cut elsewhere: in a group of names, some differ later than others."""


def format_table(
    rows: Sequence[Sequence[str]],
    *,
    texts: int = 1,
    text_last: bool = False,
    width: int | None = None,
    keep_distinct: bool = False,
    shortest: int = _SHORTEST,
    gap: str = "  ",
    indent: int = 0,
) -> list[str]:
    """Return one line for each row, titles first: the first `texts` columns align left, the others right.

    `text_last`: the last column aligns left as well, without padding. `width`: columns of the terminal. In a wider
    table, text columns are cut as by `cut_names`, the widest first, down to `shortest` characters; with `keep_distinct`
    never so far that two different names become equal when cut in the middle. `gap` separates columns, and `indent`
    blanks precede each line.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    if width is not None:
        names = [[row[column] for row in rows] for column in range(texts)]
        narrowest = [_find_narrowest(column) if keep_distinct else shortest for column in names]
        _narrow(widths, narrowest, width - indent - len(gap) * (len(widths) - 1))
    columns = [cut_names(column, width) for column, width in zip(zip(*rows, strict=True), widths[:texts], strict=False)]
    margin = " " * indent
    return [
        margin + gap.join(_align([*names, *row[texts:]], widths, texts, text_last)).rstrip()
        for row, names in zip(rows, zip(*columns, strict=True), strict=True)
    ]


def cut_names(names: Sequence[str], width: int) -> list[str]:
    """Return names of at most `width` characters: cut in the middle, or elsewhere if names would become equal.

    Leading blanks, which show depth, stay as far as _SHORTEST characters of the name have room.
    """
    by_indent: dict[int, list[str]] = {}
    for name in names:
        by_indent.setdefault(len(name) - len(name.lstrip(" ")), []).append(name)
    short: dict[str, str] = {}
    for blanks, alike in by_indent.items():
        indent = min(blanks, max(width - _SHORTEST, 0)) if max(map(len, alike)) > width else blanks
        cut = _cut_stems([name[blanks:] for name in alike], width - indent, cut_path if blanks else cut_middle)
        short |= {name: " " * indent + text for name, text in zip(alike, cut, strict=True)}
    return [short[name] for name in names]


def _cut_stems(names: Sequence[str], width: int, cut: Callable[[str, int], str]) -> list[str]:
    short = {name: cut(name, width) for name in names}
    for _ in range(_TRIES):
        for group in _group_equal(short):
            low, high = min(group), max(group)  # no two names of the group differ earlier
            differ_at = next((i for i, pair in enumerate(zip(low, high, strict=False)) if pair[0] != pair[1]), len(low))
            short |= {name: _cut_before(name, width, differ_at) for name in group}
    return [short[name] for name in names]


def _group_equal(short: Mapping[str, str]) -> list[list[str]]:
    """Return the groups of names that are equal when cut."""
    groups: dict[str, list[str]] = {}
    for name, text in short.items():
        groups.setdefault(text, []).append(name)
    return [group for group in groups.values() if len(group) > 1]


def _cut_before(text: str, width: int, position: int) -> str:
    """Return a text of at most `width` characters: its start, and as much as fits from a position on."""
    if len(text) <= width:
        return text
    head = max(0, (width - 4) // 2)
    rest = text[min(position, len(text) - (width - 2 - head)) :]
    room = width - 2 - head
    return f"{text[:head]}..{rest if len(rest) <= room else rest[: room - 2] + '..'}"


def cut_middle(text: str, width: int) -> str:
    """Return a text of at most `width` characters by cutting its middle: names often differ at their end."""
    if len(text) <= width:
        return text
    head = (width - 2) // 2
    return f"{text[:head]}..{text[len(text) - (width - 2 - head) :]}"


def cut_path(text: str, width: int) -> str:
    """Return a text of at most `width` characters as `cut_middle` does, with its last part whole if that has room.

    The last part follows the last colon, as in `engine::evaluate_function: MmBackward0`.
    """
    leaf = text.rpartition(":")[2].lstrip(" ")
    head = width - 2 - len(leaf)
    if len(text) <= width or not 0 < head < (width - 2) // 2:
        return cut_middle(text, width)
    return f"{text[:head]}..{leaf}"


def _align(row: Sequence[str], widths: Sequence[int], texts: int, text_last: bool) -> list[str]:
    cells = [
        cell.ljust(width) if column < texts else cell.rjust(width)
        for column, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]
    if text_last:
        cells[-1] = row[-1]
    return cells


def _narrow(widths: list[int], narrowest: Sequence[int], available: int) -> None:
    """Narrow the first columns until the table fits, or until none of them can be narrower."""
    while sum(widths) > available:
        widest = max(range(len(narrowest)), key=lambda column: widths[column] - narrowest[column])
        if widths[widest] <= narrowest[widest]:
            return
        widths[widest] -= 1


def _find_narrowest(names: Sequence[str]) -> int:
    """Return the least width, at least _SHORTEST, at which different names stay different."""
    longest, different = max(map(len, names)), len(set(names))
    widths = range(min(_SHORTEST, longest), longest)
    return next((width for width in widths if len({cut_middle(name, width) for name in names}) == different), longest)
