"""Calls of the CUDA runtime and driver APIs on host threads."""

from __future__ import annotations

import re

from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.records.columns import Pair, make_intervals
from nsys2prv_ng.report.database import NULL, Table
from nsys2prv_ng.sources.shared import call_chains
from nsys2prv_ng.sources.shared.host_calls import add_states, select_sound_calls
from nsys2prv_ng.sources.shared.report_reader import ReportReader
from nsys2prv_ng.sources.shared.result import Result
from nsys2prv_ng.sources.shared.source import EventRows, Source

RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
TABLE = Table(RUNTIME, ("start", "end", "globalTid", "nameId"), {"callchainId": NULL})

_VERSION = re.compile(r"_v\d+$")
_SYNCHRONIZING = re.compile(r"cuda(Device|Stream|Event|Thread)Synchronize|cu(Ctx|Stream|Event)Synchronize")
_COPYING = re.compile(r"cu(da)?Memcpy(?!.*Async)")


def clean_call_name(name: str) -> str:
    """Name of a call without the version that nsys appends: cudaLaunchKernel_v7000 is cudaLaunchKernel."""
    return _VERSION.sub("", name)


def choose_call_state(name: str) -> int:
    """State of a thread within a call, or -1 if the call says nothing of it.

    Synchronization in calls that wait for the device, memory transfer in copies that return when they are done.
    """
    if _SYNCHRONIZING.match(name):
        return types.SYNCHRONIZATION
    return types.MEMORY_TRANSFER if _COPYING.match(name) else -1


def read(reader: ReportReader) -> Result:
    """An interval for each call, nested as the calls were; at its begin who called, where nsys took backtraces."""
    columns = reader.columns(RUNTIME)
    result = Result(read=columns.rows)
    rows = select_sound_calls(result, columns["start"], columns["end"], columns["globalTid"])
    if not rows.size:
        return result
    begin, end = columns["start"][rows], columns["end"][rows]
    place = reader.places.threads(columns["globalTid"][rows], application=True)
    index, names = reader.names(columns["nameId"][rows])
    calls = [clean_call_name(name) for name in names]
    handle = reader.labels.handle(types.CUDA_API)
    ids = reader.labels.name_ids(types.CUDA_API.names, calls)[index]
    chain = columns["callchainId"][rows]
    callers = call_chains.find_functions(reader, call_chains.read_cuda_chains(reader, set(calls)), chain, types.CALLERS)
    result.records.append(make_intervals(place, begin, end, [Pair(handle, ids), *callers], [handle]))

    add_states(result, place, begin, end, index, map(choose_call_state, calls))
    return result


SOURCE = Source(
    "cuda_api",
    "CUDA API calls",
    (TABLE, call_chains.OF_CUDA_CALLS),
    read,
    rows=(EventRows(RUNTIME, "globalTid"),),
    row="calls",
)
