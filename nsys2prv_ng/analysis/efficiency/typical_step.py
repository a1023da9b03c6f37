"""Describes one typical step of a program: what each row did in it, and the NVTX ranges of some tasks.

It is the step whose length is nearest to the median of the steps that count (job/counted.py), on a tie the first. If
steps are of several kinds, the two kinds with most time have a typical step each. Of one kind, no step is typical if
short and long steps take turns, or if less than half of the steps have about the median length. Two steps then stand
for them: those nearest to the medians of the longer and of the shorter half.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nsys2prv_ng.analysis.waits.waits import Waits
from nsys2prv_ng.arrays.types import ByteArray, IntArray
from nsys2prv_ng.intervals.nesting import measure_depths
from nsys2prv_ng.intervals.states import FlatStates, make_edges, sum_states
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.reading.opened_events import ABSENT, is_program_domain, load_nvtx_ranges
from nsys2prv_ng.steps.steps import Steps
from nsys2prv_ng.text.formatting import shorten_range_name
from nsys2prv_ng.value_class import ValueClass

MOST_CELLS = 1_000_000
"""Maximum number of cells (rows x bins) of a picture; each is a byte."""
_BINS = 100, 2_000
"""Fewest and most bins."""
_NEAR = 0.25
"""By how much, as a share of the median, a step of about the median length differs from it."""
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
    """Length of the step (ns)."""
    begin: int
    end: int
    task: IntArray
    row: IntArray


def choose_steps(steps: Steps) -> list[StepSpan]:
    """Return the typical step among the steps that count; two of several kinds, or a long and a short step."""
    length = steps.length
    kinds = np.bincount(steps.kind, length)
    if np.count_nonzero(kinds) > 1:
        members = [np.flatnonzero(steps.kind == kind) for kind in np.argsort(-kinds, kind="stable")[:2].tolist()]
        return [_describe(steps, int(own[np.argmin(np.abs(length[own] - np.median(length[own])))])) for own in members]
    middle = float(np.median(length))
    is_near = np.abs(length - middle) <= _NEAR * middle
    turns = find_turns(length)
    if turns is None and 2 * np.count_nonzero(is_near) >= length.size:
        return [_describe(steps, int(np.argmin(np.abs(length - middle))))]
    ordered = np.sort(length)
    half = length.size // 2
    short, long = turns or (float(np.median(ordered[:half])), float(np.median(ordered[-half:])))
    return [_describe(steps, int(np.argmin(np.abs(length - wanted)))) for wanted in (long, short)]


def find_step(steps: Steps, number: int) -> StepSpan:
    """Return the step with a number, which there is."""
    return _describe(steps, int(np.flatnonzero(steps.number == number)[0]))


def _describe(steps: Steps, chosen: int) -> StepSpan:
    spans = np.flatnonzero(steps.step == chosen)
    return StepSpan(
        name=steps.name,
        number=int(steps.number[chosen]),
        length=int(steps.length[chosen]),
        begin=int(steps.start[chosen]),
        end=max(int(steps.stop[chosen]), int(steps.start[chosen]) + 1),  # a step may take no time on the GPUs
        task=steps.task[spans],
        row=steps.row[spans],
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


class RangeBar(ValueClass, kw_only=True):
    """An NVTX push/pop range, cut to a step; depth 0 is the outermost. Times (ns) count from the job's `zero`."""

    depth: int
    begin_ns: int
    end_ns: int
    name: str


class RangesOfTask(ValueClass, kw_only=True):
    """The ranges of a task in a step, ordered by start and depth."""

    label: str
    bars: list[RangeBar]
    hidden: int
    """The number of ranges that are left out because they are too short, too deep or too many."""


def list_ranges(job: Job, waits: Waits, step: StepSpan) -> list[RangesOfTask]:
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


def _list_task_ranges(job: Job, task: int, row: int, step: StepSpan) -> RangesOfTask:
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
    columns = (column[seen].tolist() for column in (depth - 1, begin - job.scope.zero, end - job.scope.zero))
    bars = [
        RangeBar(depth=level, begin_ns=start, end_ns=stop, name=text)
        for level, start, stop, text in zip(*columns, texts, strict=True)
    ]
    return RangesOfTask(label=job.tree.model.tasks[task].name, bars=bars, hidden=int(depth.size - seen.size))


# ---- steps that take turns -------------------------------------------------------------------------------------------


_FEWEST = 4
"""Fewest steps of each length."""
_LONGER = 1.25
"""How many times as long as short steps the long steps are, at least."""
_MOST = 0.9
"""Share of the steps that must take turns."""


def find_turns(ns: IntArray) -> tuple[int, int] | None:
    """Return the medians (ns) of short and long steps, from the lengths of all steps in order; None without turns."""
    if ns.size < 2 * _FEWEST:
        return None
    low, high = sorted((ns[::2], ns[1::2]), key=lambda half: float(np.median(half)))
    short, long = (round(float(np.median(half))) for half in (low, high))
    limit = (short + long) / 2
    regular = np.count_nonzero(low < limit) + np.count_nonzero(high > limit)
    return (short, long) if long >= _LONGER * short and regular >= _MOST * ns.size else None
