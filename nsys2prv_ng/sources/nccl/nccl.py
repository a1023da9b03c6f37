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
from nsys2prv_ng.arrays.pick import pick
from nsys2prv_ng.arrays.types import BoolArray, IntArray
from nsys2prv_ng.objects.tree import ObjectTree
from nsys2prv_ng.operations import parts
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver.labels import Value
from nsys2prv_ng.paraver.load_cost import LoadCost
from nsys2prv_ng.records.columns import make_communications
from nsys2prv_ng.report.database import NULL
from nsys2prv_ng.report.metadata import PID_MASK, Metadata
from nsys2prv_ng.sources.cuda.device_operations import CALLS, GRAPH
from nsys2prv_ng.sources.cuda.stream_operations import KERNEL_TABLE
from nsys2prv_ng.sources.nccl import calls as nccl_calls
from nsys2prv_ng.sources.nccl import kernels as nccl_kernels
from nsys2prv_ng.sources.nccl import payload, payload_events
from nsys2prv_ng.sources.nccl.advanced_trace import write_channels
from nsys2prv_ng.sources.nccl.calls import RECEIVING, CallTable, NcclCalls, find_sizes
from nsys2prv_ng.sources.nccl.communicators import Communicator, Reports, find_communicators
from nsys2prv_ng.sources.nccl.kernels import FUNCTIONS, NO_FUNCTION, CallPairs, NcclKernels, parse_function
from nsys2prv_ng.sources.nccl.others import collect_others
from nsys2prv_ng.sources.nvtx import events as nvtx_events
from nsys2prv_ng.sources.shared import reasons
from nsys2prv_ng.sources.shared.nccl_names import COLLECTIVES
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


# ---- evidence on clocks ----------------------------------------------------------------------------------------------

_KINDS = {
    **dict.fromkeys(("ncclAllReduce", "ncclAllGather", "ncclReduceScatter", "ncclAlltoAll"), parts.SYNCHRONISING),
    **dict.fromkeys(("ncclBroadcast", "ncclBcast", "ncclScatter"), parts.FROM_ROOT),
    **dict.fromkeys(("ncclReduce", "ncclGather"), parts.TO_ROOT),
}
_SYNCHRONISING_FUNCTIONS = [parse_function(name) for name in ("ncclAllReduce", "ncclAllGather", "ncclReduceScatter")]
"""Not ncclAlltoAll, which runs in kernels of sends and receives."""


def collect_evidence(
    names: list[str], communicators: list[str], table: CallTable, kernel: NcclKernels, pairs: CallPairs
) -> parts.Evidence:
    """Return the collectives of one report, with the times of their kernels.

    If no call records its communicator, kernels are compared in the order in which they ran on each stream, and so are
    kernels that CUDA graphs launch. Kernels outside collectives are in a separate table.
    """
    process, device = (np.where(kernel.place >= 0, column, -1) for column in (kernel.process, kernel.device))
    member, first = keys.encode_rows(process, device)
    owners = list(zip((process[first] & PID_MASK).tolist(), device[first].tolist(), strict=True))
    in_graph = (kernel.graph_node != NULL) & (kernel.range < 0)
    is_only = ~keys.mark_repeated(pairs.call)
    only = CallPairs(pairs.kernel[is_only], pairs.call[is_only])
    is_collective = np.array([name in COLLECTIVES for name in names], np.bool_)
    usable = is_collective[table.name[only.call]] & (table.communicator[only.call] >= 0)
    counted = np.zeros(kernel.begin.size, np.bool_)
    tables = []
    if usable.any():
        at, call = only.kernel[usable], only.call[usable]
        operation, size, root = table.name[call], table.bytes[call], table.root[call]
        rank, communicator = _find_callers_ranks(table)[call], table.communicator[call]
        known_size, titles = np.where(size == NULL, parts.ANY_SIZE, size), [f"nccl {name}" for name in communicators]
        by_call = _make_table(kernel, member, at, titles, communicator, known_size, parts.OTHER)._replace(
            operations=names,
            operation=operation,
            kind=parts.get_kinds(_KINDS, names, operation, size, root, rank),
            is_root=root == rank,
            has_communicator=np.ones(at.size, np.bool_),
            sizes=find_sizes(table, len(communicators)),
            ids=_choose_ids(member[at], communicator, table.id[call]),
        )
        tables.append(by_call)
        counted[at] = True
    sizes, call_size = np.full(kernel.begin.size, parts.ANY_SIZE, np.int64), table.bytes[only.call]
    sizes[only.kernel] = np.where(call_size == NULL, parts.ANY_SIZE, call_size)
    kinds = (parts.STREAM, ~in_graph & ~usable.any(), False), ("nccl graph stream ", in_graph, True)
    for name, chosen, are_in_graphs in kinds:
        at = _choose_by_sequence(kernel, sizes, chosen)
        if at.size:
            by_sequence = _collect_by_sequence(kernel, member, sizes, at, name)
            tables.append(by_sequence._replace(in_graphs=are_in_graphs))
            counted[at] = True
    # The other kernels match no operation.
    loose = np.flatnonzero(~counted & (kernel.place >= 0))
    if loose.size:
        no_communicator, any_size = np.zeros(loose.size, np.int64), np.full(loose.size, parts.ANY_SIZE, np.int64)
        tables.append(_make_table(kernel, member, loose, ["nccl"], no_communicator, any_size, parts.LOOSE))
    return parts.Evidence([rows._replace(owners=owners) for rows in tables])


