"""Lays out text for terminals and job logs: paragraphs, labelled lines, and tables of typed cells.

People read labelled lines and `grep` finds them: the label is at the start, the text in a fixed column. Labels are bold
and bars drawn on a terminal, not in a file or a pipe.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import textwrap
from collections.abc import Sequence
from typing import NamedTuple

from nsys2prv_ng.grouping import group_by_key
from nsys2prv_ng.text.formatting import format_percent, format_table, format_time
from nsys2prv_ng.text.grid import Cell, Grid, Ns, Portion
from nsys2prv_ng.text.names import clean_name

# ---- style -----------------------------------------------------------------------------------------------------------


class Style(NamedTuple):
    """`bar`: the character that bars are drawn with; empty for no bars. `is_bold`: whether labels are bold."""

    bar: str = ""
    is_bold: bool = False

    def bold(self, text: str) -> str:
        """Return a text in bold if the style has that."""
        return f"\x1b[1m{text}\x1b[0m" if self.is_bold and text.strip() else text

    def draw_bar(self, share: float, room: int) -> str:
        """Return a bar of a share (0 to 1) of `room` columns; "" if the style has no bars, or the share rounds to 0."""
        return self.bar * round(min(max(share, 0.0), 1.0) * max(room, 0))


PLAIN = Style()


def choose_style() -> Style:
    """Return the style for standard output."""
    if not sys.stdout.isatty():
        return PLAIN
    is_dumb = os.environ.get("TERM", "") in ("", "dumb")
    try:
        _BLOCK.encode(sys.stdout.encoding or "ascii")
    except (UnicodeError, LookupError):
        return Style(_HASH, not is_dumb and "NO_COLOR" not in os.environ)
    return Style(_HASH if is_dumb else _BLOCK, not is_dumb and "NO_COLOR" not in os.environ)


# ---- text ------------------------------------------------------------------------------------------------------------

MOST_ROWS = 10
NARROWEST, WIDTH, WIDEST = 60, 100, 120
"""Columns of text: the fewest on a terminal, the number in a file or a pipe, and the most on a terminal."""
_TOGETHER = re.compile(r"\d (ns|us|ms|s|pp)\b|--[a-z]+ \S|\bp [<=] \d")
_SHORTEST = 8
"""Fewest characters of a name in a table that is too wide otherwise."""
_NO_BREAK = "\N{NO-BREAK SPACE}"
"""A blank at which `textwrap` does not break lines."""


def choose_width() -> int:
    """Return the columns of text for standard output: as many as the terminal has, within limits."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else WIDTH
    return min(max(width, NARROWEST), WIDEST)


def wrap(text: str, width: int, indent: tuple[int, int] = (0, 0)) -> list[str]:
    """Return the lines of a text. No line ends between a number and its unit, or between an option and its value.

    `indent`: the number of blanks before the first line and before the others.
    """
    first, others = (" " * count for count in indent)
    joined = _TOGETHER.sub(lambda match: match[0].replace(" ", _NO_BREAK), text)
    lines = textwrap.wrap(joined, width, initial_indent=first, subsequent_indent=others, break_on_hyphens=False)
    return [line.replace(_NO_BREAK, " ") for line in lines]


# ---- labelled lines --------------------------------------------------------------------------------------------------

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]+")
"""Characters that could forge a line or command a terminal: lines may come from a file of others."""
TABLES, FILES = "Tables: --details", "Report: --html FILE   Data: --json"
"""The options that lead on: with tables shown, only FILES."""
LABEL_WIDTH = 12
"""Columns of a label and the blanks after it."""


def format_labelled(
    lines: Sequence[tuple[str, str]], width: int, style: Style = PLAIN, column: int = LABEL_WIDTH
) -> list[str]:
    """Return the lines of (label, text), wrapped to `width` columns; texts start at `column`."""
    formatted = []
    for label, text in ((_CONTROL.sub(" ", label), _CONTROL.sub(" ", text)) for label, text in lines):
        wrapped = wrap(text, width, indent=(column, column))
        formatted += [f"{style.bold(label.ljust(column))}{line[column:]}" for line in wrapped[:1]]
        formatted += wrapped[1:]
    return formatted


_BLOCK, _HASH = "\N{FULL BLOCK}", "#"


# ---- tables ----------------------------------------------------------------------------------------------------------


def format_grid(grid: Grid, width: int, most: int | None = MOST_ROWS) -> list[str]:
    """Return the lines of a table: caption, at most `most` rows, number of hidden rows, sentences below."""
    if not grid.rows:
        return []
    shown = grid.list_shown(most)
    groups = _group_rows(grid, shown)
    if groups:
        shown = [row for _, _, rows in groups for row in rows]
    columns = [number for number in grid.list_columns([*shown, *grid.footer], wide=False) if number != grid.group]
    minor = [number for number in columns if grid.columns[number].minor]
    head, body = _format_rows(grid, shown, columns, width, grid.name_room if minor else 0)
    left_out: list[int] = []
    while minor and max(map(len, [*head, *body])) > width:
        left_out = [minor.pop(), *left_out]
        kept = [number for number in columns if number not in left_out]
        head, body = _format_rows(grid, shown, kept, width, grid.name_room if minor else 0)
    body = _add_group_lines(groups, body) if groups else body
    caption = wrap(f"{grid.caption}:", width) if grid.caption else []
    hidden = 0 if groups else len(grid.rows) - len(shown)
    below = _count_more(hidden, grid.more and f" {grid.more}")
    if left_out:
        titles = ", ".join(grid.columns[number].title for number in left_out)
        below += wrap(f"too narrow for {titles} (the JSON has all)", width, (2, 4))
    below += [line for text in grid.below for line in wrap(text, width, (2, 4))]
    return [*caption, *head, *body, *below]


