"""Time of threads on cores, and the core, from the context switches that nsys traced.

A thread has a row for this only if it made calls: a process has dozens of threads that never do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from nsys2prv_ng.arrays.types import BoolArray, IntArray
from nsys2prv_ng.objects.tree import ObjectTree
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver.labels import MAX_TYPE, Value
from nsys2prv_ng.records.columns import Pair
from nsys2prv_ng.report.database import NULL, Table
from nsys2prv_ng.sources import source_names
from nsys2prv_ng.sources.shared.reasons import NO_THREAD, NO_TIME, lacks_time
from nsys2prv_ng.sources.shared.report_reader import ReportReader
from nsys2prv_ng.sources.shared.result import NO_END, Result
from nsys2prv_ng.sources.shared.source import EventRows, JoinInput, JoinResult, Source

SCHED = "SCHED_EVENTS"
TABLE = Table(SCHED, ("start", "cpu", "isSchedIn", "globalTid"))


class _Switches(NamedTuple):
    """Masks of n context switches, ordered by thread and time, by what they do to their thread."""

    starts: BoolArray
    """It brings the thread onto a core, and the next switch takes it off."""
    lasts: BoolArray
    """It brings the thread onto a core, and no other switch of the thread follows."""
    repeated: BoolArray
    """It brings the thread onto a core, and so does the next: the switch that took it off is lost."""
    unstarted: BoolArray
    """It takes the thread off a core, and no switch before it brought the thread onto one."""


def read(reader: ReportReader) -> Result:
    """Return an interval for each time that a thread was on a core; its value is the core's number plus one."""
    columns = reader.columns(SCHED)
    time, core, thread, is_in = (columns[name] for name in ("start", "cpu", "globalTid", "isSchedIn"))
    result = Result()
    rows = result.drop_rows(
        {
            NO_THREAD: thread == NULL,
            NO_TIME: lacks_time(time),
            "no core": (core < 0) | (core >= MAX_TYPE),
            "neither in nor out": is_in == NULL,
        }
    )
    if not rows.size:
        result.read = columns.rows
        return result
    # Switches of the same time happened in the order of the table.
    rows = rows[np.lexsort((time[rows], thread[rows]))]
    time, core, thread = time[rows], core[rows], thread[rows]
    switches = _pair_switches(thread, is_in[rows] != 0)
    result.drop("no end (put on a core twice)", int(switches.repeated.sum()))
    result.drop("no start (taken off a core without having been put on one)", int(switches.unstarted.sum()))

    handle = reader.labels.handle(types.ON_CPU)
    distinct, index = np.unique(core, return_inverse=True)
    ids = reader.labels.name_ids(types.ON_CPU.names, map(_label_core, distinct))[index]
    place = reader.places.observed_threads(thread)
    shown = np.flatnonzero(switches.starts | switches.lasts)
    end = np.where(switches.lasts, NO_END, np.append(time[1:], NO_END))[shown]
    result.add_intervals(place[shown], time[shown], end, [Pair(handle, ids[shown])], [handle])
    result.read = sum(result.dropped.values()) + shown.size
    result.join_data = {_label_core(number): Value(int(number) + 1, _label_core(number)) for number in distinct}
    return result


def _pair_switches(thread: IntArray, on: BoolArray) -> _Switches:
    """Pair n switches, ordered by thread and time, given the thread and whether it is put on a core."""
    same = thread[1:] == thread[:-1]
    followed = np.append(same, False)  # by a switch of the same thread
    next_on = np.append(on[1:], False)
    was_on = np.append(False, on[:-1] & same)[: on.size]
    return _Switches(on & followed & ~next_on, on & ~followed, on & followed & next_on, ~on & ~was_on)


def _label_core(core: int) -> str:
    return f"core {core}"


def join(parts: Sequence[JoinInput], tree: ObjectTree) -> JoinResult:
    """Return the value of each core: its number plus one, whichever cores the reports have."""
    values: dict[str, Value] = {}
    for part in parts:
        if isinstance(part.data, dict):
            values |= part.data
    return JoinResult({types.ON_CPU.names: values})


SOURCE = Source(
    source_names.SCHEDULING,
    "Threads on cores",
    (TABLE,),
    read,
    join,
    counted_tables=(EventRows(SCHED),),
    noun="switches",
)
