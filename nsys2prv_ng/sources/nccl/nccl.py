"""Reads payloads of NCCL calls and kernels: communicator, bytes, operation, root and peers.

The source `nvtx` writes the calls themselves, as ranges of the NVTX domain NCCL. This source writes the payload of a
call twice: on the row of the thread, with the start and end of the call, and on the row of the stream, with the kernel
that carries out the call, together with the payloads of all calls of that kernel.
"""

from __future__ import annotations

import numpy as np

from nsys2prv_ng import source_names
from nsys2prv_ng.arrays.row_keys import combine_columns
from nsys2prv_ng.paraver.load_cost import LoadCost
from nsys2prv_ng.sources.cuda.device_operations import CALLS, GRAPH
from nsys2prv_ng.sources.cuda.stream_operations import KERNEL_TABLE
from nsys2prv_ng.sources.nccl import calls as nccl_calls
from nsys2prv_ng.sources.nccl import kernels as nccl_kernels
from nsys2prv_ng.sources.nccl import payload
from nsys2prv_ng.sources.nccl.advanced_trace import write_channels
from nsys2prv_ng.sources.nccl.calls import CallTable, NcclCalls
from nsys2prv_ng.sources.nccl.collectives import collect_evidence, collect_messages
from nsys2prv_ng.sources.nccl.join_data import NcclJoinData, make_join_data
from nsys2prv_ng.sources.nccl.kernels import CallPairs, NcclKernels
from nsys2prv_ng.sources.nccl.messages import join
from nsys2prv_ng.sources.nccl.payload_events import make_call_events, make_kernel_events, write_events
from nsys2prv_ng.sources.nvtx import events as nvtx_events
from nsys2prv_ng.sources.shared.reasons import KERNEL_LOST, KERNEL_WITHOUT_LAUNCH, KERNEL_WITHOUT_PAYLOAD, NO_NCCL_CALL
from nsys2prv_ng.sources.shared.report_reader import ReportReader
from nsys2prv_ng.sources.shared.source import EventRows, Result, Source


def read(reader: ReportReader) -> Result:
    """Return the payloads of calls, then the payloads of NCCL's kernels."""
    result = Result()
    calls = nccl_calls.read_calls(reader, result)
    kernels = nccl_kernels.read_kernels(reader, calls.ranges)
    table = nccl_calls.make_table(reader, calls)
    call_events = make_call_events(reader.labels, calls.payload, table)
    write_events(reader.labels, result, table.place, table.begin, table.end, call_events)

    pairs = _pair_kernels(result, calls, kernels, table)
    used, index = np.unique(pairs.kernel, return_inverse=True)
    place, begin, end = kernels.place[used], kernels.begin[used], kernels.end[used]
    kernel_events = make_kernel_events(call_events, CallPairs(index, pairs.call))
    write_events(reader.labels, result, place, begin, end, kernel_events)
    if calls.advanced is not None and reader.options.nccl_channels:
        write_channels(reader, result, calls.advanced)
    result.join_data = make_join_data(reader, calls, table, kernels, pairs)
    communicators = calls.payload.communicators
    result.evidence = collect_evidence(calls.names, communicators, table, kernels, pairs)
    result.evidence.has_whole_graphs = reader.is_in_report(GRAPH)
    result.evidence.rank_messages.append(collect_messages(reader.metadata, communicators, table, kernels, pairs))
    return result


def _pair_kernels(result: Result, calls: NcclCalls, kernels: NcclKernels, table: CallTable) -> CallPairs:
    """Return pairs of a kernel and a call (row of the table) that it carries out.

    Kernels count as read; kernels without a pair count as dropped.
    """
    no_place = kernels.place < 0
    no_call = ~no_place & ~kernels.called
    outside = ~no_place & kernels.called & (kernels.range < 0)
    within = np.flatnonzero(~no_place & (kernels.range >= 0))
    result.read += kernels.place.size
    result.drop(KERNEL_LOST, int(no_place.sum()))
    result.drop(KERNEL_WITHOUT_LAUNCH, int(no_call.sum()))
    result.drop(NO_NCCL_CALL, int(outside.sum()))

    function = np.array([nccl_kernels.parse_function(name) for name in calls.names], np.int64)[table.name]
    kind = combine_columns(table.name, table.communicator, table.bytes, table.operation, table.root, table.peer)
    group, columns = calls.group[kernels.range[within]], (kernels.function, kernels.device, kernels.begin)
    pairs = nccl_kernels.assign_calls(
        nccl_kernels.GroupedCalls(table.group, function, table.communicator, kind),
        nccl_kernels.GroupedKernels(group, *(column[within] for column in columns)),
    )
    result.drop(KERNEL_WITHOUT_PAYLOAD, within.size - np.unique(pairs.kernel).size)
    return pairs._replace(kernel=within[pairs.kernel])


SOURCE = Source(
    source_names.NCCL,
    "Payloads of NCCL's calls and kernels",
    (nvtx_events.TABLE, *payload.TABLES, CALLS, KERNEL_TABLE),
    read,
    join,
    NcclJoinData,
    counted_tables=(
        EventRows(nvtx_events.NVTX, "globalTid", names=nccl_calls.COMMUNICATING),
        EventRows(nvtx_events.NVTX, count=nccl_calls.count_advanced_calls),
    ),
    noun="calls",
    needed_by=("nccl", "collectives", "waits"),
    load=LoadCost(events=7, pairs=14, communications=0.2),
)
