"""Reads when threads were on which core, from the context switches that nsys traced.

This is shown only for threads that made calls: a process has dozens of threads that never do.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nsys2prv_ng import source_names
from nsys2prv_ng.objects.tree import ObjectTree
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver.labels import MAX_TYPE, Value
from nsys2prv_ng.paraver.load_cost import LoadCost
from nsys2prv_ng.records.columns import Pair
from nsys2prv_ng.report.database import NULL, Table
from nsys2prv_ng.sources.shared import reasons
from nsys2prv_ng.sources.shared.report_reader import ReportReader
from nsys2prv_ng.sources.shared.source import EventRows, JoinInput, JoinResult, Result, Source, pair_switches

SCHED = "SCHED_EVENTS"
TABLE = Table(SCHED, ("start", "cpu", "isSchedIn", "globalTid"))


def read(reader: ReportReader) -> Result:
    """Return an interval for each time that a thread was on a core; its value is the core's number plus one."""
    columns = reader.columns(SCHED)
    time, core, thread, is_in = (columns[name] for name in ("start", "cpu", "globalTid", "isSchedIn"))
    result = Result()
    rows = result.drop_rows(
        {
            reasons.NO_THREAD: thread == NULL,
            reasons.NO_TIME: reasons.lacks_time(time),
            reasons.NO_CORE: (core < 0) | (core >= MAX_TYPE),
            reasons.NO_DIRECTION: is_in == NULL,
        }
    )
    # Switches at the same time happened in the order of the table.
    rows = rows[np.lexsort((time[rows], thread[rows]))]
    time, core, thread = time[rows], core[rows], thread[rows]
    shown, end = pair_switches(result, thread, is_in[rows] != 0, time, reasons.NO_CORE_END, reasons.NO_CORE_START)
    handle = reader.labels.handle(types.ON_CPU)
    distinct, index = np.unique(core, return_inverse=True)
    ids = reader.labels.name_ids(types.ON_CPU.names, map(_label_core, distinct))[index]
    place = reader.places.observed_threads(thread)
    result.add_intervals(place[shown], time[shown], end, [Pair(handle, ids[shown])], [handle])
    result.join_data = {_label_core(number): Value(int(number) + 1, _label_core(number)) for number in distinct}
    return result


def _label_core(core: int) -> str:
    return f"core {core}"


def join(parts: Sequence[JoinInput], tree: ObjectTree) -> JoinResult:
    """Return the value of each core: its number plus one, whatever cores the reports contain."""
    values: dict[str, Value] = {}
    for part in parts:
        values |= part.data or {}
    return JoinResult({types.ON_CPU.names: values})


SOURCE = Source(
    source_names.SCHEDULING,
    "Threads on cores",
    (TABLE,),
    read,
    join,
    dict[str, Value],
    counted_tables=(EventRows(SCHED),),
    noun="switches",
    needed_by=(),
    load=LoadCost(events=0.25, pairs=0.25),
)
