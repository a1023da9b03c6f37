"""Parts of the text of a summary: numbers, tables, and lines that say what a table does not show."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from collections.abc import Sequence

from nsys2prv_ng.paraver.event_type import to_one_line
from nsys2prv_ng.text.formatting import format_bytes
from nsys2prv_ng.text.tables import format_table

MOST_ROWS = 10
NARROWEST, WIDTH, WIDEST = 80, 100, 120
"""Columns of text: the least and the most on a terminal, and the number in a file or a pipe."""
NO_RANGE, NO_CALL = "(outside NVTX ranges)", "(own code)"
"""Stand where a thread was in no NVTX range, or in no call."""
_TOGETHER = re.compile(r"\d (ns|us|ms|s)\b|--[a-z]+ \S")
_SHORTEST = 8
"""Characters of a name in a table that is too wide otherwise."""
_NO_BREAK = "\N{NO-BREAK SPACE}"
"""A blank at which `textwrap` ends no line."""


def choose_width() -> int:
    """Return the columns of text for standard output: those of the terminal, within limits."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else WIDTH
    return min(max(width, NARROWEST), WIDEST)


def format_percent(part: float, whole: float) -> str:
    """Return a share, or a dash where there is no whole."""
    return f"{100 * part / whole:.1f}%" if whole else "-"


def format_rate(size: int, ns: int) -> str:
    """Return a rate, or a dash where nothing was moved."""
    return f"{format_bytes(size / ns * 1e9)}/s" if ns and size else "-"


def make_table(
    titles: Sequence[str], rows: Sequence[Sequence[str]], width: int, texts: int = 1, gap: str = "  "
) -> list[str]:
    """Return the lines of a table; the first `texts` columns hold names from reports.

    Where the table is too wide, names are shorter, and a single blank stands between columns.
    """
    names = [[*map(clean_name, row[:texts]), *row[texts:]] for row in rows]
    lines = format_table([titles, *names], texts=texts, width=width, gap=gap)
    if max(map(len, lines)) > width:
        return format_table([titles, *names], texts=texts, width=width, gap=" ", shortest=_SHORTEST)
    return lines


def drop_empty_end(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> tuple[Sequence[str], list[Sequence[str]]]:
    """Return a table without its last column if no row has anything there."""
    if any(row[-1] for row in rows):
        return titles, list(rows)
    return titles[:-1], [row[:-1] for row in rows]


def clean_name(name: str) -> str:
    """Return a name as one line; blanks that indent it stay."""
    stem = name.lstrip(" ")
    return name[: len(name) - len(stem)] + to_one_line(stem) if stem else ""


def name_task(rank: int | None, task: str) -> str:
    """Return how the text names a task: by its rank, or else by its name."""
    return clean_name(task) if rank is None else f"rank {rank}"


def quote_name(name: str) -> str:
    """Return a name as a part of a sentence, which no character in it ends."""
    return "`" + clean_name(name).replace("`", "'") + "`"


def wrap(text: str, width: int, indent: tuple[int, int] = (0, 0)) -> list[str]:
    """Return the lines of a text, none of which ends between a number and its unit or an option and its value.

    `indent`: blanks before the first line and before the others.
    """
    first, others = (" " * count for count in indent)
    joined = _TOGETHER.sub(lambda match: match[0].replace(" ", _NO_BREAK), text)
    lines = textwrap.wrap(joined, width, initial_indent=first, subsequent_indent=others, break_on_hyphens=False)
    return [line.replace(_NO_BREAK, " ") for line in lines]


def count_more(count: int, what: str) -> list[str]:
    """Return a line on rows that a table does not show, if there are any."""
    return [f"  and {count:,} more{what} (the JSON has all)"] if count > 0 else []
