"""Reads system calls (nsys's syscall trace), separately from the OS runtime calls above them.

No capture was available: the table follows NVIDIA's documentation of the export.
"""

from __future__ import annotations

from nsys2prv_ng import source_names
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.report.database import NULL, Table
from nsys2prv_ng.sources.host.os_runtime import choose_call_state
from nsys2prv_ng.sources.shared import call_chains
from nsys2prv_ng.sources.shared.host_calls import read_calls
from nsys2prv_ng.sources.shared.report_reader import ReportReader
from nsys2prv_ng.sources.shared.result import Result
from nsys2prv_ng.sources.shared.source import EventRows, Source

TABLE = Table("SYSCALL", ("start", "end", "globalTid", "nameId"), {"callchainId": NULL})


def read(reader: ReportReader) -> Result:
    """Return an interval for each call that is long enough, with its callers if nsys took a backtrace."""
    return read_calls(
        reader,
        {TABLE.name: types.SYSTEM_CALL},
        system=True,
        read_chains=lambda reader, _: call_chains.read_chains(reader, call_chains.SYSTEM_CALL_CHAINS),
        choose_state=choose_call_state,
    )


SOURCE = Source(
    source_names.SYSTEM_CALLS,
    "System calls",
    (TABLE, call_chains.SYSTEM_CALL_CHAINS),
    read,
    counted_tables=(EventRows(TABLE.name, "globalTid", application=False, system_calls=True),),
    noun="calls",
    needed_by=(),
)
