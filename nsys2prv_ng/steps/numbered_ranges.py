"""Finds the NVTX push/pop ranges whose numbers count the steps of a job.

They are the ranges of one name with a number ("step 7") of which every task with numbered ranges has several, on one
thread, one after the other in the order of their numbers. Captures may begin and end within different steps: the steps
that all tasks have count, if they began about when the others did (`keep_shared`). Of a process with several captures,
numbers may be missing between these. If several names qualify, the name that covers most time wins. It must cover a
minimum share of the job's time (_LEAST).

A range that had not ended when the capture ended is not a step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from nsys2prv_ng import source_names
from nsys2prv_ng.arrays import groups
from nsys2prv_ng.arrays.row_keys import list_indices, mark_duplicates, sort_rows
from nsys2prv_ng.arrays.types import BoolArray, IntArray, pick
from nsys2prv_ng.intervals.step_functions import find_latest
from nsys2prv_ng.objects.tree import ObjectTree
from nsys2prv_ng.reading.opened_events import ABSENT, NvtxRanges, load_nvtx_ranges
from nsys2prv_ng.reading.read_reports import ReportRecords
from nsys2prv_ng.records.store import Store
from nsys2prv_ng.runtime.parallel import Engine
from nsys2prv_ng.steps.numbered_names import find_templates

FEWEST = 3
"""Minimum number of ranges that make steps."""
_LEAST = 1_000
"""Steps cover at least 1/_LEAST of the job's time, because PyTorch also numbers operations, which may be few."""


class NumberedRanges(NamedTuple):
    """The numbered push/pop ranges of the default domain in one report.

    `candidates`: those whose names may be steps: task, row, name, number, report (index), begin, end (ns).
    """

    tasks: IntArray
    names: list[str]
    candidates: groups.Table


def list_numbered(
    reports: Sequence[ReportRecords], tree: ObjectTree, store: Store, engine: Engine
) -> Iterator[tuple[NumberedRanges, NumberedRanges]]:
    """Yield the numbered ranges of each report: those with the number as their last word, and those with another."""
    reports_with_rows = list(zip(range(len(reports)), reports, tree.rows, strict=True))
    return engine.sum_up(lambda each: _load_numbered(*each, tree, store), reports_with_rows)


def _load_numbered(
    index: int, report: ReportRecords, rows: IntArray, tree: ObjectTree, store: Store
) -> tuple[NumberedRanges, NumberedRanges]:
    """Return the numbered ranges of a report, of two kinds.

    PyTorch numbers every operation. Only names whose numbers are consecutive in each task may be steps, so only their
    ranges are kept.
    """
    ranges = load_nvtx_ranges(report, store, lambda domain: domain == "")
    names = [name for _, name in ranges.keys]
    has_number = ranges.number != ABSENT
    last = np.flatnonzero(has_number)
    found = find_templates(names, FEWEST)
    others = np.flatnonzero(~has_number)
    first, after = (np.searchsorted(found.name, ranges.key[others], side) for side in ("left", "right"))
    chosen = list_indices(first, after - first)
    others = np.repeat(others, after - first)
    templates, template = np.unique(found.template[chosen].astype(str), return_inverse=True)
    numbered = {**tabulate(index, ranges, others, rows, tree), "number": found.number[chosen]}
    return (
        _keep_consecutive(tabulate(index, ranges, last, rows, tree), ranges.key[last], names, ranges.key[last], names),
        _keep_consecutive(numbered, template, templates.tolist(), ranges.key[others], names),
    )


def _keep_consecutive(
    table: groups.Table, key: IntArray, names: list[str], text: IntArray, texts: list[str]
) -> NumberedRanges:
    """Return numbered ranges (n), of which only those may be steps whose names have consecutive numbers.

    `key`, `text`: the index of each range's name, or template, in `names`, and of its text in `texts`.
    """
    kept = np.flatnonzero(_mark_consecutive(table, key))
    own = {"name": groups.make_objects(names)[key[kept]], "text": groups.make_objects(texts)[text[kept]]}
    candidates = {**groups.take_rows(table, kept), **own}
    return NumberedRanges(np.unique(table["task"]), [names[number] for number in np.unique(key)], candidates)


def tabulate(report: int, ranges: NvtxRanges, chosen: IntArray, rows: IntArray, tree: ObjectTree) -> groups.Table:
    """Return task, row, number (ABSENT without one), report, begin and end (ns) of chosen ranges of a report."""
    row = rows[ranges.place[chosen]].astype(np.int64)
    return {
        "task": tree.task_of_row[row].astype(np.int64),
        "row": row,
        "number": ranges.number[chosen],
        "report": np.full(row.size, report),
        "begin": ranges.begin[chosen],
        "end": ranges.end[chosen],
    }


def _mark_consecutive(table: groups.Table, name: IntArray) -> BoolArray:
    """Mark ranges (n) whose name has consecutive numbers, one after the other on one thread, in all tasks."""
    task, row, number, begin, end = (table[column] for column in ("task", "row", "number", "begin", "end"))
    order = np.lexsort((begin, task, name))
    first, later = order[:-1], order[1:]
    follows = (row[first] == row[later]) & (end[first] <= begin[later]) & (number[later] - number[first] == 1)
    wrong = (name[first] == name[later]) & (task[first] == task[later]) & ~follows
    return ~np.isin(name, name[later[wrong]])


