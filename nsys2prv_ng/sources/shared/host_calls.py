"""Reads calls on host threads: each call is an interval on the row of its thread, nested as the calls were."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import numpy as np

from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.intervals.nesting import mark_crossing
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver.event_type import EventType
from nsys2prv_ng.paraver.labels import Labels
from nsys2prv_ng.records.columns import Pair, make_intervals
from nsys2prv_ng.report.database import NULL, Columns
from nsys2prv_ng.sources.shared import call_chains
from nsys2prv_ng.sources.shared.reasons import NO_THREAD, OVERLAPS_CALL, find_unsound_times, name_short_call
from nsys2prv_ng.sources.shared.report_reader import ReportReader, make_name_pair
from nsys2prv_ng.sources.shared.source import Result


class NumberedCalls(NamedTuple):
    """Calls with a separate event type, and a function that returns the fixed value of a name, or 0 for other calls."""

    event_type: EventType
    find_value: Callable[[str], int]


def read_calls(
    reader: ReportReader,
    tables: Mapping[str, EventType],
    *,
    find_rows: Callable[[Columns], IntArray] = lambda columns: np.arange(columns.rows),
    clean_name: Callable[[str], str] = str,
    numbered: NumberedCalls | None = None,
    system: bool = False,
    read_chains: Callable[[ReportReader, Iterable[str]], call_chains.Chains] | None = None,
    choose_state: Callable[[str], int] | None = None,
) -> Result:
    """Return an interval for each row of some tables, nested as the calls of the table were. `tables`: types by name.

    The tables have the columns start, end, globalTid and nameId, and callchainId if `read_chains` is given.
    `find_rows` returns the rows of a table that are calls. `clean_name` returns the label for the name of a call. Calls
    that are `numbered` have the type and values of it. Calls of the `system` do not make their process part of the
    application, and short calls are dropped (--osrt-min). `read_chains` returns the call chains, given the labels: each
    call shows its callers at its start. `choose_state` returns the state of the thread within a call, given its label,
    or -1 for none.
    """
    result = Result()
    for table, event_type in tables.items():
        columns = reader.columns(table)
        rows = find_rows(columns)
        result.read += rows.size
        begin, end, thread = (columns[name][rows] for name in ("start", "end", "globalTid"))
        sound = select_sound_calls(result, begin, end, thread)
        if system:
            shortest = reader.options.osrt_min
            is_short = end[sound] - begin[sound] < shortest
            sound = sound[result.drop_rows({name_short_call(shortest): is_short})]  # the rest of nested calls nests too
        rows, begin, end = rows[sound], begin[sound], end[sound]
        place = reader.places.threads(thread[sound], application=not system, system_calls=system)
        index, names = reader.names(columns["nameId"][rows])
        names = [clean_name(name) for name in names]
        opening = [_make_call_pair(reader.labels, event_type, numbered, index, names)]
        if read_chains is not None:
            chains = read_chains(reader, names)
            opening += call_chains.find_functions(reader, chains, columns["callchainId"][rows], types.CALLERS)
        result.records.append(make_intervals(place, begin, end, opening, [opening[0].handle]))
        if choose_state is not None:
            state = np.array([choose_state(name) for name in names], np.int64)
            result.add_states(place, begin, end, state[index])
    return result


def _make_call_pair(
    labels: Labels, event_type: EventType, numbered: NumberedCalls | None, index: IntArray, names: list[str]
) -> Pair:
    """Make the pair of type and value that shows each call, given the index of each into the names."""
    if numbered is None:
        return make_name_pair(labels, event_type, index, names)
    values = np.array([numbered.find_value(name) for name in names], np.int64)
    is_named = values == 0
    values[is_named] = labels.name_ids(event_type.names, np.array(names, object)[is_named])
    handles = np.where(is_named, labels.handle(event_type), labels.handle(numbered.event_type))
    return Pair(handles[index], values[index])


def select_sound_calls(result: Result, begin: IntArray, end: IntArray, global_tid: IntArray) -> IntArray:
    """Return the rows of calls that have a thread and sound times (ns) and nest on their thread; drop the others."""
    rows = select_sound_intervals(result, begin, end, global_tid)
    return rows[result.drop_rows({OVERLAPS_CALL: mark_crossing(global_tid[rows], begin[rows], end[rows])})]


def select_sound_intervals(result: Result, begin: IntArray, end: IntArray, global_tid: IntArray) -> IntArray:
    """Return the rows of intervals that have a thread and sound times (ns); drop the others."""
    return result.drop_rows({NO_THREAD: global_tid == NULL, **find_unsound_times(begin, end)})
