"""Parses typed text. Every function raises UsageError with a message that says what to type instead."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from nsys2prv_ng.errors import UsageError
from nsys2prv_ng.options.checked import GPU_TIME

_TIMES = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}
_TIME = re.compile(r"(\d+)(?:\.(\d*))?(ns|us|ms|s)")
_SIZES = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)([KMGT])i?B?", re.IGNORECASE)
_MOST_NUMBERS = 10**6
_REPORT_ENDINGS = (".nsys-rep", ".qdrep", ".sqlite", "_pqtdir", "_arwdir")


def parse_time(text: str) -> int:
    """Return the nanoseconds of a time with a unit, like 1.5s; 0 needs no unit."""
    match = _TIME.fullmatch(text.strip())
    if text.strip() == "0":
        return 0
    if not match:
        raise UsageError(f"'{text}' is not a time with a unit (ns, us, ms, s), like 250ms")
    unit = _TIMES[match[3]]
    fraction = match[2] or ""
    return int(match[1]) * unit + int(fraction or 0) * unit // 10 ** len(fraction)


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
    match = re.fullmatch(r"\s*(\d*)(?:(:)\s*(\d*))?\s*", text)
    if not match or not (match[1] or match[3]):
        raise UsageError("write FIRST:LAST with the numbers of steps, like 3:8, 3:, :8 or 3")
    first, last = (int(limit) if limit else None for limit in (match[1], match[3]))
    return first, last if match[2] else first


def parse_numbers(text: str) -> frozenset[int]:
    """Return the numbers of a list like 0-3,8."""
    numbers: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", part)
        if not match or (match[2] and int(match[2]) < int(match[1])):
            raise UsageError(f"'{part}' is not a number or range such as 0-3")
        first, last = int(match[1]), int(match[2] or match[1])
        if last - first >= _MOST_NUMBERS:
            raise UsageError(f"'{part}' is longer than any job")
        numbers.update(range(first, last + 1))
    return frozenset(numbers)


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


def parse_percent(text: str) -> float:
    """Return the part of a whole that a percentage like 5% is."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*%\s*", text)
    if not match:
        raise UsageError(f"'{text}' is not a percentage, like 5%")
    return float(match[1]) / 100


def split_sides(words: Sequence[str], between: str) -> list[list[Path]]:
    """Return the files of each side. Saved summaries alone need nothing between them: each is a side.

    Raises UsageError for less than two sides and for one without files.
    """
    if between not in words and len(words) > 1 and all(word.endswith(".json") for word in words):
        return [[Path(word)] for word in words]
    sides: list[list[Path]] = [[]]
    for word in words:
        if word == between:
            sides.append([])
        else:
            sides[-1].append(Path(word))
    if len(sides) < 2 or not all(sides):
        raise UsageError("write -- between the runs: nsys2prv-ng compare BEFORE... -- AFTER...")
    return sides


def split_reports_and_trace(paths: list[Path], *, compress: bool) -> tuple[list[Path], Path]:
    """Return the reports and the trace of REPORT... OUT.prv."""
    *reports, output = paths
    if not output.name.endswith((".prv", ".prv.gz")):
        what = "is a report; " if output.name.endswith(_REPORT_ENDINGS) else ""
        raise UsageError(f"{output}: {what}the last argument must be the trace to write, OUT.prv or OUT.prv.gz")
    if not reports:
        raise UsageError(f"no report to translate into {output}: nsys2prv-ng REPORT... OUT.prv")
    if compress and output.suffix != ".gz":
        output = output.with_name(output.name + ".gz")
    return reports, output
