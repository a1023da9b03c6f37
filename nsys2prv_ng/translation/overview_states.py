"""Makes the states and GPU activity of an overview: exact on rows with few states, in steps of time on the others.

How many bytes the parts of an overview may take, and the steps of time that result, follow from the numbers of rows,
records and digits alone, so they are the same on every machine.

A coarse row shows in each step the state that covers most of it. The bytes decide on the length of the steps. At first
they are long enough to fit even if every step differs from the step before. Then they are halved for as long as the
lines fit. Finally as many rows as fit become exact, rows with few states first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from nsys2prv_ng.analysis.gpus.activity import get_values, list_activity_runs, list_runs
from nsys2prv_ng.arrays.types import BoolArray, IntArray
from nsys2prv_ng.intervals.bins import coarsen
from nsys2prv_ng.intervals.states import FlatStates
from nsys2prv_ng.intervals.step_functions import measure_durations
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver.encode import encode
from nsys2prv_ng.paraver.event_type import EventType
from nsys2prv_ng.records.columns import Pair, Records, make_events, make_states
from nsys2prv_ng.records.runs import Run, load_records, store_records
from nsys2prv_ng.translation.derived_records import GPUS
from nsys2prv_ng.value_class import ValueClass

MOST_BYTES = 100_000_000
"""Maximum size of the .prv of an overview (bytes)."""
STEPS_PERCENT, WAITS_PERCENT, SHARES_PERCENT, METRICS_PERCENT = 10, 10, 25, 15
"""Percentage of the bytes for steps, waits, GPU activity and GPU metrics. States get the rest."""
MOST_BINS = 4000
"""Maximum number of bins of a counter: more than a screen can show."""
_TYPE_DIGITS = 8
"""Number of digits of an event type."""


class LineSizes(ValueClass):
    """Upper limits of the line lengths of a trace (bytes), from the digits of its objects and times.

    `place`: kind and object, with the colons around them.
    """

    place: int
    time: int

    @property
    def state(self) -> int:
        return self.place + 2 * self.time + len(":25\n") + 1

    def count_event(self, *value_digits: int) -> int:
        """Return the bytes of an event line with one pair for each given number of value digits."""
        return self.place + self.time + sum(2 + _TYPE_DIGITS + digits for digits in value_digits) + 1


class CoarseRows(NamedTuple):
    """Stored records in which some rows are coarse: they are shown in steps of time.

    `step`: length of a step (ns), 0 if no row is coarse. `rows`: number of coarse rows.
    """

    runs: list[Run]
    step: int
    rows: int


def measure_line_sizes(job: Job) -> LineSizes:
    """Return upper limits of the line lengths of a job's trace."""
    _, size = job.tree.model.number_rows().texts
    return LineSizes(1 + int(size.max(initial=0)), len(str(job.scope.duration)))


def measure_bytes(job: Job, runs: Iterable[Run]) -> int:
    """Return the bytes of the lines of runs that have the rows, type numbers and times of the trace."""
    rows = job.tree.model.number_rows()
    return sum(encode(load_records(run, job.store), np.arange(len(run)), rows, job.scope.origin).size for run in runs)


