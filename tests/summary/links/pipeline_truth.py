"""Waits and idle time of the stages of a real pipeline, by plain SQL and loops over its reports."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from itertools import pairwise
from pathlib import Path

from tests.summary.links.links_truth import Message, read_utc

Spans = list[tuple[int, int]]
_RANGES = """SELECT n.start, n."end" FROM NVTX_EVENTS n LEFT JOIN StringIds s ON s.id = n.textId
    WHERE COALESCE(n.text, s.value) LIKE 'iteration %' ORDER BY n.start"""
_OPERATIONS = """SELECT r.start, o.start, o."end", o.name FROM (
        SELECT k.correlationId, k.start, k."end", s.value AS name FROM CUPTI_ACTIVITY_KIND_KERNEL k
        JOIN StringIds s ON s.id = k.shortName
    ) o JOIN CUPTI_ACTIVITY_KIND_RUNTIME r ON r.correlationId = o.correlationId ORDER BY o.start"""


class Rank:
    """The operations of a rank (UTC, ns): launch, begin, end, name; and the end of each step, on its GPU or host."""

    def __init__(self, report: Path) -> None:
        with closing(sqlite3.connect(report)) as database:
            utc = read_utc(database)
            ranges = [(utc + begin, utc + end) for begin, end in database.execute(_RANGES)]
            self.operations = [
                (utc + launch, utc + begin, utc + end, name)
                for launch, begin, end, name in database.execute(_OPERATIONS)
            ]
        self.ends = [
            max(stop, *(end for launch, _, end, _ in self.operations if begin <= launch <= stop))
            for begin, stop in ranges
        ]
        self.busy: Spans = []
        for _, begin, end, _ in self.operations:
            if self.busy and begin <= self.busy[-1][1]:
                self.busy[-1] = (self.busy[-1][0], max(self.busy[-1][1], end))
            else:
                self.busy.append((begin, end))


def read_ranks(reports: Sequence[Path]) -> list[Rank]:
    return [Rank(report) for report in reports]


def list_steps(ranks: Sequence[Rank]) -> Spans:
    """Return the steps after the first: each from the last rank's end of the step before to its own end."""
    ends = [max(rank.ends[step] for rank in ranks) for step in range(len(ranks[0].ends))]
    return list(pairwise(ends))


def list_waits(messages: Sequence[Message], begins: dict[tuple[int, int], int], number: int, *, sends: bool) -> Spans:
    """Return the waits of a rank in its kernels that send, or receive, until the other side has started.

    `begins`: the start of each kernel, by rank and correlation id.
    """
    waits = []
    for message in messages:
        own, other = (message.sender, message.receiver) if sends else (message.receiver, message.sender)
        if own == number:
            mine, theirs = message.correlations if sends else message.correlations[::-1]
            begin, until = begins[own, mine], begins[other, theirs]
            until = min(until, message.send_end if sends else message.end)
            waits += [(begin, until)] if until > begin else []
    return waits


def list_idle(rank: Rank, waits: Spans, steps: Spans, others: Sequence[Rank]) -> Spans:
    """Return when a GPU was idle right before a wait, or after its end of a step until another stage's end of it."""
    gaps = [(before[1], after[0]) for before, after in pairwise(rank.busy)]
    gaps.append((rank.busy[-1][1], steps[-1][1]))
    starts = {begin for begin, _ in waits}
    idle: Spans = []
    for begin, end in gaps:
        if end in starts:
            idle.append((begin, end))
            continue
        for step in range(1, len(rank.ends)):
            low, high = max(begin, rank.ends[step]), min(end, max(other.ends[step] for other in others))
            idle += [(low, high)] if high > low else []
    return idle


def measure_inside(spans: Spans, steps: Spans) -> list[int]:
    """Return how much of the spans is in each step."""
    return [sum(max(0, min(end, high) - max(begin, low)) for begin, end in spans) for low, high in steps]
