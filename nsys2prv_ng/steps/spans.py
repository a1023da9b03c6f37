"""Finds which work belongs to which step, and when the steps of GPUs end.

Definitions:

- Ranges on hosts mark the steps. What a host did belongs to the step whose range ends next, and a GPU operation belongs
  to the step in which its process launched it, on any thread. So what happens between two ranges belongs to the later
  one.
- Hosts run ahead of their GPUs. So step k of a task ends when the last operation ends that was launched while its k-th
  range was open, or when the range ends if that is later. It starts when step k - 1 ended, and the first one when its
  range starts.
- Without any such operation, the steps of all tasks are their ranges. An operation without a recorded launch ends no
  step.
- If no ranges mark the steps, launches do (steps/repetition.py), or without any the starts of operations: then a step
  ends with its operations alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from nsys2prv_ng.arrays.row_keys import find_starts
from nsys2prv_ng.arrays.types import IntArray, find_most_at, pick
from nsys2prv_ng.intervals.step_functions import find_latest
from nsys2prv_ng.objects.tree import ObjectTree
from nsys2prv_ng.reading.device_operations import load_launched_operations
from nsys2prv_ng.reading.read_reports import ReportRecords
from nsys2prv_ng.records.store import Store
from nsys2prv_ng.runtime.parallel import Engine

_NEVER = np.iinfo(np.int64).min


class HostSpans(NamedTuple):
    """n ranges on hosts that mark steps, one for each task and step, sorted by both: task, begin and end (ns)."""

    task: IntArray
    begin: IntArray
    end: IntArray

    def find(self, task: IntArray, time: IntArray) -> IntArray:
        """Return the range to whose step each time (ns) of a task's host belongs; -1 if it belongs to no step."""
        since = self.begin.copy()
        later = np.setdiff1d(np.arange(since.size), find_starts(self.task))
        since[later] = self.end[later - 1] + 1
        found = find_latest(self.task, since, task, time)
        return np.where(time <= pick(self.end, found, np.iinfo(np.int64).max), found, -1)


def find_gpu_ends(
    spans: HostSpans,
    reports: Sequence[ReportRecords],
    tree: ObjectTree,
    store: Store,
    engine: Engine,
    *,
    are_ranges: bool,
) -> IntArray | None:
    """Return when the step of each range ends (n, ns); None if no operation was launched in any range.

    `are_ranges`: whether they are NVTX ranges, which must have ended; else the launches of operations. Each piece of
    work has the operations of one report in memory.
    """

    def find(each: tuple[ReportRecords, IntArray]) -> tuple[IntArray, IntArray]:
        """Return the ranges in which the process of a report launched operations, and when the last of these ended."""
        report, rows = each
        operations = load_launched_operations(report, store)
        row = rows[operations.place]
        shown = np.flatnonzero((row >= 0) & (operations.is_known | (not are_ranges)))
        span = spans.find(tree.task_of_row[row[shown]].astype(np.int64), operations.launched[shown])
        inside = span >= 0
        inside &= operations.launched[shown] >= spans.begin[span]
        used, index = np.unique(span[inside], return_inverse=True)
        last = find_most_at(operations.end[shown[inside]], index, used.size, _NEVER)
        return used, last

    latest = np.full(spans.end.size, _NEVER)
    for used, last in engine.sum_up(find, list(zip(reports, tree.rows, strict=True))):
        np.maximum.at(latest, used, last)
    has_work = latest > _NEVER
    if not has_work.any():
        return None
    end = np.maximum(latest, spans.end if are_ranges else np.where(has_work, spans.begin, spans.end))
    for task in np.split(np.arange(end.size), find_starts(spans.task)[1:]):
        end[task] = np.maximum.accumulate(end[task])
    return end
