"""Finds the steps of a program: the iterations that each rank marks with NVTX ranges, or shows by repeating kernels.

Definitions (steps/marks.py defines what marks a step, and steps/spans.py when it ends):

- A step of the job ends when the last task ends it, and starts when the step before it ended: steps tile the time of a
  capture. The first step of each capture (a report of each task) starts when its first range does. Without GPU
  operations, a step is as long as its longest range on any task.
- The first step is warm-up. So are the steps that follow it, up to half of all steps, as long as each is slower than
  the median of the steps that are called alike by more than three median deviations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from nsys2prv_ng.arrays.groups import take_rows
from nsys2prv_ng.arrays.row_keys import find_starts, sort_rows
from nsys2prv_ng.arrays.types import IntArray, IntTable, find_most_at
from nsys2prv_ng.intervals.step_functions import unite_windows
from nsys2prv_ng.objects.tree import ObjectTree
from nsys2prv_ng.reading.read_reports import ReportRecords
from nsys2prv_ng.records.store import Store
from nsys2prv_ng.runtime.parallel import Engine
from nsys2prv_ng.steps.kinds import find_kinds
from nsys2prv_ng.steps.marks import find_marks
from nsys2prv_ng.steps.spans import HostSpans, find_gpu_ends


class Steps(NamedTuple):
    """m steps of a job, made up of n spans: one for each task and step. Times are on the common clock.

    - `delimiter`: what recurs at the end of each step, if no NVTX ranges mark the steps: `CUDA graph`, or the name of a
      kernel.
    - `similarity`: how similar the operations of steps are that no ranges mark, from 0 to 1 (steps/work.py); else 1.
    - `repeats`: how many shorter periods each of these contains; else 1.
    - `on_gpu`: whether steps end with the GPU operations that they launched; else they are ranges on hosts.
    - `number`: number of each step (m), ascending; `warmup`: how many at the start are warm-up.
    - `start`, `stop`: start and end (ns) of each step of the job (m).
    - `task`: task of the whole tree (n). Spans are sorted by task and step.
    - `row`: row of the whole tree: the thread that opened the range, or the first thread of the task; -1 without one.
    - `step`: index of the step of each span.
    - `begin`, `end`: start and end (ns) of each step on its task (n).
    - `host_begin`, `host_end`: start and end (ns) of the range that marks it (n).
    - `kinds`: names of the kinds of steps (steps/kinds.py), the most frequent first; "" if there is one only.
    - `kind`: index of each step's kind (m); `batches`: requests and tokens of each step (m x 4), or m x 0.
    """

    name: str
    delimiter: str
    similarity: float
    repeats: int
    on_gpu: bool
    number: IntArray
    warmup: int
    start: IntArray
    stop: IntArray
    task: IntArray
    row: IntArray
    step: IntArray
    begin: IntArray
    end: IntArray
    host_begin: IntArray
    host_end: IntArray
    kinds: tuple[str, ...]
    kind: IntArray
    batches: IntTable

    @property
    def has_ranges(self) -> bool:
        """Whether NVTX ranges mark the steps."""
        return not self.delimiter

    @property
    def length(self) -> IntArray:
        """Length of each step of the job (m, ns)."""
        return self.stop - self.start if self.on_gpu else self.host_length

    @property
    def host_length(self) -> IntArray:
        """Length of the longest range of each step (m, ns)."""
        return _find_latest(self.step, self.host_end - self.host_begin, self.number.size)

    @property
    def host(self) -> HostSpans:
        """The ranges that mark the steps."""
        return HostSpans(self.task, self.host_begin, self.host_end)

    def list_windows(self, chosen: IntArray) -> list[tuple[int, int]]:
        """Return the time of the steps at these ascending indices (ns): several windows if they do not touch."""
        if self.on_gpu:
            return unite_windows(self.start[chosen], self.stop[chosen])
        first = find_starts(chosen - np.arange(chosen.size))  # ranges of steps that follow each other are one window
        last = np.append(first[1:], chosen.size) - 1
        return unite_windows(self.start[chosen[first]], self.stop[chosen[last]])

    def take(self, chosen: IntArray) -> Steps:
        """Return the steps at these indices, which are ascending."""
        spans = np.isin(self.step, chosen)
        columns = {name: getattr(self, name)[spans] for name in _OF_SPANS}
        columns["step"] = np.searchsorted(chosen, columns["step"])
        return self._replace(**columns, **{name: getattr(self, name)[chosen] for name in _OF_STEPS})


_OF_STEPS = ("number", "start", "stop", "kind", "batches")
_OF_SPANS = ("task", "row", "step", "begin", "end", "host_begin", "host_end")


def _find_latest(step: IntArray, column: IntArray, steps: int) -> IntArray:
    """Return the maximum of a column (n) in each step (m)."""
    return find_most_at(column, step, steps, np.iinfo(np.int64).min)


def find_steps(
    reports: Sequence[ReportRecords], tree: ObjectTree, store: Store, length: int, engine: Engine, name: str = ""
) -> Steps | None:
    """Return the steps of a job, which lasts `length` (ns); None if it shows no steps.

    Expects reports whose records no window has cut. Each piece of work has the records of one task in memory. `name`:
    the name of the ranges that the user calls steps. Raises UsageError if they cannot be steps.
    """
    marks = find_marks(reports, tree, store, length, engine, name)
    if marks is None:
        return None
    table = take_rows(marks.table, sort_rows(marks.table["task"], marks.table["number"]))
    number, step = np.unique(table["number"], return_inverse=True)
    task, row, begin, end, report = (table[column] for column in ("task", "row", "begin", "end", "report"))
    gpu_end = find_gpu_ends(HostSpans(task, begin, end), reports, tree, store, engine, are_ranges=not marks.delimiter)
    start, stop = -_find_latest(step, -begin, number.size), _find_latest(step, end, number.size)
    host_begin, host_end = begin, end
    if gpu_end is not None:
        begin, end = np.append(begin[:1], gpu_end[:-1]), gpu_end
        # Each report is a capture: the time between two is of no step.
        opens = np.isin(np.arange(task.size), find_starts(task, report))
        begin[opens] = host_begin[opens]
        stop = _find_latest(step, end, number.size)
        all_open = -_find_latest(step, -opens.astype(np.int64), number.size) > 0
        start = np.where(all_open, np.maximum(start, np.append(start[:1], stop[:-1])), np.append(start[:1], stop[:-1]))
    steps = Steps(
        name=marks.name,
        delimiter=marks.delimiter,
        similarity=marks.similarity,
        repeats=marks.repeats,
        on_gpu=gpu_end is not None,
        number=number,
        warmup=0,
        start=start,
        stop=stop,
        task=task,
        row=row,
        step=step.astype(np.int64),
        begin=begin,
        end=end,
        host_begin=host_begin,
        host_end=host_end,
        kinds=("",),
        kind=np.zeros(number.size, np.int64),
        batches=np.zeros((number.size, 0), np.int64),
    )
    told = steps.host, steps.step, steps.length, table.get("text")
    kinds = find_kinds(*told, (reports, tree, store), are_ranges=steps.has_ranges)
    return steps._replace(kinds=kinds.names, kind=kinds.kind, batches=kinds.batches, warmup=kinds.warmup)
