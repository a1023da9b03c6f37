"""What streams repeat, by trying every period: SQL on the reports and plain comparisons, nothing of the translator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from tests.report_truth import Report

FEWEST = 3


class Repetitions(NamedTuple):
    """Begin and end (UTC) of the repetitions of a process."""

    begin: list[int]
    end: list[int]


def find_longest(names: Sequence[str]) -> tuple[int, int, int] | None:
    """Return (first, last, period) of the longest part of a text that repeats three times, of the shortest period."""
    codes = np.unique(np.array(names, object).astype(str), return_inverse=True)[1] if len(names) else np.zeros(0)
    best = None
    for period in range(2, len(names) // FEWEST + 1):
        stops = np.append(np.flatnonzero(codes[:-period] != codes[period:]), len(names) - period)
        starts = np.append(0, stops[:-1] + 1)
        longest = int(np.argmax(stops - starts))
        first, size = int(starts[longest]), int(stops[longest] - starts[longest]) + period
        is_long = size >= FEWEST * period and 2 * size >= len(names)
        if is_long and (best is None or size > best[1] - best[0]) and len(set(codes[first : first + period])) > 1:
            best = first, first + size, period
    return best


def find_repetitions(reports: Sequence[Report]) -> dict[tuple[int, int], Repetitions] | None:
    """Return the repetitions by (index of the report, process); None where the processes do not agree."""
    found = {}
    for index, report in enumerate(reports):
        kernels = report.operations[report.operations["table"] == "KERNEL"]
        for process, own in kernels.groupby("process"):
            repetitions = find_in_process(own, report.utc)
            if repetitions is None:
                return None
            found[index, int(process)] = repetitions
    counts = {len(own.begin) for own in found.values()}
    if len(counts) != 1:
        return None
    for number in range(counts.pop()):
        if max(own.begin[number] for own in found.values()) >= min(own.end[number] for own in found.values()):
            return None
    return found


def find_in_process(kernels: pd.DataFrame, utc: int) -> Repetitions | None:
    """Return the repetitions of the stream with most kernels that has some."""
    length = kernels["end"].max() - kernels["begin"].min()
    streams = [own.sort_values("begin") for _, own in kernels.groupby(["device", "context", "stream", "lane"])]
    for own in sorted(streams, key=len, reverse=True)[:4]:
        stretch = find_longest(own["name"].tolist())
        if stretch is None:
            continue
        first, last, period = stretch
        begin, end = own["begin"].tolist(), own["end"].tolist()
        starts = list(range(choose_first(begin, end, first, last, period), last, period))
        limits = [begin[start] + utc for start in starts]
        if len(limits) > FEWEST and 2 * (limits[-1] - limits[0]) >= length:
            return Repetitions(limits[:-1], limits[1:])
    return None


def choose_first(begin: Sequence[int], end: Sequence[int], first: int, last: int, period: int) -> int:
    """Return the kernel that the stream is idle longest before, at the median of all repetitions but the first."""
    idle = []
    for start in range(first, first + period):
        later = [start + number * period for number in range(1, (last - first) // period)]
        idle.append(float(np.median([begin[at] - end[at - 1] for at in later])))
    return first + idle.index(max(idle))