def round_step(duration: int, bins: int) -> int:
    """Return the bin length (ns) for at most `bins` bins of a duration, rounded up to two digits: 1,300,000."""
    length = max(1, -(-duration // max(1, bins)))
    digit = 10 ** max(0, len(str(length)) - 2)
    return -(-length // digit) * digit


def find_most_bins(lines: Sequence[IntArray], most: int) -> int | None:
    """Return the largest number of bins with which all rows have at most `most` lines; None if all fit without bins.

    `lines`: the number of lines of each row without bins, in any number of arrays. A row in bins has at most one line
    more than bins, because an event ends its last bin.
    """
    every = np.concatenate([np.zeros(0, np.int64), *lines])
    if int(every.sum()) <= most:
        return None
    low, high = 1, max(2, int(every.max()))
    while high - low > 1:
        middle = (low + high) // 2
        fits = int(np.where(every > middle, middle + 1, every).sum()) <= most
        low, high = (middle, high) if fits else (low, middle)
    return low


# ---- states ----------------------------------------------------------------------------------------------------------


class _Part(NamedTuple):
    """A run of states, or of events of a type whose values are treated as states."""

    run: Run
    event_type: EventType | None = None


def make_coarse_states(job: Job, states: Sequence[Run], sizes: LineSizes, budget: int) -> CoarseRows:
    """Store the states of all rows and GPU activity in at most `budget` bytes."""
    parts = [_Part(run) for run in states]
    parts += [_Part(run, types.GPU_ACTIVITY) for run in list_activity_runs(job)]
    parts += [_Part(run, types.GPU_ACTIVITY_WITH_WAITS) for run in list_runs(job, GPUS)]
    most = budget // max(sizes.state, sizes.count_event(2))
    lines = list(job.engine.map(lambda part: _count_lines(_load(job, part), part)[1], parts))
    resolution = _choose_resolution(job, parts, lines, most)

    def make(part: _Part) -> tuple[list[Run], IntArray]:
        flat, coarse = _make_coarse(job, _load(job, part), part, resolution)
        return store_records(_make_records(flat, part), job.store, on_common_clock=True), coarse

    runs, coarse = [], [np.zeros(0, np.int64)]
    for part_runs, coarse_rows in job.engine.map(make, parts):
        runs += part_runs
        coarse.append(coarse_rows)
    return CoarseRows(runs, resolution.step, np.unique(np.concatenate(coarse)).size)


class _Resolution(NamedTuple):
    """The length of a step (ns) and the largest number of lines of an exact row. With step 0, all rows are exact."""

    step: int
    exact: int


def _choose_resolution(job: Job, parts: Sequence[_Part], lines: Sequence[IntArray], most: int) -> _Resolution:
    """Return the resolution that gives at most `most` lines. `lines`: number of lines of each exact row, by part."""
    bins = find_most_bins(lines, most)
    if bins is None:
        return _Resolution(0, 0)
    exact = np.concatenate(lines)
    step = round_step(job.scope.duration, bins)
    coarse = _count_coarse(job, parts, step)
    while step > 1:
        half = round_step(step, 2)
        finer = _count_coarse(job, parts, half)
        if int(np.where(exact <= bins, exact, finer).sum()) > most:
            break
        step, coarse = half, finer
    order = np.argsort(exact, kind="stable")
    total = int(coarse.sum()) + np.cumsum((exact - coarse)[order])
    largest = exact[order]
    # Rows with equally many lines are treated alike.
    is_last = np.append(largest[1:] != largest[:-1], True)[: order.size]
    fitting = largest[is_last & (total <= most)]
    return _Resolution(step, max(bins, int(fitting.max(initial=0))))


def _count_coarse(job: Job, parts: Sequence[_Part], step: int) -> IntArray:
    """Return the number of lines of each row of each part, in steps of `step` ns."""

    def count(part: _Part) -> IntArray:
        flat = _load(job, part)
        rows, _ = _count_lines(flat, part)
        found, lines = _count_lines(coarsen(flat, job.scope.origin, job.scope.last, step), part)
        every = np.zeros(rows.size, np.int64)
        every[np.searchsorted(rows, found)] = lines
        return every

    return np.concatenate(list(job.engine.map(count, parts)))


def _load(job: Job, part: _Part) -> FlatStates:
    """Return the states of a run, or its values as states, by row and time."""
    records = load_records(part.run, job.store)
    if part.event_type is None:
        order = np.argsort(records.place, kind="stable")  # records are in the order of time
        columns = records.place, records.time, records.value, records.handle
        return FlatStates(*(column[order].astype(np.int64, copy=False) for column in columns))
    row, time, value = get_values(records, part.event_type.number)
    length = measure_durations(row, time)
    held = (value > 0) & (length > 0)
    return FlatStates(row[held], time[held], (time + length)[held], value[held])


def _make_coarse(job: Job, flat: FlatStates, part: _Part, resolution: _Resolution) -> tuple[FlatStates, IntArray]:
    """Return states by row and time, and the coarse rows."""
    if not resolution.step:
        return flat, flat.row[:0]
    rows, lines = _count_lines(flat, part)
    coarse = rows[lines > resolution.exact]
    is_coarse = np.isin(flat.row, coarse)
    made = coarsen(
        FlatStates(*(column[is_coarse] for column in flat)), job.scope.origin, job.scope.last, resolution.step
    )
    both = [np.concatenate(pair) for pair in zip(made, (column[~is_coarse] for column in flat), strict=True)]
    order = np.argsort(both[0], kind="stable")
    return FlatStates(*(column[order] for column in both)), coarse


def _mark_ends(flat: FlatStates) -> BoolArray:
    """Mark the states that no other state follows immediately."""
    follows = (flat.row[1:] == flat.row[:-1]) & (flat.begin[1:] == flat.end[:-1])
    return np.append(~follows, True)[: flat.row.size]


def _count_lines(flat: FlatStates, part: _Part) -> tuple[IntArray, IntArray]:
    """Return the rows and their numbers of lines: one for each state or value, one more if nothing follows a value."""
    row = flat.row
    if part.event_type is not None:
        row = np.append(row, row[_mark_ends(flat)])
    return np.unique(row, return_counts=True)


def _make_records(flat: FlatStates, part: _Part) -> Records:
    if part.event_type is None:
        return make_states(*flat)
    ends = _mark_ends(flat)
    row = np.concatenate([flat.row, flat.row[ends]])
    time = np.concatenate([flat.begin, flat.end[ends]])
    value = np.concatenate([flat.state, np.zeros(int(ends.sum()), np.int64)])
    return make_events(row, time, [Pair(part.event_type.number, value)])
