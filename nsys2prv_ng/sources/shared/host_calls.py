"""Calls on host threads, whatever they call."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from nsys2prv_ng.arrays.types import BoolArray, IntArray
from nsys2prv_ng.intervals.lanes import mark_crossing
from nsys2prv_ng.paraver.event_type import EventType
from nsys2prv_ng.records.columns import Pair, make_intervals
from nsys2prv_ng.report.database import NULL
from nsys2prv_ng.sources.shared.reasons import NO_THREAD, OVERLAPS_CALL, find_unsound_times
from nsys2prv_ng.sources.shared.report_reader import ReportReader
from nsys2prv_ng.sources.shared.result import Result, StateIntervals


def add_calls(
    reader: ReportReader, result: Result, table: str, event_type: EventType, name_of: Callable[[str], str] = str
) -> None:
    """An interval of a type for each row of a table, nested as the calls of the table were.

    The table has the columns start, end, globalTid and nameId; `name_of` makes the value's label of the name there.
    """
    columns = reader.columns(table)
    result.read += columns.rows
    rows = select_sound_calls(result, columns["start"], columns["end"], columns["globalTid"])
    if not rows.size:
        return
    place = reader.places.threads(columns["globalTid"][rows], application=True)
    index, names = reader.names(columns["nameId"][rows])
    handle = reader.labels.handle(event_type)
    ids = reader.labels.name_ids(event_type.names, map(name_of, names))[index]
    result.records.append(
        make_intervals(place, columns["start"][rows], columns["end"][rows], [Pair(handle, ids)], [handle])
    )


def select_sound_calls(result: Result, begin: IntArray, end: IntArray, global_tid: IntArray) -> IntArray:
    """Rows of calls that have a thread and sound times and nest on their thread; the others are counted as dropped."""
    rows = select_sound_intervals(result, begin, end, global_tid)
    crosses = mark_crossing(global_tid[rows], begin[rows], end[rows])
    result.drop(OVERLAPS_CALL, int(crosses.sum()))
    return rows[~crosses]


def select_sound_intervals(result: Result, begin: IntArray, end: IntArray, global_tid: IntArray) -> IntArray:
    """Rows of what has a thread and sound times; the others are counted as dropped."""
    no_thread: BoolArray = global_tid == NULL
    unsound = {reason: mask & ~no_thread for reason, mask in find_unsound_times(begin, end).items()}
    return result.drop_rows({NO_THREAD: no_thread, **unsound})


def add_states(
    result: Result, place: IntArray, begin: IntArray, end: IntArray, index: IntArray, state_of_name: Iterable[int]
) -> None:
    """What threads do within calls: the state of each distinct name, or -1, and the index of each call's name."""
    state = np.array(list(state_of_name), np.int64)[index]
    says = state >= 0
    result.states.append(StateIntervals(place[says], begin[says], end[says], state[says]))
