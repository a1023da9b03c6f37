"""Formats numbers, times, sizes and names for people, and reads the numbers that they type."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from decimal import Decimal
from itertools import count

from nsys2prv_ng.errors import UsageError

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


def format_flops(count: float) -> str:
    """Return a number of floating-point operations with three digits and a decimal unit."""
    return _scale(count, "FLOP", EFLOP=1e18, PFLOP=1e15, TFLOP=1e12, GFLOP=1e9, MFLOP=1e6, kFLOP=1e3)


def format_percent(part: float, whole: float) -> str:
    """Return a share as a percentage, with one decimal if it is less than 1,000; a dash if the whole is 0."""
    if not whole:
        return "-"
    percent = 100 * part / whole
    return f"{round(percent, 1) + 0.0:.1f}%" if abs(percent) < _MANY else f"{format_number(percent)}%"


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