class Marked(NamedTuple):
    """Numbered ranges that may be steps: their name, and as many as `candidates` of NumberedRanges has.

    `rivals`: whether there are ranges of another name, FEWEST or more, that lie outside of these.
    """

    name: str
    table: groups.Table
    rivals: bool


def choose_numbered(kind: Sequence[NumberedRanges], length: int, *, is_cut: bool) -> Marked | None:
    """Return the steps among numbered ranges of all reports; None if no name covers enough of `length` (ns).

    `is_cut`: whether captures ended within ranges, which `kind` then lacks.
    """
    tasks = np.unique(np.concatenate([ranges.tasks for ranges in kind])).size
    best: tuple[str, groups.Table] | None = None
    longest = tasks * (length // _LEAST)
    every = groups.group_rows(groups.join_tables([ranges.candidates for ranges in kind]), "name")
    for named in every:
        table = keep_shared(named, is_cut=is_cut)
        covered = measure(table)
        if covered > longest and count_same(table, tasks) and is_in_order(table):
            best, longest = (str(table["name"][0]), table), covered
    if best is None:
        return None
    others = [other for other in every if other["task"].size >= FEWEST]
    return Marked(*best, any(2 * _count_inside(other, best[1]) < other["task"].size for other in others))


def measure(table: groups.Table) -> int:
    """Return the sum of the lengths (ns) of steps over all tasks."""
    return int((table["end"] - table["begin"]).sum())


def _count_inside(ranges: groups.Table, others: groups.Table) -> int:
    """Return how many ranges lie within others, which follow each other on each task."""
    order = sort_rows(others["task"], others["begin"])
    task, begin, end = (others[name][order] for name in ("task", "begin", "end"))
    found = find_latest(task, begin, ranges["task"], ranges["begin"])
    return int(np.count_nonzero(ranges["end"] <= pick(end, found, -1)))


def has_unended(reports: Sequence[ReportRecords]) -> bool:
    """Return whether the capture of a report ended within NVTX ranges."""
    return any(report.results[source_names.NVTX].unended for report in reports if source_names.NVTX in report.results)


def keep_shared(table: groups.Table, *, is_cut: bool) -> groups.Table:
    """Return the ranges with numbers that all tasks have; all ranges if equal numbers are not the same step.

    Captures may begin and end within different steps, but tasks may also number different steps alike. So most ranges
    of each task must begin or end nearer to the range of this number of the first task than to those of the numbers
    around it. `is_cut`: whether captures ended within ranges: then just a last step may be missing at any time.
    """
    tasks = np.unique(table["task"]).size
    distinct, number, count = np.unique(table["number"], return_inverse=True, return_counts=True)
    kept = count >= tasks
    left_out = distinct.size - np.count_nonzero(kept)
    shared = groups.take_rows(table, np.flatnonzero(kept[number]))
    if (is_cut and left_out == 1 and not kept[-1]) or (count[kept] != tasks).any():
        return shared
    order = sort_rows(shared["number"], shared["task"])
    begin, end = (shared[name][order].reshape(-1, tasks) for name in ("begin", "end"))
    is_near = 2 * np.sum(_mark_nearest(begin) | _mark_nearest(end), axis=0) > len(begin)
    return shared if begin.size and is_near.all() else table


def _mark_nearest(time: IntArray) -> BoolArray:
    """Mark where a time of a step (rows) on a task (columns) is as near to the first task's as those of the steps
    around it."""
    first, nearest = time[:, :1], np.ones(time.shape, np.bool_)
    own = np.abs(time - first)
    nearest[1:] &= own[1:] <= np.abs(time[:-1] - first[1:])
    nearest[:-1] &= own[:-1] <= np.abs(time[1:] - first[:-1])
    return nearest


def count_same(table: groups.Table, tasks: int) -> bool:
    """Return whether all tasks have the same numbers, at least FEWEST, none twice, and none left out in a capture."""
    number, count = np.unique(table["number"], return_counts=True)
    if number.size < FEWEST or (count != tasks).any() or mark_duplicates(table["task"], table["number"]).any():
        return False
    order, starts = groups.sort_groups([table["task"], table["report"]])
    low, high = (groups.reduce_groups(table["number"], order, starts, how) for how in ("min", "max"))
    return bool((high - low + 1 == np.diff(starts, append=order.size)).all())


def is_in_order(table: groups.Table) -> bool:
    """Return whether the ranges of each task are on one thread, one after the other in the order of their numbers."""
    order = sort_rows(table["task"], table["begin"])
    task, row, number, begin, end = (table[name][order] for name in ("task", "row", "number", "begin", "end"))
    in_order = (row[1:] == row[:-1]) & (begin[1:] >= end[:-1]) & (number[1:] > number[:-1])
    return bool(np.all((task[1:] != task[:-1]) | in_order))