def _choose_ids(member: IntArray, communicator: IntArray, ids: IntArray) -> IntArray:
    """Return the id of each of n operations; NULL in communicators where a member's operations share ids or lack one.

    Only an id that stands for one operation can match it.
    """
    is_unfit = keys.mark_duplicates(communicator, member, ids) | (ids == NULL)
    return np.where(np.isin(communicator, communicator[is_unfit]), NULL, ids)


def _find_callers_ranks(table: CallTable) -> IntArray:
    """Return the caller's rank in the communicator of each call, if any call of the process records it, else NULL."""
    rows = np.flatnonzero(table.rank != NULL)
    rows = rows[~keys.mark_duplicates(table.process[rows], table.communicator[rows], table.rank[rows])]
    rows = rows[~keys.mark_repeated(table.process[rows], table.communicator[rows])]
    known = keys.find_rows([table.process[rows], table.communicator[rows]], [table.process, table.communicator])
    return pick(table.rank[rows], known, NULL)


def _choose_by_sequence(kernel: NcclKernels, size: IntArray, chosen: BoolArray) -> IntArray:
    """Return the indices of the chosen kernels that all ranks of a communicator run, in order of time."""
    synchronises = np.isin(kernel.function, _SYNCHRONISING_FUNCTIONS) & (size != 0)
    at = np.flatnonzero((kernel.place >= 0) & synchronises & chosen)
    return at[np.argsort(kernel.begin[at], kind="stable")]


def _collect_by_sequence(
    kernel: NcclKernels, member: IntArray, size: IntArray, at: IntArray, name: str
) -> parts.Collectives:
    """Return kernels (indices `at`) by stream. The streams of a rank are numbered by their first kernels."""
    codes, first = keys.encode_rows(member[at], kernel.place[at])
    stream = keys.count_earlier(member[at[first]])[codes]
    names = [f"{name}{number}" for number in range(int(stream.max(initial=-1)) + 1)]
    return _make_table(kernel, member, at, names, stream, size[at], parts.SYNCHRONISING)


def _make_table(
    kernel: NcclKernels, member: IntArray, at: IntArray, titles: list[str], title: IntArray, size: IntArray, kind: int
) -> parts.Collectives:
    """Return kernels (indices `at`) by the functions in their names. `title`: index of what each is a part of."""
    return parts.Collectives(
        communicators=titles,
        operations=[*(f"nccl function {number}" for number in range(len(FUNCTIONS))), "nccl function unknown"],
        communicator=title,
        operation=np.where(kernel.function[at] == NO_FUNCTION, len(FUNCTIONS), kernel.function[at]),
        bytes=size,
        member=member[at],
        begin=kernel.begin[at],
        end=kernel.end[at],
        kind=np.full(at.size, kind),
        is_root=np.zeros(at.size, np.bool_),
        has_communicator=np.zeros(at.size, np.bool_),
        place=kernel.place[at],
        sizes=[0] * len(titles),
    )


def collect_messages(
    metadata: Metadata, communicators: list[str], table: CallTable, kernel: NcclKernels, pairs: CallPairs
) -> parts.RankMessages:
    """Return the sends and receives of one report, with the times of their kernels.

    A kernel that carries out several messages ends with the last, so it does not show when each message handed over its
    data.
    """
    has_communicator = table.communicator >= 0
    columns = (column[has_communicator] for column in (table.communicator, table.process, table.rank))
    uses = [(communicator, process, rank) for communicator, process, rank in keys.find_distinct_rows(*columns)[1]]
    processes = {process for _, process, _ in uses}
    ranks = {process: metadata.find_rank(process, alone=len(processes) == 1) for _, process, _ in uses}
    is_message = table.is_message & (table.peer != NULL) & has_communicator
    rows = np.flatnonzero(~keys.mark_repeated(pairs.call) & is_message[pairs.call])
    call, at = pairs.call[rows], pairs.kernel[rows]
    is_send = table.direction[call] != RECEIVING
    return parts.RankMessages(
        communicators=communicators,
        sizes=find_sizes(table, len(communicators)),
        uses=uses,
        job_ranks={process: rank for process, rank in ranks.items() if rank is not None},
        job_size=metadata.job_size,
        communicator=table.communicator[call],
        process=table.process[call],
        peer=table.peer[call],
        is_send=is_send,
        order=table.begin[call],
        time=np.where(is_send, kernel.begin[at], kernel.end[at]),
        handed=np.where(keys.mark_repeated(pairs.kernel)[rows], NULL, kernel.end[at]),
        bytes=table.bytes[call],
    )


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
