"""Calls of the kernel (nsys's syscall trace), apart from those of the libraries above it.

No capture was at hand: the table is as NVIDIA's documentation of the export describes it.
"""

from __future__ import annotations

from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.records.columns import Pair, intervals
from nsys2prv_ng.report.database import NULL, Table
from nsys2prv_ng.sources.host.os_runtime import call_state, drop_short_calls
from nsys2prv_ng.sources.shared import call_chains
from nsys2prv_ng.sources.shared.host_calls import add_states, sound_calls
from nsys2prv_ng.sources.shared.source import EventRows, Reading, Result, Source

TABLE = Table("SYSCALL", ("start", "end", "globalTid", "nameId"), {"callchainId": NULL})


def read(reading: Reading) -> Result:
    """An interval for each call that is long enough; at its begin who called, where nsys took backtraces."""
    columns = reading.columns(TABLE.name)
    result = Result(read=columns.rows)
    rows = sound_calls(result, *(columns[name] for name in ("start", "end", "globalTid")))
    rows = drop_short_calls(result, reading.options.osrt_min, rows, columns)
    if not rows.size:
        return result
    begin, end = columns["start"][rows], columns["end"][rows]
    place = reading.places.threads(columns["globalTid"][rows], application=False, system_calls=True)
    index, names = reading.names(columns["nameId"][rows])
    handle = reading.labels.handle(types.SYSTEM_CALL)
    ids = reading.labels.name_ids(types.SYSTEM_CALL.names, names)[index]
    chain = columns["callchainId"][rows]
    callers = call_chains.functions(reading, call_chains.of_system_calls(reading), chain, types.CALLERS)
    result.records.append(intervals(place, begin, end, [Pair(handle, ids), *callers], [handle]))

    add_states(result, place, begin, end, index, map(call_state, names))
    return result


SOURCE = Source(
    "system_calls",
    "System calls",
    (TABLE, call_chains.OF_SYSTEM_CALLS),
    read,
    rows=(EventRows(TABLE.name, "globalTid", application=False, system_calls=True),),
    row="calls",
)
