"""Reads payloads of NCCL calls and kernels: communicator, bytes, operation, root and peers.

The source `nvtx` writes the calls themselves, as ranges of the NVTX domain NCCL. This source writes the payload of a
call twice: on the row of the thread, with the start and end of the call, and on the row of the stream, with the kernel
that carries out the call, together with the payloads of all calls of that kernel.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from nsys2prv_ng import source_names
from nsys2prv_ng.arrays import row_keys as keys
from nsys2prv_ng.arrays.types import BoolArray, IntArray
from nsys2prv_ng.objects.tree import ObjectTree
from nsys2prv_ng.operations import parts
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver.labels import Value
from nsys2prv_ng.paraver.load_cost import LoadCost
from nsys2prv_ng.records.columns import make_communications
from nsys2prv_ng.report.database import NULL
from nsys2prv_ng.sources.cuda.device_operations import CALLS, GRAPH
from nsys2prv_ng.sources.cuda.stream_operations import KERNEL_TABLE
from nsys2prv_ng.sources.nccl import calls as nccl_calls
from nsys2prv_ng.sources.nccl import kernels as nccl_kernels
from nsys2prv_ng.sources.nccl import payload, payload_events
from nsys2prv_ng.sources.nccl.calls import CallTable, NcclCalls, write_channels
from nsys2prv_ng.sources.nccl.communicators import Communicator, Reports, find_communicators
from nsys2prv_ng.sources.nccl.evidence import collect_evidence, collect_messages, collect_others
from nsys2prv_ng.sources.nccl.kernels import CallPairs, NcclKernels
from nsys2prv_ng.sources.nvtx import events as nvtx_events
from nsys2prv_ng.sources.shared import reasons
from nsys2prv_ng.sources.shared.report_reader import ReportReader, parse_rank
from nsys2prv_ng.sources.shared.source import EventRows, JoinInput, JoinResult, NamedCommunicator, Result, Source


def read(reader: ReportReader) -> Result:
    """Return the payloads of calls, then the payloads of NCCL's kernels."""
    result = Result()
    calls = nccl_calls.read_calls(reader, result)
    kernels = nccl_kernels.read_kernels(reader, calls)
    table = nccl_calls.make_table(reader, calls)
    call_events = payload_events.make_call_events(reader.labels, calls.payload, table)
    payload_events.write_events(reader.labels, result, table.place, table.begin, table.end, call_events)

    pairs = _pair_kernels(result, calls, kernels, table)
    used, index = np.unique(pairs.kernel, return_inverse=True)
    place, begin, end = kernels.place[used], kernels.begin[used], kernels.end[used]
    kernel_events = payload_events.make_kernel_events(call_events, CallPairs(index, pairs.call))
    payload_events.write_events(reader.labels, result, place, begin, end, kernel_events)
    if calls.advanced is not None and reader.options.nccl_channels:
        write_channels(reader, result, calls.advanced)
    result.join_data = payload_events.make_join_data(reader, calls, table, kernels, pairs)
    communicators = calls.payload.communicators
    result.evidence = collect_evidence(calls.names, communicators, table, kernels, pairs)
    result.evidence.collectives += collect_others(reader)
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
    result.drop(reasons.KERNEL_LOST, int(no_place.sum()))
    result.drop(reasons.KERNEL_WITHOUT_LAUNCH, int(no_call.sum()))
    result.drop(reasons.NO_NCCL_CALL, int(outside.sum()))

    function = np.array([nccl_kernels.parse_function(name) for name in calls.names], np.int64)[table.name]
    kind = keys.combine_columns(table.name, table.communicator, table.bytes, table.operation, table.root, table.peer)
    group, columns = calls.group[kernels.range[within]], (kernels.function, kernels.device, kernels.begin)
    pairs = nccl_kernels.assign_calls(
        nccl_kernels.GroupedCalls(table.group, function, table.communicator, kind),
        nccl_kernels.GroupedKernels(group, *(column[within] for column in columns)),
    )
    result.drop(reasons.KERNEL_WITHOUT_PAYLOAD, within.size - np.unique(pairs.kernel).size)
    return pairs._replace(kernel=within[pairs.kernel])


# ---- all reports together --------------------------------------------------------------------------------------------

MESSAGES = "nccl_messages"
_BY_ID = -2
"""Stands for the sender of a message that its id matches."""


def join(parts: Sequence[JoinInput], tree: ObjectTree) -> JoinResult:
    """Return values for communicators, operations and ranks, and a communication for each send and its receive."""
    reports = [(part, part.data) for part in parts]
    communicators = find_communicators(reports, tree)
    joined = JoinResult()
    joined.assigned[types.NCCL_COMMUNICATOR.names] = {c.name: Value(c.number, c.label) for c in communicators.values()}
    joined.nccl_communicators = [
        NamedCommunicator(c.name, c.number, c.label, c.axis, c.ranks, tuple(sorted(c.members)))
        for c in sorted(communicators.values(), key=lambda c: c.number)
    ]
    operations = {name for _, data in reports for name in data.operations}
    others = sorted(operations - set(types.NCCL_OPERATIONS))
    numbers = types.NCCL_OPERATIONS | {name: i for i, name in enumerate(others, len(types.NCCL_OPERATIONS) + 1)}
    joined.assigned[types.NCCL_OPERATION.names] = {name: Value(numbers[name], name) for name in operations}
    rank_names = {name for _, data in reports for name in data.rank_names}
    joined.assigned[payload_events.RANK_NAMES] = _assign_ranks(rank_names, tree, communicators)
    joined.accounts[MESSAGES], joined.messages[source_names.NCCL] = _match_messages(reports, tree, communicators)
    return joined


