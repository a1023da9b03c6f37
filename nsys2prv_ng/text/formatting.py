"""Formats numbers, times, sizes, names and aligned tables for people, and reads the numbers that they type."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from decimal import Decimal
from itertools import count

from nsys2prv_ng.errors import UsageError
from nsys2prv_ng.grouping import group_by_key

DIGITS = "[0-9]{1,18}"
"""Longer numbers do not fit into 64 bits, and Python does not read a number of more than 4,300 digits."""
MOST_ELEMENTS = 10**6
"""Most elements of a list: no job has as many ranks."""
LONGEST_SHOWN = 200
"""Characters of the longest value that an error shows."""

_ROUNDS_UP = 0.9995
"""Least part of a unit that three digits show as one whole unit."""
_MANY = 999.5
"""Least number that rounds to 1,000."""
_MARGIN = 100
"""The printed limits of a window may differ from it by the length of the window divided by this."""


def count_noun(number: int, noun: str) -> str:
    """Return a number with its noun: 1 report, 1,024 reports."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def count_nouns(numbers: Mapping[str, int]) -> str:
    """Return numbers, given by their nouns, in one line: 4 ranks, 1 node."""
    return ", ".join(count_noun(number, noun) for noun, number in numbers.items())


def join_first(names: Sequence[str], most: int) -> str:
    """Return the first `most` names in one line, with dots for the others: a, b, ..."""
    return ", ".join([*names[:most], *(["..."] if len(names) > most else [])])


def format_number_ranges(numbers: Sequence[int]) -> str:
    """Return ascending numbers as ranges: 0, 1, 2, 5 as 0-2,5."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in ranges)


def parse_number_ranges(text: str) -> list[int]:
    """Return the integers of a text like 0-3,8, in ascending order. Raises UsageError."""
    numbers: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(rf"\s*({DIGITS})(?:-({DIGITS}))?\s*", part)
        if not match or (match[2] and int(match[2]) < int(match[1])):
            raise UsageError(f"{quote_shortened(part)} is not a number or range such as 0-3")
        first, last = int(match[1]), int(match[2] or match[1])
        if last - first >= MOST_ELEMENTS:
            raise UsageError(f"{quote_shortened(part)} is longer than any job")
        numbers.update(range(first, last + 1))
    return sorted(numbers)


def quote_shortened(text: str) -> str:
    """Return a text in quotes, its end missing if an error cannot show it all."""
    return repr(text if len(text) <= LONGEST_SHOWN else text[:LONGEST_SHOWN] + "...")


def format_ranks(ranks: Sequence[int]) -> str:
    """Return ascending ranks with their noun: rank 3, ranks 0-2,5."""
    return f"rank{'s' if len(ranks) > 1 else ''} {format_number_ranges(ranks)}"


def format_utc(ns: int) -> str:
    """Return a UTC (ns) in ISO 8601, or as a number if it is damaged and beyond all calendars."""
    seconds, fraction = divmod(ns, 10**9)
    try:
        return f"{datetime.fromtimestamp(seconds, timezone.utc):%Y-%m-%dT%H:%M:%S}.{fraction:09d}Z"
    except (ValueError, OverflowError, OSError):
        return f"{ns} ns"


def format_number(number: float, digits: int = 4) -> str:
    """Return a number with a few significant digits and commas, and without an exponent: 12,350, 1.5, 0.000001."""
    return f"{Decimal(f'{number:.{digits}g}').normalize():,f}"


def format_time(ns: float) -> str:
    """Return a time (ns) with three digits and a unit, with its sign if it is negative."""
    return _scale(ns, "ns", s=10**9, ms=10**6, us=10**3)


def format_difference(ns: float) -> str:
    """Return a time (ns) with its sign."""
    return f"{'+' if ns > 0 else ''}{format_time(ns)}"


def format_span(low: float, high: float) -> str:
    """Return the shortest and the longest of some times (ns): 13.1-136 ms, 249 us to 26.0 ms, 20.0 ms."""
    first, last = format_time(low), format_time(high)
    if first == last:
        return first
    return f"{first.split()[0]}-{last}" if first.split()[1] == last.split()[1] else f"{first} to {last}"


def format_bytes(size: float | None) -> str:
    """Return a size (bytes) with three digits and a decimal unit; a dash for None."""
    if size is None:
        return "-"
    return _scale(size, "B", TB=10**12, GB=10**9, MB=10**6, kB=10**3)


def format_percent(part: float, whole: float) -> str:
    """Return a share as a percentage, with one decimal if it is less than 1,000; a dash if the whole is 0."""
    if not whole:
        return "-"
    percent = 100 * part / whole
    return f"{round(percent, 1) + 0.0:.1f}%" if abs(percent) < _MANY else f"{format_number(percent)}%"


_FACTOR = 10
"""Least change at which a factor is easier to read than a percentage."""


def format_change(change: float | None) -> str:
    """Return a relative change as a signed percentage, or as a factor if it is large; a dash for None."""
    if change is None:
        return "-"
    return f"{100 * change:+.1f}%" if change < _FACTOR else f"x {format_number(round(change + 1))}"


def _scale(number: float, least: str, **units: float) -> str:
    """Return a number with three digits, in the first unit that it has one of, or else in the least.

    With 1,000 or more of the largest unit, it has four.
    """
    sign, size = "-" if number < -0.5 else "", abs(number)
    for unit, one in units.items():
        if size >= _ROUNDS_UP * one:
            value = size / one
            decimals = 2 if value < 9.995 else 1 if value < 99.95 else 0
            return f"{sign}{f'{value:.{decimals}f}' if value < _MANY else format_number(value)} {unit}"
    return f"{sign}{size:.0f} {least}"


def format_duration(ns: int) -> str:
    """Return a duration (ns) as users write it on the command line: 10us, 1ms, 1500ns."""
    for unit, length in (("s", 10**9), ("ms", 10**6), ("us", 10**3)):
        if ns >= length and ns % length == 0:
            return f"{ns // length}{unit}"
    return f"{ns}ns"


def format_window(begin: int, end: int) -> str:
    """Return FROM:TO in the form of the option `time`: it contains the window (ns) and is hardly longer."""
    step = 1
    while step * 10 * _MARGIN <= end - begin:
        step *= 10
    return f"{_format_seconds(begin // step * step)}:{_format_seconds(-(-end // step) * step)}"


def _format_seconds(ns: int) -> str:
    seconds, fraction = divmod(ns, 10**9)
    return f"{seconds}.{fraction:09d}".rstrip("0").rstrip(".") + "s"


def shorten_range_name(domain: str, name: str) -> str:
    """Return the name of a range with its domain, as in NVIDIA's tables.

    A range of the default domain, or a call, has its name alone.
    """
    return f"{domain}:{name}" if domain else name


def make_unique(names: Sequence[str]) -> list[str]:
    """Return the names; a repeated name gets a number after it (-2, -3, ...) that makes it unique."""
    taken, unique = set(names), []
    numbers: dict[str, Iterator[int]] = {}
    for name in names:
        if name in numbers:
            name = next(new for i in numbers[name] if (new := f"{name}-{i}") not in taken)
            taken.add(name)
        else:
            numbers[name] = count(2)
        unique.append(name)
    return unique


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
    by_indent = group_by_key((len(name) - len(name.lstrip(" ")), name) for name in names)
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
    groups = group_by_key((text, name) for name, text in short.items())
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
