"""Calls of the kernel (nsys's syscall trace), apart from those of the libraries above it.

No capture was at hand: the table is as NVIDIA's documentation of the export describes it.
"""

from __future__ import annotations

from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.records.columns import Pair, make_intervals
from nsys2prv_ng.report.database import NULL, Table
from nsys2prv_ng.sources.host.os_runtime import choose_call_state, drop_short_calls
from nsys2prv_ng.sources.shared import call_chains
from nsys2prv_ng.sources.shared.host_calls import add_states, select_sound_calls
from nsys2prv_ng.sources.shared.report_reader import ReportReader
from nsys2prv_ng.sources.shared.result import Result
from nsys2prv_ng.sources.shared.source import EventRows, Source

TABLE = Table("SYSCALL", ("start", "end", "globalTid", "nameId"), {"callchainId": NULL})


def read(reader: ReportReader) -> Result:
    """An interval for each call that is long enough; at its begin who called, where nsys took backtraces."""
    columns = reader.columns(TABLE.name)
    result = Result(read=columns.rows)
    rows = select_sound_calls(result, *(columns[name] for name in ("start", "end", "globalTid")))
    rows = drop_short_calls(result, reader.options.osrt_min, rows, columns)
    if not rows.size:
        return result
    begin, end = columns["start"][rows], columns["end"][rows]
    place = reader.places.threads(columns["globalTid"][rows], application=False, system_calls=True)
    index, names = reader.names(columns["nameId"][rows])
    handle = reader.labels.handle(types.SYSTEM_CALL)
    ids = reader.labels.name_ids(types.SYSTEM_CALL.names, names)[index]
    chain = columns["callchainId"][rows]
    callers = call_chains.find_functions(reader, call_chains.read_system_chains(reader), chain, types.CALLERS)
    result.records.append(make_intervals(place, begin, end, [Pair(handle, ids), *callers], [handle]))

    add_states(result, place, begin, end, index, map(choose_call_state, names))
    return result


SOURCE = Source(
    "system_calls",
    "System calls",
    (TABLE, call_chains.OF_SYSTEM_CALLS),
    read,
    rows=(EventRows(TABLE.name, "globalTid", application=False, system_calls=True),),
    row="calls",
)