def _format_rows(
    grid: Grid, shown: Sequence[Sequence[Cell]], columns: Sequence[int], width: int, shortest: int
) -> tuple[list[str], list[str]]:
    """Return the lines of the titles, and the lines of the rows shown and of the footer.

    In a table that is too wide, titles of numbers take two lines. `shortest`: fewest characters of names; 0: as few as
    the table needs.
    """
    names = sum(number < grid.names for number in columns)
    rows = [line for row in [*shown, *grid.footer] for line in _format_row(row, columns)]
    # A row with portions has its second name on its second line.
    if any(isinstance(cell, Portion) for row in shown for cell in row):
        columns, names = [columns[0], *columns[2:]], 1
        rows = [[row[0], *row[2:]] for row in rows]
    heads, gap = _format_titles(grid, columns), " " if grid.tight else "  "
    if max(map(len, _align([*heads, *rows], None, names, gap))) > width:
        heads = [*heads[:-1], *_split_titles(heads[-1], names)]
    lines = _align([*heads, *rows], width, names, gap, shortest)
    return lines[: len(heads)], lines[len(heads) :]


def _format_titles(grid: Grid, columns: Sequence[int]) -> list[list[str]]:
    """Return the row of titles; before it, the row of titles over several columns, if there are any."""
    titles = [clean_name(grid.columns[number].title) for number in columns]
    overs = [grid.columns[number].over for number in columns]
    if not any(overs):
        return [titles]
    first = [over if over != before else "" for before, over in zip(["", *overs], overs, strict=False)]
    return [[grid.over, *first[1:]], titles]


def _split_titles(titles: Sequence[str], names: int) -> list[list[str]]:
    """Return titles on two lines: the second has the first `names` titles, and the last word of the others."""
    parts = [("", "", title) if n < names else title.rpartition(" ") for n, title in enumerate(titles)]
    lines = [[first for first, _, _ in parts], [last for _, _, last in parts]]
    return [line for line in lines if any(line)]


def _format_row(row: Sequence[Cell], columns: Sequence[int]) -> list[list[str]]:
    """Return the texts of a row on one line; with portions of a time, times and shares on two lines."""
    cells = [row[number] for number in columns]
    if not any(isinstance(cell, Portion) for cell in cells):
        return [list(map(str, cells))]
    times = [format_time(cell.part) if isinstance(cell, Portion) else str(cell) for cell in cells]
    shares = [format_percent(cell.part, cell.whole) if isinstance(cell, Portion) else "" for cell in cells]
    return [times, [f"  {cells[1]}", *shares[1:]]]


def _align(rows: Sequence[Sequence[str]], width: int | None, names: int, gap: str, shortest: int = 0) -> list[str]:
    """Return the lines of a table; the first `names` columns contain names from reports.

    If the table is wider than `width`, names are cut shorter, and one blank separates columns. With `shortest`, names
    keep that many characters, and the table may stay wider.
    """
    title, *others = rows
    cleaned = [title, *([*map(clean_name, row[:names]), *row[names:]] for row in others)]
    if shortest:
        return format_table(cleaned, texts=names, width=width, gap=gap, shortest=shortest)
    lines = format_table(cleaned, texts=names, width=width, gap=gap)
    if width is not None and max(map(len, lines)) > width:
        return format_table(cleaned, texts=names, width=width, gap=" ", shortest=_SHORTEST)
    return lines


def _count_more(count: int, what: str) -> list[str]:
    """Return a line with the number of hidden rows, if there are any."""
    return [f"  and {count:,} more{what} (the JSON has all)"] if count > 0 else []


_Rows = Sequence[Sequence[Cell]]


def _group_rows(grid: Grid, shown: _Rows) -> list[tuple[str, _Rows, _Rows]]:
    """Return (name, rows, rows shown) of the groups, the longest time first; [] if the grid does not group its rows."""
    if grid.group is None:
        return []
    identities = set(map(id, shown))
    groups = group_by_key((str(row[grid.group]), row) for row in grid.rows)
    longest = sorted(groups.items(), key=lambda group: -_sum_times(group[1]))
    return [(name, rows, [row for row in rows if id(row) in identities]) for name, rows in longest]


def _sum_times(rows: _Rows) -> float:
    """Return the sum (ns) of the last time of each row."""
    return sum(next(cell.number or 0 for cell in reversed(row) if isinstance(cell, Ns)) for row in rows)


def _add_group_lines(groups: Sequence[tuple[str, _Rows, _Rows]], lines: Sequence[str]) -> list[str]:
    """Return the lines of each group: its name and time, the rows shown, number and time of the hidden rows."""
    grouped, rest = [], list(lines)
    for name, rows, shown in groups:
        whole = _sum_times(rows)
        grouped += [f"{name}: {format_time(whole)}", *rest[: len(shown)]]
        rest = rest[len(shown) :]
        if shown:
            grouped += _count_more(len(rows) - len(shown), f": {format_time(whole - _sum_times(shown))}")
    return grouped
