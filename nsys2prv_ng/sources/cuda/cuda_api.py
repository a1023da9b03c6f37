"""Reads calls of the CUDA runtime and driver APIs, and of cuBLAS and cuDNN, on host threads."""

from __future__ import annotations

import re

from nsys2prv_ng import source_names
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver.load_cost import LoadCost
from nsys2prv_ng.report.database import NULL, Table
from nsys2prv_ng.sources.shared import call_chains
from nsys2prv_ng.sources.shared.host_calls import read_calls
from nsys2prv_ng.sources.shared.report_reader import ReportReader
from nsys2prv_ng.sources.shared.source import EventRows, Result, Source

RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
_COLUMNS = ("start", "end", "globalTid", "nameId")
TABLE = Table(RUNTIME, _COLUMNS, {"callchainId": NULL})
LIBRARY_CALLS = {"CUBLAS_EVENTS": types.CUBLAS_CALL, "CUDNN_EVENTS": types.CUDNN_CALL}
"""The event type of the calls in the table of each library."""

_VERSION = re.compile(r"_v\d+$")
_SYNCHRONIZING = re.compile(r"cuda(Device|Stream|Event|Thread)Synchronize|cu(Ctx|Stream|Event)Synchronize")
_COPYING = re.compile(r"cu(da)?Memcpy(?!.*Async)")


def clean_call_name(name: str) -> str:
    """Return the name of a call without the version that nsys appends: cudaLaunchKernel for cudaLaunchKernel_v7000."""
    return _VERSION.sub("", name)


def choose_call_state(name: str) -> int:
    """Return the state of a thread within a call, or -1 if the call implies none.

    The state is synchronization in calls that wait for the device, and memory transfer in copies that return when they
    are done.
    """
    if _SYNCHRONIZING.match(name):
        return types.SYNCHRONIZATION
    return types.MEMORY_TRANSFER if _COPYING.match(name) else -1


def read(reader: ReportReader) -> Result:
    """Return an interval for each call, nested as the calls were, with its callers if nsys took a backtrace."""
    return read_calls(
        reader,
        {RUNTIME: types.CUDA_API},
        clean_name=clean_call_name,
        read_chains=call_chains.read_cuda_chains,
        choose_state=choose_call_state,
    )


def read_libraries(reader: ReportReader) -> Result:
    """Return an interval for each call of cuBLAS and cuDNN, nested as the calls of its library were."""
    return read_calls(reader, LIBRARY_CALLS, clean_name=clean_call_name)


SOURCE = Source(
    source_names.CUDA_API,
    "CUDA API calls",
    (TABLE, call_chains.CUDA_CALL_CHAINS),
    read,
    counted_tables=(EventRows(RUNTIME, "globalTid"),),
    noun="calls",
    needed_by=("critical_path",),
    load=LoadCost(events=2, pairs=2),
)
LIBRARIES = Source(
    source_names.CUDA_LIBRARIES,
    "cuBLAS and cuDNN calls",
    tuple(Table(table, _COLUMNS) for table in LIBRARY_CALLS),
    read_libraries,
    counted_tables=tuple(EventRows(table, "globalTid") for table in LIBRARY_CALLS),
    noun="calls",
    needed_by=(),
)
