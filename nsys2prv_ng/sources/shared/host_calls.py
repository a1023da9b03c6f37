"""Adds calls on host threads: each call is an interval on the row of its thread, nested as the calls were."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from nsys2prv_ng.arrays.types import BoolArray, IntArray
from nsys2prv_ng.intervals.lanes import mark_crossing
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver.event_type import EventType
from nsys2prv_ng.records.columns import Pair, make_intervals, select
from nsys2prv_ng.report.database import NULL
from nsys2prv_ng.sources.shared import call_chains
from nsys2prv_ng.sources.shared.reasons import NO_THREAD, OVERLAPS_CALL, find_unsound_times
from nsys2prv_ng.sources.shared.report_reader import ReportReader
from nsys2prv_ng.sources.shared.result import Result
from nsys2prv_ng.text.formatting import format_duration


class NumberedCalls(NamedTuple):
    """Calls with a separate event type, and a function that returns the fixed value of a name, or 0 for other calls."""

    event_type: EventType
    find_value: Callable[[str], int]


def add_calls(
    reader: ReportReader,
    result: Result,
    table: str,
    event_type: EventType,
    *,
    rows: IntArray | None = None,
    clean_name: Callable[[str], str] = str,
    numbered: NumberedCalls | None = None,
    system: bool = False,
    read_chains: Callable[[ReportReader, Iterable[str]], call_chains.Chains] | None = None,
    choose_state: Callable[[str], int] | None = None,
) -> None:
    """Add an interval of `event_type` for each row of a table, or for each of `rows`, and count them.

    The table has the columns start, end, globalTid and nameId, and callchainId if `read_chains` is given.
    `clean_name` returns the label for the name of a call. Calls that are `numbered` have the type and values of it.
    Calls of the `system` do not make their process part of the application, and short calls are dropped (--osrt-min).
    `read_chains` returns the call chains, given the labels: each call shows its callers at its start. `choose_state`
    returns the state of the thread within a call, given its label, or -1 for none.
    """
    columns = reader.columns(table)
    result.read += columns.rows if rows is None else rows.size
    begin, end, thread = (
        columns[name] if rows is None else columns[name][rows] for name in ("start", "end", "globalTid")
    )
    sound = select_sound_calls(result, begin, end, thread)
    if system:
        shortest = reader.options.osrt_min
        is_long = end[sound] - begin[sound] >= shortest
        result.drop(f"shorter than the minimum of {format_duration(shortest)}", int((~is_long).sum()))
        sound = sound[is_long]  # the rest of nested calls nests as well
    rows = sound if rows is None else rows[sound]
    begin, end = begin[sound], end[sound]
    place = reader.places.threads(thread[sound], application=not system, system_calls=system)
    index, names = reader.names(columns["nameId"][rows])
    names = [clean_name(name) for name in names]
    callers: list[Pair] = []
    if read_chains is not None:
        chains = read_chains(reader, names)
        callers = call_chains.find_functions(reader, chains, columns["callchainId"][rows], types.CALLERS)
    for call_type, has_type, values in _assign_values(reader, event_type, numbered, names):
        handle = reader.labels.handle(call_type)
        opening = [Pair(handle, values[index]), *callers]
        if has_type.all():
            result.records.append(make_intervals(place, begin, end, opening, [handle]))
        elif has_type.any():
            calls = np.flatnonzero(has_type[index])
            opening = select(opening, calls)
            result.records.append(make_intervals(place[calls], begin[calls], end[calls], opening, [handle]))
    if choose_state is not None:
        state = np.array([choose_state(name) for name in names], np.int64)
        result.add_states(place, begin, end, state[index])


def _assign_values(
    reader: ReportReader, event_type: EventType, numbered: NumberedCalls | None, names: list[str]
) -> list[tuple[EventType, BoolArray, IntArray]]:
    """Return (type, mask of the names of that type, value of each name) for each type of call."""
    if numbered is None:
        return [(event_type, np.ones(len(names), np.bool_), reader.labels.name_ids(event_type.names, names))]
    values = np.array([numbered.find_value(name) for name in names], np.int64)
    ids, is_named = np.zeros(len(names), np.int64), values == 0
    ids[is_named] = reader.labels.name_ids(event_type.names, np.array(names, object)[is_named])
    return [(numbered.event_type, ~is_named, values), (event_type, is_named, ids)]


def select_sound_calls(result: Result, begin: IntArray, end: IntArray, global_tid: IntArray) -> IntArray:
    """Return the rows of calls that have a thread and sound times (ns) and nest on their thread; drop the others."""
    rows = select_sound_intervals(result, begin, end, global_tid)
    crosses = mark_crossing(global_tid[rows], begin[rows], end[rows])
    result.drop(OVERLAPS_CALL, int(crosses.sum()))
    return rows[~crosses]


def select_sound_intervals(result: Result, begin: IntArray, end: IntArray, global_tid: IntArray) -> IntArray:
    """Return the rows of intervals that have a thread and sound times (ns); drop the others."""
    return result.drop_rows({NO_THREAD: global_tid == NULL, **find_unsound_times(begin, end)})
