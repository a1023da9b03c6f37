"""Collects evidence for the alignment of clocks from NCCL's kernels.

A collective ends on the GPUs of all its ranks at about the same time. A receive ends when its data has arrived, a while
after its send has handed the data to the network. Calls on the host are not evidence, because they return when the
kernel has been launched.
"""

from __future__ import annotations

import numpy as np

from nsys2prv_ng.arrays import row_keys as keys
from nsys2prv_ng.arrays.pick import pick
from nsys2prv_ng.arrays.types import BoolArray, IntArray
from nsys2prv_ng.operations import parts
from nsys2prv_ng.operations.parts import Collectives
from nsys2prv_ng.report.database import NULL
from nsys2prv_ng.report.metadata import PID_MASK, Metadata
from nsys2prv_ng.sources.nccl.calls import RECEIVING, CallTable, find_sizes
from nsys2prv_ng.sources.nccl.kernels import FUNCTIONS, NO_FUNCTION, CallPairs, NcclKernels, parse_function
from nsys2prv_ng.sources.nvtx.names import COLLECTIVES

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
    sizes = _find_call_sizes(kernel, table, only)
    kinds = ("stream", ~in_graph & ~usable.any(), False), ("graph stream", in_graph, True)
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


def _find_call_sizes(kernel: NcclKernels, table: CallTable, pairs: CallPairs) -> IntArray:
    """Return the bytes of the call of each kernel; ANY_SIZE if they are unknown."""
    size = np.full(kernel.begin.size, parts.ANY_SIZE, np.int64)
    call_size = table.bytes[pairs.call]
    size[pairs.kernel] = np.where(call_size == NULL, parts.ANY_SIZE, call_size)
    return size


def _choose_by_sequence(kernel: NcclKernels, size: IntArray, chosen: BoolArray) -> IntArray:
    """Return the indices of the chosen kernels that all ranks of a communicator run, in order of time."""
    synchronises = np.isin(kernel.function, _SYNCHRONISING_FUNCTIONS) & (size != 0)
    at = np.flatnonzero((kernel.place >= 0) & synchronises & chosen)
    return at[np.argsort(kernel.begin[at], kind="stable")]


def _collect_by_sequence(kernel: NcclKernels, member: IntArray, size: IntArray, at: IntArray, name: str) -> Collectives:
    """Return kernels (indices `at`) by stream. The streams of a rank are numbered by their first kernels."""
    codes, first = keys.encode_rows(member[at], kernel.place[at])
    stream = keys.count_earlier(member[at[first]])[codes]
    names = [f"nccl {name} {number}" for number in range(int(stream.max(initial=-1)) + 1)]
    return _make_table(kernel, member, at, names, stream, size[at], parts.SYNCHRONISING)


def _make_table(
    kernel: NcclKernels,
    member: IntArray,
    at: IntArray,
    communicators: list[str],
    communicator: IntArray,
    size: IntArray,
    kind: int,
) -> Collectives:
    """Return kernels of unknown communicators, by the functions in their names."""
    return Collectives(
        communicators=communicators,
        operations=[*(f"nccl function {number}" for number in range(len(FUNCTIONS))), "nccl function unknown"],
        communicator=communicator,
        operation=np.where(kernel.function[at] == NO_FUNCTION, len(FUNCTIONS), kernel.function[at]),
        bytes=size,
        member=member[at],
        begin=kernel.begin[at],
        end=kernel.end[at],
        kind=np.full(at.size, kind),
        is_root=np.zeros(at.size, np.bool_),
        has_communicator=np.zeros(at.size, np.bool_),
        place=kernel.place[at],
        sizes=[0] * len(communicators),
    )


# ---- messages --------------------------------------------------------------------------------------------------------


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
