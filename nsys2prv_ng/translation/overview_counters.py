"""Makes the counters of an overview: the activity of each GPU in steps of equal time, and the means of its metrics.

A share refers to the full length of its step, so share x length gives the time, in each step and summed over all steps.
The mean of a metric covers the time for which its values hold. A counter is written where it changes. A metric is
written once more at the end of its last step, because presets end it with its last event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from nsys2prv_ng.analysis.gpus import waiting as gpu_waits
from nsys2prv_ng.analysis.gpus.activity import get_values, list_activity_runs, list_runs
from nsys2prv_ng.analysis.gpus.metrics import count_sampled
from nsys2prv_ng.analysis.heat_maps import sum_metrics
from nsys2prv_ng.arrays.types import BoolArray, FloatArray, IntArray
from nsys2prv_ng.intervals.bins import sum_held, sum_states
from nsys2prv_ng.intervals.device_sweep import COMMUNICATION, COMPUTE, IDLE, MEMORY, WHOLE_GRAPH
from nsys2prv_ng.intervals.states import FlatStates
from nsys2prv_ng.intervals.step_functions import measure_durations
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver.event_type import EventType
from nsys2prv_ng.paraver.labels import Numbering
from nsys2prv_ng.records.columns import Pair, Records, concatenate, make_events
from nsys2prv_ng.records.runs import Run, load_records, store_records
from nsys2prv_ng.translation.derived_records import GPUS
from nsys2prv_ng.translation.overview_states import MOST_BINS, CoarseRows, LineSizes, measure_bytes, round_step

SHARES = (
    types.GPU_COMPUTES,
    types.GPU_COMMUNICATES,
    types.GPU_COMMUNICATES_EXPOSED,
    types.GPU_WAITS_EXPOSED,
    types.GPU_MOVES_MEMORY,
    types.GPU_IDLES,
    types.MEAN_IN_FLIGHT,
    types.GPU_RUNS_GRAPHS,
)
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
