"""Makes the states and counters of an overview: exact on rows with few states, in steps of equal time on the others.

How many bytes the parts of an overview may take, and the steps of time that result, follow from the numbers of rows,
records and digits alone, so they are the same on every machine.

A coarse row shows in each step the state that covers most of it. The bytes decide on the length of the steps. At first
they are long enough to fit even if every step differs from the step before. Then they are halved for as long as the
lines fit. Finally as many rows as fit become exact, rows with few states first.

A share refers to the full length of its step, so share x length gives the time, in each step and summed over all steps.
The mean of a metric covers the time for which its values hold. A counter is written where it changes. A metric is
written once more at the end of its last step, because presets end it with its last event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from nsys2prv_ng.analysis.gpus import waiting as gpu_waits
from nsys2prv_ng.analysis.gpus.activity import get_values, list_activity_runs, list_runs
from nsys2prv_ng.analysis.gpus.metrics import count_sampled
from nsys2prv_ng.analysis.heat_maps import sum_metrics
from nsys2prv_ng.arrays.types import BoolArray, FloatArray, IntArray
from nsys2prv_ng.intervals.device_sweep import COMMUNICATION, COMPUTE, IDLE, MEMORY, WHOLE_GRAPH
from nsys2prv_ng.intervals.states import FlatStates, coarsen, sum_held, sum_states
from nsys2prv_ng.intervals.step_functions import measure_durations
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver.encode import encode
from nsys2prv_ng.paraver.event_type import EventType
from nsys2prv_ng.paraver.labels import Numbering
from nsys2prv_ng.records.columns import Pair, Records, concatenate, make_events, make_states
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


SHARES = (
    types.GPU_COMPUTES, types.GPU_COMMUNICATES, types.GPU_COMMUNICATES_EXPOSED, types.GPU_WAITS_EXPOSED,
    types.GPU_MOVES_MEMORY, types.GPU_IDLES, types.MEAN_IN_FLIGHT, types.GPU_RUNS_GRAPHS,
)  # fmt: skip
"""Event types of GPU activity, in the order of the columns of values."""
_DIGITS = 5
"""Digits of a value that the bytes are planned for: a share of 100 % is 10,000."""
_ACTIVITIES = 2 * WHOLE_GRAPH


def make_shares(job: Job, sizes: LineSizes, budget: int) -> CoarseRows:
    """Store GPU activity by step, in at most `budget` bytes."""
    runs = list_activity_runs(job)
    rows = sum(len(_list_rows(run)) for run in runs)
    bins = budget // max(1, rows * sizes.count_event(*(_DIGITS for _ in SHARES)))
    waits = {row: run for run in list_runs(job, GPUS) for row in _list_rows(run)}

    def make(edges: IntArray) -> Iterator[Records]:
        return job.engine.map(lambda run: _make_shares(job, run, waits, edges), runs)

    return _fit(job, make, bins, budget, rows)


def make_metrics(job: Job, sizes: LineSizes, budget: int, numbering: Numbering) -> CoarseRows:
    """Store the mean of each GPU metric by step, in at most `budget` bytes, under the type of the metric."""
    sampled = count_sampled(job)
    kinds = {kind.member: kind for _, row_kinds in sampled for kind in row_kinds}
    names = sorted(kinds)
    numbers = np.array([numbering.number(kinds[name]) for name in names], np.int64)
    scale = np.array([10.0 ** kinds[name].precision for name in names])
    rows = {row for row, _ in sampled}
    bins = budget // max(1, sum(sizes.count_event(*(_DIGITS for _ in row_kinds)) for _, row_kinds in sampled))

    def make(edges: IntArray) -> Iterator[Records]:
        parts = []
        for row, (known, mean) in _average(job, names, edges).items():
            values = np.rint(mean * scale).astype(np.int64)
            one = np.array([row], np.int64)
            parts.append(_write_changes(one, edges, values[None], known[None], numbers))
            parts.append(_write_ends(one, edges, values, known, numbers))
        yield concatenate(parts)

    return _fit(job, make, bins, budget, len(rows))


def _fit(job: Job, make: Callable[[IntArray], Iterator[Records]], bins: int, budget: int, rows: int) -> CoarseRows:
    """Store what `make` returns for the limits of steps (ns).

    The steps make about `bins` bins first, and their length doubles until all fits.
    """
    if not rows:
        return CoarseRows([], 0, 0)
    step = round_step(job.scope.duration, min(max(1, bins), MOST_BINS))
    while True:
        edges = np.append(np.arange(job.scope.origin, job.scope.last, step, dtype=np.int64), job.scope.last)
        runs = [run for records in make(edges) for run in store_records(records, job.store, on_common_clock=True)]
        if step >= job.scope.duration or measure_bytes(job, runs) <= budget:
            return CoarseRows(runs, step, rows)
        step *= 2


def _list_rows(run: Run) -> list[int]:
    return [int(row) for row in np.flatnonzero(run.facts.place_first <= run.facts.place_last)]


def _make_shares(job: Job, run: Run, waits: dict[int, Run], edges: IntArray) -> Records:
    """Return the counters of the GPUs of a run. `waits`: the run with a GPU's activity including waits, by row."""
    records = load_records(run, job.store)
    rows = np.array(_list_rows(run), np.int64)
    length = np.diff(edges)[None]
    activity = sum_states(_hold_values(records, types.GPU_ACTIVITY, rows), edges, rows.size, _ACTIVITIES)
    kernels = _hold_values(records, types.KERNELS_IN_FLIGHT, rows)
    amounts = kernels.state.astype(np.float64)
    in_flight = sum_held(kernels._replace(state=np.zeros_like(kernels.state)), amounts, edges, rows.size, 1)[:, :, 0]
    known = np.isin(rows, list(waits))
    waiting = np.zeros_like(activity[:, :, 0])
    for wait_run in {id(waits[row]): waits[row] for row in rows[known].tolist()}.values():
        held = _hold_values(load_records(wait_run, job.store), types.GPU_ACTIVITY_WITH_WAITS, rows)
        waiting += sum_states(held, edges, rows.size, gpu_waits.WHOLE_GRAPH + 1)[:, :, gpu_waits.WAITING]
    bits = np.arange(_ACTIVITIES)

    def sum_activity(which: BoolArray) -> IntArray:
        return activity[:, :, which].sum(axis=2)

    communicates = bits & COMMUNICATION > 0
    ns = [
        sum_activity(bits & COMPUTE > 0),
        sum_activity(communicates),
        sum_activity(communicates & (bits & (COMPUTE | WHOLE_GRAPH) == 0)),
        waiting,
        sum_activity(bits & MEMORY > 0),
        sum_activity(bits == IDLE),
    ]
    in_graphs = sum_activity(bits & (COMPUTE | WHOLE_GRAPH) == WHOLE_GRAPH)

    def find_share(part: IntArray) -> FloatArray:
        return np.asarray(np.rint(part / length * 10_000))

    columns = [*map(find_share, ns), np.rint(in_flight / length * 100), find_share(in_graphs)]
    values = np.stack(columns, axis=2).astype(np.int64)
    is_known = np.ones(values.shape, np.bool_)
    is_known[:, :, SHARES.index(types.GPU_WAITS_EXPOSED)] = known[:, None]
    is_known[:, :, SHARES.index(types.GPU_RUNS_GRAPHS)] = (in_graphs.sum(axis=1) > 0)[:, None]
    return _write_changes(rows, edges, values, is_known, np.array([event_type.number for event_type in SHARES]))


