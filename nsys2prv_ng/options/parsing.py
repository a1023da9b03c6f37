"""Parses values of options as people type them. Every function raises UsageError that says what to type instead.

The command line takes them. The Python calls do not: they name the value that such a text stands for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from nsys2prv_ng.errors import UsageError

GPU_TIME = "gpu"
"""The time from the first to the last operation of the GPUs."""
MOST_NUMBERS = 10**6
"""More numbers than a job has ranks."""

_TIMES = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}
_DIGITS = "[0-9]{1,18}"
"""What is longer fits no 64 bits, and Python reads no number of 4,300 digits."""
# Commas only where a blank follows, as in wxParaver: in 1,500s it may be a decimal one.
_TIME = re.compile(rf"({_DIGITS}|[0-9]{{1,3}}(?:,[0-9]{{3}}){{1,5}}(?=[.0-9]* ))(?:\.([0-9]{{0,18}}))? ?(ns|us|ms|s)")
_SIZES = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_SIZE = re.compile(rf"({_DIGITS}(?:\.{_DIGITS})?)([KMGT])i?B?", re.IGNORECASE)


def parse_time(text: str) -> int:
    """Return the nanoseconds of a time with a unit, like 1.5s, or 78,267.77 us as wxParaver shows it; 0 needs none."""
    match = _TIME.fullmatch(text.strip())
    if text.strip() == "0":
        return 0
    if not match:
        raise UsageError(f"'{text}' is not a time with a unit (ns, us, ms, s), like 250ms")
    unit = _TIMES[match[3]]
    fraction = match[2] or ""
    return int(match[1].replace(",", "")) * unit + int(fraction or 0) * unit // 10 ** len(fraction)


def parse_window(text: str) -> tuple[int | None, int | None]:
    """Return the limits (ns) of FROM:TO; a limit that is not typed is None."""
    limits = text.split(":")
    if len(limits) != 2:
        raise UsageError("write FROM:TO with units, like 1.5s:2s, :800ms or 2s:")
    low, high = (parse_time(limit) if limit else None for limit in limits)
    return low, high


def parse_job_time(text: str) -> tuple[int | None, int | None] | str:
    """Return the limits (ns) of FROM:TO, or the word for the time of the GPUs."""
    if text.strip().lower() == GPU_TIME:
        return GPU_TIME
    if ":" not in text:
        raise UsageError("write FROM:TO with units, like 1.5s:2s, :800ms or 2s:, or gpu")
    return parse_window(text)


def parse_steps(text: str) -> tuple[int | None, int | None]:
    """Return the first and last step of FIRST:LAST, or of one number; a limit that is not typed is None."""
    match = re.fullmatch(rf"\s*({_DIGITS})?(?:(:)\s*({_DIGITS})?)?\s*", text)
    if not match or not (match[1] or match[3]):
        raise UsageError("write FIRST:LAST with the numbers of steps, like 3:8, 3:, :8 or 3")
    first, last = (int(limit) if limit else None for limit in (match[1], match[3]))
    return first, last if match[2] else first


def parse_numbers(text: str) -> frozenset[int]:
    """Return the numbers of a list like 0-3,8."""
    numbers: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(rf"\s*({_DIGITS})(?:-({_DIGITS}))?\s*", part)
        if not match or (match[2] and int(match[2]) < int(match[1])):
            raise UsageError(f"'{part}' is not a number or range such as 0-3")
        first, last = int(match[1]), int(match[2] or match[1])
        if last - first >= MOST_NUMBERS:
            raise UsageError(f"'{part}' is longer than any job")
        numbers.update(range(first, last + 1))
    return frozenset(numbers)


def parse_integer(text: str, minimum: int | None) -> int:
    """Return a number that is not less than `minimum`."""
    if not re.fullmatch(rf"\s*-?{_DIGITS}\s*", text):
        raise UsageError("write a whole number")
    if minimum is not None and int(text) < minimum:
        raise UsageError(f"must be at least {minimum}")
    return int(text)


def parse_names(text: str) -> tuple[str, ...]:
    """Return the names of a list with commas."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def parse_min_durations(texts: Iterable[str]) -> dict[str, int]:
    """Return the lengths (ns) by source of texts like SOURCE=10us."""
    shortest = {}
    for text in texts:
        source, _, length = text.partition("=")
        if not source or not length:
            raise UsageError("write SOURCE=TIME, like cuda_api=10us")
        shortest[source] = parse_time(length)
    return shortest


def parse_size(text: str) -> int:
    """Return the bytes of a size with a unit, like 2G; 0 needs no unit."""
    if text.strip() == "0":
        return 0
    match = _SIZE.fullmatch(text.strip())
    if not match:
        raise UsageError("write a size with a unit (K, M, G, T), like 2G")
    return int(float(match[1]) * _SIZES[match[2].upper()])
