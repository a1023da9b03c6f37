"""Formats numbers, times and names for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from itertools import count


def count_noun(number: int, noun: str) -> str:
    """Return a number with its noun: 1 report, 1,024 reports."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def format_number_ranges(numbers: Sequence[int]) -> str:
    """Return ascending numbers as ranges: 0, 1, 2, 5 as 0-2,5."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in ranges)


def format_utc(ns: int) -> str:
    """Return a time (ns) in ISO 8601, or as a number where damage puts it beyond all calendars."""
    seconds, fraction = divmod(ns, 10**9)
    try:
        return f"{datetime.fromtimestamp(seconds, timezone.utc):%Y-%m-%dT%H:%M:%S}.{fraction:09d}Z"
    except (ValueError, OverflowError, OSError):
        return f"{ns} ns"


def make_unique(names: Sequence[str]) -> list[str]:
    """Return the names; one that repeats gets a number behind it (-2, -3, ...) that no other name has."""
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