def _hold_values(records: Records, event_type: EventType, rows: IntArray) -> FlatStates:
    """Return the values of an event type as states, by index into `rows`; each lasts until the next one."""
    row, time, value = get_values(records, event_type.number)
    return FlatStates(np.searchsorted(rows, row), time, time + measure_durations(row, time), value)


def _average(job: Job, names: Sequence[str], edges: IntArray) -> dict[int, tuple[BoolArray, FloatArray]]:
    """Return for each GPU row a mask of known means and the means of the metrics, both bins x names."""
    index = {name: number for number, name in enumerate(names)}
    totals = sum_metrics(job, lambda name: index.get(name, -1), len(names), edges)
    return {row: (time > 0, sums / np.where(time > 0, time, 1)) for row, (time, sums) in sorted(totals.items())}


def _write_changes(rows: IntArray, edges: IntArray, values: IntArray, known: BoolArray, numbers: IntArray) -> Records:
    """Return an event at the start of each step in which a counter is known and differs from its last known value.

    `values` and `known` are rows x bins x counters; `numbers` are the types of the counters. A counter reads as 0 until
    it is written.
    """
    bins = np.arange(edges.size - 1)
    last = np.maximum.accumulate(np.where(known, bins[None, :, None], -1), axis=1)
    before = np.concatenate([np.full_like(last[:, :1], -1), last[:, :-1]], axis=1)
    held = np.where(before >= 0, np.take_along_axis(values, np.maximum(before, 0), axis=1), 0)
    changes = known & (values != held)
    lines = changes.any(axis=2)
    row, at = np.nonzero(lines)
    present = changes[row, at]
    pairs = [
        Pair(int(number), values[row, at, column], present[:, column])
        for column, number in enumerate(numbers)
        if present[:, column].any()
    ]
    return make_events(rows[row], edges[at], pairs) if row.size else concatenate([])


def _write_ends(row: IntArray, edges: IntArray, values: IntArray, known: BoolArray, numbers: IntArray) -> Records:
    """Return an event at the end of the last step in which each counter of a row is known, with its value there.

    `values` and `known` are bins x counters.
    """
    some = known.any(axis=0)
    last = np.where(some, known.shape[0] - 1 - np.argmax(known[::-1], axis=0), -1)
    parts = []
    for end in np.unique(last[some]).tolist():
        pairs = [Pair(int(numbers[at]), values[end, at][None]) for at in np.flatnonzero(last == end).tolist()]
        parts.append(make_events(row, edges[[end + 1]], pairs))
    return concatenate(parts)
