"""How numbers, times and names are written for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from itertools import count


def count_noun(number: int, noun: str) -> str:
    """1 report, 1,024 reports."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def format_number_ranges(numbers: Sequence[int]) -> str:
    """0, 1, 2, 5 as 0-2,5. The numbers are in rising order."""
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in found)


def format_utc(ns: int) -> str:
    """A time in ns as ISO 8601 has it; damage can be beyond all calendars."""
    seconds, fraction = divmod(ns, 10**9)
    try:
        return f"{datetime.fromtimestamp(seconds, timezone.utc):%Y-%m-%dT%H:%M:%S}.{fraction:09d}Z"
    except (ValueError, OverflowError, OSError):
        return f"{ns} ns"


def make_unique(names: Sequence[str]) -> list[str]:
    """The names, each that is like one before it with a number behind it that makes it like none."""
    taken, found = set(names), []
    numbers: dict[str, Iterator[int]] = {}
    for name in names:
        if name in numbers:
            name = next(new for i in numbers[name] if (new := f"{name}-{i}") not in taken)
            taken.add(name)
        else:
            numbers[name] = count(2)
        found.append(name)
    return found
