"""Makes the state records of all rows from the states that events request."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nsys2prv_ng.arrays.types import BoolArray, IntArray
from nsys2prv_ng.intervals.states import FlatStates, fill_gaps, flatten, overlay, unite
from nsys2prv_ng.intervals.step_functions import cut_to_windows
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.objects.tree import ObjectTree, group_by_shared_rows
from nsys2prv_ng.paraver.event_types import PROFILING, RUNNING
from nsys2prv_ng.reading.read_reports import ReportRecords, load_states
from nsys2prv_ng.records import columns as rec
from nsys2prv_ng.records.clip import clip_to_windows
from nsys2prv_ng.records.runs import Run, store_records
from nsys2prv_ng.records.store import Store
from nsys2prv_ng.sources.shared.source import StateIntervals

Windows = Sequence[tuple[int, int]]
Span = tuple[IntArray, IntArray]


def make_state_records(job: Job, waits: StateIntervals) -> list[Run]:
    """Store the state records of all rows, cut to the windows if there are any; return their runs.

    A host thread is Running from its first event to its last, even if these lie outside the windows, except while a
    call requests another state. `waits`: the states that streams show instead while they wait for a rank, on rows of
    the trace and on the common clock. Each piece of work has the states of one report in memory, or of a group of
    reports that share rows. A row of folded threads shows the lowest state that any of them has, so that it is Running
    if one of them runs.
    """
    # `store_group` does not use the job itself: an engine may send everything that it uses to other machines.
    reports, tree, spans, store = job.reports, job.tree, job.spans, job.store
    first, last, windows = job.scope.first, job.scope.last, job.scope.windows
    size = tree.model.row_count + 1 + max((int(folded.max(initial=-1)) for folded in tree.folded), default=-1)
    if windows:
        waits = cut_states(waits, windows)
        # A window may reach beyond the trace, to which calls of idle threads were cut before.
        windows = [(max(low, first), min(high, last)) for low, high in windows if low < last and high > first]
    shown = windows or [(first, last)]

    def store_group(group: Sequence[int]) -> list[Run]:
        lanes = {i: _find_lanes(tree, i) for i in group}
        asked = [_move_to_rows(reports[i], lane, shown, store) for i, lane in lanes.items()]
        states = StateIntervals(*(np.concatenate(columns) for columns in zip(*asked, strict=True)))
        lasting = _find_limits([(spans[i], lane) for i, lane in lanes.items()], tree, size)
        rows = np.unique(np.concatenate([tree.rows[i] for i in group]))
        waiting = np.isin(waits.place, rows[rows >= 0])
        flat_waits = flatten(*(column[waiting] for column in waits))
        row_of_lane = np.arange(size)
        for i, lane in lanes.items():
            row_of_lane[lane[lane >= 0]] = tree.rows[i][lane >= 0]
        flat, running = _make_states(states, flat_waits, lasting)
        return store_records(_make_records(flat, running, row_of_lane, windows), store, on_common_clock=True)

    groups = job.engine.map(store_group, group_by_shared_rows(tree.rows))
    return [run for runs in groups for run in runs]


def _find_lanes(tree: ObjectTree, report: int) -> IntArray:
    """Return the row of each place of a report; the place of a folded thread gets a number above all rows."""
    rows, folded = tree.rows[report], tree.folded[report]
    return np.where((folded >= 0) & (rows >= 0), tree.model.row_count + folded, rows)


def _move_to_rows(report: ReportRecords, rows: IntArray, windows: Windows, store: Store) -> StateIntervals:
    """Return the states that the events of a report request, on rows of the trace and on the common clock."""
    states = load_states(report.states, len(report.places.all), store)
    row = rows[states.place]
    moved = StateIntervals(row, report.clock(states.begin), report.clock(states.end), states.state)
    in_trace = row >= 0
    if not in_trace.all():
        moved = StateIntervals(*(column[in_trace] for column in moved))
    is_within = not moved.end.size or (moved.begin.min() >= windows[0][0] and moved.end.max() <= windows[-1][1])
    return moved if is_within and len(windows) == 1 else cut_states(moved, windows)


def _find_limits(spans: Sequence[tuple[Span, IntArray]], tree: ObjectTree, size: int) -> Span:
    """Return the first and last time (ns) of the events of each host thread; first > last for other rows.

    `size`: number of rows plus number of folded threads, which follow the rows.
    """
    first = np.full(size, np.iinfo(np.int64).max, np.int64)
    last = np.full(size, np.iinfo(np.int64).min, np.int64)
    for (earliest, latest), rows in spans:
        np.minimum.at(first, rows[rows >= 0], earliest[rows >= 0])
        np.maximum.at(last, rows[rows >= 0], latest[rows >= 0])
    devices = np.setdiff1d(np.arange(tree.model.row_count), tree.host_rows)
    first[devices], last[devices] = 1, 0
    return first, last


def _make_states(asked: StateIntervals, waits: FlatStates, limits: Span) -> tuple[FlatStates, FlatStates]:
    """Flatten the states, lay waits and profiling over them, and return them and the gaps of host threads (Running)."""
    profiling = asked.state == PROFILING
    under, over = (flatten(*(column[mask] for column in asked)) for mask in (~profiling, profiling))
    flat = overlay(overlay(under, waits), over)
    return flat, fill_gaps(flat, *limits, RUNNING)


def _make_records(flat: FlatStates, running: FlatStates, row_of_lane: IntArray, windows: Windows) -> rec.Records:
    """Return the records of states, which are already cut to the windows; Running and folded threads are cut here."""
    lane = np.arange(row_of_lane.size)
    is_folded = row_of_lane != lane
    parts = [_select(states, is_folded) for states in (flat, running)]
    folded = [np.concatenate(columns) for columns in zip(*parts, strict=True)]
    united = unite(FlatStates(row_of_lane[folded[0]], *folded[1:]))
    uncut = [rec.make_states(*states) for states in (_select(running, ~is_folded), united)]
    if windows:
        uncut = [clip_to_windows(records, windows)[0] for records in uncut]
    return rec.concatenate([rec.make_states(*_select(flat, ~is_folded)), *uncut])


def _select(flat: FlatStates, lanes: BoolArray) -> FlatStates:
    """Return the states on some rows or folded threads, given a mask of these."""
    if lanes.all():
        return flat
    is_selected = lanes[flat.row]
    return FlatStates(*(column[is_selected] for column in flat))


def cut_states(states: StateIntervals, windows: Sequence[tuple[int, int]]) -> StateIntervals:
    """Return the pieces of states within windows (ns), which are sorted and apart."""
    index, _, begin, end = cut_to_windows(states.begin, states.end, windows)
    return StateIntervals(states.place[index], begin, end, states.state[index])