def _assign_ranks(names: Iterable[str], tree: ObjectTree, communicators: dict[str, Communicator]) -> dict[str, Value]:
    """Return the value of each rank: the number and name of its task. Ranks without a task follow."""
    values: dict[str, Value] = {}
    without_task = []
    for name in names:
        communicator, rank = parse_rank(name)
        task = communicators[communicator].member_of_rank.get(rank) if communicator else None
        if task is None:
            without_task.append((communicators[communicator].number if communicator else 0, rank, name))
        else:
            values[name] = Value(task + 1, tree.model.tasks[task].name)
    for value, (number, rank, name) in enumerate(sorted(without_task), len(tree.model.tasks) + 1):
        named = f"communicator {number}" if number else "a communicator"
        values[name] = Value(value, f"rank {rank} of {named}, task unknown")
    return values


def _match_messages(
    reports: Reports, tree: ObjectTree, communicators: dict[str, Communicator]
) -> tuple[Result, parts.MessagePairs]:
    """Make a communication from the n-th send of a rank to another rank, and the n-th receive of that rank from it.

    If messages have ids, the only send and the only receive with an id make one instead.

    Also return the messages with kernels at both ends, because a call on the host does not show when data arrives.
    """
    calls, rank, peer_known = _gather_messages(reports, tree, communicators)
    result = Result()
    has_id = (calls.id != NULL) & ~keys.mark_repeated(calls.communicator, calls.id, calls.receives.astype(np.int64))
    no_route = ~has_id & (calls.peer == NULL)
    unknown = ~has_id & ~no_route & (rank < 0)
    rows = np.flatnonzero(~unknown & ~no_route)
    rows = rows[np.argsort(calls.order[rows], kind="stable")]
    known, by_id, rank, peer_known = calls.take(rows), has_id[rows], rank[rows], (peer_known | has_id)[rows]
    source = np.where(by_id, _BY_ID, np.where(known.receives, known.peer, rank))
    target = np.where(by_id, known.id, np.where(known.receives, rank, known.peer))
    number = keys.count_earlier(known.communicator, source, target, known.receives.astype(np.int64))
    sends, receives = np.flatnonzero(~known.receives), np.flatnonzero(known.receives)
    key = (known.communicator, source, target, number)
    match = keys.find_rows([column[receives] for column in key], [column[sends] for column in key])
    matched = receives[match[match >= 0]]
    sent, received = known.take(sends[match >= 0]), known.take(matched)

    # A message counts as read once, whether the reports contain one of its ends or both.
    result.read = calls.order.size - matched.size
    result.drop(reasons.RANK_UNKNOWN, int(unknown.sum()))
    result.drop(reasons.PEER_UNKNOWN, int(no_route.sum()))
    received_alone = np.setdiff1d(receives, matched)
    for alone, reason in ((sends[match < 0], reasons.SEND_ALONE), (received_alone, reasons.RECEIVE_ALONE)):
        result.drop(reasons.PEER_UNKNOWN, int((~peer_known[alone]).sum()))
        result.drop(reason, int(peer_known[alone].sum()))
    size = np.where(sent.bytes == NULL, received.bytes, sent.bytes)
    line = (sent.place, sent.begin, received.place, received.end)
    result.records.append(make_communications(*line, np.maximum(size, 0), types.TAG_NCCL))
    ran = sent.has_kernel & received.has_kernel
    send, receive = ((end.place[ran], end.begin[ran], end.begin[ran], end.end[ran]) for end in (sent, received))
    return result, parts.MessagePairs(*send, *receive, size[ran], send[0], receive[0])


def _gather_messages(
    reports: Reports, tree: ObjectTree, communicators: dict[str, Communicator]
) -> tuple[payload_events.MessageEnds, IntArray, BoolArray]:
    """Return (sends and receives of all reports, rank of each caller or -1, whether the task of each peer is known).

    The ends are on the common clock, with numbers of communicators and rows of the trace.
    """
    placed, ranks, known = [], [], []
    for part, data in reports:
        ends, used = data.messages, [communicators[name] for name in data.communicators]
        rows = part.rows[ends.caller]
        caller, callers = keys.find_distinct_rows(ends.communicator, tree.task_of_row[rows])
        peer, peers = keys.find_distinct_rows(ends.communicator, ends.peer)
        ranks.append(np.array([used[c].find_rank(task) for c, task in callers], np.int64)[caller])
        known.append(np.array([rank in used[c].member_of_rank for c, rank in peers], np.bool_)[peer])
        numbers = np.array([communicator.number for communicator in used], np.int64)
        order, begin, end = map(part.clock, (ends.order, ends.begin, ends.end))
        ends = ends._replace(communicator=numbers[ends.communicator], caller=rows, place=part.rows[ends.place])
        placed.append(ends._replace(order=order, begin=begin, end=end))
    calls = payload_events.MessageEnds._make(map(np.concatenate, zip(*placed, strict=True)))
    return calls, np.concatenate(ranks), np.concatenate(known)


SOURCE = Source(
    source_names.NCCL,
    "Payloads of NCCL's calls and kernels",
    (nvtx_events.TABLE, *payload.TABLES, CALLS, KERNEL_TABLE),
    read,
    join,
    payload_events.NcclJoinData,
    counted_tables=(
        EventRows(nvtx_events.NVTX, "globalTid", names=nccl_calls.COMMUNICATING),
        EventRows(nvtx_events.NVTX, count=nccl_calls.count_advanced_calls),
    ),
    noun="calls",
    needed_by=("nccl", "collectives", "waits"),
    load=LoadCost(events=7, pairs=14, communications=0.2),
)
