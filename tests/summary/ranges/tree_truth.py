"""What a range tree must show, by plain SQL and loops over ranges and launches."""

from __future__ import annotations

import re
import sqlite3
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from tests.report_truth import Report

_TABLES = ("KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE")
Own = dict[tuple[str, ...], tuple[int, int]]
"""Time of the operations (ns) launched in a path of ranges and in no range within it, and their number."""


class Range(NamedTuple):
    """A push/pop range; ranges of a thread sort from the outside inwards."""

    begin: int
    minus_end: int
    thread: int
    text: str
    name: str

    @property
    def sequence(self) -> int | None:
        """The number that PyTorch writes into the text."""
        found = re.search(r", seq = ([0-9]+)(,|$)", self.text)
        return int(found[1]) if found else None


class Launched(NamedTuple):
    """An operation: the names of the ranges around its launch, its table, process (in nsys's form), device, times."""

    path: tuple[str, ...]
    table: str
    process: int
    device: int
    begin: int
    end: int


def project(report: Path, names: dict[str, str]) -> Own:
    """Return the time and number of the operations that were launched in each path of ranges."""
    sums: dict[tuple[str, ...], list[int]] = defaultdict(lambda: [0, 0])
    for each in list_launched(report, names):
        sums[each.path][0] += each.end - each.begin
        sums[each.path][1] += 1
    return {path: (ns, count) for path, (ns, count) in sums.items()}


def list_launched(report: Path, names: dict[str, str]) -> list[Launched]:
    """Return which ranges contain the call that launched each operation, by a loop over the calls of each thread.

    `names`: the names that the project gives to texts, whose rules other tests check.
    """
    with closing(sqlite3.connect(report)) as database:
        tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        calls: dict[tuple[int, int], tuple[int, int]] = {}
        query = """SELECT globalTid >> 24, correlationId, start, globalTid
            FROM CUPTI_ACTIVITY_KIND_RUNTIME ORDER BY start DESC"""
        for process, correlation, start, thread in database.execute(query):
            calls[process, correlation] = start, thread
        operations = []
        for table in _TABLES:
            if f"CUPTI_ACTIVITY_KIND_{table}" in tables:
                query = f"""SELECT '{table}', globalPid, deviceId, correlationId, start, "end"
                    FROM CUPTI_ACTIVITY_KIND_{table}"""
                operations += database.execute(query).fetchall()
    ranges: dict[int, list[Range]] = defaultdict(list)
    frame = Report(report).nvtx
    for row in frame[frame["style"] == "push/pop"].itertuples():
        name = f"{row.domain}:{names[row.text]}" if row.domain else names[row.text]
        ranges[row.tid].append(Range(row.begin, -row.end, row.tid, row.text, name))
    for own in ranges.values():
        own.sort(key=lambda each: each[:2])
    moved = link(ranges)
    launched: list[Launched] = []
    by_call: dict[tuple[int, int], tuple[str, ...]] = {}
    for table, process, device, correlation, begin, end in operations:
        call = calls.get((process >> 24, correlation))
        path: tuple[str, ...] = ()
        if call is not None:
            if call not in by_call:
                by_call[call] = name_path(find_path(ranges, *call), moved, ranges)
            path = by_call[call]
        launched.append(Launched(path, table, process, device, begin, end))
    return launched


def find_path(ranges: dict[int, list[Range]], time: int, thread: int) -> list[Range]:
    """Return the ranges of a thread that contain a time; before the outermost, those of the main thread then.

    The main thread of a process has its number.
    """
    main = (thread >> 24 << 24) | (thread >> 24 & 0xFFFFFF)
    inside = find_around(ranges[thread], time)
    if thread == main:
        return inside
    return [*find_around(ranges[main], inside[0].begin if inside else time), *inside]


def find_around(ranges: list[Range], time: int) -> list[Range]:
    """Return the ranges of a thread, which are ordered by their start, that contain a time."""
    started = bisect_right(ranges, time, key=lambda each: each.begin)
    return [each for each in ranges[:started] if -each[1] >= time]


def name_path(path: list[Range], moved: dict[Range, Range], ranges: dict[int, list[Range]]) -> tuple[str, ...]:
    """Return the names of the ranges of a path, in which linked backward ranges are moved."""
    for position in reversed(range(len(path))):
        if path[position] in moved:
            forward = moved[path[position]]
            around = find_path(ranges, forward.begin, forward.thread)
            around = around[: around.index(forward) + 1]
            names = tuple(each.name for each in path[position:])
            return (*name_path(around, moved, ranges), "(backward)", *names)
    return tuple(each.name for each in path)


_ENGINE = "autograd::engine::evaluate_function: "


def link(ranges: dict[int, list[Range]], step: Callable[[int], int] = lambda begin: 0) -> dict[Range, Range]:
    """Return the range of the program that each linked backward range belongs to, by loops over the texts.

    `step`: returns the step of a time.
    """
    backward: dict[Range, int] = {}
    operators: dict[tuple[int, int, int], list[Range]] = defaultdict(list)
    for thread, own in ranges.items():
        open_ranges: list[Range] = []
        engines: list[Range] = []  # outermost backward ranges that are open: one at most
        for each in own:
            open_ranges = [other for other in open_ranges if -other.minus_end > each.begin]
            engines = [other for other in engines if -other.minus_end > each.begin]
            outer = open_ranges[-1] if open_ranges else None
            open_ranges.append(each)
            is_node = outer is not None and outer.name == _ENGINE + each.name
            is_node |= re.search(r"Backwards?[0-9]*$", each.name) is not None
            if each.sequence is not None and is_node:
                if not engines:
                    backward[each] = each.sequence
                elif outer == engines[-1] and outer.name == _ENGINE + each.name:
                    backward.setdefault(outer, each.sequence)
            elif each.sequence is not None:
                operators[thread >> 24, step(each.begin), each.sequence].append(each)
            if not engines and (each.name.startswith(_ENGINE) or (is_node and each.sequence is not None)):
                engines.append(each)
    moved = {}
    for each, sequence in backward.items():
        same = operators[each.thread >> 24, step(each.begin), sequence]
        before = [operator for operator in same if operator.begin <= each.begin]
        if len({operator.thread for operator in before}) != 1:
            continue
        last = max(before)
        around = find_path(ranges, last.begin, last.thread)
        around = around[: around.index(last)]
        while around and is_operator(around[-1]):
            around.pop()
        if around and -around[-1].minus_end < each.begin:
            moved[each] = around[-1]
    return moved


def is_operator(each: Range) -> bool:
    return each.sequence is not None or re.match("(aten|torch|autograd)::", each.name) is not None
