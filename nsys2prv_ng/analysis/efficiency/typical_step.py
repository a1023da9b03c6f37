"""Describes one typical step of a program: what each row did in it, and the NVTX ranges of some tasks.

It is the step whose length is nearest to the median of the steps that count (analysis/efficiency/windows.py), on a tie
the first. If short and long steps take turns, the median of the long steps, in which most time is spent, replaces it. A
step is as long as its longest span on any task, and reaches from its first start on any task to its last end.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nsys2prv_ng.analysis.efficiency.step_turns import find_turns
from nsys2prv_ng.analysis.waits.waits import Waits
from nsys2prv_ng.arrays.types import ByteArray, IntArray
from nsys2prv_ng.intervals.bins import make_edges, sum_states
from nsys2prv_ng.intervals.nesting import measure_depths
from nsys2prv_ng.intervals.states import FlatStates
from nsys2prv_ng.job.nvtx_ranges import is_program_domain, load_nvtx_ranges
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.job.opened_events import ABSENT
from nsys2prv_ng.job.steps import Steps
from nsys2prv_ng.text.formatting import shorten_range_name

MOST_CELLS = 1_000_000
_BINS = 100, 2_000
"""Fewest and most bins."""
MOST_TASKS = 8
"""Most tasks with ranges."""
MOST_RANGES = 400
"""Most ranges of a task: the longest ones."""
DEEPEST = 4
"""The deepest nesting of ranges; 1 is the outermost."""
_SHORTEST = 1_000
"""A range is shown if it lasts at least the step's length divided by this number."""


class StepSpan(NamedTuple):
    """A step of a job: number, begin and end (ns), and the task and row of each of its spans; -1 without a row."""

    name: str
    number: int
    length: int
    """Length (ns) on the task on which the step is longest."""
    begin: int
    end: int
    task: IntArray
    row: IntArray


def choose_step(steps: Steps) -> StepSpan:
    """Return the typical step among the steps that count."""
    longest = steps.find_latest(steps.end - steps.begin)
    turns = find_turns(longest)
    chosen = int(np.argmin(np.abs(longest - (np.median(longest) if turns is None else turns[1]))))
    spans = np.flatnonzero(steps.step == chosen)
    begin, end = int(steps.begin[spans].min()), int(steps.end[spans].max())
    return StepSpan(
        steps.name, int(steps.number[chosen]), int(longest[chosen]), begin, end, steps.task[spans], steps.row[spans]
    )


def make_step_edges(step: StepSpan, rows: int) -> IntArray:
    """Return the limits (ns) of the bins of a step: more rows make fewer bins."""
    fewest, most = _BINS
    return make_edges(step.begin, step.end, max(fewest, min(most, MOST_CELLS // max(rows, 1))))


class LongestStates:
    """The state that each row was in for most of each bin; on a tie, the lowest; 0 without a state."""

    def __init__(self, rows: IntArray, edges: IntArray, states: int) -> None:
        """Take `rows`, which are ascending, and the number of `states`, which are 1 to `states` - 1."""
        self.rows, self.edges, self._states = rows, edges, states
        self.state: ByteArray = np.zeros((rows.size, self.edges.size - 1), np.uint8)

    def add(self, flat: FlatStates) -> None:
        """Add the states of some rows; each row is added only once."""
        inside = (flat.begin < self.edges[-1]) & (flat.end > self.edges[0])
        rows, index = np.unique(flat.row[inside], return_inverse=True)
        part = FlatStates(index.astype(np.int64), *(column[inside] for column in flat[1:]))
        sums = sum_states(part, self.edges, rows.size, self._states)
        self.state[np.searchsorted(self.rows, rows)] = np.argmax(sums, axis=2)


# ---- ranges ----------------------------------------------------------------------------------------------------------


class StepRanges(NamedTuple):
    """n ranges of a task in a step, cut to it, ordered by start and depth; outermost ranges have depth 0. Times in ns.

    `hidden`: number of ranges that are omitted because they are too short, too deep or too many.
    """

    task: int
    depth: IntArray
    begin: IntArray
    end: IntArray
    names: list[str]
    hidden: int


def list_ranges(job: Job, waits: Waits, step: StepSpan) -> list[StepRanges]:
    """Return the push/pop ranges of some tasks in a step, on the threads of the step's spans.

    The tasks are the first ones, and always include the task for which the others waited longest. NCCL calls are not
    ranges of the program.
    """
    known = np.flatnonzero(step.row >= 0)
    awaited = known[step.task[known] == _find_most_awaited(job, waits)][:1]
    chosen = sorted(list(dict.fromkeys([*awaited.tolist(), *known.tolist()]))[:MOST_TASKS])
    return [_list_task_ranges(job, int(step.task[span]), int(step.row[span]), step) for span in chosen]


def _find_most_awaited(job: Job, waits: Waits) -> int:
    """Return the task (of the trace) for which the others waited longest; -1 if they waited for no task."""
    blamed = np.flatnonzero((waits.culprit >= 0) & (waits.until > waits.begin))
    row = job.new_row[waits.culprit[blamed]]
    caused = np.zeros(len(job.tree.model.tasks), np.int64)
    np.add.at(caused, job.tree.task_of_row[row[row >= 0]], waits.wait[blamed][row >= 0])
    return int(np.argmax(caused)) if caused.any() else -1


_NO_RANGES = np.zeros((4, 0), np.int64)


def _list_task_ranges(job: Job, task: int, row: int, step: StepSpan) -> StepRanges:
    names: list[str] = []
    parts = []
    for report, rows in zip(job.reports, job.tree.rows, strict=True):
        if row in rows:
            ranges = load_nvtx_ranges(report, job.store, is_program_domain)
            on_row = rows[ranges.place] == row
            ranges = ranges.select(on_row & (ranges.begin < step.end) & (ranges.end > step.begin))
            parts.append((ranges.begin, ranges.end, len(names) + ranges.key, ranges.number))
            names += [shorten_range_name(domain, name) for domain, name in ranges.keys]
    begin, end, name, number = (np.concatenate(column) for column in zip(_NO_RANGES, *parts, strict=True))
    depth = measure_depths(np.zeros(begin.size, np.int64), begin, end)
    begin, end = np.maximum(begin, step.begin), np.minimum(end, step.end)
    length = end - begin
    seen = np.flatnonzero((depth <= DEEPEST) & (length * _SHORTEST >= step.end - step.begin))
    seen = seen[np.lexsort((begin[seen], depth[seen], -length[seen]))[:MOST_RANGES]]
    seen = seen[np.lexsort((depth[seen], begin[seen]))]
    texts = [
        names[key] if suffix == ABSENT else f"{names[key]} {suffix}"
        for key, suffix in zip(name[seen].tolist(), number[seen].tolist(), strict=True)
    ]
    return StepRanges(task, depth[seen] - 1, begin[seen], end[seen], texts, int(depth.size - seen.size))
